"""Transformers of the papers, trained from scratch and published to the Hugging Face Hub.

`import paperformer` makes transformers' Auto* classes and `pipeline("translation")` know its models. It waits neither
for torch nor for transformers: what a name needs is imported when it is first used.
"""

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from .hub.registration import register_with_transformers

if TYPE_CHECKING:
    from .api.exports import export_model
    from .api.preparing import prepare
    from .api.publishing import push_to_hub
    from .api.recipes import read_recipe
    from .api.runs import Run, train
    from .api.sweeps import sweep
    from .api.text_likelihoods import log_probabilities
    from .api.text_scores import evaluate_text
    from .api.texts import align, evaluate, generate, score, translate
    from .configuration.configuration_encoder import PaperformerEncoderConfig
    from .configuration.configuration_lm import PaperformerLMConfig
    from .configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
    from .metrics import metric_path
    from .modeling.modeling_encoder import PaperformerEncoderModel, PaperformerForMaskedLM
    from .modeling.modeling_lm import PaperformerForCausalLM, PaperformerLMModel
    from .modeling.modeling_seq2seq import PaperformerForConditionalGeneration, PaperformerSeq2SeqModel
    from .tokenization import train_tokenizer
    from .training.console.input_error import InputError
    from .training.engine.guard import TrainingDivergedError
    from .training.engine.stop_request import TrainingStopped

__version__ = version("paperformer")
__all__ = [
    "InputError",
    "PaperformerEncoderConfig",
    "PaperformerEncoderModel",
    "PaperformerForCausalLM",
    "PaperformerForConditionalGeneration",
    "PaperformerForMaskedLM",
    "PaperformerLMConfig",
    "PaperformerLMModel",
    "PaperformerSeq2SeqConfig",
    "PaperformerSeq2SeqModel",
    "Run",
    "TrainingDivergedError",
    "TrainingStopped",
    "__version__",
    "align",
    "evaluate",
    "evaluate_text",
    "export_model",
    "generate",
    "log_probabilities",
    "metric_path",
    "prepare",
    "push_to_hub",
    "read_recipe",
    "score",
    "sweep",
    "train",
    "train_tokenizer",
    "translate",
]

_MODULES = {
    "InputError": ".training.console.input_error",
    "PaperformerEncoderConfig": ".configuration.configuration_encoder",
    "PaperformerEncoderModel": ".modeling.modeling_encoder",
    "PaperformerForCausalLM": ".modeling.modeling_lm",
    "PaperformerForConditionalGeneration": ".modeling.modeling_seq2seq",
    "PaperformerForMaskedLM": ".modeling.modeling_encoder",
    "PaperformerLMConfig": ".configuration.configuration_lm",
    "PaperformerLMModel": ".modeling.modeling_lm",
    "PaperformerSeq2SeqConfig": ".configuration.configuration_seq2seq",
    "PaperformerSeq2SeqModel": ".modeling.modeling_seq2seq",
    "Run": ".api.runs",
    "TrainingDivergedError": ".training.engine.guard",
    "TrainingStopped": ".training.engine.stop_request",
    "align": ".api.texts",
    "evaluate": ".api.texts",
    "evaluate_text": ".api.text_scores",
    "export_model": ".api.exports",
    "generate": ".api.texts",
    "log_probabilities": ".api.text_likelihoods",
    "metric_path": ".metrics",
    "prepare": ".api.preparing",
    "push_to_hub": ".api.publishing",
    "read_recipe": ".api.recipes",
    "score": ".api.texts",
    "sweep": ".api.sweeps",
    "train": ".api.runs",
    "train_tokenizer": ".tokenization",
    "translate": ".api.texts",
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


register_with_transformers()
