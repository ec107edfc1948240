"""What all paperformer models share as members of the transformers library: capabilities, initialisation, saving."""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.utils import logging

from .attention import MultiHeadAttention
from .blocks import TransformerBlock
from .decoding.packed_weights import free, pack, packed_weights
from .linear_attention import LINEAR_ATTENTION
from .masks import Mask, causal_mask

# One of transformers' own, by its name: where its report of missing weights is to be seen, so are our warnings.
logger = logging.get_logger("transformers.paperformer")


class PaperformerPreTrainedModel(PreTrainedModel):
    """Base class of every paperformer model."""

    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["TransformerBlock"]
    _skip_keys_device_placement = ["past_key_values"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _can_record_outputs = {"hidden_states": TransformerBlock, "attentions": MultiHeadAttention}

    finish_saved_folder: ClassVar[Callable[[PreTrainedModel, str | PathLike[str]], None] | None] = None
    """Called with the model and the folder after saving. The installed package sets it, to make the folder complete
    for the Hub (modelling code, `auto_map`); in a model loaded as remote code it stays None, because transformers
    copies the code along itself."""

    residual_additions: int
    """How many sub-layers write to the residual stream of a stack, for the gpt2 initialisation."""

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Self:
        """Loads a model (see `transformers.PreTrainedModel.from_pretrained`).

        transformers warns, with their names, of weights that are missing, unexpected or of another shape; this warns of
        those that are not finite, which it takes as they are.
        """
        loaded: Any = super().from_pretrained(*args, **kwargs)
        model: Self = loaded[0] if isinstance(loaded, tuple) else loaded  # with output_loading_info
        broken = [name for name, weight in model.named_parameters() if not _is_finite(weight)]
        if broken:
            names = ", ".join(broken[:10]) + (f" and {len(broken) - 10} more" if len(broken) > 10 else "")
            logger.warning(f"{model.name_or_path}: weights that are not finite, so that outputs mean nothing: {names}")
        return loaded

    def _check_and_adjust_attn_implementation(self, attn_implementation: str | None, *args: Any, **kwargs: Any) -> str:
        """The attention implementation for what was asked for, which has to compute what the configuration says.

        Raises:
            ValueError: if it cannot; the message names the field of the configuration.
        """
        config, asked = self.config, attn_implementation or ""
        if config.linear_attention and asked in ("", "sdpa", "eager", LINEAR_ATTENTION):  # the usual defaults
            return LINEAR_ATTENTION
        if config.linear_attention or asked == LINEAR_ATTENTION:
            raise ValueError(
                f"attn_implementation is {asked!r}, but the configuration's linear_attention is "
                f"{config.linear_attention}; they are different functions: leave attn_implementation out, or train a "
                "model with the other linear_attention"
            )
        is_plain = "flash" in asked or asked == "vllm"  # which ignore what they cannot do
        if is_plain and config.has_position_bias:
            raise ValueError(
                f"attn_implementation is {asked!r}, but position_embedding_type {config.position_embedding_type!r} "
                "adds a bias to the scores, which flash attention and vLLM cannot do; use 'sdpa', "
                "'flex_attention' or 'eager'"
            )
        if is_plain and config.attention_stride is not None:
            raise ValueError(
                f"attn_implementation is {asked!r}, but attention_stride is {config.attention_stride}, a pattern that "
                "flash attention and vLLM do not know; use 'sdpa', 'flex_attention' or 'eager'"
            )
        return super()._check_and_adjust_attn_implementation(attn_implementation, *args, **kwargs)

    def pack_weights(self, dtype: torch.dtype | None = None) -> Self:
        """Makes inference on a CPU faster, for up to two copies of the weights in memory; returns the model.

        Args:
            dtype: `torch.int8` rounds what is multiplied to whole numbers of 8 bits, in units of 1/127 of the largest
                value of each row of a matrix, and of each token's inputs. Then there is one copy, of a quarter of
                float32's size, and outputs change a little.

        Products of a few rows, of which decoding consists, take half the time and less (`decoding.packed_weights`).
        Weights, `state_dict`, saved files and training are what they were; weights that change are packed anew. Outputs
        are those of another order of summation. Where there is nothing to gain (other devices and types, weights that
        are quantised, sharded or adapted) nothing changes.

        Raises:
            ValueError: for int8, if this machine or this model cannot have it.
        """
        pack(self, dtype)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As `torch.nn.Module.__call__`, from packed weights if the model has them."""
        if "has_packed_weights" not in self.__dict__:
            return super().__call__(*args, **kwargs)
        with packed_weights(self):
            return super().__call__(*args, **kwargs)

    def train(self, mode: bool = True) -> Self:
        """As `torch.nn.Module.train`. What was packed is freed, and packed anew after training."""
        if mode and "has_packed_weights" in self.__dict__:
            free(self)
        return super().train(mode)

    def aligned_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """What the logits of each position are compared with, beginning at the first: (B, T) -> (B, up to T).

        It is the labels themselves, unless a model predicts the next token.
        """
        return labels

    def create_masks_for_generate(
        self,
        config: PreTrainedConfig,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor | None,
        past_key_values: Cache,
        position_ids: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> Mask:
        """The mask for one step with a static cache, made by `generate()` outside of the compiled forward.

        A scheme that adds a bias to the scores, and linear attention, need to know which keys are padding, and a
        decoder, whose positions `generate()` does not count, which of its prompt's tokens are: they get the 2D mask,
        as long as the cache, so that its shape never changes.
        """
        if not (config.has_position_bias or config.linear_attention or config.is_encoder_decoder):
            return causal_mask(config, inputs_embeds, attention_mask, past_key_values, position_ids)
        if attention_mask is None:
            return None
        length, offset = past_key_values.get_mask_sizes(inputs_embeds.shape[1], 0)
        return nn.functional.pad(attention_mask, (0, max(0, length + offset - attention_mask.shape[1])))

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialises one module as `config.initialization` says; norms and RoPE are left to transformers."""
        scheme, std = self.config.initialization, self.config.initializer_range
        if not isinstance(module, nn.Linear | nn.Embedding):
            super()._init_weights(module)
            return
        if scheme == "xavier" and isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
        elif scheme == "xavier":
            init.normal_(module.weight, std=self.config.hidden_size**-0.5)
        elif scheme == "gpt2" and getattr(module, "writes_to_residual", False):
            init.normal_(module.weight, std=std * self.residual_additions**-0.5)
        else:
            init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            init.zeros_(module.bias)

    def save_pretrained(  # type: ignore[override]  # the other options by keyword only
        self,
        save_directory: str | PathLike[str],
        is_main_process: bool = True,
        *,
        push_to_hub: bool = False,
        **kwargs: Any,
    ) -> None:
        """Saves weights and configuration (see `transformers.PreTrainedModel.save_pretrained`).

        Where paperformer is installed the modelling code is saved as well, so that the folder loads anywhere with
        `trust_remote_code=True`.
        """
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        finish = type(self).finish_saved_folder
        if finish is not None and is_main_process:
            finish(self, save_directory)
        if push_to_hub and is_main_process:  # only now is the folder complete; saved once more, then uploaded
            options = {name: kwargs[name] for name in ("commit_message", "token") if name in kwargs}
            self.push_to_hub(kwargs.get("repo_id", Path(save_directory).name), **options)


def _is_finite(weight: torch.Tensor) -> bool:
    """Whether all values are finite; True where it cannot be asked.

    That is: values that are not here yet (meta, or sent by another process later), and types of 8 bits or less.
    """
    elsewhere = weight.is_meta or (torch.distributed.is_available() and torch.distributed.is_initialized())
    if elsewhere or weight.numel() == 0 or not weight.is_floating_point() or weight.element_size() < 2:
        return True
    return bool(torch.stack(weight.detach().aminmax()).isfinite().all())  # by the extremes: no copy of the weight
