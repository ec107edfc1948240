"""Code that travels with weights.

A model folder is loaded in two ways. Where paperformer is installed, transformers' Auto* classes know its
classes (see `registration`). Elsewhere they take the code from the folder itself, with
`trust_remote_code=True`; the loader then follows only imports of the form `from .name import X`, of files
side by side. So the modelling code is copied flat into each saved folder, with its imports rewritten to that
form (`write_remote_code`).
"""

import ast
import importlib.util
import json
import warnings
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from transformers import AutoModelForSeq2SeqLM, PreTrainedModel

from ..modeling.families import family_of
from ..pipeline_translation import TranslationPipeline, register_pipeline
from ..training.atomic_files import replace_file

PACKAGE = __name__.partition(".")[0]

TRANSLATION_MODULE = TranslationPipeline.__module__.rpartition(".")[2]
TRANSLATION_TASK = {
    "impl": f"{TRANSLATION_MODULE}.{TranslationPipeline.__name__}",
    "pt": [AutoModelForSeq2SeqLM.__name__],
    "type": "text",
}
"""The entry of `custom_pipelines` in a translation model's config.json."""

# Added to the copy of the module that defines the model. By reading such lines transformers finds the files that belong
# together: so whoever loads the folder and saves the model again keeps the pipeline.
REGISTER_PIPELINE = f"""

from .{TRANSLATION_MODULE} import {register_pipeline.__name__}  # noqa: E402

{register_pipeline.__name__}()
"""


def write_remote_code(model: PreTrainedModel, folder: str | PathLike[str]) -> None:
    """Completes a saved model folder, so that it loads where paperformer is not installed.

    Writes the modelling code beside the weights, and into config.json the `auto_map` that leads transformers
    to it; for a translation model also the pipeline and `custom_pipelines`. Each file is replaced as a whole,
    config.json last; doing it again changes nothing. A folder without config.json (an adapter, saved by PEFT)
    is left alone.

    Args:
        model: the model that was saved; an FSDP-wrapped one counts as what it wraps.
        folder: where `save_pretrained` put its weights and configuration.

    Raises:
        ValueError: if the code imports in a way that cannot be flattened (see `flat_sources`).

    Warns:
        UserWarning: the model's class was derived from paperformer's elsewhere. Its code is not copied.
    """
    config_file = Path(folder) / "config.json"
    if not config_file.is_file():
        return
    config = json.loads(config_file.read_text("utf-8"))
    # By the name that save_pretrained wrote: FSDP puts classes of its own in front.
    architecture = config["architectures"][0]
    model_class = next(cls for cls in type(model).__mro__ if cls.__module__.startswith(f"{PACKAGE}."))
    if model_class.__name__ != architecture:
        if not model.is_remote_code():  # otherwise transformers has copied it already
            warnings.warn(
                f"{architecture} is defined outside paperformer, so its code is not written to {folder}; "
                "load it with its own from_pretrained, or call its register_for_auto_class() before saving",
                stacklevel=2,
            )
        return

    family = family_of(model.config.model_type)
    models = family.auto_classes
    if model_class not in models.values():  # a part, such as the encoder by itself
        models = {"AutoModel": model_class}
    classes: dict[str, type] = {"AutoConfig": family.config, **models}
    auto_map = {auto: f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}" for auto, cls in classes.items()}
    sources = flat_sources(cls.__module__ for cls in classes.values())
    config["auto_map"] = auto_map
    config.pop("custom_pipelines", None)
    if model_class is models.get("AutoModelForSeq2SeqLM"):
        config["custom_pipelines"] = {"translation": TRANSLATION_TASK}
        sources |= flat_sources([TranslationPipeline.__module__])
        sources[f"{model_class.__module__.rpartition('.')[2]}.py"] += REGISTER_PIPELINE

    for name, source in sources.items():
        replace_file(Path(folder) / name, source)
    replace_file(config_file, json.dumps(config, indent=2, sort_keys=True) + "\n")


def flat_sources(modules: Iterable[str]) -> dict[str, str]:
    """The sources of some of paperformer's modules, and of all that they import from it, for one flat folder.

    Args:
        modules: full names, such as `paperformer.modeling.modeling_lm`.

    Returns:
        File name -> source. `from ..folder.name import X` has become `from .name import X`; nothing else
        changes.

    Raises:
        ValueError: if an import names paperformer itself, or a folder instead of a module (with file and
            line); or if two modules have the same file name.
    """
    sources: dict[str, str] = {}  # full name of a module -> flat source
    pending = list(modules)
    while pending:
        module = pending.pop()
        if module not in sources:
            sources[module], imported = _flatten(module)
            pending += imported

    flat: dict[str, str] = {}
    for module, source in sources.items():
        name = f"{module.rpartition('.')[2]}.py"
        if name in flat:
            raise ValueError(f"{module} and another module would both be {name} in one folder; rename one")
        flat[name] = source
    return flat


def _flatten(module: str) -> tuple[str, list[str]]:
    """The source of a module with its relative imports made flat, and the full names of what they import."""
    path = _source_path(module)
    if path is None:
        raise ValueError(f"{module} is not a module with a source file")
    source = path.read_text("utf-8")
    lines = source.split("\n")  # as ast counts them; str.splitlines knows more line ends
    relative_imports = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level > 0:
            dots = "." * node.level
            target = importlib.util.resolve_name(dots + (node.module or ""), module.rpartition(".")[0])
            statement = f"from {dots}{node.module} import "
            line = lines[node.lineno - 1]
            if _source_path(target) is None or statement not in line:
                raise ValueError(
                    f"{path}:{node.lineno} must name one module on one line: from ..folder.module import X"
                )
            lines[node.lineno - 1] = line.replace(statement, f"from .{target.rpartition('.')[2]} import ")
            relative_imports.append(target)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if any(name.split(".")[0] == PACKAGE for name in names):
                raise ValueError(f"{path}:{node.lineno} imports {PACKAGE} by its name; make the import relative")
    return "\n".join(lines), relative_imports


def _source_path(module: str) -> Path | None:
    """The file of a module; None for a folder with an `__init__.py` and for what does not exist."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or spec.submodule_search_locations is not None:
        return None
    return Path(spec.origin)
