"""Transformers of the papers, trained from scratch and published to the Hugging Face Hub.

`import paperformer` makes transformers' Auto* classes and `pipeline("translation")` know its models.
"""

import importlib
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .configuration.configuration_encoder import PaperformerEncoderConfig
    from .configuration.configuration_lm import PaperformerLMConfig
    from .configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
    from .modeling.modeling_encoder import PaperformerEncoderModel, PaperformerForMaskedLM
    from .modeling.modeling_lm import PaperformerForCausalLM, PaperformerLMModel
    from .modeling.modeling_seq2seq import PaperformerForConditionalGeneration, PaperformerSeq2SeqModel
    from .tokenization import train_tokenizer

__version__ = version("paperformer")
__all__ = [
    "PaperformerEncoderConfig",
    "PaperformerEncoderModel",
    "PaperformerForCausalLM",
    "PaperformerForConditionalGeneration",
    "PaperformerForMaskedLM",
    "PaperformerLMConfig",
    "PaperformerLMModel",
    "PaperformerSeq2SeqConfig",
    "PaperformerSeq2SeqModel",
    "__version__",
    "train_tokenizer",
]

_MODULES = {
    "PaperformerEncoderConfig": ".configuration.configuration_encoder",
    "PaperformerEncoderModel": ".modeling.modeling_encoder",
    "PaperformerForCausalLM": ".modeling.modeling_lm",
    "PaperformerForConditionalGeneration": ".modeling.modeling_seq2seq",
    "PaperformerForMaskedLM": ".modeling.modeling_encoder",
    "PaperformerLMConfig": ".configuration.configuration_lm",
    "PaperformerLMModel": ".modeling.modeling_lm",
    "PaperformerSeq2SeqConfig": ".configuration.configuration_seq2seq",
    "PaperformerSeq2SeqModel": ".modeling.modeling_seq2seq",
    "train_tokenizer": ".tokenization",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(globals().keys() | _MODULES.keys())


def _only_shows_help() -> bool:
    """Whether this process is `paperformer --help`, or the like."""
    command, *arguments = sys.argv or [""]
    shows_help = not arguments or not {"-h", "--help", "--version"}.isdisjoint(arguments)
    return Path(command).stem == "paperformer" and shows_help


# The registration holds for whoever has imported paperformer, so it cannot wait until a name is used. It
# brings torch and transformers' model classes: 4 seconds on a small machine, a third of them for torch alone.
# Nobody waits that long for a help text: that one case goes without, and for its sake the names above are
# imported late.
if not _only_shows_help():
    from .hub.registration import register_with_transformers

    register_with_transformers()
