"""`pipeline("translation")` for paperformer's encoder-decoders, a task that transformers itself has no more.

This file travels with every translation model, and runs from the model's folder where paperformer is not
installed. So it imports nothing but torch and transformers, and of them only what their versions since 5.17
have in common.
"""

import warnings
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    Pipeline,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)


def load_target_tokenizer(model: PreTrainedModel) -> PreTrainedTokenizerBase | None:
    """The tokenizer that decodes a model's outputs, from where the model was loaded: a folder or the Hub.

    Returns:
        The target's tokenizer, for a model with a `source_vocab_size`; None for others, which have one tokenizer for
        both.

    Raises:
        ValueError: if there should be one, and it cannot be loaded.
    """
    config: Any = model.config
    if not _has_two_vocabularies(config):
        return None
    folder = config.target_tokenizer_folder
    try:
        # Given the configuration, it looks for none beside the tokenizer.
        options: dict[str, Any] = {"subfolder": folder, "config": config, "trust_remote_code": False}
        return AutoTokenizer.from_pretrained(model.name_or_path, **options, **getattr(model, "hub_options", {}))
    except (OSError, ValueError) as error:
        raise ValueError(
            "the model has a vocabulary for source and target each, and the target's tokenizer cannot be loaded from "
            f"{folder} in {model.name_or_path!r}; save it there, or pass it as target_tokenizer"
        ) from error


def _has_two_vocabularies(config: PreTrainedConfig) -> bool:
    return getattr(config, "source_vocab_size", None) is not None


class TranslationPipeline(Pipeline):
    """Translates a text, or many.

    Args:
        target_tokenizer: the tokenizer that decodes translations, of a model with two vocabularies; by default that
            of the folder or repository that the model was loaded from. Of other models `tokenizer` does both.
        args, kwargs: as `transformers.Pipeline` takes them.

    Example:
        >>> translate = pipeline("translation", model="USER/NAME", trust_remote_code=True)
        >>> translate("A dog runs.")
        [{'translation_text': 'Ein Hund läuft.'}]
        >>> translate(["A dog runs.", "A cat sleeps."], batch_size=2, num_beams=5)
        [{'translation_text': 'Ein Hund läuft.'}, {'translation_text': 'Eine Katze schläft.'}]

    Raises:
        ValueError: if the model is not an encoder-decoder, or its second tokenizer cannot be loaded.
    """

    # Which parts `pipeline` looks for in the model's folder.
    _load_tokenizer: Any = True
    _load_processor: Any = False
    _load_image_processor: Any = False
    _load_video_processor: Any = False
    _load_feature_extractor: Any = False

    model: Any
    tokenizer: Any

    def __init__(self, *args: Any, target_tokenizer: PreTrainedTokenizerBase | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if not self.model.config.is_encoder_decoder:
            raise ValueError(f"{type(self.model).__name__} is no encoder-decoder, and cannot translate")
        if target_tokenizer is None:
            target_tokenizer = load_target_tokenizer(self.model)
        self.target_tokenizer = target_tokenizer

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Translates.

        Args:
            inputs: a text, a list of texts, or a generator or data set of texts. Texts longer than the
                model's `max_position_embeddings` are truncated, with a warning. A text of nothing but white
                space has an empty translation.
            kwargs: `batch_size` (1 by default), and everything that `generate` takes: `num_beams`,
                `max_new_tokens`, `num_return_sequences`, `generation_config` and so on. The model's own
                generation settings hold for what is not given. Without any limit of length, a translation may
                be 50 tokens longer than the longest source of its batch (Vaswani et al. 2017, section 6.1).

        Returns:
            For a text, a list with one `{"translation_text": ...}` for each of `num_return_sequences`. For a
            list of texts, a list with one such dictionary a text, or one list of them a text if several are
            asked for. For a generator or a data set, an iterator over lists.

        Raises:
            TypeError: if an input is not a string.
        """
        if isinstance(inputs, tuple):
            inputs = list(inputs)
        if not isinstance(inputs, list):
            return super().__call__(inputs, *args, **kwargs)
        if not inputs:
            return []
        translations = super().__call__(inputs, *args, **kwargs)
        return [several[0] if len(several) == 1 else several for several in translations]

    def save_pretrained(self, save_directory: str | PathLike[str], **kwargs: Any) -> None:
        """Saves model, tokenizers and this code (see `transformers.Pipeline.save_pretrained`)."""
        super().save_pretrained(save_directory, **kwargs)
        if self.target_tokenizer is not None and _has_two_vocabularies(self.model.config):
            self.target_tokenizer.save_pretrained(Path(save_directory) / self.model.config.target_tokenizer_folder)

    def _sanitize_parameters(self, **generate_kwargs: Any) -> tuple[dict[str, Any], ...]:
        return {}, generate_kwargs, {}

    def preprocess(self, text: str) -> dict[str, Any]:  # type: ignore[override]  # a task names its own input
        if not isinstance(text, str):
            raise TypeError(f"a text to translate is a str, not {type(text).__name__}")
        limit = min(self.model.config.max_position_embeddings, self.tokenizer.model_max_length)
        ids = self.tokenizer(text, verbose=False).input_ids  # its own warning names no remedy and no text
        if len(ids) > limit:
            warnings.warn(
                f"{text[:40]!r}... has {len(ids)} tokens, and the model takes {limit}: the end is not "
                "translated. Translate long texts sentence by sentence.",
                stacklevel=2,
            )
            ids = self.tokenizer(text, truncation=True, max_length=limit).input_ids  # `</s>` stays at the end
        input_ids = torch.tensor([ids])  # (1, S)
        return {
            "input_ids": input_ids,
            "attention_mask": torch.ones_like(input_ids),
            "is_blank": not text.strip(),
        }

    def _forward(self, model_inputs: dict[str, Any], **generate_kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        input_ids = model_inputs["input_ids"]  # (B, S)
        if not self._limits_length(generate_kwargs):
            # Learned positions end there, and with the others the model's experience.
            longest = self.model.config.max_position_embeddings - 1  # one is for the start token
            generate_kwargs["max_new_tokens"] = min(input_ids.shape[1] + 50, longest)
        generate_kwargs["return_dict_in_generate"] = False
        output_ids = self.model.generate(
            input_ids=input_ids, attention_mask=model_inputs["attention_mask"], **generate_kwargs
        )  # (B * R, T), where R is num_return_sequences
        # First in the dictionary: Pipeline reads the batch's size off it, to take the batch apart.
        return {
            "output_ids": output_ids.view(input_ids.shape[0], -1, output_ids.shape[-1]),  # (B, R, T)
            "is_blank": model_inputs["is_blank"],
        }

    def _limits_length(self, generate_kwargs: dict[str, Any]) -> bool:
        """Whether the call, or the generation settings that it uses, say how long a translation may be."""
        settings: GenerationConfig = generate_kwargs.get("generation_config") or self.model.generation_config
        chosen = settings.to_diff_dict() | generate_kwargs  # the default max_length of 20 counts as no choice
        return chosen.get("max_new_tokens") is not None or chosen.get("max_length") is not None

    def postprocess(self, model_outputs: dict[str, Any]) -> list[dict[str, str]]:  # type: ignore[override]
        tokenizer = self.tokenizer if self.target_tokenizer is None else self.target_tokenizer
        texts = tokenizer.batch_decode(
            model_outputs["output_ids"][0], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return [{"translation_text": "" if model_outputs["is_blank"] else text} for text in texts]
