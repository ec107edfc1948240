"""Conversion of a model folder: weights, configuration, generation settings and tokenizer.

The converted model is written only if it computes the same as the original. It shares the memory of the weights that
need no change, and there are never more than two copies of a weight.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel

from ..configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from ..training.atomic_files import replace_folder
from ..training.console.input_error import InputError
from ..training.exact_weights import load_exactly
from .architecture import Architecture, Side
from .bert import BERT
from .gpt2 import GPT2
from .llama import LLAMA
from .marian import MARIAN

ARCHITECTURES = {architecture.theirs.name: architecture for architecture in (MARIAN, GPT2, LLAMA, BERT)}

TARGET_FOLDER = PaperformerSeq2SeqConfig.target_tokenizer_folder

TOLERANCE = 1e-4
"""Largest difference between two models' logits, as a part of the largest logit. The same function, computed in float32
in another order, differs by about 1e-6; another function by 1e-2 or more."""

CHECKED_LENGTH = 32  # tokens in each sequence of the batch on which the two models are compared

TOKENIZER_FILES = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "source.spm",
    "target.spm",
    "target_vocab.json",
]
SAMPLE = "Two dogs – läuft 3,141 times!\n <s> 狗"


@dataclass(frozen=True)
class Conversion:
    """What a conversion has done."""

    parameters: int
    dtype: torch.dtype

    difference: float
    """Largest absolute difference between the two models' logits, over one batch."""

    scale: float
    """The largest absolute logit of the original."""

    lost_fields: dict[str, Any]
    """Fields without a counterpart. A trained model computes the same without them."""

    lost_weights: list[str]
    """Tensors of the folder that belong to other heads."""

    tokenizer: str
    """What became of the tokenizer, or of both."""


def convert_folder(
    source: str, output: Path, architecture: Architecture, *, to_ours: bool, allow_pickle: bool = False
) -> Conversion:
    """Converts a model, and writes the folder only if the converted model computes the same.

    Args:
        source: the model's folder, or its name on the Hub.
        output: the folder to write; it must not exist.
        architecture: what the model is converted to, or from.
        to_ours: whether it is converted from that architecture to paperformer, rather than the other way round.
        allow_pickle: whether its weights may be pickled instead of safetensors.

    Raises:
        InputError: if the model cannot be loaded, cannot be expressed in the other architecture, or does not compute
            the same there; nothing has been written then.
    """
    if output.exists():
        raise InputError(f"{output} exists; give a new folder")
    original, dtype, lost_weights = _load(source, architecture.theirs if to_ours else architecture.ours, allow_pickle)
    if to_ours:
        _, lost_fields = architecture.config_to_ours(original.config)
        converted = architecture.model_to_ours(original)
        difference, scale = compare_logits(converted, original)
    else:
        _, lost_fields = architecture.config_to_theirs(original.config)
        converted = architecture.model_to_theirs(original)
        difference, scale = compare_logits(original, converted)
    if not difference <= TOLERANCE * scale:  # nor is NaN
        raise InputError(
            f"{source}: the converted model is not the same function: its logits differ by {difference:.1e}, where the "
            f"largest is {scale:.1e} and at most {TOLERANCE:.0e} of that is allowed; nothing is written"
        )
    origin = Path(source)
    if not origin.is_dir():
        origin = Path(snapshot_download(source, allow_patterns=[*TOKENIZER_FILES, f"{TARGET_FOLDER}/*"]))
    has_two_tokenizers = (origin / TARGET_FOLDER).is_dir()
    if not has_two_tokenizers and getattr(converted.config, "source_vocab_size", None) == converted.config.vocab_size:
        converted.config.source_vocab_size = None  # one joint vocabulary, although it has two embeddings
    tokenizer = ""

    def write(folder: Path) -> None:
        nonlocal tokenizer
        converted.to(dtype).save_pretrained(folder)  # type: ignore[arg-type]
        tokenizer = _write_tokenizer(source, origin, folder)
        if has_two_tokenizers:
            target = folder / TARGET_FOLDER
            target.mkdir()
            second = _write_tokenizer(f"{source}/{TARGET_FOLDER}", origin / TARGET_FOLDER, target)
            tokenizer += f", {TARGET_FOLDER}: {second}"

    replace_folder(output, write)
    parameters = (converted if to_ours else original).num_parameters()
    return Conversion(parameters, dtype, difference, scale, lost_fields, lost_weights, tokenizer)


