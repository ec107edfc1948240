"""What it takes to turn a model of one architecture into one of another that computes the same function.

An `Architecture` says which fields of two configurations mean the same, which values the others must have, and which
weights hold the same numbers. Both directions follow from that one description. What it does not cover is refused:
a configuration that does not come back as it was when translated there and back has lost something.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig, PreTrainedModel

from ..configuration.configuration_transformer import TransformerConfig
from ..training.console.input_error import InputError

ACTIVATIONS = get_args(TransformerConfig.__annotations__["hidden_act"])
"""The activations that our configurations know."""

SYNONYMS = {"swish": "silu", "gelu_python": "gelu", "gelu_pytorch_tanh": "gelu_new"}
"""Other names that transformers has for them."""

_ACTIVATION_FIELDS = ("hidden_act", "activation_function")
_BOOKKEEPING = {field.name for field in dataclasses.fields(PreTrainedConfig)}


@dataclass(frozen=True)
class Fixed:
    """What a field has to be for the other architecture to express the model.

    Args:
        value: the value, or a function that computes it from the configuration.
        reason: why, as the end of a sentence: "... must be VALUE: REASON".
    """

    value: Any
    reason: str

    def required(self, config: PreTrainedConfig) -> Any:
        """The value for this configuration."""
        return self.value(config) if callable(self.value) else self.value


PLAIN_ATTENTION = {
    "qk_norm": Fixed(False, "its queries and keys are not normalised"),
    "linear_attention": Fixed(False, "its attention is softmax attention"),
    "attention_window": Fixed(None, "its attention sees the whole sequence"),
    "attention_stride": Fixed(None, "its attention sees the whole sequence"),
}
"""Attention as in Vaswani et al. (2017), on whichever positions."""

PLAIN_BLOCK = PLAIN_ATTENTION | {
    "num_key_value_heads": Fixed(lambda config: config.num_attention_heads, "its heads do not share keys and values"),
    "head_dim": Fixed(lambda config: config.hidden_size // config.num_attention_heads, "its heads divide hidden_size"),
    "norm_type": Fixed("layernorm", "it has no other norm"),
    "use_bias": Fixed(True, "all its layers have biases"),
    "gated_mlp": Fixed(False, "its feed-forward layer has no gate"),
}
"""The whole block as in Vaswani et al. (2017), on whichever positions and with the norm in whichever place."""

COMMON_FIELDS = ("tie_word_embeddings", "use_cache", "pad_token_id", "bos_token_id", "eos_token_id")
"""Fields that have these names in all architectures."""


def alike(*names: str) -> Iterator[tuple[str, str]]:
    """Pairs of fields that have the same name on both sides."""
    return zip(names, names, strict=True)


@dataclass(frozen=True)
class Weight:
    """One tensor of theirs, and the tensors of ours that hold the same numbers.

    `pack` and `unpack` only move numbers about (transposing, joining, permuting), so that they map gradients too.
    """

    ours: tuple[str, ...]
    theirs: str
    pack: Callable[[list[torch.Tensor]], torch.Tensor] = lambda ours: ours[0]
    unpack: Callable[[torch.Tensor], list[torch.Tensor]] = lambda theirs: [theirs]


def same(ours: str, theirs: str, *parameters: str) -> Iterator[Weight]:
    """The parameters of a module that is the same on both sides, by default weight and bias."""
    for parameter in parameters or ("weight", "bias"):
        yield Weight((f"{ours}.{parameter}",), f"{theirs}.{parameter}")


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two architectures.

    Args:
        model: the class with the head on top.
        fixed: what fields must be for the other side to express the model; also names that only old config.json have.
        incidental: fields that may get lost, because a trained model computes the same without them.
        presumed: values of such fields for a model that comes from the other side.
        derived: what None means for a field.
        told_by_weights: fields that follow from the weights, see `Architecture.read_weights`.
        unused_weights: tensors that take no part in what the model computes, unless `Architecture.weights` names them.
    """

    model: type[PreTrainedModel]
    fixed: Mapping[str, Fixed]
    incidental: frozenset[str] = frozenset()
    presumed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    derived: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)
    told_by_weights: frozenset[str] = frozenset()
    unused_weights: frozenset[str] = frozenset()

    @classmethod
    def of_ours(
        cls,
        model: type[PreTrainedModel],
        fixed: Mapping[str, Fixed],
        *,
        incidental: frozenset[str] = frozenset(),
        **more: Any,
    ) -> "Side":
        """A model of paperformer: what acts in training only, or says nothing about a trained model, may get lost."""
        in_training = {"dropout", "attention_dropout", "activation_dropout", "label_smoothing"}
        unused = {"initialization", "relative_attention_num_buckets", "relative_attention_max_distance"}
        return cls(model=model, fixed=fixed, incidental=incidental | in_training | unused, **more)

    @property
    def config_class(self) -> type[PreTrainedConfig]:
        """The class of the configuration."""
        return self.model.config_class  # type: ignore[return-value]  # a model with a head has one

    @property
    def name(self) -> str:
        """The `model_type` in config.json."""
        return self.config_class.model_type

    def values(self, config: PreTrainedConfig) -> dict[str, Any]:
        """The fields of a configuration that are the architecture's own, synonyms and None resolved."""
        values = {name: getattr(config, name) for name in self.fields}
        for name, value in values.items():
            if name in _ACTIVATION_FIELDS:
                values[name] = SYNONYMS.get(value, value)
            elif value is None and name in self.derived:
                values[name] = self.derived[name](config)
        return values

    @property
    def fields(self) -> list[str]:
        """Names of the fields that are the architecture's own."""
        others = _BOOKKEEPING | self.told_by_weights
        return [field.name for field in dataclasses.fields(self.config_class) if field.name not in others]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """An architecture of transformers, and the family of paperformer that can compute the same function.

    Args:
        fields: pairs of fields that mean the same, (ours, theirs). One of ours may stand for several of theirs.
        weights: the tensors that hold the same numbers, for a configuration of ours.
        read_weights: sets the fields of our configuration that only their tensors, by name, can tell.
    """

    ours: Side
    theirs: Side
    fields: tuple[tuple[str, str], ...]
    weights: Callable[[Any], Iterable[Weight]]
    read_weights: Callable[[Any, Mapping[str, torch.Tensor]], None] = lambda config, tensors: None

    def config_to_theirs(self, config: PreTrainedConfig) -> tuple[PreTrainedConfig, dict[str, Any]]:
        """Their configuration for the same function, and what it has no place for: fields that act in training only.

        Raises:
            InputError: if there is none; the message names the field, its value and the reason.
        """
        return _translate(config, self.ours, self.theirs, self.fields)

    def config_to_ours(self, config: PreTrainedConfig) -> tuple[PreTrainedConfig, dict[str, Any]]:
        """The other way round; see `config_to_theirs`."""
        name = dict(self.fields)["hidden_act"]
        activation = self.theirs.values(config)[name]
        if activation not in ACTIVATIONS:
            raise InputError(f"{name} is {activation!r}; {self.ours.name} knows {', '.join(ACTIVATIONS)} only")
        return _translate(config, self.theirs, self.ours, tuple((ours, theirs) for theirs, ours in self.fields))

    def weights_to_theirs(
        self, config: PreTrainedConfig, tensors: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Our tensors (weights or gradients, by name) as theirs. `config` is ours."""
        return {weight.theirs: weight.pack([tensors[name] for name in weight.ours]) for weight in self.weights(config)}

    def weights_to_ours(self, config: PreTrainedConfig, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Their tensors (weights or gradients, by name) as ours. `config` is ours."""
        return {
            name: tensor
            for weight in self.weights(config)
            for name, tensor in zip(weight.ours, weight.unpack(tensors[weight.theirs]), strict=True)
        }

    def model_to_theirs(self, model: PreTrainedModel) -> PreTrainedModel:
        """A model of theirs that computes what this one of ours does; the two may share memory.

        Raises:
            InputError: if there is none; the message names the field, its value and the reason.
        """
        config, _ = self.config_to_theirs(model.config)
        return _build(self.theirs, config, self.weights_to_theirs(model.config, model.state_dict()), like=model)

    def model_to_ours(self, model: PreTrainedModel) -> PreTrainedModel:
        """The other way round; see `model_to_theirs`."""
        config, _ = self.config_to_ours(model.config)
        tensors = model.state_dict()
        self.read_weights(config, tensors)
        return _build(self.ours, config, self.weights_to_ours(config, tensors), like=model)


def _translate(
    config: PreTrainedConfig, source: Side, target: Side, pairs: tuple[tuple[str, str], ...]
) -> tuple[PreTrainedConfig, dict[str, Any]]:
    """A configuration in the other's fields, and those of its fields that the other has no place for."""
    for name, fixed in source.fixed.items():
        required = fixed.required(config)
        value = getattr(config, name, required)
        if value != required:
            raise InputError(f"{name} is {value!r}; for {target.name} it must be {required!r}: {fixed.reason}")
    translated = _carry_over(config, source, target, pairs)
    back = _carry_over(translated, target, source, tuple((second, first) for first, second in pairs))
    returned = source.values(back)
    lost = {name: value for name, value in source.values(config).items() if value != returned[name]}
    for name in lost.keys() - source.incidental:
        raise InputError(
            f"{name} is {lost[name]!r}; {target.name} has no field for it, and would take {returned[name]!r}"
        )
    return translated, lost


def _carry_over(
    config: PreTrainedConfig, source: Side, target: Side, pairs: tuple[tuple[str, str], ...]
) -> PreTrainedConfig:
    """A configuration of the target with the fields of the pairs taken over, and the others as the target has them."""
    values, origins = source.values(config), dict[str, str]()
    carried = {
        name: fixed.value for name, fixed in target.fixed.items() if name in target.fields and not callable(fixed.value)
    }
    carried |= target.presumed
    for name, target_name in pairs:
        origin = origins.setdefault(target_name, name)
        if values[name] != values[origin] and name not in source.incidental:
            raise InputError(
                f"{name} is {values[name]!r} and {origin} is {values[origin]!r}; for {target.name} they must be equal: "
                f"its {target_name} is for both"
            )
        carried[target_name] = copy.deepcopy(values[origin])
    try:
        return target.config_class(**carried)
    except StrictDataclassError as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise InputError(f"{target.name} cannot have this configuration: {reason}") from error


def _build(
    side: Side, config: PreTrainedConfig, tensors: dict[str, torch.Tensor], *, like: PreTrainedModel
) -> PreTrainedModel:
    """A model with the given weights, not copied where they fit as they are, and another's generation settings."""
    load: Callable[..., Any] = side.model.from_pretrained
    model, report = load(None, config=config, state_dict=tensors, dtype=like.dtype, output_loading_info=True)
    report["missing_keys"] -= side.unused_weights
    wrong = {problem: names for problem, names in report.items() if names}
    if wrong:
        raise RuntimeError(f"the description of {side.name} does not fit its weights: {wrong}")
    if model.can_generate():
        model.generation_config = copy.deepcopy(like.generation_config)
    return model
