"""How long a generated sequence may become: what a caller says goes before what the model was saved with."""

from typing import Any

from transformers.generation import GenerationConfig


class CallersLengthMixin:
    """Lets a caller's `max_length` mean what it says.

    A model is saved with the `max_new_tokens` that it was trained for, and transformers lets that go before any
    `max_length`: a caller's, in `generate` or in its `generation_config`; a pipeline's; or `generation_max_length` of
    Seq2SeqTrainer. Put it before `GenerationMixin`.
    """

    def _prepare_generation_config(
        self, generation_config: GenerationConfig | None, **kwargs: Any
    ) -> tuple[GenerationConfig, dict[str, Any]]:
        """transformers' hook: `generate()` calls it for the settings that hold."""
        given = {} if generation_config is None else generation_config.to_diff_dict()
        callers = next((said for said in (kwargs, given) if said.get("max_length") or said.get("max_new_tokens")), {})
        inherited: Any = super()
        prepared, model_kwargs = inherited._prepare_generation_config(generation_config, **kwargs)
        if callers.get("max_new_tokens") is None and callers.get("max_length") is not None:
            prepared.max_new_tokens = None
        return prepared, model_kwargs
