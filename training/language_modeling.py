"""The task of language modelling: running text, cut into contexts of equal length, and its scores."""

from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast

from ..configuration.configuration_lm import PaperformerLMConfig
from ..modeling.modeling_lm import PaperformerForCausalLM
from .batching import Batch
from .card import SplitFacts
from .evaluation import generate, language_model_scores
from .input_error import InputError
from .progress import ProgressBar
from .recipe import Recipe, TextData

LINES_AT_ONCE = 200  # the tokenizer encodes groups of lines in parallel
GROUPS_AT_ONCE = 100


class LanguageModelingTask:
    """Training, validation and test of a decoder-only model on running text.

    Args:
        recipe: the run's options.
        documents: texts of the splits train, validation and test.
        tokenizer: a tokenizer that appends nothing.

    Raises:
        InputError: if the training text is shorter than one context.
    """

    def __init__(self, recipe: Recipe[TextData], documents: dict[str, list[str]], tokenizer: PreTrainedTokenizerFast):
        self.recipe, self.documents, self.tokenizer = recipe, documents, tokenizer
        self.ids = {split: [self._encode(text) for text in texts] for split, texts in documents.items()}
        self.stream = np.concatenate([np.array(ids, dtype=np.int32) for ids in self.ids["train"]])
        context_length = recipe.data.context_length
        if len(self.stream) < context_length:
            raise InputError(
                f"data.train has {len(self.stream):,} tokens; "
                f"it needs at least data.context_length ({context_length:,})"
            )
        self.sequences_per_batch = max(1, recipe.optimization.tokens_per_batch // context_length)

    def _encode(self, text: str) -> list[int]:
        """`<s>` and the document's tokens."""
        lines = text.splitlines(keepends=True)
        groups = ["".join(lines[i : i + LINES_AT_ONCE]) for i in range(0, len(lines), LINES_AT_ONCE)]
        ids = [self.tokenizer.bos_token_id]
        for first in ProgressBar(range(0, len(groups), GROUPS_AT_ONCE), desc="tokenize", unit=" batch"):
            for group in self.tokenizer(groups[first : first + GROUPS_AT_ONCE], add_special_tokens=False).input_ids:
                ids += group
        return ids

    def build_model(self) -> PaperformerForCausalLM:
        tokenizer = self.tokenizer
        config = PaperformerLMConfig(
            **self.recipe.model,
            vocab_size=len(tokenizer),
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
        model = PaperformerForCausalLM(config)
        model.generation_config = GenerationConfig(
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            do_sample=True,
            top_p=0.95,
            temperature=0.9,
            max_new_tokens=min(200, self.recipe.data.context_length // 2),
        )
        return model

    def epoch_batches(self, epoch: int) -> list[np.ndarray]:
        """Start positions of the contexts of each batch; the text is cut at other places each epoch."""
        rng = np.random.default_rng((self.recipe.run.seed, epoch))
        length = self.recipe.data.context_length
        starts = np.arange(
            rng.integers(min(length, len(self.stream) - length + 1)), len(self.stream) - length + 1, length
        )
        rng.shuffle(starts)
        size = min(self.sequences_per_batch, len(starts))
        return [starts[i : i + size] for i in range(0, len(starts) - size + 1, size)]

    def collate(self, batch: np.ndarray) -> Batch:
        positions = batch[:, None] + np.arange(self.recipe.data.context_length)  # (B, T)
        ids = torch.from_numpy(self.stream[positions].astype(np.int64))
        return {"input_ids": ids, "labels": ids}

    def validate(self, model: PreTrainedModel) -> dict[str, float]:
        scores, _ = self.evaluate(model, "validation")
        return {"loss": scores["loss"]["nats_per_token"], "bits_per_byte": scores["bits_per_byte"]}

    def evaluate(self, model: PreTrainedModel, split: str) -> tuple[dict[str, Any], list[str]]:
        """Scores of a whole split, and sampled continuations of its beginning."""
        scores = {"task": "text-generation", "split": split}
        scores |= language_model_scores(model, self.ids[split], self.documents[split], self.recipe.data.context_length)
        return scores, (self._continue(model, self._prompts()) if split == "test" else [])

    def _prompts(self) -> list[str]:
        """The first lines of the test text that are not blank; of a long one, as much as fills half a context."""
        lines = [line + "\n" for line in self.documents["test"][0].split("\n") if line.strip()]
        prompts = []
        for line in lines[: min(3, self.recipe.evaluation.samples)]:
            ids = self.tokenizer(line).input_ids
            most = max(1, self.recipe.data.context_length // 2 - 1)  # and `<s>`
            # A cut inside a character leaves the sign for undecodable bytes at the end.
            prompts.append(line if len(ids) <= most else self.tokenizer.batch_decode([ids[:most]])[0].rstrip("\ufffd"))
        return prompts

    def _continue(self, model: PreTrainedModel, prompts: list[str]) -> list[str]:
        model.eval()
        torch.manual_seed(self.recipe.run.seed)
        outputs: list[str] = []
        for prompt in prompts:
            ids = torch.tensor([[self.tokenizer.bos_token_id, *self.tokenizer(prompt).input_ids]], device=model.device)
            output = generate(model, input_ids=ids, attention_mask=torch.ones_like(ids))
            outputs += self.tokenizer.batch_decode(output[:, ids.shape[1] :], skip_special_tokens=True)
        return outputs

    def samples(self, outputs: list[str]) -> list[tuple[str, str]]:
        """(prompt, continuation)."""
        return list(zip(self._prompts(), outputs, strict=False))

    def splits(self) -> list[SplitFacts]:
        """Sizes of the splits, for the card."""
        return [
            SplitFacts(name=split, examples=len(texts), tokens=sum(map(len, self.ids[split])))
            for split, texts in self.documents.items()
        ]
