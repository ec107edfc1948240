"""Loads model folders with transformers alone, as those do who have no paperformer: run in a process of its own.

    python -I load_alone.py FOLDER ...

Prints a JSON array: of each folder {"error": null or what is wrong, "logits": [...]}.
"""

import json
import os
import sys
from importlib.abc import MetaPathFinder
from typing import Any

HEADS = ("AutoModelForSeq2SeqLM", "AutoModelForCausalLM", "AutoModelForMaskedLM")
SHOWN = 16
"""Logits that are compared."""


class NoPaperformer(MetaPathFinder):
    """Asked before all other finders, that of an editable installation included."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """Refuses the package; leaves all else to the others."""
        if fullname.partition(".")[0] == "paperformer":
            raise ModuleNotFoundError(f"{fullname} is kept out of this process")


def fixed_ids(vocab_size: int) -> list[int]:
    """Token ids that any model takes, the same in every process."""
    return [7 * place % vocab_size for place in range(1, 9)]


def read_logits(model: Any) -> list[float]:
    """Some logits of a model for `fixed_ids`."""
    import torch

    ids = torch.tensor([fixed_ids(getattr(model.config, "source_vocab_size", None) or model.config.vocab_size)])
    inputs = {"input_ids": ids}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.tensor([fixed_ids(model.config.vocab_size)])
    with torch.no_grad():
        logits: list[float] = model(**inputs).logits[0, -1, :SHOWN].tolist()
    return logits


def load(folder: str) -> list[float]:
    """Loads and uses all that a folder holds; raises whatever goes wrong."""
    import transformers

    trust: dict[str, Any] = {"trust_remote_code": True}
    config = transformers.AutoConfig.from_pretrained(folder, **trust)
    (head,) = [name for name in HEADS if name in config.auto_map]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **trust)
    model, report = getattr(transformers, head).from_pretrained(folder, output_loading_info=True, **trust)
    if wrong := [name for names in report.values() for name in names]:
        raise ValueError(f"weights and code do not belong together: {wrong[0]}")
    model.eval()
    inputs = tokenizer("a", return_tensors="pt")
    if head == "AutoModelForMaskedLM":
        model(**inputs)
    else:
        model.generate(**inputs, max_new_tokens=2)
    make_pipeline: Any = transformers.pipeline
    for task in getattr(config, "custom_pipelines", None) or {}:
        make_pipeline(task, model=folder, **trust)("a", max_new_tokens=2)
    return read_logits(model)


def main() -> None:
    """Loads the folders named on the command line."""
    sys.meta_path.insert(0, NoPaperformer())
    results: list[dict[str, Any]] = []
    for folder in sys.argv[1:]:
        try:
            results.append({"error": None, "logits": load(folder)})
        except BaseException as error:  # noqa: BLE001 - code of the folder may do anything, exit as well
            lines = str(error).strip().splitlines()
            results.append({"error": f"{type(error).__name__}: {lines[0] if lines else ''}", "logits": []})
    sys.stdout.flush()
    os.write(int(os.environ["REPORT_TO"]), json.dumps(results).encode())


if __name__ == "__main__":
    main()
