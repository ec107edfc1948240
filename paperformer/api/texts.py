"""A finished model on text: translate, score translations, continue a text."""

import logging
import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from ..commands.loading import check_task, load_config
from ..training.console.input_error import InputError
from .given_models import Model, load_given, place_of, search_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ..commands.loading import Dtype
    from ..decoding.alignment import Alignment
    from ..decoding.n_best import Hypothesis
    from ..training.evaluation.metrics import Score, ScoringOptions
    from ..training.evaluation.significance import TestName
    from ..training.evaluation.translation_report import TranslationReport

logger = logging.getLogger(__name__)

LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Searching(TypedDict, total=False):
    """What a search for translations is to do besides, and how.

    Args:
        ensemble: other models that write together with the first, with the same tokenizer.
        mbr: how many samples minimum-Bayes-risk decoding chooses from, instead of beam search.
        epsilon: the least probability of a token that is sampled; 0.02 if not given, 0 samples from all.
        seed: of the samples; 1 if not given.
        target_prefix: what every translation begins with, or one for each text.
        glossary: terms and how each is to be translated, or a file of them, a term, a tab and its translation a line.
        alignment: whether the hypotheses tell which words belong together.
        alignment_layer: by the attention of which layer of the decoder, from 0; by default the last but one.
        src_lang, tgt_lang: codes of the languages, of a model that knows many (M2M100, NLLB, mBART); a model that has
            been loaded is set to them.
        dtype: what the model is computed in: float32, bfloat16, or on a CPU int8; by default as its weights are stored.
    """

    ensemble: "Sequence[Model]"
    mbr: int
    epsilon: float
    seed: int
    target_prefix: str | Sequence[str]
    glossary: str | os.PathLike[str] | Mapping[str, str]
    alignment: bool
    alignment_layer: int
    src_lang: str
    tgt_lang: str
    dtype: "Dtype | None"


@overload
def translate(
    model: Model,
    texts: Sequence[str],
    num_beams: int | None = ...,
    length_penalty: float | None = ...,
    *,
    prefix: str = ...,
    n_best: None = None,
    processes: int = ...,
    engine: str = ...,
    tokenizer: "PreTrainedTokenizerBase | None" = ...,
    trust_remote_code: bool = ...,
    **searching: Unpack[Searching],
) -> list[str]: ...


@overload
def translate(
    model: Model,
    texts: Sequence[str],
    num_beams: int | None = ...,
    length_penalty: float | None = ...,
    *,
    prefix: str = ...,
    n_best: int,
    processes: int = ...,
    engine: str = ...,
    tokenizer: "PreTrainedTokenizerBase | None" = ...,
    trust_remote_code: bool = ...,
    **searching: Unpack[Searching],
) -> "list[list[Hypothesis]]": ...


