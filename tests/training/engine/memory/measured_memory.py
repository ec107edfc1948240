"""Measures memory in a process of its own, because what other tests have left in the heap moves the figures.

measured_memory.py MEASUREMENT [ARGUMENT]: calls a function of this file, and prints what it returns as JSON.
"""

import gc
import json
import sys
from pathlib import Path
from typing import Any

import torch

from paperformer import (
    PaperformerForCausalLM,
    PaperformerForConditionalGeneration,
    PaperformerLMConfig,
    PaperformerSeq2SeqConfig,
)
from paperformer.training.data.batches.token_budget import Batch
from paperformer.training.engine.memory.allocator import keep_large_buffers
from paperformer.training.engine.memory.dry_run import dry_run
from paperformer.training.engine.memory.meters import ResidentMemory
from paperformer.training.engine.memory.split_batch import split_batch
from paperformer.training.recipe.optimization import Optimization


class Measured:
    """A model, a batch of 64 rows whose memory is some hundred megabytes, and what its passes take."""

    def __init__(self, family: str):
        keep_large_buffers()
        sizes = {"vocab_size": 8_000, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4}
        sizes |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        ids = torch.randint(3, 8_000, (64, 64))
        self.batch: Batch = {"input_ids": ids, "labels": ids}
        model: Any
        if family == "lm":
            model = PaperformerForCausalLM(PaperformerLMConfig(**sizes, num_hidden_layers=2))
        else:
            layers = {"encoder_layers": 1, "decoder_layers": 1, "decoder_start_token_id": 1}
            model = PaperformerForConditionalGeneration(PaperformerSeq2SeqConfig(**sizes, **layers))
            self.batch["attention_mask"] = torch.ones_like(ids)
        self.model = model.train()
        self.resident = ResidentMemory()
        self.step(split_batch(self.batch, 64)[:2])  # what is set up once
        self.before = self.resident.taken()

    def step(self, parts: list[Batch]) -> None:
        for part in parts:
            self.model(**part, return_logits=False).loss.backward()
        self.model.zero_grad(set_to_none=True)

    def peak(self, parts: list[Batch]) -> float:
        return self.resident.peak(lambda: self.step(parts))


def foreseen(family: str) -> list[float]:
    """Resident bytes before a batch, and at the peak of its quarters, of its halves and of itself."""
    measured = Measured(family)
    return [measured.before, *(measured.peak(split_batch(measured.batch, n)[:2]) for n in (4, 2, 1))]


def budget() -> tuple[int, float]:
    """In how many parts a batch is computed in half of its memory, and which share of it those take."""
    measured = Measured("lm")
    whole = measured.peak([measured.batch]) - measured.before
    options = Optimization(split_batches="auto", memory_budget=(measured.before + 0.5 * whole) / 1e9)
    parts = dry_run(measured.step, measured.batch, options, torch.device("cpu"), later_bytes=0)
    return parts, (measured.peak(split_batch(measured.batch, parts)) - measured.before) / whole


def peak(way: str) -> tuple[float, float]:
    """What 140 MB are seen as at their peak, and after that, where 200 MB were freed before."""
    if way == "sampled":
        real = Path.write_text

        def write_text(path: Path, *args: Any, **kwargs: Any) -> int:
            if str(path) == "/proc/self/clear_refs":
                raise PermissionError
            return real(path, *args, **kwargs)

        Path.write_text = write_text  # type: ignore[method-assign, assignment]
    kept = [torch.ones(10_000) for _ in range(5000)]  # 200 MB in pieces, which glibc keeps when they are freed
    del kept
    gc.collect()
    resident = ResidentMemory()
    before = resident.taken()

    def run() -> None:
        pieces = [torch.ones(10_000) for _ in range(2500)]
        torch.ones(10_000_000)  # 40 MB that are soon gone
        del pieces

    run()
    return resident.peak(run) - before, resident.taken() - before


if __name__ == "__main__":
    measurement, *arguments = sys.argv[1:]
    print(json.dumps(globals()[measurement](*arguments)))
