"""A finished model on text: translate, score translations, continue a text."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from ..commands.loading import check_task, load, load_target_tokenizer
from ..training.console.input_error import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ..training.evaluation.metrics import Score
    from .runs import Run

Model = Union[str, os.PathLike[str], "Run", "PreTrainedModel"]
"""A model's folder or a run's, a name on the Hub, a run, or a model that has been loaded."""


def translate(
    model: Model,
    texts: Sequence[str],
    num_beams: int = 5,
    length_penalty: float = 1.0,
    *,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    trust_remote_code: bool = False,
) -> list[str]:
    """Translations of texts, one for each, in their order; of a text without characters, an empty one.

    Args:
        model: a translation model.
        texts: raw; what is longer than the model takes is cut off.
        num_beams: beam size; 1 is greedy and fastest.
        length_penalty: exponent of the length by which a beam's log-probability is divided.
        tokenizer: of a model that has been loaded.
        trust_remote_code: whether Python code that lies in the model's folder may run; our own models never need it.

    Raises:
        InputError: for a beam size below 1, texts that are no list, or a model that cannot be loaded or is for
            another task.
    """
    from ..training.evaluation.decoding import translate as translate_texts

    check_beams(num_beams)
    _check_list("texts", texts)
    loaded, own_tokenizer = _loaded(model, "translation", tokenizer, trust_remote_code)
    filled = [index for index, text in enumerate(texts) if text.strip()]
    outputs = translate_texts(
        loaded,
        own_tokenizer,
        [texts[index] for index in filled],
        target_tokenizer=load_target_tokenizer(loaded),
        num_beams=num_beams,
        length_penalty=length_penalty,
        max_length=min(own_tokenizer.model_max_length, loaded.config.max_position_embeddings),
    )
    translated = dict(zip(filled, outputs, strict=True))
    return [translated.get(index, "") for index in range(len(texts))]


def evaluate(
    model: Model,
    sources: Sequence[str],
    references: Sequence[str],
    num_beams: int = 5,
    length_penalty: float = 1.0,
    *,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    trust_remote_code: bool = False,
) -> "list[Score]":
    """Translates and compares with references: sacreBLEU and chrF with signatures, exact match in percent.

    Args:
        model, num_beams, length_penalty, tokenizer, trust_remote_code: as `translate` takes them.
        sources: raw texts.
        references: a raw translation of each.

    Raises:
        InputError: as `translate` does; also if there are no sources, or not as many references.
    """
    from ..training.evaluation.metrics import score_outputs

    _check_list("sources", sources)
    _check_list("references", references)
    if len(sources) != len(references) or not sources:
        raise InputError(f"there are {len(sources)} sources and {len(references)} references; each must have one")
    options: dict[str, Any] = {"tokenizer": tokenizer, "trust_remote_code": trust_remote_code}
    return score_outputs(translate(model, sources, num_beams, length_penalty, **options), references)


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
    loaded, own_tokenizer = _loaded(model, "text-generation", tokenizer, trust_remote_code)
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


def _loaded(
    model: Model, task: str, tokenizer: "PreTrainedTokenizerBase | None", trust_remote_code: bool
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """The model in evaluation mode, and its tokenizer."""
    from .runs import Run

    if isinstance(model, str | os.PathLike):
        place = os.fspath(model)
        if (Path(place) / "recipe.yaml").is_file():  # a run's folder
            place = str(Run(place).model_folder)
        loaded, own_tokenizer = load(place, task, trust_remote_code=trust_remote_code)
        return loaded, tokenizer or own_tokenizer
    if isinstance(model, Run):
        check_task(model.model.config, task, str(model.folder))
        return model.model, tokenizer or model.tokenizer
    if tokenizer is None:
        raise InputError("a model that has been loaded needs its tokenizer: tokenizer=...")
    check_task(model.config, task, "the model")
    return model.eval(), tokenizer
