"""The tokenizers of a run: trained, given, or already in its folder; joint, or one for each side of a translation."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ...configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from ...tokenization import train_tokenizer
from ..console.input_error import InputError
from ..console.progress import say
from ..recipe.recipe import Recipe
from ..recipe.tokenizer import TokenizerOptions
from .cache import cached_folder
from .corpus import Corpus, TextStream

TARGET_FOLDER = PaperformerSeq2SeqConfig.target_tokenizer_folder
"""Where a target's own tokenizer lies inside the folder of the source's."""


@dataclass(frozen=True, kw_only=True)
class TokenizerNeeds:
    """What an objective needs of a tokenizer."""

    append_eos: bool | None
    """Whether `</s>` ends each encoded text; None if it does not matter, a trained one then has none."""

    max_length: int | None = None
    """The model's longest input in tokens, if longer ones are cut off."""

    mask_token: bool = False
    sentinels: int = 0
    """How many tokens that stand for spans of text."""

    @property
    def has_placeholders(self) -> bool:
        """Whether people write special tokens into their texts, where something is to be filled in."""
        return self.mask_token or self.sentinels > 0


class Tokenizers(NamedTuple):
    """What a run's text is encoded with; for language models and joint vocabularies, the same one twice."""

    source: PreTrainedTokenizerFast
    target: PreTrainedTokenizerFast

    @property
    def are_separate(self) -> bool:
        """Whether each side has a vocabulary of its own."""
        return self.source is not self.target

    def save(self, folder: Path) -> None:
        """Writes them, loadable by `AutoTokenizer`: the source's into the folder, the target's into a folder in it."""
        self.source.save_pretrained(folder)
        if self.are_separate:
            self.target.save_pretrained(folder / TARGET_FOLDER)

    def limited_to(self, longest: int | None) -> "Tokenizers":
        """The same, which know how many tokens a model takes at most (`model_max_length`); None: any number.

        What cuts texts, such as a pipeline with `truncation=True`, then cuts them there.
        """
        if longest is not None:
            for tokenizer in self:
                tokenizer.model_max_length = min(tokenizer.model_max_length, longest)
        return self


def load_tokenizers(folder: Path) -> Tokenizers:
    """Reads what `Tokenizers.save` has written, or any saved fast tokenizer.

    Raises:
        InputError: if it holds no fast tokenizer.
    """
    source = _load(folder)
    return Tokenizers(source, _load(folder / TARGET_FOLDER) if (folder / TARGET_FOLDER).is_dir() else source)


