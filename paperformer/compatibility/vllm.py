"""vLLM's Transformers modeling backend: each point of its contract, without vLLM.

What it asks for stands in its documentation, supported_models.md, "Writing custom models"; how it calls a model in
vllm/model_executor/models/transformers/base.py: the base model alone, on one row in which many texts lie one behind
another, with their positions, no cache and no mask. Attention is looked up in transformers' registry under the name
"vllm", and finds what it needs in `attention_instances`, a keyword that the model hands down to its attention.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .findings import Verdict

NAME = "vllm"
LENGTHS = (7, 4)
"""Tokens of the texts that are put into one row."""
TOLERANCE = 1e-4
"""Largest difference of hidden states, as a part of the largest: the same function in another order differs by 1e-6."""


class PackedAttention(nn.Module):
    """What vLLM has in place of a layer's attention: it knows where each text of a row begins.

    Args:
        attention: the layer's, for what it computes.
        lengths: of the texts in the row.
    """

    def __init__(self, attention: nn.Module, lengths: Sequence[int]):
        super().__init__()
        self.attention, self.lengths = [attention], list(lengths)  # in a list, so that it is no part of this module

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """(N, H D), (N, G D), (N, G D) -> (N, H D)."""
        attention: Any = self.attention[0]
        window = getattr(attention, "sliding_window", None)
        outputs = []
        for rows in zip(*(states.split(self.lengths) for states in (query, key, value)), strict=True):
            # Each (n, H D) -> (1, H, n, D).
            q, k, v = (states.unflatten(-1, (-1, attention.head_dim)).transpose(0, 1)[None] for states in rows)
            distance = torch.arange(q.shape[2])[:, None] - torch.arange(q.shape[2])
            seen = distance >= 0 if attention.is_causal else torch.ones_like(distance, dtype=torch.bool)
            if window is not None:
                seen = seen & (distance.abs() < window)
            output = nn.functional.scaled_dot_product_attention(
                q, k, v, seen.to(q.device), scale=attention.scaling, enable_gqa=True
            )
            outputs.append(output[0].transpose(0, 1).flatten(1))
        return torch.cat(outputs)


@contextmanager
def registered() -> Iterator[None]:
    """Puts vLLM's attention into transformers' registry, in its form: without a batch, (N, H D), and deaf to masks."""

    def attend(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        attention_instances: dict[int, nn.Module] | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        if attention_instances is None:
            raise ValueError("the keyword attention_instances does not reach the attention")
        states = [each.transpose(1, 2).reshape(each.shape[2], -1) for each in (query, key, value)]
        return attention_instances[module.layer_idx](*states), None

    earlier = ALL_ATTENTION_FUNCTIONS.get(NAME)
    ALL_ATTENTION_FUNCTIONS[NAME] = attend
    try:
        yield
    finally:
        if earlier is None:
            del ALL_ATTENTION_FUNCTIONS[NAME]
        else:
            ALL_ATTENTION_FUNCTIONS[NAME] = earlier


def check_vllm(model: PreTrainedModel, place: str, *, trust_remote_code: bool = False) -> Verdict:
    """What speaks for and against vLLM.

    Args:
        model: an encoder, a language model, or an encoder-decoder.
        place: its folder, or its name on the Hub.
        trust_remote_code: whether Python code of the folder may run.
    """
    task = "" if model.can_generate() else " --runner pooling"
    verdict = Verdict("vLLM", f"vllm serve {place} --model-impl transformers --trust-remote-code{task}")
    if model.config.is_encoder_decoder:
        verdict.note("encoder-only or decoder-only", False, "its Transformers backend has no encoder-decoders")
        return verdict
    own: Any = model
    verdict.note("the folder brings the code of its base model", *_has_code(Path(place), own))
    verdict.note(
        "attention goes through transformers' registry (_supports_attention_backend)",
        bool(own._supports_attention_backend),
    )
    base: Any = own.base_model
    lists = [name for name, module in base.named_modules() if isinstance(module, nn.ModuleList)]
    reason = "" if len(lists) == 1 else f"it has {', '.join(lists) or 'none'}"
    verdict.note("one ModuleList, of the layers", len(lists) == 1, reason)
    _note_tensor_parallelism(verdict, base)
    _note_call(verdict, own, trust_remote_code)
    verdict.note("its kernels, compilation and fused layers", None, "they need vLLM and a GPU; try the command")
    return verdict


def _has_code(folder: Path, model: Any) -> tuple[bool | None, str]:
    """Whether `auto_map` names a file that is there, or the class is one of transformers' own."""
    if type(model).__module__.startswith("transformers."):
        return True, "it is transformers' own"
    if not folder.is_dir():
        return None, "only of folders can it be told"
    try:
        named = json.loads((folder / "config.json").read_text("utf-8"))["auto_map"]["AutoModel"]
    except KeyError:
        return False, "config.json has no auto_map.AutoModel; model.save_pretrained(FOLDER) writes it"
    file = folder / f"{named.rpartition('.')[0]}.py"
    return file.is_file(), "" if file.is_file() else f"{file.name} is missing; model.save_pretrained(FOLDER) writes it"


def _note_tensor_parallelism(verdict: Verdict, base: Any) -> None:
    plan = base.config.base_model_tp_plan or {}
    modules = dict(base.named_modules())
    unknown = [name for name in plan if name.replace("*", "0") not in modules]
    said = "" if plan else "no plan: all weights are on every GPU, one GPU is enough then"
    reason = f"there is no {', '.join(unknown)}" if unknown else said
    verdict.note("tensor parallelism (base_model_tp_plan names modules)", not unknown if plan else None, reason)


@torch.no_grad()
def _note_call(verdict: Verdict, model: Any, trust_remote_code: bool) -> None:
    """Calls the base model as vLLM does, and compares with each text alone."""
    what = "called as vLLM calls it, it computes the same"
    texts = [torch.arange(length, device=model.device)[None] * 5 % model.config.vocab_size for length in LENGTHS]
    alone = torch.cat([model.base_model(input_ids=text).last_hidden_state for text in texts], 1)  # (1, N, E)
    positions = torch.cat([torch.arange(length, device=model.device)[None] for length in LENGTHS], 1)
    try:
        with registered():
            config = type(model.config).from_dict(model.config.to_dict())
            config._attn_implementation = NAME
            base: Any = AutoModel.from_config(config, dtype=model.dtype, trust_remote_code=trust_remote_code)
            base.load_state_dict(model.base_model.state_dict())
            base.to(model.device).eval()
            attentions = {each.layer_idx: each for each in base.modules() if hasattr(each, "layer_idx")}
            instances = {number: PackedAttention(each, LENGTHS) for number, each in attentions.items()}
            packed = base(
                input_ids=torch.cat(texts, 1),
                inputs_embeds=None,
                use_cache=False,
                position_ids=positions,
                attention_instances=instances,
                return_dict=False,
            )[0]
    except (ValueError, RuntimeError, TypeError, KeyError, AttributeError, IndexError) as error:
        verdict.note(what, False, str(error).splitlines()[0] if str(error) else type(error).__name__)
        return
    difference, scale = (packed - alone).abs().max().item(), alone.abs().max().item()
    verdict.note(what, difference <= TOLERANCE * scale, f"hidden states differ by {difference:.0e} of {scale:.1f}")
    head = model.get_output_embeddings()
    if model.can_generate() and head is not None:
        logits = torch.cat([model(input_ids=text).logits for text in texts], 1)
        is_all = torch.allclose(head(packed), logits, atol=TOLERANCE * logits.abs().max().item())
        verdict.note("all but the output projection is in the base model", is_all)
