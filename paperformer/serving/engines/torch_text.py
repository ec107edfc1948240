"""Continuing texts by torch: batches in which every row has options of its own, and ends by itself."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
)

from ...training.evaluation.decoding import generate, longest_sequence
from ...translation.likelihood import end_tokens
from .engine import Task
from .incremental_text import IncrementalText
from .sampling import RowwiseSampling
from .text import Continuation, Prompt, TextEngine, TokenChoice


class TorchText(TextEngine):
    """A decoder-only model of transformers, ours or another.

    Args:
        model: in evaluation mode.
        tokenizer: its own.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        super().__init__(tokenizer, longest_sequence(model), int(model.config.vocab_size))
        self.model = model

    @torch.no_grad()
    def run(self, tasks: Sequence[Task]) -> None:
        """Finishes each task with a `Continuation`, as soon as it is there, and shows its text meanwhile."""
        prompts: list[Prompt] = [task.work for task in tasks]
        longest = max(len(prompt.ids) for prompt in prompts)
        filler = self.tokenizer.pad_token_id or 0
        rows = [[filler] * (longest - len(prompt.ids)) + list(prompt.ids) for prompt in prompts]  # (B, P)
        mask = [[0] * (longest - len(prompt.ids)) + [1] * len(prompt.ids) for prompt in prompts]
        sampling = RowwiseSampling([prompt.sampling for prompt in prompts])
        generate(
            self.model,
            input_ids=torch.tensor(rows, device=self.model.device),
            attention_mask=torch.tensor(mask, device=self.model.device),
            max_new_tokens=max(prompt.max_tokens for prompt in prompts),
            num_beams=1,
            num_return_sequences=1,
            do_sample=False,
            pad_token_id=filler,
            logits_processor=LogitsProcessorList([sampling]),
            stopping_criteria=StoppingCriteriaList([_Rows(self, tasks, longest, sampling)]),
        )


class _Rows(StoppingCriteria):
    """Follows the rows of a batch, token by token: shows their texts, and ends each where it ends."""

    def __init__(self, engine: TorchText, tasks: Sequence[Task], prompt_length: int, sampling: RowwiseSampling):
        self.engine, self.tasks, self.prompt_length, self.sampling = engine, tasks, prompt_length, sampling
        self.ends = set(end_tokens(engine.model))
        self.texts = [IncrementalText(engine.decode, task.work.ids, task.work.stops) for task in tasks]
        self.choices: list[list[TokenChoice]] = [[] for _ in tasks]
        self.is_over = [False] * len(tasks)

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        newest, length = input_ids[:, -1].tolist(), input_ids.shape[1] - self.prompt_length
        for row, task in enumerate(self.tasks):
            if not self.is_over[row]:
                self.is_over[row] = not task.is_wanted or self._follow(row, task, input_ids[row], newest[row], length)
        return torch.tensor(self.is_over, device=input_ids.device)

    def _follow(self, row: int, task: Task, ids: Tensor, newest: int, length: int) -> bool:
        """Takes up a row's newest token; whether it was its last."""
        prompt: Prompt = task.work
        text, is_end, is_longest = self.texts[row], newest in self.ends, length >= prompt.max_tokens
        if prompt.logprobs is not None:
            self.choices[row].append(self._choice(row, newest, prompt.logprobs))
        if prompt.is_streamed or prompt.stops:
            if not is_end:
                text.add([newest])
        elif is_end or is_longest:
            text.add(ids[self.prompt_length :].tolist()[: length - is_end])
        is_over = is_end or is_longest or text.is_stopped
        if is_over:
            text.end()
        if prompt.is_streamed and (part := text.take()):
            task.show(part)
        if is_over:
            reason = "stop" if is_end or text.is_stopped else "length"
            task.finish(Continuation(text.text, reason, length, tuple(self.choices[row])))
        return is_over

    def _choice(self, row: int, newest: int, count: int) -> TokenChoice:
        assert self.sampling.log_probs is not None
        log_probs = self.sampling.log_probs[row]
        best = log_probs.topk(count)
        top = {
            self.engine.token(token): value
            for token, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        }
        return TokenChoice(self.engine.token(newest), float(log_probs[newest]), top)
