"""How likely given texts are to a model, one by one."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..commands.loading import check_task, load_config, load_target_tokenizer
from ..decoding.translator import Translator
from ..training.console.input_error import InputError
from ..translation.cutting import Notes
from .given_models import Model, load_given, place_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ..decoding.log_probabilities import TextScore

logger = logging.getLogger(__name__)


def log_probabilities(
    model: Model,
    texts: Sequence[str],
    translations: Sequence[str] | None = None,
    *,
    prefix: str = "",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    trust_remote_code: bool = False,
) -> "list[TextScore]":
    """How likely texts are to a language model, each as a document; or translations of texts to a translation model.

    Args:
        model: a language model or a translation model, ours or of transformers.
        texts: raw; of a translation model the sources.
        translations: of the sources, raw.
        prefix: put before every source.
        tokenizer: of a model that has been loaded.
        trust_remote_code: whether Python code that lies in the model's folder may run; our own models never need it.

    Returns:
        For each text or pair the sum of the log-probabilities of its tokens in nats, their number and their mean.

    Raises:
        InputError: if there are not as many of each; for a model that cannot be loaded or is for another task.
    """
    given: dict[str, Sequence[str] | None] = {"texts": texts, "translations": translations}
    for name, value in given.items():
        if isinstance(value, str):
            raise InputError(f"{name} is one text; it must be a list of texts")
    if translations is not None and len(texts) != len(translations):
        raise InputError(f"there are {len(texts)} texts and {len(translations)} translations; each must have one")
    from ..decoding.log_probabilities import score_pairs, score_texts

    task = "text-generation" if translations is None else "translation"
    loaded, own_tokenizer = load_given(model, task, tokenizer, trust_remote_code)
    translator = Translator(loaded, own_tokenizer, load_target_tokenizer(loaded))

    def note(index: int, what: str) -> None:
        logger.warning("text %d: %s", index + 1, what)

    if translations is None:
        return score_texts(translator, texts, note)
    return score_pairs(translator, texts, translations, note, prefix)


def likelihood_model(model: str, *, trust_remote_code: bool = False) -> tuple[str, bool]:
    """Where a model lies, and whether it scores pairs (a source, a tab, a translation) or texts; nothing is loaded.

    Raises:
        InputError: if it cannot be found, or is neither for translation nor a language model.
    """
    place = place_of(model)
    config = load_config(place, trust_remote_code=trust_remote_code)
    if config.is_encoder_decoder:
        return place, True
    check_task(config, "text-generation", place)
    return place, False


def load_scorer(place: str, *, trust_remote_code: bool = False) -> Translator:
    """The model that `score_lines` takes, here or in another process."""
    loaded, tokenizer = load_given(place, None, None, trust_remote_code)
    return Translator(loaded, tokenizer, load_target_tokenizer(loaded))


def score_lines(prefix: str, translator: Translator, lines: Sequence[str], note: Notes) -> "list[TextScore]":
    """How likely lines are: of a translation model a source, a tab and its translation, else texts."""
    from ..decoding.log_probabilities import score_pairs, score_texts

    if not translator.model.config.is_encoder_decoder:
        return score_texts(translator, lines, note)
    parts = [line.rpartition("\t") for line in lines]
    return score_pairs(translator, [source for source, _, _ in parts], [text for *_, text in parts], note, prefix)
