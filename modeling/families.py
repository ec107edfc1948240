"""The families of models, and which classes belong together: a new family is one more entry."""

from dataclasses import dataclass

from transformers import PreTrainedModel

from ..configuration.configuration_encoder import PaperformerEncoderConfig
from ..configuration.configuration_lm import PaperformerLMConfig
from ..configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from .modeling_encoder import PaperformerEncoderModel, PaperformerForMaskedLM
from .modeling_lm import PaperformerForCausalLM, PaperformerLMModel
from .modeling_seq2seq import PaperformerForConditionalGeneration, PaperformerSeq2SeqModel

Config = PaperformerSeq2SeqConfig | PaperformerLMConfig | PaperformerEncoderConfig


@dataclass(frozen=True)
class Family:
    """One architecture: its configuration, and its models without and with an output layer."""

    config: type[Config]
    base: type[PreTrainedModel]
    head: type[PreTrainedModel]

    auto_head: str
    """The Auto* class of transformers that loads `head`; `AutoModel` loads `base`."""

    @property
    def auto_classes(self) -> dict[str, type[PreTrainedModel]]:
        """The class that each of transformers' Auto* classes loads."""
        return {"AutoModel": self.base, self.auto_head: self.head}


FAMILIES = {
    "seq2seq": Family(
        PaperformerSeq2SeqConfig, PaperformerSeq2SeqModel, PaperformerForConditionalGeneration, "AutoModelForSeq2SeqLM"
    ),
    "lm": Family(PaperformerLMConfig, PaperformerLMModel, PaperformerForCausalLM, "AutoModelForCausalLM"),
    "encoder": Family(
        PaperformerEncoderConfig, PaperformerEncoderModel, PaperformerForMaskedLM, "AutoModelForMaskedLM"
    ),
}


def family_of(model_type: str | None) -> Family:
    """The family of a configuration's `model_type`.

    Raises:
        KeyError: if it is none of ours.
    """
    return {family.config.model_type: family for family in FAMILIES.values()}[model_type or ""]
