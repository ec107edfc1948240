"""Models in CTranslate2's format, run by it."""

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..export_file import ExportFile
from .format import Engine, Ids, require

LONGEST_BATCH = 4096
"""Tokens, of all sequences of a batch together."""

PATIENCE = 2.0
"""Its beam search ends when so many times the number of beams are finished. torch's goes on while a beam may still
become better than the worst of the finished; with 1 this one ends sooner, and with other translations."""


class CTranslate2Engine(Engine):
    """A model of any family; see `format.Engine`.

    Args:
        folder: what `paperformer export --to ctranslate2` has written.
        device: cpu, cuda, or auto: the GPU if there is one.
    """

    def __init__(self, folder: Path, device: str = "cpu"):
        ctranslate2 = require("ctranslate2", "ctranslate2")
        ctranslate2.set_log_level(logging.ERROR)  # what it computes with, where a processor lacks a type, is no news
        self.facts = ExportFile.read(folder)
        kinds = {"seq2seq": "Translator", "lm": "Generator", "encoder": "Encoder"}
        self.engine: Any = getattr(ctranslate2, kinds[self.facts.family])(
            str(folder), device=device, intra_threads=torch.get_num_threads(), inter_threads=1
        )
        self.tokens = _read_vocabulary(folder, "target_vocabulary", "shared_vocabulary", "vocabulary")
        self.input_tokens = self.tokens
        if self.facts.family == "seq2seq":
            self.input_tokens = _read_vocabulary(folder, "source_vocabulary", "shared_vocabulary")
        self.ids = {token: index for index, token in enumerate(self.tokens)}

    def values(self, inputs: Ids, outputs: Ids) -> list[np.ndarray]:
        if self.facts.family == "seq2seq":
            scores = self.engine.score_batch(
                self._named(inputs, self.input_tokens), self._named(outputs, self.tokens), max_input_length=0
            )
            return [np.array(score.log_probs, dtype=np.float32) for score in scores]
        if self.facts.family == "encoder":
            return [np.array(self.engine.forward_batch([list(ids)]).last_hidden_state)[0] for ids in inputs]
        found = []
        for prompt, continuation in zip(inputs, outputs, strict=True):
            ids = [*prompt, *continuation]
            log_probs = np.array(self.engine.forward_batch([ids], return_log_probs=True))[0]  # (T, V)
            places = np.arange(len(prompt) - 1, len(ids) - 1)
            found.append(log_probs[places, list(continuation)])
        return found

    def decode(self, inputs: Ids, *, num_beams: int, length_penalty: float, max_new_tokens: int) -> list[list[int]]:
        options: dict[str, Any] = {"beam_size": num_beams, "length_penalty": length_penalty, "patience": PATIENCE}
        options |= {"end_token": self.facts.end_ids, "max_batch_size": LONGEST_BATCH, "batch_type": "tokens"}
        named = self._named(inputs, self.input_tokens)
        if self.facts.family == "seq2seq":
            results = self.engine.translate_batch(
                named, max_decoding_length=max_new_tokens, min_decoding_length=0, max_input_length=0, **options
            )
            return [[self.ids[token] for token in result.hypotheses[0]] for result in results]
        results = self.engine.generate_batch(
            named, max_length=max_new_tokens, min_length=0, include_prompt_in_result=False, sampling_topk=1, **options
        )
        return [list(result.sequences_ids[0]) for result in results]

    @staticmethod
    def _named(ids: Ids, tokens: list[str]) -> list[list[str]]:
        return [[tokens[index] for index in sequence] for sequence in ids]


def _read_vocabulary(folder: Path, *names: str) -> list[str]:
    """The first that is there of some vocabularies."""
    paths: Iterable[Path] = (folder / f"{name}.json" for name in names)
    tokens: list[str] = json.loads(next(path for path in paths if path.is_file()).read_text("utf-8"))
    return tokens
