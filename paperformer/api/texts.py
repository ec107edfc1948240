"""A finished model on text: translate, score translations, continue a text."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from ..commands.loading import check_task, load, load_config
from ..training.console.input_error import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ..training.evaluation.metrics import Score, ScoringOptions
    from ..training.evaluation.significance import TestName
    from ..training.evaluation.translation_report import TranslationReport
    from .runs import Run

logger = logging.getLogger(__name__)

Model = Union[str, os.PathLike[str], "Run", "PreTrainedModel"]
"""A model's folder or a run's, a name on the Hub, a run, or a model that has been loaded."""


def translate(
    model: Model,
    texts: Sequence[str],
    num_beams: int = 5,
    length_penalty: float = 1.0,
    *,
    prefix: str = "",
    processes: int = 1,
    engine: str = "torch",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    trust_remote_code: bool = False,
) -> list[str]:
    """Translations of texts, one for each, in their order; of a text without characters, an empty one.

    Args:
        model: a translation model, ours or any encoder-decoder of transformers.
        texts: raw; what is longer than the model takes is translated in pieces, and a warning says so.
        num_beams: beam size; 1 is greedy and fastest.
        length_penalty: exponent of the length by which a beam's log-probability is divided.
        prefix: put before every text: a language tag, or what T5 is told to do.
        processes: how many translate, each a share of the texts; on several GPUs each on one of its own. The model is
            then a folder or a name, since each process loads it.
        engine: what computes: torch, or a format of `export_model`; the model is then an export's folder, or a model's
            folder, of which an export is made and kept in a cache.
        tokenizer: of a model that has been loaded.
        trust_remote_code: whether Python code that lies in the model's folder may run; our own models never need it.

    Raises:
        InputError: for a beam size or a number of processes below 1, texts that are no list, or a model that cannot be
            loaded or is for another task.
    """
    from ..commands.loading import load_target_tokenizer
    from ..translation.streaming import translate_texts
    from .parallel_translation import translate_in_processes

    check_beams(num_beams)
    _check_list("texts", texts)
    if processes < 1:
        raise InputError(f"processes is {processes}; it must be at least 1")
    decoding: dict[str, Any] = {"num_beams": num_beams, "length_penalty": length_penalty, "prefix": prefix}

    def note(index: int, what: str) -> None:
        logger.warning("text %d: %s", index + 1, what)

    if engine != "torch" and processes > 1:
        raise InputError(f"processes is {processes} and engine is {engine!r}; engines but torch are for one process")
    if processes > 1 and len(texts) > 1:
        if not isinstance(model, str | os.PathLike):
            raise InputError(f"processes is {processes}; the model must then be a folder or a name on the Hub")
        place = place_of(model)
        check_task(load_config(place, trust_remote_code=trust_remote_code), "translation", place)
        return translate_in_processes(place, texts, note, processes, trust_remote_code=trust_remote_code, **decoding)
    loaded, own_tokenizer = load_given(model, "translation", tokenizer, trust_remote_code, engine)
    return translate_texts(
        loaded, own_tokenizer, texts, note, target_tokenizer=load_target_tokenizer(loaded), **decoding
    )


def evaluate(
    model: Model,
    sources: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    num_beams: int = 5,
    length_penalty: float = 1.0,
    *,
    options: "ScoringOptions | None" = None,
    resamples: int = 1000,
    prefix: str = "",
    processes: int = 1,
    engine: str = "torch",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    trust_remote_code: bool = False,
) -> "list[Score]":
    """Translates and compares with references: BLEU, chrF, chrF++ and TER of sacreBLEU, and exact match.

    Args:
        model, num_beams, length_penalty, prefix, processes, engine, tokenizer, trust_remote_code: as `translate` takes
            them.
        sources: raw texts.
        references: a raw translation of each; or several streams of them, one after another.
        options: how translations and references are compared.
        resamples: from how many bootstrap resamples the intervals are estimated (`Score.confidence`); 0 leaves them
            out.

    Raises:
        InputError: as `translate` does; also if there are no sources, or not as many references.
    """
    from ..training.evaluation.metrics import score_outputs

    _check_list("sources", sources)
    streams = check_references(references, len(sources))
    outputs = translate(
        model,
        sources,
        num_beams,
        length_penalty,
        prefix=prefix,
        processes=processes,
        engine=engine,
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

    _check_list("hypotheses", hypotheses)
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


def generate(
    model: Model,
    prompt: str,
    max_new_tokens: int = 200,
    temperature: float = 0.9,
    top_p: float = 0.95,
    seed: int = 1,
    *,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    trust_remote_code: bool = False,
) -> str:
    """A text and its continuation, by nucleus sampling (Holtzman et al. 2019).

    Args:
        model: a language model.
        prompt: the text to continue.
        max_new_tokens: longest continuation, in tokens.
        temperature: divides the logits: below 1 safer, above 1 wilder; 0 takes the likeliest token (greedy).
        top_p: sample from the smallest set of tokens that has this probability.
        seed: of the sampling; torch's own state is as it was afterwards.
        tokenizer, trust_remote_code: as `translate` takes them.

    Raises:
        InputError: for a value out of its range, or a model that cannot be loaded or is for another task.
    """
    import torch

    from ..training.evaluation.decoding import generate as generate_ids

    if max_new_tokens < 1:
        raise InputError(f"max_new_tokens is {max_new_tokens}; it must be at least 1")
    if not temperature >= 0:
        raise InputError(f"temperature is {temperature}; it must be at least 0")
    if not 0 < top_p <= 1:
        raise InputError(f"top_p is {top_p}; it must be greater than 0 and at most 1")
    loaded, own_tokenizer = load_given(model, "text-generation", tokenizer, trust_remote_code)
    sampling: dict[str, Any] = {"do_sample": False}
    if temperature > 0:
        sampling = {"do_sample": True, "temperature": temperature, "top_p": top_p}
    # In training every text begins with <s>.
    ids = [own_tokenizer.bos_token_id, *own_tokenizer(prompt, add_special_tokens=False).input_ids]
    input_ids = torch.tensor([ids], device=loaded.device)  # (1, tokens)
    with torch.random.fork_rng([loaded.device] if loaded.device.type == "cuda" else []):
        torch.manual_seed(seed)
        output = generate_ids(
            loaded,
            input_ids=input_ids,
            attention_mask=torch.ones_like(input_ids),
            max_new_tokens=max_new_tokens,
            **sampling,
        )
    (text,) = own_tokenizer.batch_decode(output, skip_special_tokens=True)
    return text


def check_beams(num_beams: int) -> None:
    """Raises InputError if there is no such beam size."""
    if num_beams < 1:
        raise InputError(f"num_beams is {num_beams}; it must be at least 1")


def _check_list(name: str, texts: Sequence[str]) -> None:
    if isinstance(texts, str):  # its characters would be taken for texts
        raise InputError(f"{name} is one text; it must be a list of texts")


def load_given(
    model: Model,
    task: str | None,
    tokenizer: "PreTrainedTokenizerBase | None",
    trust_remote_code: bool,
    engine: str = "torch",
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """The model in evaluation mode, or an export that stands in for it, and its tokenizer."""
    from .runs import Run

    if engine != "torch":
        from ..export.running import load_engine

        if not isinstance(model, str | os.PathLike):
            raise InputError(f"engine is {engine!r}; the model must then be a folder")
        stand_in: Any = load_engine(place_of(model), engine)
        return stand_in, tokenizer or stand_in.tokenizer
    if isinstance(model, str | os.PathLike):
        loaded, own_tokenizer = load(place_of(model), task, trust_remote_code=trust_remote_code)
        return loaded, tokenizer or own_tokenizer
    if isinstance(model, Run):
        check_task(model.model.config, task, str(model.folder))
        return model.model, tokenizer or model.tokenizer
    if tokenizer is None:
        raise InputError("a model that has been loaded needs its tokenizer: tokenizer=...")
    check_task(model.config, task, "the model")
    return model.eval(), tokenizer


def place_of(model: str | os.PathLike[str]) -> str:
    """A model's folder, be it given by that of its run, or its name on the Hub.

    Raises:
        InputError: if the run is not finished.
    """
    from .runs import Run

    place = os.fspath(model)
    return str(Run(place).model_folder) if (Path(place) / "recipe.yaml").is_file() else place
