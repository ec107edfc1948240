"""Models that translate, with their tokenizers, and what they are to do with texts: in this process or in others."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..commands.loading import Dtype, load_target_tokenizer
from ..decoding.translator import Translator
from ..training.console.input_error import InputError
from ..translation import streaming
from ..translation.checking import text_of
from ..translation.cutting import Notes
from ..translation.formats.catalogues import SureText
from ..translation.formats.marked_text import AlignedText, TextWithCodes
from .given_models import Model, load_given

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ..decoding.n_best import Hypothesis
    from ..decoding.search import Search

Work = Callable[[Translator, Sequence[str], Notes], list[Any]]
"""Makes something of each text: can be sent to another process."""


LOADING: tuple[Literal["src_lang", "tgt_lang", "dtype"], ...] = ("src_lang", "tgt_lang", "dtype")
"""Options that say how a model is loaded."""

ASKED_FOR = ("mbr", "glossary", "alignment", "target_prefix")
"""Options that make it more than one best translation; the others say how."""


def load_translator(
    model: Model,
    ensemble: Sequence[Model] = (),
    *,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    trust_remote_code: bool = False,
    engine: str = "torch",
    src_lang: str = "",
    tgt_lang: str = "",
    dtype: Dtype | None = None,
) -> Translator:
    """A translation model, or several that write together.

    Args:
        model, tokenizer, trust_remote_code, engine: as `texts.translate` takes them.
        ensemble: the others; one that has been loaded has the tokenizer that is given.
        src_lang, tgt_lang: as `choose_languages` takes them.
        dtype: what it is computed in; None: as its weights are stored.

    Raises:
        InputError: if one cannot be loaded, is for another task, or has another vocabulary than the first; as
            `choose_languages`.
    """
    from ..decoding.languages import choose_languages

    if engine != "torch" and (src_lang or tgt_lang):
        raise InputError(f"--src_lang and --tgt_lang are for torch; leave --engine {engine} out")
    if engine != "torch" and dtype is not None:
        raise InputError(f"--dtype is for torch, and an export has a type of its own; leave --engine {engine} out")
    loaded: list[Any] = []
    for one in (model, *ensemble):
        own_model, own_tokenizer = load_given(one, "translation", tokenizer, trust_remote_code, engine, dtype)
        named = os.fspath(one) if isinstance(one, str | os.PathLike) else f"model {len(loaded) + 1}"
        loaded.append((named, own_model, (own_tokenizer, load_target_tokenizer(own_model))))
        if engine == "torch":
            choose_languages(own_model, own_tokenizer, src_lang, tgt_lang)
    _, first, (own_tokenizer, target_tokenizer) = loaded[0]
    if ensemble:
        from ..decoding.ensemble import make_ensemble

        first = make_ensemble(loaded)
    return Translator(first, own_tokenizer, target_tokenizer)


def read_search(
    num_beams: int, length_penalty: float, prefix: str, n_best: int | None, options: Mapping[str, Any]
) -> "Search | None":
    """The search that is asked for; None where one best translation is, as `translate_texts` finds it.

    Args:
        options: those of `texts.Searching`.

    Raises:
        InputError: for a value out of its range, or a glossary that cannot be used.
    """
    given = [options[name] for name in ASKED_FOR if name in options]
    if n_best is None and all(value is None or value is False or value == "" for value in given):
        return None
    from ..decoding.glossary import Glossary
    from ..decoding.search import Search

    own = ("mbr", "epsilon", "seed", "alignment", "alignment_layer")
    if (glossary := options.get("glossary")) is not None:
        glossary = Glossary.of(glossary) if isinstance(glossary, Mapping) else Glossary.read(Path(glossary))
    return Search(
        num_beams=num_beams,
        length_penalty=length_penalty,
        prefix=prefix,
        n_best=1 if n_best is None else n_best,
        glossary=glossary,
        **{name: options[name] for name in own if name in options},
    )


def plain_work(**decoding: Any) -> Work:
    """The best translation of each text; options are those of `translate_texts`."""
    return partial(_translate, decoding)


def searching_work(search: "Search", *, with_prefixes: bool = False, show_progress: bool = True) -> Work:
    """The hypotheses for each text.

    Args:
        with_prefixes: whether behind the last tab of each text stands what its translation is to begin with.
    """
    return partial(_search, search, with_prefixes, show_progress)


def aligned_work(work: Work, prefix: str) -> Work:
    """The same, whose results are translations; those of texts with codes inside say which words belong together.

    Args:
        work: `plain_work` or `searching_work`.
        prefix: that it puts before every text.
    """
    return partial(_align, work, prefix)


def sure_work(work: Work, prefix: str) -> Work:
    """The same, whose results are translations that say how sure the model is of them; arguments as `aligned_work`."""
    return partial(_measure, work, prefix)


def with_prefix(text: str, prefix: str) -> str:
    """A text and what its translation is to begin with, as one."""
    return f"{text}\t{prefix}"


def _translate(decoding: dict[str, Any], translator: Translator, texts: Sequence[str], note: Notes) -> list[str]:
    model, tokenizer, target_tokenizer = translator.model, translator.tokenizer, translator.target_tokenizer
    return streaming.translate_texts(model, tokenizer, texts, note, target_tokenizer=target_tokenizer, **decoding)


def _align(work: Work, prefix: str, translator: Translator, texts: Sequence[str], note: Notes) -> list[str]:
    from ..decoding.alignment import align_words

    found = [text_of(result) for result in work(translator, texts, note)]
    places = [place for place, text in enumerate(texts) if isinstance(text, TextWithCodes) and found[place]]
    tokenizers = translator.tokenizer, translator.target_tokenizer
    pairs = [texts[place] for place in places], [found[place] for place in places]
    try:
        alignments = align_words(translator.model, *tokenizers, *pairs, longest=translator.longest, prefix=prefix)
    except InputError:  # attention that has no weights, or tokens that do not say where they are: by estimate
        return found
    for place, alignment in zip(places, alignments, strict=True):
        found[place] = AlignedText(found[place], alignment)
    return found


def _measure(work: Work, prefix: str, translator: Translator, texts: Sequence[str], note: Notes) -> list[str]:
    from ..translation.likelihood import confidences

    found = [text_of(result) for result in work(translator, texts, note)]
    places = [place for place, translation in enumerate(found) if translation.strip()]
    sources, translations = [prefix + texts[place] for place in places], [found[place] for place in places]
    model, tokenizer, target_tokenizer = translator.model, translator.tokenizer, translator.target_tokenizer
    sure = confidences(model, tokenizer, target_tokenizer, sources, translations)
    for place, confidence in zip(places, sure, strict=True):
        found[place] = SureText(found[place], confidence)
    return found


def _search(
    search: "Search",
    with_prefixes: bool,
    show_progress: bool,
    translator: Translator,
    texts: Sequence[str],
    note: Notes,
) -> "list[list[Hypothesis]]":
    prefixes = None
    if with_prefixes:
        parts = [text.rpartition("\t") if "\t" in text else (text, "", "") for text in texts]
        texts, prefixes = [source for source, _, _ in parts], [prefix for *_, prefix in parts]
    from ..decoding.search import search_texts

    return search_texts(translator, texts, note, search, target_prefixes=prefixes, show_progress=show_progress)
