"""Run by test_model_folder.py, in a process that cannot import paperformer and reaches no network.

    python -I load_without_paperformer.py CONVERTED_TO_MARIAN CONVERTED_TO_OURS REPORT

Loads both folders with transformers alone, the first without any custom code, and writes what they compute to REPORT.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    importlib.import_module("without_paperformer")  # from here on, paperformer cannot be imported
    report: dict[str, Any] = {}
    for name, folder, trust in (("theirs", sys.argv[1], False), ("ours", sys.argv[2], True)):
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=trust)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)
        ids = tokenizer("A dog läuft", return_tensors="pt").input_ids
        with torch.no_grad():
            logits = model(input_ids=ids, decoder_input_ids=ids).logits
        report[name] = {"class": type(model).__name__, "ids": ids, "logits": logits, "generated": model.generate(ids)}
    report["modules"] = [name for name in sys.modules if name.split(".")[0] == "paperformer"]
    torch.save(report, sys.argv[3])


if __name__ == "__main__":
    main()
