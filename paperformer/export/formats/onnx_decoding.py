"""Decodes with an ONNX export. It needs onnxruntime, numpy and tokenizers, and nothing of paperformer.

    python decode.py < sources.txt > translations.txt
    python decode.py --max_new_tokens 100 <<< "KING RICHARD:"

This file lies in every export to ONNX as decode.py, and can be read and changed there. From Python:

    model = OnnxModel("FOLDER")
    model.decode([5, 17, 2], num_beams=5)    # token ids to token ids
    model.write("A dog runs.")               # text to text
    model.write_batch(["A dog runs.", "Two men talk."])  # several together, which takes less time

Shapes: B texts, k beams each, R rows, T tokens, L tokens so far, S source tokens, V vocabulary.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

NEVER = -1e9


class OnnxModel:
    """The graphs of an export, and the search for what the model would write.

    Args:
        folder: of the export.
        threads: how many compute; None: as many as there are cores.
    """

    def __init__(self, folder: str | Path, threads: int | None = None) -> None:
        self.folder = Path(folder)
        self.facts = json.loads((self.folder / "export.json").read_text("utf-8"))
        options = ort.SessionOptions()
        options.log_severity_level = 3
        if threads is not None:
            options.intra_op_num_threads = threads
        self.graphs = {
            path.stem: ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            for path in sorted(self.folder.glob("*.onnx"))
        }
        self.tokenizers: dict[str, Any] = {}
        if "decoder" in self.graphs:
            inputs = {each.name: each.shape for each in self.graphs["decoder"].get_inputs()}
            self.empty_cache = {
                name: np.zeros((1, shape[1], 0, shape[3]), np.float32)
                for name, shape in inputs.items()
                if name.startswith("past.")
            }

    def encode(self, ids: list[int], types: list[int] | None = None) -> dict[str, np.ndarray]:
        """What the encoder's graph gives for one text: states and logits, or keys and values for the decoder."""
        return self._encode([ids], None if types is None else [types])[0]

    def _encode(
        self, inputs: list[list[int]], types: list[list[int]] | None = None
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The same for several texts, padded on the right, and the mask of what is real, (B, S)."""
        source, mask = pad(inputs)
        feed, graph = {"input_ids": source, "attention_mask": mask}, self.graphs["encoder"]
        if any(each.name == "token_type_ids" for each in graph.get_inputs()):
            feed["token_type_ids"] = np.zeros_like(source) if types is None else pad(types)[0]
        return dict(zip([each.name for each in graph.get_outputs()], graph.run(None, feed), strict=True)), mask

    def begin(self, inputs: list[list[int]]) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """What the decoder is given first, of sources or of prompts, (B, T), its mask, and what it is given always."""
        if self.facts["family"] == "lm":
            return *pad(inputs, left=True), {}
        constant, mask = self._encode(inputs)
        first = np.full((len(inputs), 1), self.facts["start_id"], np.int64)
        return first, np.ones_like(first), constant | {"encoder_attention_mask": mask}

    def step(
        self, new: np.ndarray, mask: np.ndarray, cache: dict[str, np.ndarray], constant: dict[str, np.ndarray]
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Logits (R, T, V) of the tokens after the new ones, (R, T), and the cache with these.

        Args:
            mask: of all tokens so far, (R, L).
            constant: of a source for all rows, or of one for each.
        """
        graph = self.graphs["decoder"]
        outputs = graph.run(None, {"input_ids": new, "attention_mask": mask, **cache, **constant})
        named = dict(zip([each.name for each in graph.get_outputs()], outputs, strict=True))
        logits = named.pop("logits")
        return logits, {name.replace("present.", "past."): values for name, values in named.items()}

    def log_probabilities(self, ids: list[int], following: list[int]) -> np.ndarray:
        """Of each token that follows a source or a prompt, (T,)."""
        first, _, constant = self.begin([ids])
        new = np.array([[*first[0], *following[:-1]]], np.int64)
        logits, _ = self.step(new, np.ones_like(new), self._empty_cache(1), constant)
        log_probs = log_softmax(logits[0, first.shape[1] - 1 :])
        return log_probs[np.arange(len(following)), following]

    def decode(self, ids: list[int], **settings: Any) -> list[int]:
        """A translation of a source, or the continuation of a prompt: token ids, without the end token."""
        return self.decode_batch([ids], **settings)[0]

    def decode_batch(
        self,
        inputs: list[list[int]],
        *,
        num_beams: int = 5,
        length_penalty: float = 1.0,
        max_new_tokens: int = 128,
    ) -> list[list[int]]:
        """The same of several, which are decoded together; one that is finished leaves the batch."""
        if not inputs:
            return []
        ends = self.facts["end_ids"]
        searches = [Search(num_beams, length_penalty, max_new_tokens, ends) for _ in inputs]
        new, mask, constant = self.begin(inputs)
        logits, cache = self.step(new, mask, self._empty_cache(len(inputs)), constant)
        running, width = list(range(len(inputs))), 1  # of each: its place in the inputs, and its rows
        while True:
            rows: list[int] = []
            tokens: list[int] = []
            kept: list[int] = []
            for place, number in enumerate(running):
                start = place * width
                chosen = searches[number].advance(logits[start : start + width, -1])
                rows += [start + row for row, _ in chosen]
                tokens += [token for _, token in chosen]
                kept += [place] if chosen else []
            if not kept:
                return [search.result() for search in searches]
            if len(kept) < len(running) or width < num_beams:  # of a single source there is one for all rows
                each = kept if width == 1 or len(constant.get("encoder_attention_mask", ())) == 1 else rows[::num_beams]
                repeats = 1 if len(kept) == 1 else num_beams
                constant = {name: values[each].repeat(repeats, axis=0) for name, values in constant.items()}
            running, width = [running[place] for place in kept], num_beams
            mask = np.pad(mask[rows], ((0, 0), (0, 1)), constant_values=1)
            cache = {name: values[rows] for name, values in cache.items()}
            logits, cache = self.step(np.array(tokens, np.int64)[:, None], mask, cache, constant)

    def _empty_cache(self, rows: int) -> dict[str, np.ndarray]:
        return {name: values.repeat(rows, axis=0) for name, values in self.empty_cache.items()}

    def write(self, text: str, **settings: Any) -> str:
        """A translation of a text, or its continuation."""
        return self.write_batch([text], **settings)[0]

    def write_batch(self, texts: list[str], **settings: Any) -> list[str]:
        """The same of several; of one without characters an empty one."""
        found = [""] * len(texts)
        places = [place for place, text in enumerate(texts) if text.strip()]
        start = [self.facts["start_id"]] if self.facts["family"] == "lm" and self.facts["start_id"] is not None else []
        encode = self._tokenizer("tokenizer").encode
        inputs = [[*start, *encode(texts[place]).ids[: self.facts["longest"]]] for place in places]
        tokenizer = self._tokenizer("target_tokenizer" if self.facts["has_target_tokenizer"] else "tokenizer")
        for place, ids in zip(places, self.decode_batch(inputs, **settings), strict=True):
            found[place] = str(tokenizer.decode(ids, skip_special_tokens=True))
        return found

    def _tokenizer(self, name: str) -> Any:
        if name not in self.tokenizers:
            from tokenizers import Tokenizer

            self.tokenizers[name] = Tokenizer.from_file(str(self.folder / name / "tokenizer.json"))
        return self.tokenizers[name]


class Search:
    """The search for what follows one source or prompt, told of its beams' logits step by step.

    With one beam the likeliest token each time. With more the sequence of the highest log-probability over length to
    the power of `length_penalty`: it ends when no beam is better, at its present length, than the worst of as many
    finished ones as there are beams.
    """

    def __init__(self, num_beams: int, length_penalty: float, max_new_tokens: int, ends: list[int]) -> None:
        self.num_beams, self.length_penalty, self.max_new_tokens = num_beams, length_penalty, max_new_tokens
        self.ends = ends
        self.running: list[list[int]] = [[]]
        self.scores = np.zeros(1)
        self.finished: list[tuple[float, list[int]]] = []

    def advance(self, logits: np.ndarray) -> list[tuple[int, int]]:
        """The beams to go on with, each as the beam that it comes from and its new token; none when it is over.

        Args:
            logits: of each beam, (1, V) at first and then (k, V).
        """
        if self.max_new_tokens < 1:
            return []
        if self.num_beams == 1:
            return self._advance_greedily(int(logits[0].argmax()))
        k, length = self.num_beams, len(self.running[0]) + 1
        log_probs = log_softmax(logits)
        totals = (self.scores[:, None] + log_probs).ravel()
        count = min(max(2, 1 + len(self.ends)) * k, totals.size)
        best = np.argpartition(-totals, count - 1)[:count]
        best = best[np.argsort(-totals[best], kind="stable")]
        candidates = [(totals[place], *divmod(int(place), log_probs.shape[1])) for place in best]
        is_end = [token in self.ends or length == self.max_new_tokens for _, _, token in candidates]
        self.finished += [
            (score / length**self.length_penalty, [*self.running[beam], token])
            for (score, beam, token), ended in zip(candidates[:k], is_end, strict=False)
            if ended
        ]
        self.finished = sorted(self.finished, key=lambda pair: -pair[0])[:k]
        going_on = [each for each, ended in zip(candidates, is_end, strict=True) if not ended][:k]
        worst = self.finished[-1][0] if len(self.finished) == k else NEVER
        if not going_on or not going_on[0][0] / length**self.length_penalty > worst:
            return []
        going_on += [(NEVER, 0, 0)] * (k - len(going_on))
        self.scores = np.array([score for score, _, _ in going_on])
        self.running = [[*self.running[beam], token] for _, beam, token in going_on]
        return [(beam, token) for _, beam, token in going_on]

    def _advance_greedily(self, token: int) -> list[tuple[int, int]]:
        self.running[0].append(token)
        is_over = token in self.ends or len(self.running[0]) == self.max_new_tokens
        return [] if is_over else [(0, token)]

    def result(self) -> list[int]:
        """The best sequence, without the end token."""
        found = self.finished[0][1] if self.finished else self.running[0]
        return found[: next((place for place, token in enumerate(found) if token in self.ends), None)]


def pad(rows: list[list[int]], *, left: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Rows of different lengths as one array, (B, T), and the mask of what is real."""
    longest = max(map(len, rows))
    ids, mask = np.zeros((2, len(rows), longest), np.int64)
    for place, row in enumerate(rows):
        real = slice(longest - len(row), longest) if left else slice(0, len(row))
        ids[place, real], mask[place, real] = row, 1
    return ids, mask


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    log_probs: np.ndarray = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return log_probs


def main(lines: Iterable[str]) -> None:
    """Reads lines and writes one for each."""
    parser = argparse.ArgumentParser(description="Translates, or goes on with, each line of standard input.")
    parser.add_argument("--folder", default=Path(__file__).parent, help="of the export; by default where this file is")
    parser.add_argument(
        "--num_beams", type=int, help="by default the model's own, or 5 for translations and 1 for language models"
    )
    parser.add_argument("--length_penalty", type=float, help="by default the model's own, or 1")
    parser.add_argument("--max_new_tokens", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=1, help="lines that are read, and decoded together")
    options = parser.parse_args()
    model = OnnxModel(options.folder)
    if "decoder" not in model.graphs:
        sys.exit("this model is an encoder, which writes nothing; from Python: OnnxModel(FOLDER).encode(ids)")
    beams = options.num_beams or (1 if model.facts["family"] == "lm" else model.facts.get("num_beams") or 5)
    penalties = (options.length_penalty, model.facts.get("length_penalty"), 1.0)
    penalty = next(value for value in penalties if value is not None)
    settings = {"length_penalty": penalty, "max_new_tokens": options.max_new_tokens}
    if options.batch_size < 1:
        parser.error(f"--batch_size is {options.batch_size}; it must be at least 1")
    rest = iter(lines)
    while batch := [line.rstrip("\n") for line in islice(rest, options.batch_size)]:
        print(*model.write_batch(batch, num_beams=beams, **settings), sep="\n", flush=True)


if __name__ == "__main__":
    main(sys.stdin)
