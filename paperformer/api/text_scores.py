"""How likely a text is to any language model, and how well any masked model fills it in."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ..training.console.input_error import InputError
from .texts import Model, load_given

if TYPE_CHECKING:
    import pyarrow as pa
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ..commands.loading import Dtype
    from ..training.data.corpus import Corpus
    from ..training.data.readers.reader import Documents, Reader
    from ..training.data.readers.sources import Source
    from ..training.data.token_store import TokenStore
    from ..training.evaluation.metrics import Score

Text = str | os.PathLike[str] | Mapping[str, Any]
"""A text itself, the path of a file of running text, or the fields of a source as a recipe has them."""

LONGEST_DEFAULT = 1024
"""Longest context that is taken where nobody asks for one."""


@dataclass(frozen=True, kw_only=True)
class WindowOptions:
    """What decides about windows, and what is to be predicted in them; see `evaluate_text`."""

    context_length: int
    stride: int | None
    end_marks: bool
    mask_probability: float
    pseudo_perplexity_tokens: int


def evaluate_text(
    model: Model,
    text: Text | Sequence[Text],
    *,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    context_length: int | None = None,
    stride: int | None = None,
    documents: "Documents | None" = None,
    end_marks: bool = True,
    mask_probability: float = 0.15,
    pseudo_perplexity_tokens: int = 2000,
    dtype: "Dtype | None" = None,
    trust_remote_code: bool = False,
) -> "list[Score]":
    """Scores of a language model, or of a masked model, on running text.

    Of a language model: loss in nats a token; perplexity a token, a word and a byte; bits a byte. Each document stands
    between the tokenizer's marks, `<s>` and `</s>` in training (where it has no first one, its last stands there too).
    All but the first token are predicted, each once, in windows that overlap. Words are what white space separates in
    the raw text, bytes are its UTF-8. Of a masked model: loss and accuracy of tokens that are masked as in training,
    and pseudo-perplexity of tokens that are masked one at a time (Salazar et al. 2020, arXiv 1910.14659). Scores
    compare where `Score.basis` is the same.

    Args:
        model: a language model or a masked model, ours or any of transformers.
        text: a text (str), a file (Path; see docs/data.md for formats), the fields of a source, such as {"hub": NAME,
            "split": "test"}, or several of these in a list.
        dtype: what the model is computed in: float32, bfloat16, or on a CPU int8; None: as its weights are stored. The
            model is then a folder or a name.
        tokenizer: of a model that has been loaded.
        context_length: tokens a window. By default what the model was tested with, by its evaluation.json, else the
            longest that it takes, at most 1,024.
        stride: how many tokens a window goes on from the last, so that a token is predicted from at least
            context_length - stride before it; by default half a context. Of language models only.
        documents: what the rows of a text or file are, as `data.documents` of a recipe.
        end_marks: whether a language model has to predict the end of each document as well, as in training.
        mask_probability: share of the tokens that a masked model has to predict.
        pseudo_perplexity_tokens: of how many tokens its pseudo-perplexity is estimated; 0 leaves it out.
        trust_remote_code: whether Python code that lies in the model's folder may run; our own models never need it.

    Raises:
        InputError: if the text is empty or cannot be read, if nothing in it is to be predicted, for a value out of its
            range, or a model that cannot be loaded or is for translation.
    """
    from ..training.data.corpus import NothingLeftError, build_corpus
    from ..training.data.splits import AS_THEY_ARE
    from ..training.evaluation.perplexity import fills_in

    if not 0 < mask_probability <= 1:
        raise InputError(f"mask_probability is {mask_probability}; it must be above 0 and at most 1")
    if pseudo_perplexity_tokens < 0:
        raise InputError(f"pseudo_perplexity_tokens is {pseudo_perplexity_tokens}; it must be at least 0")
    given = [text] if isinstance(text, str | os.PathLike | Mapping) else text
    if not (readers := [_reader(one, documents) for one in given]):
        raise InputError("there is no text to score; give one at least")
    loaded, own_tokenizer = load_given(model, None, tokenizer, trust_remote_code, dtype=dtype)
    _check_head(loaded, model)
    options = WindowOptions(
        context_length=_context_length(loaded, own_tokenizer, context_length),
        stride=stride,
        end_marks=end_marks,
        mask_probability=mask_probability,
        pseudo_perplexity_tokens=pseudo_perplexity_tokens,
    )
    _check_stride(stride, options.context_length, fills_in(loaded))
    with TemporaryDirectory() as folder:
        try:
            corpus = build_corpus(Path(folder), "text", readers, AS_THEY_ARE, ("und",))
        except NothingLeftError as error:
            raise InputError("the text has no words, only white space") from error
        store = _token_store(corpus, loaded, own_tokenizer, Path(folder))
        if fills_in(loaded):
            return _masked_scores(loaded, own_tokenizer, store, options)
        return _language_model_scores(loaded, own_tokenizer, store, corpus, options)


def _reader(text: Text, documents: "Documents | None") -> "tuple[Source, Reader]":
    from ..training.data.readers.sources import Source, parse_sources, text_reader
    from ..training.data.readers.text_files import GivenText

    if isinstance(text, str):
        return Source(path="the text"), GivenText(path=Path("the text"), text=text, documents=documents or "joined")
    given = dict(text) if isinstance(text, Mapping) else os.fspath(text)
    (source,) = parse_sources(given, "text", None)
    return source, text_reader(source, documents=documents)


def _check_head(loaded: "PreTrainedModel", model: Model) -> None:
    """Raises InputError if a model does not give probabilities of a text."""
    name = os.fspath(model) if isinstance(model, str | os.PathLike) else "the model"
    if loaded.config.is_encoder_decoder:
        raise InputError(
            f"{name} holds a {loaded.config.model_type}, which writes one text from another; the scores of a text need "
            "a language model or a masked model"
        )
    if loaded.get_output_embeddings() is None:
        raise InputError(f"{name} is a {type(loaded).__name__}; it must be a model that predicts tokens")


def _context_length(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", asked: int | None) -> int:
    from ..training.evaluation.perplexity import fills_in

    limits = [getattr(model.config.get_text_config(), "max_position_embeddings", None)]
    if fills_in(model):  # RoBERTa counts positions from 2
        limits.append(tokenizer.model_max_length)
    # Without a limit there is none, or a huge number.
    longest = min((limit for limit in limits if limit and limit < 10**9), default=None)
    if asked is None:
        asked = _tested_context(model) or LONGEST_DEFAULT
        return asked if longest is None else min(asked, longest)
    if asked < 2:
        raise InputError(f"context_length is {asked}; it must be at least 2")
    if longest is not None and asked > longest:
        raise InputError(f"context_length is {asked:,}; the model takes at most {longest:,} tokens")
    return asked


def _tested_context(model: "PreTrainedModel") -> int | None:
    """The context with which a model was tested in training: it may take more tokens than it has ever seen."""
    from transformers.utils import cached_file

    from ..training.evaluation.evaluation_file import EVALUATION_FILE

    try:
        path = cached_file(
            model.name_or_path or "",
            EVALUATION_FILE,
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
        entries = json.loads(Path(path).read_text("utf-8")).values() if path else []
        found = [re.match(r"context:(\d+)", entry.get("windows", "")) for entry in entries]
    except (OSError, ValueError, AttributeError):
        return None
    return max((int(match[1]) for match in found if match), default=None)


def _check_stride(stride: int | None, context_length: int, is_masked: bool) -> None:
    if stride is not None and is_masked:
        raise InputError(f"stride is {stride}; a masked model sees a window at a time, without overlap: leave it out")
    if stride is not None and not 1 <= stride < context_length:
        raise InputError(f"stride is {stride}; it must be from 1 to context_length - 1 ({context_length - 1})")


def _token_store(
    corpus: "Corpus", model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", folder: Path
) -> "TokenStore":
    """The token ids of the text, a row for each document.

    Of our models they are as in training. For others a document is encoded in one piece: what a tokenizer puts before
    a text, or joins over line ends, is as its model expects it. The marks are the same.
    """
    from transformers import PreTrainedTokenizerFast

    from ..training.data.token_store import TokenStore, TokenWriter
    from ..training.data.tokenizing import Encode, batch_encoder, encoded_documents, write_documents
    from ..training.evaluation.perplexity import fills_in, is_ours, vocabulary_size

    is_masked, ours = fills_in(model), is_ours(model)

    def encode_slowly(texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = tokenizer(texts, add_special_tokens=False, split_special_tokens=True).input_ids
        return ids

    encode: Encode = encode_slowly
    if isinstance(tokenizer, PreTrainedTokenizerFast):
        # A text that spells a special token does not mean it.
        split = True if is_masked or not ours else None
        encode = batch_encoder(tokenizer, add_special_tokens=False, split_special_tokens=split)
    begin, end = _marks(tokenizer)
    if is_masked:
        begin, end = begin if ours else None, None
    (folder / "ids").mkdir()
    with TokenWriter(folder / "ids", columns=1, vocab_size=max(len(tokenizer), vocabulary_size(model))) as writer:
        chunks = corpus.chunks() if ours else _whole_documents(corpus)
        write_documents(encoded_documents(chunks, encode, begin=begin, end=end), writer)
    store = TokenStore(folder / "ids")
    largest = max((int(store.row(index)[0].max(initial=0)) for index in range(len(store))), default=0)
    if largest >= vocabulary_size(model):
        raise InputError(
            f"the tokenizer gives a token the id {largest:,}, and the model has {vocabulary_size(model):,} tokens; it "
            "is another model's"
        )
    return store


def _marks(tokenizer: "PreTrainedTokenizerBase") -> tuple[int | None, int | None]:
    """What begins and what ends a document. Without a mark of its own, it begins where another has ended."""
    begin, end = tokenizer.bos_token_id, tokenizer.eos_token_id
    return end if begin is None else begin, end


def _whole_documents(corpus: "Corpus") -> "Iterator[pa.RecordBatch]":
    """A chunk of one row for each document."""
    import pyarrow as pa

    def row(pieces: list[str]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"text": ["".join(pieces)], "begins": [True]})

    pieces: list[str] = []
    for chunk in corpus.chunks():
        for text, begins in zip(chunk.column("text").to_pylist(), chunk.column("begins").to_pylist(), strict=True):
            if begins and pieces:
                yield row(pieces)
                pieces = []
            pieces.append(text)
    if pieces:
        yield row(pieces)


def _language_model_scores(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    store: "TokenStore",
    corpus: "Corpus",
    options: WindowOptions,
) -> "list[Score]":
    from ..training.evaluation.perplexity import in_other_units, language_model_scores, losses_of_tokens

    documents = [store.row(index)[0] for index in range(len(store))]
    begin, end = _marks(tokenizer)
    if end is not None and not options.end_marks:
        documents, end = [document[:-1] for document in documents], None
    if not any(len(document) > 1 for document in documents):
        raise InputError("the text has nothing to predict: each document is a single token")
    window = (options.context_length, options.stride)
    losses = losses_of_tokens(model, documents, *window)
    scores = language_model_scores(model, documents, corpus.texts("text"), *window, token_losses=losses)
    scores += in_other_units(scores)
    without = "".join(f"|{name}:none" for name, mark in (("begin", begin), ("end", end)) if mark is None)
    return [replace(score, signature=score.signature + without) for score in scores]


def _masked_scores(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", store: "TokenStore", options: WindowOptions
) -> "list[Score]":
    import numpy as np

    from ..training.evaluation.masked_tokens import TextToFillIn, predict_masked, pseudo_perplexity
    from ..training.evaluation.perplexity import is_ours
    from ..training.tasks.running_text import windows

    if tokenizer.mask_token_id is None:
        raise InputError("the tokenizer has no mask_token, which a masked model needs")
    before, behind = ([], []) if is_ours(model) else _marks_around(tokenizer)
    room = options.context_length - len(before) - len(behind)
    if room < 2:
        least = len(before) + len(behind) + 2
        raise InputError(f"context_length is {options.context_length}; with the tokenizer's marks it must be {least}")
    pieces = [np.concatenate([before, ids, behind]).astype(np.int64) for ids in windows(store, room)]
    if not pieces:
        raise InputError("the text has nothing to predict: each document is a single token")
    text = TextToFillIn(
        pieces,
        tokenizer,
        context_length=options.context_length,
        mask_probability=options.mask_probability,
    )
    scores = predict_masked(model, text).scores()
    if options.pseudo_perplexity_tokens > 0:
        scores.append(pseudo_perplexity(model, text, options.pseudo_perplexity_tokens))
    return scores


def _marks_around(tokenizer: "PreTrainedTokenizerBase") -> tuple[list[int], list[int]]:
    """What a tokenizer puts before and behind a text: [CLS] and [SEP], for example."""
    bare, marked = (tokenizer("a", add_special_tokens=add).input_ids for add in (False, True))
    first = next(place for place in range(len(marked)) if marked[place : place + len(bare)] == bare)
    return marked[:first], marked[first + len(bare) :]