def translate(
    model: Model,
    texts: Sequence[str],
    num_beams: int | None = None,
    length_penalty: float | None = None,
    *,
    prefix: str = "",
    n_best: int | None = None,
    processes: int = 1,
    engine: str = "torch",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    trust_remote_code: bool = False,
    **searching: Unpack[Searching],
) -> "list[str] | list[list[Hypothesis]]":
    """Translations of texts, one for each, in their order; of a text without characters, an empty one.

    Args:
        model: a translation model, ours or any encoder-decoder of transformers.
        texts: raw; what is longer than the model takes is translated in pieces, and a warning says so.
        num_beams: beam size; 1 is greedy and fastest. By default the model's own, or 5.
        length_penalty: exponent of the length that divides a log-probability. By default the model's own, or 1.
        prefix: put before every text: a language tag, or what T5 is told to do.
        n_best: how many translations of each text, as hypotheses with their scores, best first.
        processes: how many translate, each a share of the texts; on several GPUs each on one of its own. The model is
            then a folder or a name, since each process loads it.
        engine: what computes: torch, or a format of `export_model`; the model is then an export's folder, or a model's
            folder, of which an export is made and kept in a cache.
        tokenizer: of a model that has been loaded.
        trust_remote_code: whether Python code that lies in the model's folder may run; our own models never need it.
        searching: see `Searching`, and docs/translation.md.

    Returns:
        Texts; with `n_best`, lists of hypotheses. A warning tells of translations without a term that they should have.

    Raises:
        InputError: for a value out of its range, values that exclude each other, texts that are no list, or a model
            that cannot be loaded or is for another task.
    """
    from .model_processes import ModelProcesses
    from .translators import LOADING, load_translator, plain_work, read_search, searching_work, with_prefix

    _check_texts("texts", texts)
    if processes < 1:
        raise InputError(f"processes is {processes}; it must be at least 1")
    if engine != "torch" and processes > 1:
        raise InputError(f"processes is {processes} and engine is {engine!r}; engines but torch are for one process")
    if searching.get("alignment") and n_best is None:
        raise InputError("alignment is for hypotheses, which n_best gives: give that too, n_best=1 will do")
    num_beams, length_penalty = search_of(model, num_beams, length_penalty, n_best)
    search = read_search(num_beams, length_penalty, prefix, n_best, searching)
    target_prefix = searching.get("target_prefix", "")
    if search is not None and target_prefix:
        each = [target_prefix] * len(texts) if isinstance(target_prefix, str) else target_prefix
        if len(each) != len(texts):
            raise InputError(f"there are {len(texts)} texts and {len(each)} of target_prefix; each must have one")
        texts = [with_prefix(text, own) for text, own in zip(texts, each, strict=True)]
    work = plain_work(num_beams=num_beams, length_penalty=length_penalty, prefix=prefix)
    if search is not None:
        work = searching_work(search, with_prefixes=bool(target_prefix))

    def note(index: int, what: str) -> None:
        logger.warning("text %d: %s", index + 1, what)

    ensemble = searching.get("ensemble", ())
    options: dict[str, Any] = {name: searching[name] for name in LOADING if name in searching}
    options["trust_remote_code"] = trust_remote_code
    if processes > 1 and len(texts) > 1:
        places = []
        for one in (model, *ensemble):
            if not isinstance(one, str | os.PathLike):
                raise InputError(f"processes is {processes}; the model must then be a folder or a name on the Hub")
            places.append(place_of(one))
            check_task(load_config(places[-1], trust_remote_code=trust_remote_code), "translation", places[-1])
        with ModelProcesses(partial(load_translator, places[0], places[1:], **options), processes) as pool:
            found = pool.do(work, texts, note)
    else:
        if engine != "torch" and (search is not None or ensemble):
            raise InputError(f"engine is {engine!r}, which finds one best translation of each text; use torch for more")
        found = work(load_translator(model, ensemble, tokenizer=tokenizer, engine=engine, **options), texts, note)
    return found if search is None or n_best is not None else [hypotheses[0].text for hypotheses in found]


def align(
    model: Model,
    sources: Sequence[str],
    translations: Sequence[str],
    *,
    layer: int | None = None,
    prefix: str = "",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    trust_remote_code: bool = False,
) -> "list[Alignment]":
    """Which words of texts and of given translations belong together, by the model's attention.

    Args:
        model, prefix, tokenizer, trust_remote_code: as `translate` takes them.
        sources, translations: raw; of what is longer than the model takes the beginning is aligned.
        layer: of the decoder, whose attention decides, from 0; by default the last but one.

    Returns:
        For each pair, places of a word of the source and of one of the translation, from 0. Words are what white space
        separates.

    Raises:
        InputError: if there are not as many of each, or no such layer; if the attention is linear, or a tokenizer does
            not say where its tokens are; for a model that cannot be loaded or is for another task.
    """
    from ..decoding.alignment import align_words
    from .translators import load_translator

    _check_texts("sources", sources)
    _check_texts("translations", translations)
    if len(sources) != len(translations):
        raise InputError(f"there are {len(sources)} sources and {len(translations)} translations; each must have one")
    translator = load_translator(model, tokenizer=tokenizer, trust_remote_code=trust_remote_code)
    return align_words(
        translator.model,
        translator.tokenizer,
        translator.target_tokenizer,
        sources,
        translations,
        longest=translator.longest,
        prefix=prefix,
        layer=layer,
    )


