"""Batches cut into parts, which take less memory one after another."""

import torch

from ...data.batches.token_budget import Batch


def split_batch(batch: Batch, parts: int, *, fill_up: bool = False) -> list[Batch]:
    """Cuts a batch into groups of rows, and off each group the columns that are padding in all of its rows.

    The first dimension of every tensor is rows, the second positions, padded on the right. Labels, and tensors whose
    names begin with `decoder_`, end with the group's last label other than -100; all other tensors end with the last 1
    of its `attention_mask`, or where a batch has none, with the labels, as after them nothing is predicted.

    Args:
        batch: with `labels`.
        parts: how many groups, as equal as possible; a batch of fewer rows has as many as it has rows.
        fill_up: whether those that are missing are made up for by a token without a label, which changes nothing: where
            a model is sharded, all processes have to compute equally often.
    """
    full = min(parts, len(batch["labels"]))
    groups = zip(*(tensor.tensor_split(full) for tensor in batch.values()), strict=True)
    cut = [_without_padding(dict(zip(batch, tensors, strict=True))) for tensors in groups]
    if fill_up and full < parts:
        token = {name: tensor[:1, :1] for name, tensor in batch.items()}
        cut += [token | {"labels": torch.full_like(token["labels"], -100)}] * (parts - full)
    return cut


def _without_padding(batch: Batch) -> Batch:
    target = source = _width(batch["labels"] != -100)
    if "attention_mask" in batch:
        source = _width(batch["attention_mask"] != 0)
    return {
        name: tensor[:, : target if name == "labels" or name.startswith("decoder_") else source]
        for name, tensor in batch.items()
    }


def _width(is_used: torch.Tensor) -> int:
    """Columns up to the last that a row uses, at least one."""
    used = is_used.any(dim=0).nonzero()
    return int(used[-1]) + 1 if len(used) else 1
