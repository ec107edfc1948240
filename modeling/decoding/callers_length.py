"""How long a generated sequence may become: what a caller says goes before what the model was saved with."""

import functools
from typing import Any

from transformers.generation import GenerationMixin


class CallersLengthMixin:
    """Lets `generate(max_length=...)` mean what it says.

    A model is saved with the `max_new_tokens` that it was trained for, and transformers lets that go before any
    `max_length`: a caller's, a pipeline's, or `generation_max_length` of Seq2SeqTrainer. Put it before
    `GenerationMixin`.
    """

    @functools.wraps(GenerationMixin.generate)
    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """As `transformers.GenerationMixin.generate`; with `max_length`, a saved `max_new_tokens` does not count."""
        if kwargs.get("max_length") is not None:
            kwargs.setdefault("max_new_tokens", None)
        inherited: Any = super()
        return inherited.generate(*args, **kwargs)