def evaluate(
    model: Model,
    sources: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    num_beams: int | None = None,
    length_penalty: float | None = None,
    *,
    options: "ScoringOptions | None" = None,
    resamples: int = 1000,
    prefix: str = "",
    processes: int = 1,
    engine: str = "torch",
    src_lang: str = "",
    tgt_lang: str = "",
    dtype: "Dtype | None" = None,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    trust_remote_code: bool = False,
) -> "list[Score]":
    """Translates and compares with references: BLEU, chrF, chrF++ and TER of sacreBLEU, and exact match.

    Args:
        model, num_beams, length_penalty, prefix, processes, engine, src_lang, tgt_lang, dtype, tokenizer,
            trust_remote_code: as `translate` takes them.
        sources: raw texts.
        references: a raw translation of each; or several streams of them, one after another.
        options: how translations and references are compared.
        resamples: from how many bootstrap resamples the intervals are estimated (`Score.confidence`); 0 leaves them
            out.

    Raises:
        InputError: as `translate` does; also if there are no sources, or not as many references.
    """
    from ..training.evaluation.metrics import score_outputs

    _check_texts("sources", sources)
    streams = check_references(references, len(sources))
    outputs = translate(
        model,
        sources,
        num_beams,
        length_penalty,
        prefix=prefix,
        processes=processes,
        engine=engine,
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        dtype=dtype,
        tokenizer=tokenizer,
        trust_remote_code=trust_remote_code,
    )
    return score_outputs(outputs, streams, options, resamples=resamples)


def score(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    sources: Sequence[str] | None = None,
    *,
    name: str = "system",
    baseline: tuple[str, Sequence[str]] | None = None,
    options: "ScoringOptions | None" = None,
    test: "TestName" = "bootstrap",
    resamples: int = 1000,
) -> "TranslationReport":
    """Scores finished translations in all ways, also beside another system's.

    Args:
        hypotheses: the translations.
        references: a raw reference of each; or several streams of them, one after another.
        sources: raw texts, where they are known.
        name: of the system.
        baseline: name and translations of a system to compare with; see `TranslationReport.comparisons`.
        options: how translations and references are compared.
        test: of significance: bootstrap or randomisation.
        resamples: from how many bootstrap resamples intervals are estimated; 0 leaves them out.

    Raises:
        InputError: if there are no translations, or not as many of each.
    """
    from ..training.evaluation.translation_report import report_translations

    _check_texts("hypotheses", hypotheses)
    streams = check_references(references, len(hypotheses), "hypotheses")
    for what, texts in (("sources", sources), ("the baseline's translations", baseline[1] if baseline else None)):
        if texts is not None and len(texts) != len(hypotheses):
            raise InputError(f"there are {len(hypotheses)} hypotheses, and of {what} {len(texts)}; each must have one")
    return report_translations(
        hypotheses, streams, sources, name=name, baseline=baseline, options=options, test=test, resamples=resamples
    )


def check_references(
    references: Sequence[str] | Sequence[Sequence[str]], count: int, what: str = "sources"
) -> list[list[str]]:
    """References as streams.

    Raises:
        InputError: if there are none, or not as many as there are `what`.
    """
    _check_list("references", references)  # type: ignore[arg-type]
    streams = [list(references)] if not references or isinstance(references[0], str) else list(map(list, references))
    for stream in streams:
        if len(stream) != count or not count:
            raise InputError(f"there are {count} {what} and {len(stream)} references; each must have one")
    return streams  # type: ignore[return-value]


class Sampled(TypedDict, total=False):
    """How a language model chooses the next tokens, besides.

    Args:
        top_k: sample from so many likeliest tokens (Fan et al. 2018); 0, the default, from all.
        repetition_penalty: divides the logits of tokens that were there, if they are positive, or else multiplies them
            (Keskar et al. 2019); 1 by default.
        stop: texts; what is written ends before the first of them.
    """

    top_k: int
    repetition_penalty: float
    stop: Sequence[str]


