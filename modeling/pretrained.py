"""What all paperformer models share as members of the transformers library: capabilities, initialisation, saving."""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init

from .attention import MultiHeadAttention
from .blocks import TransformerBlock


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

    @property
    def residual_additions(self) -> int:
        """How many sub-layers write to the residual stream of this stack, for the gpt2 initialisation."""
        return 2 * self.config.num_hidden_layers

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