def sentinel_ids(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Ids of `<extra_id_0>`, `<extra_id_1>` and so on, as many as there are."""
    vocab = tokenizer.get_vocab()
    ids: list[int] = []
    while (token := f"<extra_id_{len(ids)}>") in vocab:
        ids.append(vocab[token])
    return ids


def given_tokenizers(options: TokenizerOptions, needs: TokenizerNeeds) -> Tokenizers:
    """The tokenizers of `tokenizer.path`, if they suit the objective.

    Raises:
        InputError: if there are none, or if they lack what the task needs.
    """
    path = Path(options.path or "")
    if not (path / "tokenizer.json").is_file():
        raise InputError(f"tokenizer.path: there is no tokenizer.json in {path}")
    try:
        tokenizers = load_tokenizers(path)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"tokenizer.path: {path} holds no tokenizer: {str(error).splitlines()[0]}") from error
    check_tokenizers(tokenizers, options, needs, place=f"tokenizer.path: the tokenizer of {path}")
    return tokenizers


def check_tokenizers(tokenizers: Tokenizers, options: TokenizerOptions, needs: TokenizerNeeds, place: str) -> None:
    """Checks that tokenizers suit an objective.

    Args:
        place: what errors call them.

    Raises:
        InputError: naming what they lack.
    """
    if tokenizers.are_separate != options.separate:
        has = "is one of two" if tokenizers.are_separate else f"is for both sides (no {TARGET_FOLDER}/)"
        raise InputError(f"{place} {has}, and tokenizer.separate is {options.separate}")
    for tokenizer in tokenizers:
        for name in ("pad_token", "bos_token", "eos_token"):
            if getattr(tokenizer, name) is None:
                raise InputError(f"{place} has no {name}")
        appends_eos = tokenizer("").input_ids[-1:] == [tokenizer.eos_token_id]
        if needs.append_eos is not None and appends_eos != needs.append_eos:
            must = "must end every text with" if needs.append_eos else "must not end texts with"
            raise InputError(f"{place} {must} {tokenizer.eos_token} for this task")
        if needs.mask_token and tokenizer.mask_token is None:
            raise InputError(f"{place} has no mask_token, which this task needs")
        if (sentinels := len(sentinel_ids(tokenizer))) < needs.sentinels:
            raise InputError(
                f"{place} has {sentinels} sentinels <extra_id_N>, and this task needs {needs.sentinels}; take another "
                "tokenizer or a smaller data.context_length"
            )


def trained_tokenizers(
    recipe: Recipe[Any], train: Corpus | TextStream, cache: Path, needs: TokenizerNeeds
) -> Tokenizers:
    """Tokenizers trained on the training text, or on an equal text before.

    Args:
        recipe: the run's options.
        train: the training text.
        cache: folder of the caches.
        needs: what the tokenizers must have.

    Raises:
        InputError: if the text or the options do not allow it.
    """
    options = recipe.tokenizer

    def trained(columns: Sequence[str]) -> PreTrainedTokenizerFast:
        say(f"training a tokenizer of {options.vocab_size:,} entries on the {' and the '.join(columns)}")
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always", UserWarning)
            try:
                tokenizer = train_tokenizer(
                    train.texts(*columns),
                    algorithm=options.algorithm,
                    vocab_size=options.vocab_size,
                    append_eos=bool(needs.append_eos),
                    # Behind a placeholder, text would begin with a space that is not there.
                    prefix_space=False if needs.has_placeholders else None,
                    mask_token=needs.mask_token,
                    sentinels=needs.sentinels,
                    find_special_tokens=needs.has_placeholders,
                    split_digits=options.split_digits,
                    min_frequency=options.min_frequency,
                    normalization=recipe.cleaning.normalization,
                    user_symbols=options.user_symbols,
                    model_max_length=needs.max_length,
                )
            except ValueError as error:
                raise InputError(f"tokenizer: {error}") from error
        for note in notes:
            say(f"note: {note.message}")
        return tokenizer

    def write(folder: Path) -> None:
        if options.separate:
            tokenizers = Tokenizers(trained(["source"]), trained(["target"]))
        else:
            joint = trained(["source", "target"] if train.is_parallel else ["text"])
            tokenizers = Tokenizers(joint, joint)
        tokenizers.save(folder)

    if isinstance(train, TextStream):  # not known by its content, which has not been read
        with TemporaryDirectory() as folder:
            write(Path(folder))
            return load_tokenizers(Path(folder))
    ingredients = {
        "text": train.folder.name,
        "options": asdict(replace(options, path=None, bpe_dropout=0.0, unigram_alpha=0.0, pad_vocab_to_multiple_of=1)),
        "normalization": recipe.cleaning.normalization,
        "needs": asdict(needs),
        "versions": [version("paperformer"), version("tokenizers"), version("transformers")],
    }
    return load_tokenizers(cached_folder(cache, "tokenizer", ingredients, write))


def padded_size(tokenizer: PreTrainedTokenizerFast, multiple: int) -> int:
    """Rows of the embedding of a vocabulary: its size, rounded up to a multiple."""
    return math.ceil(len(tokenizer) / multiple) * multiple


def _load(path: Path) -> PreTrainedTokenizerFast:
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise InputError(f"{path} holds a {type(tokenizer).__name__}; it must be a fast tokenizer (tokenizer.json)")
    return tokenizer
