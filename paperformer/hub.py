"""Between paperformer and the Hugging Face Hub: registration, code that travels with weights, upload.

A model folder is loaded in two ways. Where paperformer is installed, transformers' Auto* classes know its
classes (`register_with_transformers`). Elsewhere they take the code from the folder itself, with
`trust_remote_code=True`; the loader then follows only imports of the form `from .name import X`, of files
side by side. So the modelling code is copied flat into each saved folder, with its imports rewritten to that
form (`write_remote_code`).
"""

import ast
import importlib.util
import json
import math
import warnings
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import HfApi, ModelCard
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedConfig, PreTrainedModel
from transformers.pipelines import PIPELINE_REGISTRY
from yaml import YAMLError

from .configuration.configuration_encoder import PaperformerEncoderConfig
from .configuration.configuration_lm import PaperformerLMConfig
from .configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from .modeling.modeling_encoder import PaperformerEncoderModel, PaperformerForMaskedLM
from .modeling.modeling_lm import PaperformerForCausalLM, PaperformerLMModel
from .modeling.modeling_seq2seq import PaperformerForConditionalGeneration, PaperformerSeq2SeqModel
from .modeling.pretrained import PaperformerPreTrainedModel
from .pipeline_translation import TranslationPipeline
from .training.card import EVALUATION_FILE, evaluation_results, set_model_id
from .training.input_error import InputError
from .training.run_folder import replace_file

AUTO_CLASSES: dict[type[PreTrainedConfig], dict[str, type[PreTrainedModel]]] = {
    PaperformerSeq2SeqConfig: {
        "AutoModel": PaperformerSeq2SeqModel,
        "AutoModelForSeq2SeqLM": PaperformerForConditionalGeneration,
    },
    PaperformerLMConfig: {
        "AutoModel": PaperformerLMModel,
        "AutoModelForCausalLM": PaperformerForCausalLM,
    },
    PaperformerEncoderConfig: {
        "AutoModel": PaperformerEncoderModel,
        "AutoModelForMaskedLM": PaperformerForMaskedLM,
    },
}
"""The class that each of transformers' Auto* classes loads, by family: a new family is one more entry."""

TRANSLATION_MODULE = TranslationPipeline.__module__.rpartition(".")[2]
TRANSLATION_TASK = {
    "impl": f"{TRANSLATION_MODULE}.{TranslationPipeline.__name__}",
    "pt": [AutoModelForSeq2SeqLM.__name__],
    "type": "text",
}
"""The entry of `custom_pipelines` in a translation model's config.json."""

# Added to the copy of the module that defines the model. transformers finds the files that belong together by
# reading such lines, whether or not they run: so whoever loads the folder and saves the model again keeps the
# pipeline.
KEEP_PIPELINE = f"""

if False:  # names a file that has to be copied along with this one; importing it here would be of no use
    from .{TRANSLATION_MODULE} import {TranslationPipeline.__name__}
"""


def register_with_transformers() -> None:
    """Makes transformers' Auto* classes, its pipelines and `save_pretrained` know paperformer's classes.

    Run by `import paperformer`; running it again changes nothing.
    """
    for config_class, models in AUTO_CLASSES.items():
        AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
        for auto_class, model_class in models.items():
            getattr(transformers, auto_class).register(config_class, model_class, exist_ok=True)
    PaperformerPreTrainedModel.finish_saved_folder = write_remote_code

    # transformers has no task "translation" any more, and refuses the tasks that it removed before looking at
    # those that were registered.
    getattr(transformers.pipelines, "REMOVED_TASKS", {}).pop("translation", None)
    if "translation" not in PIPELINE_REGISTRY.supported_tasks:
        PIPELINE_REGISTRY.register_pipeline(
            "translation", TranslationPipeline, pt_model=AutoModelForSeq2SeqLM, type="text"
        )
    # A folder's `custom_pipelines` is for those without paperformer. Here it would make
    # pipeline("translation") ask for `trust_remote_code=True`, to run a copy of what is installed; so
    # configurations do not take it up.
    custom_pipelines = property(lambda config: {}, lambda config, value: None)
    setattr(PaperformerSeq2SeqConfig, "custom_pipelines", custom_pipelines)  # noqa: B010  # mypy knows no such field


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
    model_class = next(cls for cls in type(model).__mro__ if cls.__module__.startswith(f"{__package__}."))
    if model_class.__name__ != architecture:
        if not model.is_remote_code():  # otherwise transformers has copied it already
            warnings.warn(
                f"{architecture} is defined outside paperformer, so its code is not written to {folder}; "
                "load it with its own from_pretrained, or call its register_for_auto_class() before saving",
                stacklevel=2,
            )
        return

    config_class = next(cls for cls in AUTO_CLASSES if cls.model_type == model.config.model_type)
    models = AUTO_CLASSES[config_class]
    if model_class not in models.values():  # a part, such as the encoder by itself
        models = {"AutoModel": model_class}
    classes: dict[str, type] = {"AutoConfig": config_class, **models}
    auto_map = {auto: f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}" for auto, cls in classes.items()}
    sources = flat_sources(cls.__module__ for cls in classes.values())
    config["auto_map"] = auto_map
    config.pop("custom_pipelines", None)
    if model_class is models.get("AutoModelForSeq2SeqLM"):
        config["custom_pipelines"] = {"translation": TRANSLATION_TASK}
        sources |= flat_sources([TranslationPipeline.__module__])
        sources[f"{model_class.__module__.rpartition('.')[2]}.py"] += KEEP_PIPELINE

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
            if any(name.split(".")[0] == __package__ for name in names):
                raise ValueError(f"{path}:{node.lineno} imports {__package__} by its name; make the import relative")
    return "\n".join(lines), relative_imports


