"""Run by test_remote_code.py, in a process that cannot import paperformer and reaches no network.

    python -I without_paperformer.py SEQ2SEQ SEQ2SEQ_BASE LM LM_BASE ENCODER LINEAR_LM TWO_VOCABULARIES REPORT

Loads the folders, and the repository someone/pair of the Hub's cache, with transformers alone, and writes what came out
to REPORT, a file of torch.save.
"""

import contextlib
import importlib
import io
import os
import re
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any


class NoPaperformer(MetaPathFinder):
    """Asked before all other finders, that of an editable installation included."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.split(".")[0] == "paperformer":
            raise ModuleNotFoundError(f"{fullname} is kept out of this process")


sys.meta_path.insert(0, NoPaperformer())

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import (  # noqa: E402
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    pipeline,
)

IDS = torch.tensor([[5, 70, 9, 2]])
AUTO_CLASSES = {
    "AutoModel": AutoModel,
    "AutoModelForCausalLM": AutoModelForCausalLM,
    "AutoModelForMaskedLM": AutoModelForMaskedLM,
    "AutoModelForSeq2SeqLM": AutoModelForSeq2SeqLM,
}


def load(folder: str, auto_class: str) -> dict[str, Any]:
    """A model's class, its module, and what it makes of some token ids."""
    model = AUTO_CLASSES[auto_class].from_pretrained(folder, trust_remote_code=True)
    inputs = {"input_ids": IDS}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = IDS
    with torch.no_grad():
        output = model(**inputs)[0]
    return {"class": type(model).__name__, "module": type(model).__module__, "output": output}


def run_card(folder: str) -> list[str]:
    """What the code in a model's card prints, run where its `model_id` is a folder."""
    card = Path(folder, "README.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    code = "\n".join(block for block in blocks if "import paperformer" not in block)
    os.chdir(Path(folder).parent)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, {})
    return printed.getvalue().splitlines()


def main() -> None:
    seq2seq, seq2seq_base, lm, lm_base, encoder, linear_lm, two_vocabularies, report_file = sys.argv[1:]
    report: dict[str, Any] = {"transformers": transformers.__version__}
    try:
        importlib.import_module("paperformer")
    except ModuleNotFoundError as error:
        report["import_error"] = str(error)

    for name, folder in (("seq2seq", seq2seq), ("lm", lm)):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
        report[name, "config"] = config.to_dict()
        report[name, "config module"] = type(config).__module__
        report[name, "ids"] = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)("A dog läuft").input_ids
        report[name, "card"] = run_card(folder)
    for folder, auto_class in (
        (seq2seq, "AutoModel"),
        (seq2seq, "AutoModelForSeq2SeqLM"),
        (seq2seq_base, "AutoModel"),
        (lm, "AutoModel"),
        (lm, "AutoModelForCausalLM"),
        (lm_base, "AutoModel"),
        (linear_lm, "AutoModelForCausalLM"),
        (encoder, "AutoModel"),
        (encoder, "AutoModelForMaskedLM"),
        (two_vocabularies, "AutoModelForSeq2SeqLM"),
    ):
        report[Path(folder).name, auto_class] = load(folder, auto_class)

    translate = pipeline("translation", model=seq2seq, trust_remote_code=True)
    report["translations"] = translate(["A dog runs", "", "Two men talk"], batch_size=3)
    report["pipeline module"] = type(translate).__module__
    report["inferred task"] = pipeline(model=seq2seq, trust_remote_code=True).task
    generate = pipeline("text-generation", model=lm, trust_remote_code=True)
    report["generated"] = generate("A dog runs")
    report["beams"] = generate.model.generate(IDS, num_beams=3, num_return_sequences=2, return_dict_in_generate=True)
    fill_mask = pipeline("fill-mask", model=encoder, trust_remote_code=True)
    report["filled in"] = fill_mask("A <mask> runs", top_k=3)

    for name, options in (
        (two_vocabularies, {}),
        ("someone/pair", {}),
        ("someone/pair", {"revision": "older"}),
    ):
        translate_pair = pipeline("translation", model=name, trust_remote_code=True, **options)
        report["two vocabularies", name, *options.values()] = translate_pair(["A dog runs", "Two men"], batch_size=2)
    translate_pair.save_pretrained(Path(report_file).parent / "pair-again")
    translate_pair = pipeline("translation", model=str(Path(report_file).parent / "pair-again"), trust_remote_code=True)
    report["two vocabularies", "again"] = translate_pair("A dog runs")

    # Saved again by someone who never had paperformer, whole pipelines and models alike.
    for name, saved in (("seq2seq", translate), ("lm", generate)):
        again = Path(report_file).parent / f"{name}-again"
        saved.save_pretrained(again)
        model = Path(report_file).parent / f"{name}-model-again"
        saved.model.save_pretrained(model)
        saved.tokenizer.save_pretrained(model)
        report[name, "files of the pipeline"] = sorted(path.name for path in again.iterdir())
        report[name, "files of the model"] = sorted(path.name for path in model.iterdir())
    again = str(Path(report_file).parent / "seq2seq-model-again")
    report["translations again"] = pipeline("translation", model=again, trust_remote_code=True)("A dog runs")
    again = str(Path(report_file).parent / "lm-model-again")
    report["lm again"] = load(again, "AutoModelForCausalLM")

    report["paperformer modules"] = [name for name in sys.modules if name.split(".")[0] == "paperformer"]
    torch.save(report, report_file)


if __name__ == "__main__":
    main()
