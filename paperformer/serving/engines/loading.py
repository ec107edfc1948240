"""Which engine a model folder needs."""

from ...commands.loading import Dtype, check_task, load, load_target_tokenizer
from .masks import MaskEngine
from .text import TextEngine
from .torch_masks import TorchMasks
from .torch_text import TorchText
from .torch_translation import TorchTranslation
from .translation import TranslationEngine


def load_engine(
    model: str, *, trust_remote_code: bool = False, dtype: Dtype | None = None
) -> TranslationEngine | TextEngine | MaskEngine:
    """The engine for what a model is made for, with the model in it, on the GPU if there is one.

    Args:
        model: a folder, or a name on the Hub.
        trust_remote_code: whether Python code that lies in the model's folder may run.
        dtype: what it is computed in; None: as its weights are stored.

    Raises:
        InputError: if it cannot be loaded.
    """
    loaded, tokenizer = load(model, None, trust_remote_code=trust_remote_code, dtype=dtype)
    task = check_task(loaded.config, None, model)
    if task == "translation":
        return TorchTranslation(loaded, tokenizer, load_target_tokenizer(loaded))
    return TorchMasks(loaded, tokenizer) if task == "fill-mask" else TorchText(loaded, tokenizer)
