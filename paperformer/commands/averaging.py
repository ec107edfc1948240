"""The command that averages the weights of checkpoints or finished models."""

from collections.abc import Sequence
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ..training.console.input_error import InputError
from .loading import load_config, load_model

MAY_DIFFER = {
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "label_smoothing",
    "use_cache",
    "architectures",
    "auto_map",
    "custom_pipelines",
    "dtype",
    "transformers_version",
    "_name_or_path",
}
"""Fields of a configuration that do not change what trained weights mean."""


class Weights(NamedTuple):
    """Weights, and where to find what else makes a model of them."""

    file: Path
    config: Path
    """Folder with config.json, and generation_config.json if there is one."""

    tokenizer: Path
    """Folder with tokenizer.json."""


def average(models: list[str], *, output: str, last: int | None = None, best: int | None = None) -> None:
    """Average the weights of checkpoints or models of one architecture (Vaswani et al. 2017, section 6.1).

    Args:
        models: Checkpoints (runs/NAME/checkpoints/step-N) or model folders; or one run's folder, with --last or --best.
        output: Folder to write, a complete model; it has no scores yet.
        last: Of a run, average its that many last checkpoints.
        best: Of a run, average its that many checkpoints of best validation score, by evaluation.select_by.
    """
    from safetensors.torch import save_file

    from ..training.atomic_files import replace_folder
    from ..training.data.tokenizers import load_tokenizers
    from ..training.engine.checkpoints.averaging import mean_weights

    if Path(output).exists():
        raise InputError(f"{output} exists; give a new folder for the model")
    weights = _find_weights([Path(model) for model in models], last, best)
    _check_same_model(weights)
    first, mean = weights[0], mean_weights([part.file for part in weights])
    with TemporaryDirectory() as bare:
        for name in ("config.json", "generation_config.json"):
            if (first.config / name).is_file():
                copy(first.config / name, bare)
        save_file(mean, Path(bare) / "model.safetensors", metadata={"format": "pt"})
        model = load_model(bare, called=str(first.file), device_map="cpu")
        tokenizers = load_tokenizers(first.tokenizer)

        def write(folder: Path) -> None:
            model.save_pretrained(folder)
            tokenizers.save(folder)

        replace_folder(Path(output), write)
    print(f"mean of {', '.join(str(part.file) for part in weights)}")
    print(output)


def _find_weights(paths: Sequence[Path], last: int | None, best: int | None) -> list[Weights]:
    """What the command line names."""
    for path in paths:
        if not path.is_dir():
            raise InputError(f"there is no folder {path}; give checkpoints, model folders, or one run's folder")
    if len(paths) == 1 and (paths[0] / "recipe.yaml").is_file():
        paths = _find_checkpoints(paths[0], last, best)
    elif last is not None or best is not None:
        raise InputError(f"--{'best' if last is None else 'last'} is for one run's folder, such as runs/NAME")
    return [_read_folder(path) for path in paths]


def _find_checkpoints(path: Path, last: int | None, best: int | None) -> list[Path]:
    """The last checkpoints of a run, or those with the best validation score."""
    from ..training.recipe.run import RunOptions
    from ..training.reporting.comparison import read_run, steps_by_score
    from ..training.run_folder import RunFolder

    if (last is None) == (best is None):
        raise InputError(f"{path} is a run's folder; give either --last K or --best K checkpoints of it")
    run = read_run(path)
    if run.problem:
        raise InputError(f"{path} cannot be read: {run.problem}")
    folder = RunFolder(RunOptions(name=run.name, output_dir=str(path.resolve().parent)))
    checkpoints = dict(folder.checkpoints())
    if last is not None:
        option, count, kind, steps = "--last", last, "checkpoints", sorted(checkpoints, reverse=True)
    else:
        option, count, kind = "--best", best or 0, "checkpoints that were validated"
        steps = [step for step in steps_by_score(run) if step in checkpoints]
    if not 1 <= count <= len(steps):
        raise InputError(f"{option} is {count}; {path} has {len(steps)} {kind} (checkpoints.keep_last keeps more)")
    return [checkpoints[step] for step in sorted(steps[:count])]


def _read_folder(path: Path) -> Weights:
    """The weights of a checkpoint or a model folder."""
    from ..training.engine.checkpoints.selection import find_weights_file

    run = path.resolve().parent.parent
    for config, tokenizer in ((path, path), (run, run / "tokenizer"), (run / "model", run / "model")):
        if (config / "config.json").is_file() and (tokenizer / "tokenizer.json").is_file():
            return Weights(find_weights_file(path), config, tokenizer)
    raise InputError(f"{path} is no model's folder, and no checkpoint of a run: no config.json with a tokenizer")


def _check_same_model(weights: Sequence[Weights]) -> None:
    """Checks that weights mean the same: names and shapes do not tell one kind of positions from another.

    Raises:
        InputError: naming a field of the configuration in which they differ, or their tokenizers.
    """
    import json

    def meaning(part: Weights) -> dict[str, Any]:
        config = load_config(str(part.config)).to_dict()
        kept = {name: value for name, value in config.items() if name not in MAY_DIFFER}
        return kept | {"the tokenizer": json.loads((part.tokenizer / "tokenizer.json").read_text("utf-8"))}

    first, *others = ((part.file.parent, meaning(part)) for part in weights)
    for folder, own in others:
        if differing := sorted(name for name in first[1] | own if first[1].get(name) != own.get(name)):
            raise InputError(f"{first[0]} and {folder} differ in {differing[0]}; only weights of one model average")
