"""`pipeline("translation")` for paperformer's encoder-decoders, a task that transformers itself has no more.

This file travels with every translation model, and runs from the model's folder where paperformer is not
installed. So it imports nothing but torch and transformers, and of them only what their versions since 5.17
have in common.
"""

import copy
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    Pipeline,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    pipelines,
)

from .pieces import split_text

LANGUAGE_TAG = re.compile(r"<2([^<>\s]+)>")
"""What a model that translates into several languages has before a text, as one token: `<2de>`."""

LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def register_pipeline() -> None:
    """Gives transformers its task "translation" back, for `pipeline("translation", model=LOADED, tokenizer=...)`.

    A folder's name leads to the folder's configuration, and that to this pipeline; a model that has been loaded does
    not. So the code that travels with a model calls this when it is loaded.
    """
    # transformers refuses the tasks that it removed before looking at those that were registered.
    getattr(pipelines, "REMOVED_TASKS", {}).pop("translation", None)
    registry = pipelines.PIPELINE_REGISTRY
    if "translation" not in registry.supported_tasks:
        registry.register_pipeline("translation", TranslationPipeline, pt_model=AutoModelForSeq2SeqLM, type="text")


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

    A text is translated sentence by sentence, and put together again with its line ends and blank lines. A sentence
    that has more tokens than the model takes is translated in parts: nothing is left out.

    Args:
        target_tokenizer: the tokenizer that decodes translations, of a model with two vocabularies; by default that
            of the folder or repository that the model was loaded from. Of other models `tokenizer` does both.
        args, kwargs: as `transformers.Pipeline` takes them; also what a call takes, for every call.

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

    def __call__(self, inputs: Any, *args: Any, batch_size: int | None = None, **kwargs: Any) -> Any:
        """Translates.

        Args:
            inputs: a text, a sequence of texts, or a generator or data set of texts. A text of nothing but white space
                has an empty translation.
            batch_size: of how many texts at a time the sentences are translated, and as many sentences together; 1 by
                default.
            src_lang, tgt_lang: language codes, for a model whose vocabulary has tags such as `<2de>`: the tag of
                `tgt_lang` is put before every sentence. `src_lang` may be given too, and changes nothing: such models
                read it off the text. A text may also begin with a tag itself.
            split_sentences: whether a text is translated sentence by sentence (by default), or line by line, as models
                are that were trained on longer passages. What is longer than the model takes is split in any case.
            truncation: cut a sentence that is longer than the model takes, instead of translating it in parts.
            return_scores: give each translation a `score` as well: its log-probability (natural logarithm), all
                sentences together, divided by its number of tokens to the power of `length_penalty`, as beam search
                ranks by.
            return_tensors: give the `translation_token_ids` of all sentences, one after another, (T,), instead of text.
            clean_up_tokenization_spaces: as `tokenizer.decode` takes it; False by default.
            kwargs: everything that `generate` takes: `num_beams`, `max_new_tokens`, `num_return_sequences`,
                `generation_config` and so on. The model's own generation settings hold for what is not given. Limits of
                length are those of a sentence; without any, a translation may be 50 tokens longer than the longest
                source of its batch (Vaswani et al. 2017, section 6.1).

        Returns:
            For a text, a list with one `{"translation_text": ...}` for each of `num_return_sequences`, best first. For
            a sequence of texts, a list with one such dictionary a text, or one list of them a text if several are asked
            for. For a generator or a data set, an iterator over lists.

        Raises:
            TypeError: if an input is not a string.
            ValueError: if the model has no tag for `tgt_lang`, or no tags at all.

        Warns:
            UserWarning: a translation is as long as the model's settings allow, and has no end.
        """
        inputs = _as_pipelines_take_it(inputs)
        if inputs == []:
            return []
        kwargs["pieces_at_once"] = batch_size or self._batch_size or 1
        translations = super().__call__(inputs, *args, batch_size=batch_size, **kwargs)
        if not isinstance(inputs, list):
            return translations
        return [several[0] if len(several) == 1 else several for several in translations]

    def save_pretrained(self, save_directory: str | PathLike[str], **kwargs: Any) -> None:
        """Saves model, tokenizers and this code (see `transformers.Pipeline.save_pretrained`)."""
        super().save_pretrained(save_directory, **kwargs)
        if self.target_tokenizer is not None and _has_two_vocabularies(self.model.config):
            self.target_tokenizer.save_pretrained(Path(save_directory) / self.model.config.target_tokenizer_folder)

    def _sanitize_parameters(self, **options: Any) -> tuple[dict[str, Any], ...]:
        def taken(*names: str) -> dict[str, Any]:
            return {name: options.pop(name) for name in names if name in options}

        preprocess = taken("src_lang", "tgt_lang", "split_sentences", "truncation")
        postprocess = taken("return_tensors", "clean_up_tokenization_spaces")
        return preprocess, options, postprocess

    def preprocess(  # type: ignore[override]  # a task names its own input
        self,
        text: str,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        split_sentences: bool = True,
        truncation: bool = False,
    ) -> dict[str, Any]:
        if not isinstance(text, str):
            raise TypeError(f"a text to translate is a str, not {type(text).__name__}")
        if LONE_SURROGATE.search(text):
            raise ValueError(f"{text[:40]!r}... has half of a surrogate pair, which is no character")
        tag, untagged = self._language_tag(text, src_lang, tgt_lang)
        limit = min(self._longest(), self.tokenizer.model_max_length)

        def lengths(parts: Sequence[str]) -> list[int]:
            return [len(ids) for ids in self.tokenizer([tag + part for part in parts], verbose=False).input_ids]

        longest = sys.maxsize if truncation else limit
        pieces, gaps = split_text(untagged, longest, lengths, sentences=split_sentences)
        options: dict[str, Any] = {"truncation": True, "max_length": limit} if truncation else {"verbose": False}
        ids = self.tokenizer([tag + piece for piece in pieces], **options).input_ids if pieces else []
        return {"texts": [{"ids": ids, "gaps": gaps, "begin": text[:40]}]}

    def _language_tag(self, text: str, src_lang: str | None, tgt_lang: str | None) -> tuple[str, str]:
        """The tag that is to be before every piece of a text, or nothing, and the text without it."""
        found = LANGUAGE_TAG.match(text)
        if tgt_lang is None and src_lang is None and found is None:
            return "", text
        languages = sorted(tag[1] for tag in map(LANGUAGE_TAG.fullmatch, self.tokenizer.get_vocab()) if tag)
        if not languages:
            if found is not None and tgt_lang is None and src_lang is None:
                return "", text
            raise ValueError(
                "the model has no language tags, and translates into one language: leave src_lang and tgt_lang out"
            )
        if tgt_lang is None:
            return (found[0], text[found.end() :]) if found and found[1] in languages else ("", text)
        if tgt_lang not in languages:
            raise ValueError(f"tgt_lang is {tgt_lang!r}; the model translates into {', '.join(languages)}")
        return f"<2{tgt_lang}>", text

    def _forward(  # type: ignore[override]
        self, model_inputs: dict[str, Any], *, pieces_at_once: int = 1, return_scores: bool = False, **options: Any
    ) -> dict[str, Any]:
        # One text, or a batch, of which each is in a list of its own.
        texts = [one for text in model_inputs["texts"] for one in (text if isinstance(text, list) else [text])]
        pieces = [ids for text in texts for ids in text["ids"]]
        order = sorted(range(len(pieces)), key=lambda piece: len(pieces[piece]), reverse=True)
        translations: dict[int, list[dict[str, Any]]] = {}
        for start in range(0, len(order), pieces_at_once):
            together = order[start : start + pieces_at_once]
            found = self._translate([pieces[piece] for piece in together], return_scores, **options)
            translations |= zip(together, found, strict=True)
        in_order = (translations[piece] for piece in range(len(pieces)))
        settings = self._settings(options)
        penalty = 1.0 if settings.get("length_penalty") is None else settings["length_penalty"]
        return {
            "texts": [
                {
                    "gaps": text["gaps"],
                    "begin": text["begin"],
                    "pieces": [next(in_order) for _ in text["ids"]],
                    "several": settings.get("num_return_sequences") or 1,
                    "length_penalty": penalty if return_scores else None,
                }
                for text in texts
            ]
        }

    def _translate(self, pieces: list[list[int]], return_scores: bool, **options: Any) -> list[list[dict[str, Any]]]:
        """Translations of B pieces, R of each, by their token ids."""
        settings = self._settings(options)
        is_limited = settings.get("max_new_tokens") is not None or settings.get("max_length") is not None
        own_settings: dict[str, Any] = {"return_dict_in_generate": False}
        if not is_limited:
            # Learned positions end there, and with the others the model's experience.
            own_settings["max_new_tokens"] = min(len(pieces[0]) + 50, self._longest() - 1)  # one is for the start token
        if options.get("generation_config") is not None:  # `generate` wants nothing beside one
            config = copy.deepcopy(options["generation_config"])
            config.update(**own_settings)
            own_settings = {"generation_config": config}
        source = {
            "input_ids": pad_sequence([torch.tensor(ids) for ids in pieces], True, self.tokenizer.pad_token_id or 0),
            "attention_mask": pad_sequence([torch.ones(len(ids), dtype=torch.long) for ids in pieces], True, 0),
        }  # (B, S)
        source = {name: tensor.to(self.model.device) for name, tensor in source.items()}
        rows = self.model.generate(**source, **(options | own_settings))  # (B R, T)
        ends, pad = settings.get("eos_token_id"), settings.get("pad_token_id")
        ends = ends if isinstance(ends, list) else [ends]
        own = [_without_padding(row, ends, pad) for row in rows.tolist()]
        scores = self._log_probabilities(source, rows, own) if return_scores else [None] * len(own)
        is_callers = bool({"max_new_tokens", "max_length", "generation_config", "stopping_criteria"} & options.keys())
        found = [
            {
                "ids": ids,
                "log_probability": score,
                # Shorter ones without an end were stopped by something that the caller has given.
                "is_cut": ids[-1] not in ends and len(ids) == rows.shape[1] and not (is_limited and is_callers),
            }
            for ids, score in zip(own, scores, strict=True)
        ]
        several = len(found) // len(pieces)
        return [found[start : start + several] for start in range(0, len(found), several)]

    def _settings(self, options: dict[str, Any]) -> dict[str, Any]:
        """What `generate` will go by: a call's options before those of its `generation_config`, or of the model's.

        transformers' default `max_length` of 20 counts as none.
        """
        own: GenerationConfig = self.model.generation_config
        given = options.get("generation_config")
        chosen = own.to_diff_dict() | ({} if given is None else given.to_diff_dict())
        return chosen | {name: value for name, value in options.items() if name != "generation_config"}

    def _longest(self) -> int:
        """How many tokens the model is made for, by its configuration; 512 where that does not say, as of T5."""
        return int(getattr(self.model.config, "max_position_embeddings", None) or 512)

    @torch.no_grad()
    def _log_probabilities(
        self, source: dict[str, torch.Tensor], rows: torch.Tensor, translations: list[list[int]]
    ) -> list[float]:
        """Of each translation, of which `rows` are the padded ids, (B R, T)."""
        several = len(rows) // len(source["input_ids"])
        source = {name: tensor.repeat_interleave(several, dim=0) for name, tensor in source.items()}
        logits = self.model(**source, decoder_input_ids=rows[:, :-1]).logits.float()  # (B R, T - 1, V)
        chosen = logits.log_softmax(-1).gather(-1, rows[:, 1:, None]).squeeze(-1)  # (B R, T - 1)
        lengths = torch.tensor([len(ids) - 1 for ids in translations], device=rows.device)
        is_own = torch.arange(chosen.shape[1], device=rows.device) < lengths[:, None]
        return (chosen.double() * is_own).sum(1).tolist()

    def postprocess(  # type: ignore[override]
        self,
        model_outputs: dict[str, Any],
        return_tensors: bool | str = False,
        clean_up_tokenization_spaces: bool = False,
    ) -> list[dict[str, Any]]:
        tokenizer = self.tokenizer if self.target_tokenizer is None else self.target_tokenizer
        text = model_outputs["texts"]
        if isinstance(text, list):  # it was no batch
            (text,) = text
        records = []
        for place in range(text["several"]):
            pieces = [several[place] for several in text["pieces"]]
            ids = [piece["ids"] for piece in pieces]
            record: dict[str, Any] = {}
            if return_tensors:
                record["translation_token_ids"] = torch.tensor([i for own in ids for i in own], dtype=torch.long)
            else:
                options = {
                    "skip_special_tokens": True,
                    "clean_up_tokenization_spaces": clean_up_tokenization_spaces,
                }
                outputs = [tokenizer.decode(own, **options) for own in ids]
                first, *gaps = text["gaps"] or [""]
                record["translation_text"] = first + "".join(
                    output + gap for output, gap in zip(outputs, gaps, strict=True)
                )
            if (penalty := text["length_penalty"]) is not None:
                count = sum(len(own) - 1 for own in ids)  # without the start token
                record["score"] = sum(piece["log_probability"] for piece in pieces) / max(1, count) ** penalty
            if place == 0 and any(piece["is_cut"] for piece in pieces):
                warnings.warn(
                    f"{text['begin']!r}...: the translation of a sentence is as long as the model's settings allow, "
                    "and has no end; max_new_tokens=... allows more",
                    stacklevel=2,
                )
            records.append(record)
        return records


def _as_pipelines_take_it(inputs: Any) -> Any:
    """What `transformers.Pipeline` knows: one text, a list, a data set of torch's, or a generator."""
    if isinstance(inputs, str | bytes | list | dict | Dataset):
        return inputs
    if isinstance(inputs, Iterator):
        return (text for text in inputs)
    return list(inputs) if isinstance(inputs, Iterable) else inputs  # tuples, columns of tables, arrays


def _without_padding(row: list[int], ends: list[int | None], pad: int | None) -> list[int]:
    """A generated sequence up to its end, or to its last token that is no padding."""
    length = next((place for place, token in enumerate(row) if place and token in ends), len(row) - 1) + 1
    while length > 1 and row[length - 1] == pad and pad not in ends:
        length -= 1
    return row[:length]
