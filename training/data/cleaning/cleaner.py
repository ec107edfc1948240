"""Cleaning a corpus, chunk by chunk: texts are normalised, and rows that would do harm are left out, with a report.

The result does not depend on how the rows are cut into chunks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, reduce
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...recipe.cleaning import Cleaning
from ..text.chunks import DOMAIN, PAIR_SCHEMA, TEXT_SCHEMA, with_domains
from .control_characters import has_control_characters
from .hash_set import Hashes, HashSet, Mask
from .language_identification import LanguageIdentifier
from .leaks import Leaks
from .mojibake import is_mojibake
from .normalization import normalize, strip
from .report import IN_EVALUATION, CleaningReport
from .sentence_hashes import combined_hashes, exact_hashes, normalized_hashes
from .sentence_length import count_characters, count_words, length_ratios

WORDS_OF_A_COPY = 4
"""Shorter copies are kept: names, numbers and "OK" are right in both languages."""

Check = Callable[[pa.RecordBatch], Mask]
"""For N rows, (N,), true where one is to be left out."""

TEXT_COLUMNS = ("source", "target", "text")
DUPLICATE = "duplicate"
ANOTHER_LANGUAGE = "another language"


class RowCleaner:
    """The part of cleaning for which a row need not be compared with others: parts of a text can be examined apart.

    Args:
        options: what to do.
        languages: codes of the source and the target language of pairs, or of the text's alone.
        evaluation: what the evaluation sets hold, if it is training text.
        identifies: whether languages are identified at once, where that is to be done; else `Cleaner` does it, of rows
            that turned out to be no duplicates.

    Raises:
        InputError: if languages are to be identified, and cannot be.
    """

    def __init__(
        self,
        options: Cleaning,
        languages: tuple[str, ...],
        evaluation: Leaks | None = None,
        *,
        identifies: bool = False,
    ):
        self.options, self._identifies = options, identifies and options.language_identification
        self._evaluation = evaluation if options.leak_check else None
        self._damage = _checks_for_damage(options)
        self._checks = _checks_of_length(options, is_parallel=len(languages) == 2)
        if self._evaluation:
            self._checks[IN_EVALUATION] = self._evaluation.find
        later = [DUPLICATE] if options.duplicates != "keep" else []
        if options.language_identification:
            self.is_in_another_language = partial(_is_other, LanguageIdentifier(languages), languages)
            later.append(ANOTHER_LANGUAGE)
        self._documents = 0  # that began
        self.report = CleaningReport([*self._damage, *self._checks, *later])
        """What has been left out up to now."""

    def examine_all(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Examines a whole stream: for each chunk, what is left of it, as `examine` does."""
        filled = (chunk for chunk in chunks if len(chunk) > 0)
        for chunk, following in pairwise(chain(filled, [None])):
            yield self.examine(chunk, is_continued=following is not None and not _begins(following)[0])

    def examine(self, chunk: pa.RecordBatch, *, is_continued: bool = False) -> pa.RecordBatch:
        """The rows of a chunk of which nothing is known that is against them, normalised and in order.

        Args:
            chunk: pairs or running text.
            is_continued: whether the row that will follow the chunk continues its last document, which is then not a
                document in one row. `examine_all` finds that out.

        Returns:
            The columns of text, and what `Cleaner` has to know of each row. `is_whole`: whether it is a document;
            `key`: the hash by which duplicates are found; `is_other`: whether it is in another language, if that was to
            be identified at once; `document`: of running text, the number of its document in this stream.
        """
        self.report.rows += len(chunk)
        begins = _begins(chunk)
        is_whole = begins & np.append(begins[1:], not is_continued)[: len(begins)]
        document = self._documents + np.cumsum(begins, dtype=np.int64)
        self._documents += int(np.count_nonzero(begins))
        rows = chunk
        for reason, check in self._damage.items():
            is_bad = check(rows)
            rows, is_whole, document = _drop(self.report, reason, is_bad, rows), is_whole[~is_bad], document[~is_bad]
        rows = self._normalized(rows)
        if self._evaluation:
            self.report.leaked_lines += int(self._evaluation.find(_select(rows, ~is_whole)).sum())
        for reason, check in self._checks.items():
            is_bad = _find(check, rows, is_whole)
            rows, is_whole, document = _drop(self.report, reason, is_bad, rows), is_whole[~is_bad], document[~is_bad]
        columns = {name: rows.column(name) for name in rows.schema.names if name in (*TEXT_COLUMNS, DOMAIN)}
        columns["is_whole"] = pa.array(is_whole)
        if "text" in columns:
            columns["document"] = pa.array(document)
        if self.options.duplicates != "keep":
            columns["key"] = pa.array(self._keys(rows, is_whole))
        if self._identifies:
            columns["is_other"] = pa.array(_find(self.is_in_another_language, rows, is_whole))
        return pa.record_batch(columns)

    def _normalized(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        for index, name in enumerate(rows.schema.names):
            if name in TEXT_COLUMNS:
                column = normalize(rows.column(index), self.options.normalization)
                if self.options.strip and name != "text":
                    column = strip(column)
                rows = rows.set_column(index, rows.schema.field(index), column)
        return rows

    def _keys(self, rows: pa.RecordBatch, is_whole: Mask) -> Hashes:
        """For N rows, (N,), what is equal where they are duplicates; 0 where a row is no document."""
        of_column = exact_hashes if self.options.duplicates == "exact" else normalized_hashes
        keys = np.zeros(len(rows), np.uint64)
        keys[is_whole] = reduce(combined_hashes, map(of_column, _texts(_select(rows, is_whole))))
        return keys


class Cleaner:
    """Cleans one stream of chunks; it remembers which rows were there before.

    Args:
        options, languages, evaluation: as `RowCleaner` takes them.

    Raises:
        InputError: if languages are to be identified, and cannot be.
    """

    def __init__(self, options: Cleaning, languages: tuple[str, ...], evaluation: Leaks | None = None):
        self._rows = RowCleaner(options, languages, evaluation)
        self._seen = HashSet()
        self._last_document = -1  # the one of the row kept last
        self.report = self._rows.report
        """What has been kept and left out up to now."""

    def clean_all(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Cleans a whole stream: for each chunk, what is left of it, as `clean` does."""
        return map(self._finish, self._rows.examine_all(chunks))

    def clean(self, chunk: pa.RecordBatch, *, is_continued: bool = False) -> pa.RecordBatch:
        """The rows of a chunk that are kept, normalised and in order.

        Where the first rows of a document are left out, the next one that is kept begins it.

        Args:
            chunk, is_continued: as `RowCleaner.examine` takes them.
        """
        return self._finish(self._rows.examine(chunk, is_continued=is_continued))

    def clean_part(self, examined: Iterable[pa.RecordBatch], report: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        """Cleans a part of the stream that was examined elsewhere, and begins with a document.

        Args:
            examined: what `RowCleaner.examine` made of its chunks.
            report: of that, as `CleaningReport.to_dict` gives it.
        """
        self.report.add(report)
        self._last_document = -1
        return map(self._finish, examined)

    def _finish(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Leaves out duplicates and other languages of what was examined; the rows as they are written."""
        if self._rows.options.duplicates != "keep":
            is_bad = np.array(rows.column("is_whole"))
            is_bad[is_bad] = ~self._seen.add(np.asarray(rows.column("key"))[is_bad])
            rows = _drop(self.report, DUPLICATE, is_bad, rows)
        if self._rows.options.language_identification:
            if "is_other" in rows.schema.names:
                is_bad = np.asarray(rows.column("is_other"))
            else:
                is_bad = _find(self._rows.is_in_another_language, rows, np.asarray(rows.column("is_whole")))
            rows = _drop(self.report, ANOTHER_LANGUAGE, is_bad, rows)
        chunk = self._as_written(rows)
        return with_domains(chunk, rows.column(DOMAIN)) if DOMAIN in rows.schema.names else chunk

    def _as_written(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if "document" not in rows.schema.names:
            return pa.record_batch(_texts(rows), schema=PAIR_SCHEMA)
        document = np.asarray(rows.column("document"))
        is_first = np.diff(document, prepend=self._last_document) > 0
        if len(rows) > 0:
            self._last_document = int(document[-1])
        return pa.record_batch([*_texts(rows), pa.array(is_first)], schema=TEXT_SCHEMA)


def _find(check: Check, rows: pa.RecordBatch, is_whole: Mask) -> Mask:
    """For N rows, (N,), true where one is a document, and one that a check finds."""
    is_bad = is_whole.copy()
    is_bad[is_bad] = check(_select(rows, is_whole))
    return is_bad


def _drop(report: CleaningReport, reason: str, is_bad: Mask, rows: pa.RecordBatch) -> pa.RecordBatch:
    if not is_bad.any():
        return rows
    report.drop(reason, _texts(_select(rows, is_bad)))
    return _select(rows, ~is_bad)


def _checks_for_damage(options: Cleaning) -> dict[str, Check]:
    """Reason -> check of a row as it was read: some normal forms make mojibake harder to see."""
    checks: dict[str, Check] = {}
    if options.control_characters:
        checks["control characters"] = partial(_any_side, has_control_characters)
    if options.mojibake:
        checks["mojibake"] = partial(_any_side, is_mojibake)
    return checks


def _checks_of_length(options: Cleaning, *, is_parallel: bool) -> dict[str, Check]:
    """Reason -> check of normalised pairs or documents by themselves."""
    checks: dict[str, Check] = {"empty": partial(_any_side, _is_empty)}
    if options.min_words > 1:
        checks["too few words"] = partial(_any_side, lambda column: count_words(column) < options.min_words)
    if is_parallel and options.max_characters:
        checks["too long"] = partial(_any_side, lambda column: count_characters(column) > options.max_characters)
    if is_parallel and options.max_length_ratio:
        checks["length ratio"] = lambda rows: length_ratios(*_texts(rows)) > options.max_length_ratio
    if is_parallel and options.drop_copies:
        checks["copy of the source"] = _is_copy
    return checks


def _any_side(check: Callable[[pa.Array], Mask], rows: pa.RecordBatch) -> Mask:
    return np.logical_or.reduce([check(column) for column in _texts(rows)])


def _is_empty(column: pa.Array) -> Mask:
    return count_characters(strip(column)) == 0


def _is_copy(rows: pa.RecordBatch) -> Mask:
    source, target = _texts(rows)
    is_equal = np.array(pc.equal(source, target))
    is_equal[is_equal] = count_words(source.filter(pa.array(is_equal))) >= WORDS_OF_A_COPY
    return is_equal


def _is_other(identifier: LanguageIdentifier, languages: tuple[str, ...], rows: pa.RecordBatch) -> Mask:
    sides = zip(_texts(rows), languages, strict=True)
    return np.logical_or.reduce([identifier.is_other(column.to_pylist(), language) for column, language in sides])


def _texts(rows: pa.RecordBatch) -> list[pa.Array]:
    """The texts of N rows: of source and target, or of the text alone, (N,) each."""
    return [rows.column(name) for name in rows.schema.names if name in TEXT_COLUMNS]


def _begins(rows: pa.RecordBatch) -> Mask:
    """For N rows, (N,), true where one begins a document; every pair does."""
    return np.asarray(rows.column("begins")) if "begins" in rows.schema.names else np.ones(len(rows), np.bool_)


def _select(rows: pa.RecordBatch, is_chosen: Mask) -> pa.RecordBatch:
    return rows if is_chosen.all() else rows.filter(pa.array(is_chosen))
