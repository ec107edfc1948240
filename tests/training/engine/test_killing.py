"""A run that is killed at the worst of instants and resumed is the run that was not killed, to the last bit."""

import json
import os
from pathlib import Path

import pytest

from paperformer.tokenization import train_tokenizer
from paperformer.training.recipe.run import RunOptions
from paperformer.training.run_folder import RunFolder

from ..conftest import PAIRS, TINY, command_line
from . import killed_runs
from .conftest import Together, figures
from .test_resuming import assert_same_state

pytestmark = pytest.mark.proof


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, text_folder: Path, together: Together) -> dict[str, RunFolder]:
    """A whole run, and for each instant one that was killed then and resumed."""
    folder = tmp_path_factory.mktemp("killed")
    train_tokenizer([text for pair in PAIRS for text in pair], 300, append_eos=False).save_pretrained(folder / "t")
    options = TINY | {
        "output_dir": folder,
        "data.dataset": text_folder,
        "data.context_length": 16,
        "data.workers": 1,
        "model.num_hidden_layers": 1,
        "model.dropout": 0.3,
        "optimization.max_steps": 9,
        "optimization.tokens_per_batch": 64,
        "optimization.mixed_precision": "bf16",
        "optimization.ema_decay": 0.9,
        "checkpoints.keep_last": 1,
        "evaluation.every_steps": 3,
        "evaluation.validation_samples": 1,
    }

    def case(name: str, **more: str) -> dict[str, object]:
        arguments = command_line({"name": name, **options} | ({"resume": "true"} if "instant" not in more else {}))
        return {"arguments": arguments, "tokenizer": str(folder / "t"), **more}

    cases = [case("whole")]
    for instant in killed_runs.INSTANTS:
        cases += [case(instant, instant=instant), case(instant)]
    (folder / "cases.json").write_text(json.dumps(cases))
    # In a process of its own: threads, which do not survive a fork, are not to be started before.
    environment = {"TOKENIZERS_PARALLELISM": "false"}
    (said,) = together(killed_runs.__file__, folder, arguments=("cases.json",), environment=environment)
    assert said.split() == ["0", *["-9", "0"] * len(killed_runs.INSTANTS)], (folder / "errors-0.txt").read_text()[
        -3000:
    ]
    return {name: RunFolder(RunOptions(name=name, output_dir=str(folder))) for name in ("whole", *killed_runs.INSTANTS)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
@pytest.mark.parametrize("instant", killed_runs.INSTANTS)
def test_a_killed_run_is_resumed_to_the_last_bit(folders: dict[str, RunFolder], instant: str) -> None:
    assert figures(folders[instant]) == figures(folders["whole"])
    assert folders[instant].samples() == folders["whole"].samples()
    assert_same_state(folders[instant], folders["whole"])
    assert not list(folders[instant].path.rglob("*.partial"))
