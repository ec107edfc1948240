"""Translation by several processes, each with the model, its share of the processors, or a GPU of its own."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ..commands.loading import load, load_target_tokenizer
from ..training.console.input_error import InputError
from ..training.console.progress import ProgressBar
from ..translation.streaming import Notes, translate_texts

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SHARES_OF_A_PROCESS = 4
"""More than one, so that no process is idle for long while another works on the last."""

_load_model: "Callable[[], tuple[PreTrainedModel, PreTrainedTokenizerBase]]"
"""Of a worker process."""


def translate_in_processes(
    model: str,
    texts: Sequence[str],
    note: Notes,
    processes: int,
    *,
    trust_remote_code: bool = False,
    **decoding: Any,
) -> list[str]:
    """Translations of texts, in their order.

    Args:
        model: a folder, or a name on the Hub.
        texts, note, decoding: as `translation.streaming.translate_texts` takes them.
        processes: how many.
        trust_remote_code: whether Python code that lies in the model's folder may run.

    Raises:
        InputError: if the model cannot be loaded, or the system ends a process.
    """
    # Texts of similar length together, the longest first: what takes longest does not begin last.
    order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
    size = max(1, -(-len(order) // (processes * SHARES_OF_A_PROCESS)))
    shares = [order[start : start + size] for start in range(0, len(order), size)]
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    number = context.Value("i", 0)
    translations = [""] * len(texts)
    try:
        with (
            ProcessPoolExecutor(processes, context, _begin, (model, processes, number, trust_remote_code)) as pool,
            ProgressBar(total=len(texts), desc=f"translate, {processes} processes", unit=" sent") as bar,
        ):
            futures = [pool.submit(_translate, [texts[index] for index in share], decoding) for share in shares]
            for share, future in zip(shares, futures, strict=True):
                outputs, notes = future.result()
                for index, translation in zip(share, outputs, strict=True):
                    translations[index] = translation
                for place, what in notes:
                    note(share[place], what)
                bar.update(len(share))
    except BrokenProcessPool as error:
        raise InputError(
            f"one of {processes} processes that translate has ended before its time, perhaps for want of memory; "
            "give fewer processes"
        ) from error
    return translations


def _begin(model: str, processes: int, number: Any, trust_remote_code: bool) -> None:
    """Gives a worker process its device and its threads."""
    global _load_model
    with number.get_lock():
        own = number.value
        number.value += 1
    os.environ["RANK"] = str(own + 1)  # only the first process of a job speaks, and that is the one that began
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(own % torch.cuda.device_count())
    torch.set_num_threads(max(1, torch.get_num_threads() // processes))
    # Not loaded here: what fails with the first share is told as what it is.
    _load_model = cache(partial(load, model, "translation", trust_remote_code=trust_remote_code))


def _translate(texts: Sequence[str], decoding: dict[str, Any]) -> tuple[list[str], list[tuple[int, str]]]:
    model, tokenizer = _load_model()
    notes: list[tuple[int, str]] = []
    target_tokenizer = load_target_tokenizer(model)
    outputs = translate_texts(
        model, tokenizer, texts, lambda *note: notes.append(note), target_tokenizer=target_tokenizer, **decoding
    )
    return outputs, notes
