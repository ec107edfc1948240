"""Translation by torch: beam search with `generate()`."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, StoppingCriteria, StoppingCriteriaList

from ...training.data.batches.token_budget import pad
from ...training.evaluation.decoding import generate, longest_sequence
from ...translation.likelihood import end_tokens, log_probabilities, until_end
from .engine import Task
from .translation import Translation, TranslationEngine, TranslationOptions


class _Unwanted(StoppingCriteria):
    """Ends a search that nobody waits for any more."""

    def __init__(self, tasks: Sequence[Task]):
        self.tasks = tasks

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: object) -> torch.Tensor:
        is_over = not any(task.is_wanted for task in self.tasks)
        return torch.full((len(input_ids),), is_over, device=input_ids.device)


class TorchTranslation(TranslationEngine):
    """An encoder-decoder of transformers, ours or another.

    Args:
        model: in evaluation mode.
        tokenizer: of sources, and of translations where there is no other.
        target_tokenizer: of translations, for a model with two vocabularies.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
    ):
        super().__init__(tokenizer, target_tokenizer, longest_sequence(model))
        self.model = model
        self.needs_target = bool(self.languages) and self._first_token(TranslationOptions()) is None

    def _first_token(self, options: TranslationOptions) -> int | None:
        settings: Any = self.model.generation_config
        own: int | None = settings and settings.forced_bos_token_id
        return own if options.first_token is None else options.first_token

    @torch.no_grad()
    def run(self, tasks: Sequence[Task]) -> None:
        """Finishes each task with a list of `Translation`, the best first."""
        kind: tuple[TranslationOptions, int] = tasks[0].kind  # type: ignore[assignment]
        options = kind[0]
        rows = [list(task.work.ids) for task in tasks]
        input_ids = pad(rows, self.tokenizer.pad_token_id).to(self.model.device)  # (B, S)
        inputs = {"input_ids": input_ids, "attention_mask": pad([[1] * len(row) for row in rows], 0).to(input_ids)}
        sequences = generate(
            self.model,
            **inputs,
            num_beams=options.num_beams,
            num_return_sequences=options.num_return_sequences,
            length_penalty=options.length_penalty,
            max_new_tokens=options.max_new_tokens,
            do_sample=False,
            **({} if options.first_token is None else {"forced_bos_token_id": options.first_token}),
            stopping_criteria=StoppingCriteriaList([_Unwanted(tasks)]),
        )
        outputs = sequences[:, 1:]  # (B n, T), without the token that decoding starts with
        texts = self.decode(outputs.tolist())
        is_written = until_end(outputs, end_tokens(self.model))  # (B n, T)
        counts = is_written.sum(-1)
        scores: list[float] | list[None] = [None] * len(texts)
        if options.with_scores:
            scores = self._scores(inputs, sequences, is_written, options)
        found = [Translation(*each) for each in zip(texts, counts.tolist(), scores, strict=True)]
        for number, task in enumerate(tasks):
            task.finish(found[number * options.num_return_sequences :][: options.num_return_sequences])

    def _scores(
        self,
        inputs: dict[str, torch.Tensor],
        sequences: torch.Tensor,
        is_written: torch.Tensor,
        options: TranslationOptions,
    ) -> list[float]:
        """What beam search has ranked translations by, from a look at all of their tokens at once."""
        repeated = {name: rows.repeat_interleave(options.num_return_sequences, 0) for name, rows in inputs.items()}
        # Not from labels, of which some models (mBART) take the last token for the first.
        logits = self.model(**repeated, decoder_input_ids=sequences[:, :-1], use_cache=False).logits
        is_chosen = is_written.clone()
        is_chosen[:, :1] &= self._first_token(options) is None  # what the model is made to write costs nothing
        sums = (log_probabilities(logits, sequences[:, 1:]) * is_chosen).sum(-1)
        return (sums / is_written.sum(-1).clamp(min=1) ** options.length_penalty).tolist()
