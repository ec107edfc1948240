"""Models that earlier releases have written (`fixtures/write_release.py`), and what they computed then.

Read by processes without paperformer as well: imports torch and transformers only.
"""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerFast

FIXTURES = Path(__file__).parent / "fixtures"
RELEASED = sorted(path.parent for path in FIXTURES.glob("release-*/*/expected.json"))
AUTO_CLASSES = {
    "seq2seq": "AutoModelForSeq2SeqLM",
    "lm": "AutoModelForCausalLM",
    "encoder": "AutoModelForMaskedLM",
}
RELEASED_RUNS = sorted(path.parent for path in FIXTURES.glob("release-*/run/expected_end.json"))
STEPS_RESUMED = 8
RESUME = ["train", "lm", "--name", "run", "--output_dir", "trained", "--resume"]
RESUME += ["--optimization.max_steps", str(STEPS_RESUMED)]
"""The command that goes on with such a run, in its folder."""

TEXTS = {
    "seq2seq": ["A dog runs on the beach.", "Two men talk."],
    "lm": ["A dog runs", "Two"],
    "encoder": ["A <mask> runs on the beach.", "Two <mask> talk."],
}


@torch.no_grad()
def outputs_of_release(folder: Path) -> dict[str, Any]:
    """What a folder's model makes of some texts: token ids, logits, what it generates, and the classes' module.

    With paperformer installed that is computed by its present code, elsewhere by the code in the folder.
    """
    model = getattr(transformers, AUTO_CLASSES[folder.name]).from_pretrained(folder, trust_remote_code=True)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    found: dict[str, Any] = {"ids": [], "logits": [], "generated": [], "texts": []}
    for text in TEXTS[folder.name]:
        inputs = tokenizer(text, return_tensors="pt")
        found["ids"].append(inputs.input_ids[0].tolist())
        target = {"decoder_input_ids": inputs.input_ids[:, :5]} if folder.name == "seq2seq" else {}
        found["logits"].append(model(**inputs, **target).logits[0].tolist())
        if model.can_generate():
            ids = model.generate(**inputs, num_beams=2, do_sample=False, max_new_tokens=8)[0]
            found["generated"].append(ids.tolist())
            found["texts"].append(tokenizer.decode(ids, skip_special_tokens=True))
    return found | {"module": type(model).__module__}


def assert_as_released(folder: Path, found: dict[str, Any]) -> None:
    """Logits within what machines differ by, all else exactly."""
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    assert {key: found[key] for key in ("ids", "generated", "texts")} == {
        key: expected[key] for key in ("ids", "generated", "texts")
    }
    for mine, theirs in zip(found["logits"], expected["logits"], strict=True):
        torch.testing.assert_close(torch.tensor(mine), torch.tensor(theirs), rtol=1e-4, atol=1e-4)


def end_of_run(folder: Path) -> dict[str, Any]:
    """The validation loss of a run at its last step, and of each of its weights the norm."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    (loss,) = (
        record["validation"]["loss"] for record in records if record["step"] == STEPS_RESUMED and "validation" in record
    )
    weights = load_file(folder / "checkpoints" / f"step-{STEPS_RESUMED}" / "model.safetensors")
    return {"loss": loss, "norms": {name: tensor.norm().item() for name, tensor in sorted(weights.items())}}
