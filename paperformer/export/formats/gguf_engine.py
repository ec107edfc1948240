"""Language models in GGUF, run by llama.cpp in this process."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...training.console.input_error import InputError
from ..export_file import ExportFile
from .format import Engine, Exportable, Ids, require

MODEL_FILE = "model.gguf"

TEXTS = [
    "Two dogs, 3,141 times!\n\n  It's done – läuft.",
    "KING:\n\tWhat's 12 + 305?  We'll see...\n",
    "狗 \U0001f600 <b>&amp;</b>",
]
"""That llama.cpp divides into tokens as our tokenizer does: digits, apostrophes, blanks, other scripts."""

SAME_TOKENS = 1e-3
"""Largest difference of log-probabilities after a text and after its ids, in nats."""


class LlamaCppEngine(Engine):
    """A language model; see `format.Engine`. Each token's log-probability is a call of its own.

    Args:
        folder: what `paperformer export --to gguf` has written.
    """

    def __init__(self, folder: Path) -> None:
        gguf, xllamacpp = require("gguf", "gguf"), require("xllamacpp", "gguf")
        self.facts = ExportFile.read(folder)
        settings = xllamacpp.CommonParams()
        settings.model.path = str(folder / MODEL_FILE)
        settings.n_ctx = self.facts.longest
        settings.n_parallel, settings.n_gpu_layers, settings.verbosity = 1, 0, -1
        settings.warmup = False
        settings.cpuparams.n_threads = torch.get_num_threads()
        # Keys and values as they are, and not in half precision: what is compared is the model.
        settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        tokens = gguf.GGUFReader(folder / MODEL_FILE).fields["tokenizer.ggml.tokens"].contents()
        self.letter = next(place for place, token in enumerate(tokens) if len(token) == 1 and token.isascii())
        try:
            self.server: Any = xllamacpp.Server(settings)
        except RuntimeError as error:
            raise InputError(f"llama.cpp cannot load {folder / MODEL_FILE}: {error}") from error

    def values(self, inputs: Ids, outputs: Ids) -> list[np.ndarray]:
        found = []
        for given, following in zip(inputs, outputs, strict=True):
            log_probs = [
                self._after([*given, *following[:place]]).get(token, -math.inf) for place, token in enumerate(following)
            ]
            found.append(np.array(log_probs, dtype=np.float32))
        return found

    def decode(self, inputs: Ids, *, num_beams: int, length_penalty: float, max_new_tokens: int) -> list[list[int]]:
        decoded = []
        for ids in inputs:
            found: list[int] = []
            while len(found) < max_new_tokens and not (found and found[-1] in self.facts.end_ids):
                (best,) = self._after([*ids, *found], 1)
                found.append(best)
            decoded.append(found[:-1] if found[-1] in self.facts.end_ids else found)
        return decoded

    def run(self, inputs: Ids, *, num_beams: int, length_penalty: float, max_new_tokens: int) -> None:
        for ids in inputs:
            options = {"n_predict": max_new_tokens, "temperature": 0, "cache_prompt": False}
            self.server.handle_completions({"prompt": list(ids), **options})

    def check_tokenizer(self, exportable: Exportable) -> None:
        """Raises InputError if llama.cpp makes other tokens of a text than our tokenizer does."""
        start = [] if self.facts.start_id is None else [self.facts.start_id]
        for text in TEXTS:
            ids = exportable.tokenizer(text, add_special_tokens=False).input_ids
            own, other = self._after([*start, *ids]), self._after(text)
            furthest = max(abs(own[token] - other.get(token, -math.inf)) for token in own)
            if not furthest <= SAME_TOKENS:
                raise InputError(
                    f"llama.cpp makes other tokens of {text!r} than the model's tokenizer (what follows differs by "
                    f"{furthest:.1e} nats); nothing is written: export the model to onnx"
                )

    def _after(self, prompt: list[int] | str, count: int | None = None) -> dict[int, float]:
        """Log-probabilities of the likeliest next tokens, or of all.

        The token that follows is forced to be a letter: the server says nothing of what is half a character yet.
        """
        options = {"n_predict": 1, "n_probs": count or self.facts.vocab_size, "temperature": 0, "cache_prompt": True}
        answer = self.server.handle_completions({"prompt": prompt, "logit_bias": [[self.letter, 1e6]], **options})
        if "choices" not in answer:
            raise InputError(f"llama.cpp gives no answer: {str(answer)[:200]}")
        (content,) = answer["choices"][0]["logprobs"]["content"]
        return {token["id"]: token["logprob"] for token in content["top_logprobs"]}
