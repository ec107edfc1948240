"""Which engine a model folder needs."""

from ...commands.loading import Dtype, check_task, load, load_target_tokenizer
from ...decoding.languages import choose_languages
from ...training.console.input_error import InputError
from .masks import MaskEngine
from .text import TextEngine
from .torch_masks import TorchMasks
from .torch_text import TorchText
from .torch_translation import TorchTranslation
from .translation import TranslationEngine


def load_engine(
    model: str,
    *,
    trust_remote_code: bool = False,
    dtype: Dtype | None = None,
    src_lang: str = "",
    tgt_lang: str = "",
) -> TranslationEngine | TextEngine | MaskEngine:
    """The engine for what a model is made for, with the model in it, on the GPU if there is one.

    Args:
        model: a folder, or a name on the Hub.
        trust_remote_code: whether Python code that lies in the model's folder may run.
        dtype: what it is computed in; None: as its weights are stored.
        src_lang, tgt_lang: what it translates where a request does not say it, as `choose_languages` takes them.

    Raises:
        InputError: if it cannot be loaded; as `choose_languages`.
    """
    loaded, tokenizer = load(model, None, trust_remote_code=trust_remote_code, dtype=dtype)
    task = check_task(loaded.config, None, model)
    if src_lang or tgt_lang:
        if task != "translation":
            raise InputError(f"--src_lang or --tgt_lang is given, and {model} holds a {task} model; leave it out")
        choose_languages(loaded, tokenizer, src_lang, tgt_lang)
    if task == "translation":
        return TorchTranslation(loaded, tokenizer, load_target_tokenizer(loaded))
    return TorchMasks(loaded, tokenizer) if task == "fill-mask" else TorchText(loaded, tokenizer)
