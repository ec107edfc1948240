"""Padded batches of random tokens, with labels at real positions only."""

import torch
from torch import Tensor

PAD = 0
Batch = dict[str, Tensor]


def causal_batch(vocab_size: int, side: str, lengths: tuple[int, ...] = (11, 7, 3)) -> Batch:
    """Arguments of a language model: `input_ids`, `attention_mask` and `labels`, all (B, T).

    The first token has no label: in a left-padded row it would be predicted from padding.
    """
    mask = padding_mask(side, lengths)
    tokens = random_tokens(vocab_size, mask)
    has_label = mask.bool() & (mask.cumsum(-1) > 1)
    return {"input_ids": tokens, "attention_mask": mask, "labels": tokens.masked_fill(~has_label, -100)}


def seq2seq_batch(
    vocab_size: int,
    source_side: str,
    target_side: str = "right",
    source_lengths: tuple[int, ...] = (9, 13, 4),
    target_lengths: tuple[int, ...] = (11, 2, 7),
) -> Batch:
    """Arguments of an encoder-decoder; its labels, (B, T), have nothing to do with its inputs, so as to be hard."""
    source_mask, target_mask = padding_mask(source_side, source_lengths), padding_mask(target_side, target_lengths)
    return {
        "input_ids": random_tokens(vocab_size, source_mask),
        "attention_mask": source_mask,
        "decoder_input_ids": random_tokens(vocab_size, target_mask),
        "decoder_attention_mask": target_mask,
        "labels": random_tokens(vocab_size, target_mask).masked_fill(target_mask == 0, -100),
    }


def padding_mask(side: str, lengths: tuple[int, ...]) -> Tensor:
    """1 for real tokens, (B, T), for rows of these lengths padded on the left or on the right."""
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return mask.flip(-1) if side == "left" else mask


def random_tokens(vocab_size: int, mask: Tensor) -> Tensor:
    """Tokens other than padding, where `mask` is 1."""
    return torch.randint(PAD + 1, vocab_size, mask.shape).masked_fill(mask == 0, PAD)