@overload
def generate(
    model: Model,
    prompt: str,
    max_new_tokens: int = ...,
    temperature: float = ...,
    top_p: float = ...,
    seed: int = ...,
    dtype: "Dtype | None" = ...,
    *,
    tokenizer: "PreTrainedTokenizerBase | None" = ...,
    trust_remote_code: bool = ...,
    **sampled: Unpack[Sampled],
) -> str: ...


@overload
def generate(
    model: Model,
    prompt: list[str] | tuple[str, ...],
    max_new_tokens: int = ...,
    temperature: float = ...,
    top_p: float = ...,
    seed: int = ...,
    dtype: "Dtype | None" = ...,
    *,
    num_sequences: int = ...,
    tokenizer: "PreTrainedTokenizerBase | None" = ...,
    trust_remote_code: bool = ...,
    **sampled: Unpack[Sampled],
) -> list[list[str]]: ...


def generate(
    model: Model,
    prompt: str | list[str] | tuple[str, ...],
    max_new_tokens: int = 200,
    temperature: float = 0.9,
    top_p: float = 0.95,
    seed: int = 1,
    dtype: "Dtype | None" = None,
    *,
    num_sequences: int = 1,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    trust_remote_code: bool = False,
    **sampled: Unpack[Sampled],
) -> str | list[list[str]]:
    """A text and its continuation, by nucleus sampling (Holtzman et al. 2019); or those of several.

    Args:
        model: a language model.
        prompt: the text to continue, or several.
        max_new_tokens: longest continuation, in tokens.
        temperature: divides the logits: below 1 safer, above 1 wilder; 0 takes the likeliest token (greedy).
        top_p: sample from the smallest set of tokens that has this probability.
        seed: of the sampling. With the prompt it decides the sample, whatever is sampled beside it; torch's own random
            state is not touched.
        dtype: what the model is computed in: float32, bfloat16, or on a CPU int8; None: as its weights are stored. The
            model is then a folder or a name.
        num_sequences: how many continuations of each prompt, where several prompts are given.
        tokenizer, trust_remote_code: as `translate` takes them.
        sampled: see `Sampled`.

    Returns:
        The prompt and its continuation; for several prompts, a list of such texts for each.

    Raises:
        InputError: for a value out of its range, or a model that cannot be loaded or is for another task.
    """
    from ..decoding.continuations import Sampling, continue_prompts

    sampling = Sampling(
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        num_sequences=num_sequences,
        **{**sampled, "stop": tuple(sampled.get("stop", ()))},  # type: ignore[arg-type]
    )
    loaded, own_tokenizer = load_given(model, "text-generation", tokenizer, trust_remote_code, dtype=dtype)

    def note(index: int, what: str) -> None:
        logger.warning("prompt %d: %s", index + 1, what)

    prompts = [prompt] if isinstance(prompt, str) else prompt
    found = [
        [each.prompt + each.text for each in continuations]
        for continuations in continue_prompts(loaded, own_tokenizer, prompts, sampling, note)
    ]
    return found[0][0] if isinstance(prompt, str) else found


def _check_list(name: str, texts: Sequence[str]) -> None:
    if isinstance(texts, str):  # its characters would be taken for texts
        raise InputError(f"{name} is one text; it must be a list of texts")
    if isinstance(texts, bytes | Mapping) or not hasattr(texts, "__len__"):  # an iterator can be read once only
        raise InputError(f"{name} is a {type(texts).__name__}; it must be a list of texts")


def _check_texts(name: str, texts: Sequence[str]) -> None:
    _check_list(name, texts)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"{name}[{place}] is a {type(text).__name__}; it must be a text, a str")
        if LONE_SURROGATE.search(text):
            raise InputError(f"{name}[{place}] has half of a surrogate pair, which is no character: {text[:40]!r}...")
