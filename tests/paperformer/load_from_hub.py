"""Run by test_load_from_hub.py, in a process that cannot import paperformer: loads models by their names on a Hub.

    python -I load_from_hub.py SEQ2SEQ LM ENCODER PINNED_LM PINNED_REVISION REPORT

Writes what came out to REPORT, a file of torch.save.
"""

import sys
from importlib.abc import MetaPathFinder
from typing import Any


class NoPaperformer(MetaPathFinder):
    """Asked before all other finders, that of an editable installation included."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.split(".")[0] == "paperformer":
            raise ModuleNotFoundError(f"{fullname} is kept out of this process")


sys.meta_path.insert(0, NoPaperformer())

import torch  # noqa: E402
from transformers import (  # noqa: E402
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    pipeline,
)


def main() -> None:
    seq2seq, lm, encoder, pinned, revision, report_file = sys.argv[1:]
    ids = torch.tensor([[5, 70, 9, 2]])
    report: dict[str, Any] = {}
    for name, auto_class in (
        (seq2seq, AutoModelForSeq2SeqLM),
        (lm, AutoModelForCausalLM),
        (encoder, AutoModelForMaskedLM),
    ):
        config = AutoConfig.from_pretrained(name, trust_remote_code=True)
        model = auto_class.from_pretrained(name, trust_remote_code=True)
        inputs = {"decoder_input_ids": ids} if config.is_encoder_decoder else {}
        with torch.no_grad():
            report[name] = {
                "type": config.model_type,
                "module": type(model).__module__,
                "ids": AutoTokenizer.from_pretrained(name, trust_remote_code=True)("A dog läuft").input_ids,
                "logits": model(ids, **inputs).logits,
            }
    options: dict[str, Any] = {"trust_remote_code": True}
    report["translation"] = pipeline("translation", model=seq2seq, **options)("A dog runs")
    report["text-generation"] = pipeline("text-generation", model=lm, **options)("A dog runs")
    report["fill-mask"] = pipeline("fill-mask", model=encoder, **options)("A <mask> runs", top_k=2)
    with torch.no_grad():
        options["revision"] = revision
        report["pinned"] = AutoModelForCausalLM.from_pretrained(pinned, **options)(ids).logits
        report["newest"] = AutoModelForCausalLM.from_pretrained(pinned, trust_remote_code=True)(ids).logits
    try:
        AutoModelForCausalLM.from_pretrained(lm, revision="nowhere", trust_remote_code=True)
    except OSError as error:
        report["no such revision"] = str(error)
    report["paperformer modules"] = [name for name in sys.modules if name.split(".")[0] == "paperformer"]
    torch.save(report, report_file)


if __name__ == "__main__":
    main()