def _source_path(module: str) -> Path | None:
    """The file of a module; None for a folder with an `__init__.py` and for what does not exist."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or spec.submodule_search_locations is not None:
        return None
    return Path(spec.origin)


def push(
    folder: str | PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
) -> str:
    """Uploads a finished, evaluated model folder to the Hub, in one commit.

    The repository is made if it is missing. The card's example code takes its name, in the folder as well.

    Args:
        folder: what a run leaves in its `model/`: weights, tokenizer (or two of them), code, card and scores.
        repo_id: `USER/NAME`, or `NAME` for the account that the token belongs to.
        private: whether a new repository is private; None leaves it to the account's or organisation's
            setting. An existing repository stays as it is.
        token: access token with write permission; by default that of `hf auth login` or of the variable
            HF_TOKEN.
        revision: branch to commit to; by default main.
        commit_message: by default says that a model was uploaded with paperformer.

    Returns:
        The repository's address.

    Raises:
        InputError: (a `ValueError`) if the folder is not complete; nothing has been uploaded then.
        huggingface_hub.errors.HFValidationError: (a `ValueError`) if no repository can have the name.
        huggingface_hub.errors.HfHubHTTPError: if the Hub refuses the token or the upload.
    """
    folder = Path(folder)
    check_ready_to_push(folder)
    api = HfApi(token=token)
    repo = api.create_repo(repo_id, private=private, exist_ok=True)
    set_model_id(folder / "README.md", repo.repo_id)
    api.upload_folder(
        repo_id=repo.repo_id,
        folder_path=folder,
        revision=revision,
        commit_message=commit_message or "Upload model with paperformer",
        ignore_patterns=["checkpoint-*/**", "**/__pycache__/**", "*.partial"],
    )
    return str(repo)


def check_ready_to_push(folder: Path) -> None:
    """Checks that a folder holds all that a published model needs.

    Raises:
        InputError: naming the first thing that is missing or damaged: model configuration, weights,
            tokenizers, code, scores or card.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give the model folder of a finished run")
    config = _read_json(folder / "config.json", "give the model folder of a finished run")
    families = [config_class.model_type for config_class in AUTO_CLASSES]
    if config.get("model_type") not in families:
        raise InputError(
            f"{folder} is no paperformer model: its config.json has the model_type "
            f"{config.get('model_type')!r}, not one of {', '.join(families)}"
        )

    index = folder / "model.safetensors.index.json"
    shards = _read_json(index).get("weight_map", {}).values() if index.is_file() else []
    for shard in sorted(set(shards) or {"model.safetensors"}):
        try:
            with safe_open(folder / shard, framework="pt"):
                pass  # opening compares the header with the file's size
        except (OSError, SafetensorError) as error:
            raise InputError(f"{folder / shard} is missing or damaged; save the weights again") from error
    _check_tokenizers(folder, has_two=config.get("source_vocab_size") is not None)
    modules = {reference.partition(".")[0] for reference in config.get("auto_map", {}).values()}
    if not modules or not all((folder / f"{module}.py").is_file() for module in modules):
        raise InputError(f"{folder} lacks the model's code; save the model again with paperformer installed")

    scores = folder / EVALUATION_FILE
    results = evaluation_results(_read_json(scores, "evaluate the model before publishing it"))
    if not results:
        raise InputError(f"{scores} has no scores; evaluate the model before publishing it")
    for result in results:
        if not math.isfinite(result.value):
            raise InputError(f"{scores} gives {result.name} as {result.value}; evaluate the model again")
    card = folder / "README.md"
    if not _shows_scores(card):
        raise InputError(f"{card} is missing or shows no scores; write the model's card before publishing it")


def _check_tokenizers(folder: Path, *, has_two: bool) -> None:
    """Checks that a folder has as many tokenizers as its model has vocabularies."""
    places = {folder: "save the model's tokenizer into the folder"}
    target = folder / PaperformerSeq2SeqConfig.target_tokenizer_folder
    if has_two:
        places[target] = "source and target have a vocabulary each: save the target's tokenizer there"
    elif target.exists():
        raise InputError(
            f"{target} is a second tokenizer, but config.json has no source_vocab_size, so the model has one "
            "vocabulary; remove one of the tokenizers"
        )
    for place, remedy in places.items():
        for name in ("tokenizer.json", "tokenizer_config.json"):
            _read_json(place / name, remedy)


def _shows_scores(card: Path) -> bool:
    """Whether a card is there, can be read, and has results in its metadata."""
    try:
        return bool(ModelCard.load(card).data.eval_results)
    except (ValueError, YAMLError):  # a missing file is a ValueError, too
        return False


def _read_json(path: Path, remedy: str = "") -> dict[str, Any]:
    """The object in a JSON file; InputError if there is none."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path} is missing; {remedy}") from error
    except ValueError as error:
        raise InputError(f"{path} is not a JSON file: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no JSON object")
    return content
