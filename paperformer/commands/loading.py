"""Models and tokenizers by a folder or a name on the Hub, or one line that says why they cannot be loaded."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..shipped_models import describe_shipped, find_shipped
from ..training.console.input_error import InputError

if TYPE_CHECKING:
    from transformers import (
        GenerationConfig,
        PreTrainedConfig,
        PreTrainedModel,
        PreTrainedTokenizerBase,
        PreTrainedTokenizerFast,
    )


Dtype = Literal["float32", "bfloat16", "int8"]
"""What a model can be computed in; int8 has weights and what they are multiplied with rounded, and sums in float32."""

_not_reached: dict[str, Exception] = {}
"""Why the Hub did not tell a model's settings, until the model is loaded: to ask anew takes half a minute again."""

PARAMETERS_TO_PACK = 10_000_000  # with 2.5 million, decoding takes as long from packed weights


def load(
    model: str, task: str | None, *, trust_remote_code: bool = False, dtype: Dtype | None = None
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """A model for a task, or for any, and its tokenizer, on the GPU if there is one.

    Args:
        model, task, trust_remote_code: as `load_model` takes them.
        dtype: what it is computed in; None: as its weights are stored.

    Raises:
        InputError: as `load_model` does, or if it cannot be computed so.
    """
    check_dtype(dtype)
    loaded = load_model(model, task, trust_remote_code=trust_remote_code)
    if dtype is not None:
        loaded = compute_in(loaded, dtype, model)
    tokenizer = load_tokenizer(model, trust_remote_code=trust_remote_code)
    check_vocabulary(model, loaded, tokenizer)
    return loaded, tokenizer


def check_dtype(dtype: str | None) -> None:
    """Raises InputError if there is no such type."""
    if dtype is not None and dtype not in get_args(Dtype):
        raise InputError(f"dtype is {dtype!r}; it must be one of {', '.join(get_args(Dtype))}")


def compute_in(model: "PreTrainedModel", dtype: Dtype, name: str) -> "PreTrainedModel":
    """The model itself, with its weights in a type; with int8 they stay what they are, beside copies that are used.

    Raises:
        InputError: if it cannot have it.
    """
    import torch

    if dtype != "int8":
        return model.to(getattr(torch, dtype))
    if not hasattr(model, "pack_weights"):
        raise InputError(f"{name} holds a {model.config.model_type}; dtype int8 is for paperformer's own models")
    try:
        packed: PreTrainedModel = model.pack_weights(torch.int8)  # type: ignore[operator]
    except ValueError as error:
        raise InputError(f"{name}: {error}") from error
    return packed


def check_vocabulary(name: str, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> None:
    """Raises InputError if a tokenizer cannot be the one that a model was trained with.

    It may have fewer entries than the model, whose embedding is filled up to a multiple; of ours, not many fewer.
    """
    embedding: Any = model.get_input_embeddings()
    rows, entries = embedding.num_embeddings, len(tokenizer)
    is_ours = str(model.config.model_type).startswith("paperformer-")
    if entries > rows or (is_ours and entries < 0.9 * rows and entries + 512 <= rows):
        raise InputError(
            f"{name}: the tokenizer has {entries:,} entries, and the model {rows:,}; they must be of one model, both "
            "as they were saved"
        )


def load_model(
    model: str,
    task: str | None = None,
    *,
    called: str | None = None,
    trust_remote_code: bool = False,
    **options: Any,
) -> "PreTrainedModel":
    """A model for a task, or of any family; on the GPU if there is one.

    Args:
        model: a folder, or a name on the Hub.
        task: what it has to be for.
        called: what errors call its weights, if not `model`.
        trust_remote_code: whether code that lies beside the weights may be run, and pickled weights be read. Nobody is
            asked. Our own families never need it: the installed code computes them, and they are safetensors.
        options: those of `from_pretrained`.

    Raises:
        InputError: if it cannot be loaded, is for another task, or has not exactly the weights of its configuration.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

    from ..training.exact_weights import load_exactly

    config = load_config(model, trust_remote_code=trust_remote_code)
    with _loading(model, f"{task} model" if task else "model"):
        auto_classes = {
            "translation": AutoModelForSeq2SeqLM,
            "text-generation": AutoModelForCausalLM,
            "fill-mask": AutoModelForMaskedLM,
        }
        own_task = check_task(config, task, model)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        options = {"device_map": device, "trust_remote_code": trust_remote_code, **options}
        load_model_class = auto_classes[own_task].from_pretrained
        loaded, _ = load_exactly(load_model_class, model, called=called, allow_pickle=trust_remote_code, **options)
        loaded.eval()
        is_ours = hasattr(loaded, "pack_weights")
        if device == "cpu" and is_ours and loaded.num_parameters() >= PARAMETERS_TO_PACK:
            loaded.pack_weights()  # type: ignore[operator]
        return loaded


def check_task(config: "PreTrainedConfig", task: str | None, model: str) -> str:
    """What a model is for.

    Raises:
        InputError: if that is not the task that is given.
    """
    is_masked = any(name.endswith("ForMaskedLM") for name in config.architectures or [])
    own_task = "translation" if config.is_encoder_decoder else "fill-mask" if is_masked else "text-generation"
    if task not in (None, own_task):
        raise InputError(f"{model} holds a {config.model_type}; this command needs a {task} model")
    return own_task


def load_config(model: str, *, trust_remote_code: bool = False) -> "PreTrainedConfig":
    """The configuration of a model.

    Raises:
        InputError: if it cannot be loaded.
    """
    from transformers import AutoConfig

    prepare_to_load(model)
    # Fields of any type may stand in a configuration, and transformers relies on some.
    with _loading(model, "model", TypeError, AttributeError):
        if (error := _not_reached.pop(model, None)) is not None and not _is_cached(model):
            raise error
        config: PreTrainedConfig = AutoConfig.from_pretrained(model, trust_remote_code=trust_remote_code)
    return config


def load_generation_config(model: str) -> "GenerationConfig | None":
    """How a model says that it is to generate; None if it says nothing, or is not there, which loading it will tell.

    Raises:
        InputError: if it says it in a file that is damaged.
    """
    from transformers import GenerationConfig

    from ..training.publishing.hub_requests import is_out_of_reach, repetitions_said

    be_quiet()
    _check_settings(Path(model))
    _not_reached.pop(model, None)
    try:
        with repetitions_said():
            return GenerationConfig.from_pretrained(model)
    except (OSError, ValueError) as error:
        if is_out_of_reach(error):
            _not_reached[model] = error
        return None


def _is_cached(model: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(model, "config.json"), str)


def load_tokenizer(model: str, *, trust_remote_code: bool = False) -> "PreTrainedTokenizerBase":
    """The tokenizer of a model that has been loaded.

    Raises:
        InputError: if it cannot be loaded.
    """
    from transformers import AutoTokenizer

    _check_tokenizer_files(model)
    with _loading(model, "tokenizer"):
        return AutoTokenizer.from_pretrained(model, trust_remote_code=trust_remote_code)


def load_target_tokenizer(model: "PreTrainedModel") -> "PreTrainedTokenizerBase | None":
    """The tokenizer of what a model writes, where it is another than that of what it reads.

    Raises:
        InputError: if there should be one, and it cannot be loaded.
    """
    from .. import pipeline_translation

    own: PreTrainedTokenizerBase | None = getattr(model, "target_tokenizer", None)  # an export has it
    if own is not None:
        return own
    try:
        return pipeline_translation.load_target_tokenizer(model)
    except ValueError as error:
        raise InputError(str(error)) from error


def load_fast_tokenizer(name: str) -> "PreTrainedTokenizerFast":
    """A tokenizer of the tokenizers library, whatever it was made with.

    Raises:
        InputError: if there is none, if it cannot be loaded, or if it is one of those that run in Python.
    """
    from transformers import PreTrainedTokenizerFast

    be_quiet()
    _check_place(name, "a tokenizer's folder")
    tokenizer = load_tokenizer(str(find_shipped(name) or name))
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise InputError(f"{name} holds a {type(tokenizer).__name__}; it must be a fast tokenizer (tokenizer.json)")
    return tokenizer


def _check_tokenizer_files(name: str) -> None:
    path = Path(name)
    if path.is_dir() and not any(any(path.glob(pattern)) for pattern in ("tokenizer*", "vocab*", "*.model")):
        raise InputError(f"{name} is no tokenizer's folder: no tokenizer.json")


def prepare_to_load(model: str) -> None:
    """Checks that something can be a model's folder or name, and lets transformers load it without a word.

    Raises:
        InputError: if it cannot.
    """
    be_quiet()
    _check_place(model, "a model's folder")
    folder = Path(model)
    if not folder.is_dir():
        return
    if not (folder / "config.json").is_file():
        raise InputError(f"{model} is no model's folder: no config.json")
    _check_settings(folder)


def _check_settings(folder: Path) -> None:
    settings = folder / "generation_config.json"
    if settings.is_file() and not _is_json_object(settings):  # which transformers passes over
        raise InputError(f"{settings} is damaged: it must be a JSON object")


def _is_json_object(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text("utf-8")), dict)
    except (OSError, ValueError):
        return False


def model_name(model: str) -> str:
    """What to call a model in a title: the name of its run, if that is where it lies, or of its repository."""
    path = Path(model).resolve()
    return path.parent.name if path.name == "model" else path.name


def be_quiet() -> None:
    """Lets transformers load without a word."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def _check_place(name: str, what: str) -> None:
    if not name:
        raise InputError(f"the name of a model is empty; it must be {what}, or a name on the Hub")
    path = Path(name)
    if path.is_file():
        raise InputError(f"{name} is a file; it must be {what}, or a name on the Hub")
    looks_like_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    if looks_like_path and not path.is_dir():
        raise InputError(f"there is no folder {name}")


@contextmanager
def _loading(name: str, kind: str, *also: type[Exception]) -> Iterator[None]:
    """Says in one line why something cannot be loaded; `also` are errors that here are the input's fault."""
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    from ..training.publishing.hub_requests import explain_download, repetitions_said

    try:
        with repetitions_said():
            yield
    except InputError:
        raise
    except Exception as error:
        # The tokenizers library knows no type of its own: it raises Exception itself.
        if isinstance(error, ImportError) and "sentencepiece" in str(error).lower():
            raise InputError(f"the {kind} of {name} needs sentencepiece: pip install sentencepiece") from error
        known = OSError | ValueError | KeyError | SafetensorError | StrictDataclassError
        if type(error) is not Exception and not isinstance(error, known) and not isinstance(error, also):
            raise
        if "trust_remote_code" in str(error):
            raise InputError(
                f"{name} is no {kind} that can be loaded without running the Python files that it brings along; "
                "read them, and where a command has --trust_remote_code, give that if you trust them"
            ) from error
        missing = "it lacks " if isinstance(error, KeyError) else ""
        first, *rest = str(error).strip().splitlines()
        reason = explain_download(error, name) or missing + " ".join(
            [first, *(rest[:1] if first.endswith(":") else [])]
        )  # "Validation error for ...:"
        if not Path(name).exists():
            if "/" not in name:  # perhaps a shipped one was meant
                reason = f"{reason.rstrip('.')}; paperformer itself brings {describe_shipped()}"
            elif Path(name).parent.is_dir():  # or a folder
                reason = f"{reason.rstrip('.')}; nor is there a folder {name}"
        raise InputError(f"{name} is no {kind} that can be loaded: {reason}") from error
