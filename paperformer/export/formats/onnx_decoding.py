"""Decodes with an ONNX export. It needs onnxruntime, numpy and tokenizers, and nothing of paperformer.

    python decode.py < sources.txt > translations.txt
    python decode.py --max_new_tokens 100 <<< "KING RICHARD:"

This file lies in every export to ONNX as decode.py, and can be read and changed there. From Python:

    model = OnnxModel("FOLDER")
    model.decode([5, 17, 2], num_beams=5)    # token ids to token ids
    model.write("A dog runs.")               # text to text

Shapes: k beams, T tokens, S source tokens, V vocabulary.
"""

import argparse
import json
import sys
from collections.abc import Iterable
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
        source = np.array([ids], dtype=np.int64)
        feed = {"input_ids": source, "attention_mask": np.ones_like(source)}
        graph = self.graphs["encoder"]
        if any(each.name == "token_type_ids" for each in graph.get_inputs()):
            feed["token_type_ids"] = np.zeros_like(source) if types is None else np.array([types], dtype=np.int64)
        return dict(zip([each.name for each in graph.get_outputs()], graph.run(None, feed), strict=True))

    def begin(self, ids: list[int]) -> tuple[list[int], dict[str, np.ndarray]]:
        """What the decoder is given first, of a source or of a prompt, and what it is given at every step."""
        if self.facts["family"] == "lm":
            return list(ids), {}
        constant = self.encode(ids) | {"encoder_attention_mask": np.ones((1, len(ids)), np.int64)}
        return [self.facts["start_id"]], constant

    def step(
        self, new: np.ndarray, cache: dict[str, np.ndarray], constant: dict[str, np.ndarray]
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Logits (k, T, V) of the tokens after the new ones, (k, T), and the cache with these."""
        length = new.shape[1] + next(iter(cache.values())).shape[2]
        mask = np.ones((len(new), length), np.int64)
        graph = self.graphs["decoder"]
        outputs = graph.run(None, {"input_ids": new, "attention_mask": mask, **cache, **constant})
        named = dict(zip([each.name for each in graph.get_outputs()], outputs, strict=True))
        logits = named.pop("logits")
        return logits, {name.replace("present.", "past."): values for name, values in named.items()}

    def log_probabilities(self, ids: list[int], following: list[int]) -> np.ndarray:
        """Of each token that follows a source or a prompt, (T,)."""
        first, constant = self.begin(ids)
        logits, _ = self.step(np.array([[*first, *following[:-1]]], np.int64), self.empty_cache, constant)
        log_probs = log_softmax(logits[0, len(first) - 1 :])
        return log_probs[np.arange(len(following)), following]

    def decode(
        self, ids: list[int], *, num_beams: int = 5, length_penalty: float = 1.0, max_new_tokens: int = 128
    ) -> list[int]:
        """A translation of a source, or the continuation of a prompt: token ids, without the end token."""
        search = self._greedy if num_beams == 1 else self._beams
        found = search(ids, num_beams, length_penalty, max_new_tokens)
        ends = set(self.facts["end_ids"])
        return found[: next((place for place, token in enumerate(found) if token in ends), None)]

    def _greedy(self, ids: list[int], num_beams: int, length_penalty: float, max_new_tokens: int) -> list[int]:
        first, constant = self.begin(ids)
        new, cache = np.array([first], np.int64), self.empty_cache
        found: list[int] = []
        while len(found) < max_new_tokens:
            logits, cache = self.step(new, cache, constant)
            found.append(int(logits[0, -1].argmax()))
            if found[-1] in self.facts["end_ids"]:
                break
            new = np.array([found[-1:]], np.int64)
        return found

    def _beams(self, ids: list[int], num_beams: int, length_penalty: float, max_new_tokens: int) -> list[int]:
        """The sequence of the highest log-probability over length to the power of `length_penalty`.

        Ends when no beam is better, at its present length, than the worst of as many finished ones as there are beams.
        """
        k, ends = num_beams, self.facts["end_ids"]
        first, constant = self.begin(ids)
        logits, cache = self.step(np.array([first], np.int64), self.empty_cache, constant)
        cache = {name: values.repeat(k, axis=0) for name, values in cache.items()}
        log_probs = log_softmax(logits[:, -1]).repeat(k, axis=0)  # (k, V)
        running: list[list[int]] = [[] for _ in range(k)]
        scores = np.array([0.0] + [NEVER] * (k - 1))  # all beams are the same yet: one begins
        finished: list[tuple[float, list[int]]] = []
        for length in range(1, max_new_tokens + 1):
            totals = (scores[:, None] + log_probs).ravel()
            count = min(max(2, 1 + len(ends)) * k, totals.size)
            best = np.argpartition(-totals, count - 1)[:count]
            best = best[np.argsort(-totals[best], kind="stable")]
            candidates = [(totals[place], *divmod(int(place), log_probs.shape[1])) for place in best]
            is_end = [token in ends or length == max_new_tokens for _, _, token in candidates]
            finished += [
                (score / length**length_penalty, [*running[beam], token])
                for (score, beam, token), ended in zip(candidates[:k], is_end, strict=False)
                if ended
            ]
            finished = sorted(finished, key=lambda pair: -pair[0])[:k]
            going_on = [each for each, ended in zip(candidates, is_end, strict=True) if not ended][:k]
            worst = finished[-1][0] if len(finished) == k else NEVER
            if not going_on or not going_on[0][0] / length**length_penalty > worst:
                break
            going_on += [(NEVER, 0, 0)] * (k - len(going_on))
            scores = np.array([score for score, _, _ in going_on])
            running = [[*running[beam], token] for _, beam, token in going_on]
            rows = [beam for _, beam, _ in going_on]
            cache = {name: values[rows] for name, values in cache.items()}
            logits, cache = self.step(np.array([[row[-1]] for row in running], np.int64), cache, constant)
            log_probs = log_softmax(logits[:, -1])
        return finished[0][1]

    def write(self, text: str, **settings: Any) -> str:
        """A translation of a text, or its continuation."""
        ids = self._tokenizer("tokenizer").encode(text).ids[: self.facts["longest"]]
        name = "target_tokenizer" if self.facts["has_target_tokenizer"] else "tokenizer"
        if self.facts["family"] == "lm" and self.facts["start_id"] is not None:
            ids = [self.facts["start_id"], *ids]
        return str(self._tokenizer(name).decode(self.decode(ids, **settings), skip_special_tokens=True))

    def _tokenizer(self, name: str) -> Any:
        if name not in self.tokenizers:
            from tokenizers import Tokenizer

            self.tokenizers[name] = Tokenizer.from_file(str(self.folder / name / "tokenizer.json"))
        return self.tokenizers[name]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    log_probs: np.ndarray = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return log_probs


def main(lines: Iterable[str]) -> None:
    """Reads lines and writes one for each."""
    parser = argparse.ArgumentParser(description="Translates, or goes on with, each line of standard input.")
    parser.add_argument("--folder", default=Path(__file__).parent, help="of the export; by default where this file is")
    parser.add_argument("--num_beams", type=int, help="5 for translations, 1 (greedy) for language models")
    parser.add_argument("--length_penalty", type=float, default=1.0)
    parser.add_argument("--max_new_tokens", type=int, default=128)
    options = parser.parse_args()
    model = OnnxModel(options.folder)
    if "decoder" not in model.graphs:
        sys.exit("this model is an encoder, which writes nothing; from Python: OnnxModel(FOLDER).encode(ids)")
    beams = options.num_beams or (1 if model.facts["family"] == "lm" else 5)
    settings = {"length_penalty": options.length_penalty, "max_new_tokens": options.max_new_tokens}
    for line in lines:
        text = line.rstrip("\n")
        print(model.write(text, num_beams=beams, **settings) if text.strip() else "", flush=True)


if __name__ == "__main__":
    main(sys.stdin)
