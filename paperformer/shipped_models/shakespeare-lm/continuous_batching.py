"""Continuous batching by transformers (`generate_batch`, `transformers serve --continuous-batching`)."""

from typing import Any


class ContinuousBatchingMixin:
    """Refuses what continuous batching would leave out without a word.

    It packs many texts into a row and makes the masks itself, causal or with a sliding window: a strided pattern is not
    in them, and a bias of the scores is counted from the row. Put it before `GenerationMixin`.
    """

    config: Any

    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> Any:
        """As `transformers.generation.ContinuousMixin.init_continuous_batching`.

        Raises:
            ValueError: if it cannot compute what the configuration says; the message names the field.
        """
        config, field = self.config, None
        if config.has_position_bias:
            field = f"position_embedding_type is {config.position_embedding_type!r}"
        elif config.attention_stride is not None:
            field = f"attention_stride is {config.attention_stride}"
        if field is not None:
            raise ValueError(f"{field}, which continuous batching does not know; use generate()")
        inherited: Any = super()
        return inherited.init_continuous_batching(*args, **kwargs)