@torch.no_grad()
def compare_logits(ours: PreTrainedModel, theirs: PreTrainedModel) -> tuple[float, float]:
    """How far apart two models are over random ids, one of the two sequences padded on the right.

    Returns:
        The largest absolute difference of their logits at real positions, and the largest absolute logit of theirs.
    """
    config = ours.config
    length = min(CHECKED_LENGTH, config.max_position_embeddings)
    generator = torch.Generator().manual_seed(1)

    def random_ids(size: int) -> torch.Tensor:
        return torch.randint(size, (2, length), generator=generator).to(ours.device)

    def random_tokens(reader: PreTrainedModel) -> torch.Tensor:
        embedding: Any = reader.get_input_embeddings()
        return random_ids(embedding.num_embeddings)

    real = torch.ones(2, length, dtype=torch.long, device=ours.device)
    real[1, length // 2 + 1 :] = 0
    inputs = {"input_ids": random_tokens(ours), "attention_mask": real}
    if config.is_encoder_decoder:
        inputs |= {"decoder_input_ids": random_tokens(ours.get_decoder()), "decoder_attention_mask": real}
    if getattr(config, "type_vocab_size", 0):
        inputs["token_type_ids"] = random_ids(config.type_vocab_size)
    our_logits, their_logits = (model(**inputs).logits[real.bool()] for model in (ours, theirs))
    return (our_logits - their_logits).abs().max().item(), their_logits.abs().max().item()


def _load(source: str, side: Side, allow_pickle: bool) -> tuple[PreTrainedModel, torch.dtype, list[str]]:
    """The model in float32 at least, the type of its weights, and the names of tensors in its folder not its own."""
    with _loading(source, side):
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    if config.model_type != side.name:
        raise InputError(f"{source} holds a {config.model_type}; this conversion needs a {side.name}")
    if getattr(config, "quantization_config", None) is not None:
        raise InputError(f"{source} has a quantization_config; convert the model that is not quantized")
    with _loading(source, side):
        options: dict[str, Any] = {"optional": side.unused_weights, "allow_pickle": allow_pickle}
        model, left_out = load_exactly(side.model.from_pretrained, source, **options)
        dtype = model.dtype
        if dtype != (wide := torch.promote_types(dtype, torch.float32)):
            # Rounding to half precision would hide an error as large as itself. Loaded again rather than widened: some
            # models keep constants, such as Marian its sinusoids, which would stay rounded.
            del model
            model, _ = load_exactly(side.model.from_pretrained, source, dtype=wide, **options)
    return model, dtype, left_out


@contextmanager
def _loading(source: str, side: Side) -> Iterator[None]:
    """Says in one line why a model cannot be loaded."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError, StrictDataclassError) as error:
        reason = " ".join(str(error).strip().splitlines()[:1])
        raise InputError(f"{source} is no {side.name} that can be loaded: {reason}") from error


def _write_tokenizer(source: str, origin: Path, folder: Path) -> str:
    """Saves the tokenizer of `source`, whose files are in `origin`, in another folder, and says how that went."""
    files = [origin / name for name in TOKENIZER_FILES if (origin / name).is_file()]
    if not files:
        return f"none in {source}"
    try:
        tokenizer = AutoTokenizer.from_pretrained(origin, trust_remote_code=False)
    except Exception as error:  # noqa: BLE001  # what tokenizers raises has no class of its own
        for file in files:
            shutil.copy(file, folder)
        reason = str(error).strip().splitlines()[0]
        return f"files copied as they are, because it cannot be loaded here: {reason}"
    tokenizer.save_pretrained(folder)
    saved = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if saved(SAMPLE).input_ids != tokenizer(SAMPLE).input_ids:
        raise InputError(f"the tokenizer of {source} gives other ids when it is loaded from {folder}")
    return type(tokenizer).__name__
