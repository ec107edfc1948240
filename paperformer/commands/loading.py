"""Models and tokenizers by a folder or a name on the Hub, or one line that says why they cannot be loaded."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..training.console.input_error import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast


def load(model: str, task: str) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """A model for a task and its tokenizer, on the GPU if there is one.

    Raises:
        InputError: if they cannot be loaded, or if the model is for another task.
    """
    return load_model(model, task), load_tokenizer(model)


def load_model(model: str, task: str | None = None, **options: Any) -> "PreTrainedModel":
    """A model for a task, or of any family; on the GPU if there is one. Options are those of `from_pretrained`.

    Raises:
        InputError: if it cannot be loaded, or is for another task.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

    prepare_to_load(model)
    with _loading(model, f"{task} model" if task else "model"):
        config = AutoConfig.from_pretrained(model)
        auto_classes = {
            "translation": AutoModelForSeq2SeqLM,
            "text-generation": AutoModelForCausalLM,
            "fill-mask": AutoModelForMaskedLM,
        }
        is_masked = any(name.endswith("ForMaskedLM") for name in config.architectures or [])
        own_task = "translation" if config.is_encoder_decoder else "fill-mask" if is_masked else "text-generation"
        if task not in (None, own_task):
            raise InputError(f"{model} holds a {config.model_type}; this command needs a {task} model")
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return auto_classes[own_task].from_pretrained(model, **{"device_map": device} | options).eval()


def load_tokenizer(model: str) -> "PreTrainedTokenizerBase":
    """The tokenizer of a model that has been loaded.

    Raises:
        InputError: if it cannot be loaded.
    """
    from transformers import AutoTokenizer

    with _loading(model, "tokenizer"):
        return AutoTokenizer.from_pretrained(model, trust_remote_code=False)


def load_target_tokenizer(model: "PreTrainedModel") -> "PreTrainedTokenizerBase | None":
    """The tokenizer of what a model writes, where it is another than that of what it reads.

    Raises:
        InputError: if there should be one, and it cannot be loaded.
    """
    from .. import pipeline_translation

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

    _be_quiet()
    _check_place(name, "a tokenizer's folder")
    path = Path(name)
    if path.is_dir() and not any(any(path.glob(pattern)) for pattern in ("tokenizer*", "vocab*", "*.model")):
        raise InputError(f"{name} is no tokenizer's folder: no tokenizer.json")
    tokenizer = load_tokenizer(name)
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise InputError(f"{name} holds a {type(tokenizer).__name__}; it must be a fast tokenizer (tokenizer.json)")
    return tokenizer


def prepare_to_load(model: str) -> None:
    """Checks that something can be a model's folder or name, and lets transformers load it without a word.

    Raises:
        InputError: if it cannot.
    """
    _be_quiet()
    _check_place(model, "a model's folder")
    if Path(model).is_dir() and not (Path(model) / "config.json").is_file():
        raise InputError(f"{model} is no model's folder: no config.json")


def model_name(model: str) -> str:
    """What to call a model in a title: the name of its run, if that is where it lies, or of its repository."""
    path = Path(model).resolve()
    return path.parent.name if path.name == "model" else path.name


def _be_quiet() -> None:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def _check_place(name: str, what: str) -> None:
    path = Path(name)
    if path.is_file():
        raise InputError(f"{name} is a file; it must be {what}, or a name on the Hub")
    looks_like_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    if looks_like_path and not path.is_dir():
        raise InputError(f"there is no folder {name}")


@contextmanager
def _loading(name: str, kind: str) -> Iterator[None]:
    """Says in one line why something cannot be loaded."""
    from safetensors import SafetensorError

    try:
        yield
    except InputError:
        raise
    except Exception as error:
        # The tokenizers library knows no type of its own: it raises Exception itself.
        if type(error) is not Exception and not isinstance(error, OSError | ValueError | KeyError | SafetensorError):
            raise
        missing = "it lacks " if isinstance(error, KeyError) else ""
        reason = missing + str(error).strip().splitlines()[0]
        raise InputError(f"{name} is no {kind} that can be loaded: {reason}") from error
