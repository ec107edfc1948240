"""Cleaning a corpus, chunk by chunk: texts are normalised, and rows that would do harm are left out, with a report.

The result does not depend on how the rows are cut into chunks.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...recipe.cleaning import Cleaning
from ..text.chunks import DOMAIN
from .control_characters import has_control_characters
from .hash_set import HashSet, Mask
from .language_identification import LanguageIdentifier
from .leaks import Leaks
from .mojibake import is_mojibake
from .normalization import normalize, strip
from .report import IN_EVALUATION, CleaningReport
from .sentence_hashes import combined_hashes, exact_hashes, normalized_hashes
from .sentence_length import count_characters, count_words, length_ratios

WORDS_OF_A_COPY = 4
"""Shorter copies are kept: names, numbers and "OK" are right in both languages."""

NO_TEXT = ("begins", DOMAIN)
"""Columns of chunks that are not cleaned."""

Check = Callable[[pa.RecordBatch], Mask]
"""For N rows, (N,), true where one is to be left out."""

Indices = npt.NDArray[np.intp]


class Cleaner:
    """Cleans one stream of chunks; it remembers which rows were there before.

    Args:
        options: what to do.
        languages: codes of the source and the target language of pairs, or of the text's alone.
        evaluation: what the evaluation sets hold, if the stream is training text.

    Raises:
        InputError: if languages are to be identified, and cannot be.
    """

    def __init__(self, options: Cleaning, languages: tuple[str, ...], evaluation: Leaks | None = None):
        self._options = options
        self._evaluation = evaluation if options.leak_check else None
        self._seen = HashSet()
        self._damage = _checks_for_damage(options)
        self._checks = {
            **_checks_of_length(options, is_parallel=len(languages) == 2),
            **self._checks_of_content(languages),
        }
        self._documents = 0  # that began
        self._last_document = -1  # the one of the row kept last
        self.report = CleaningReport([*self._damage, *self._checks])
        """What has been kept and left out up to now."""

    def _checks_of_content(self, languages: tuple[str, ...]) -> dict[str, Check]:
        checks: dict[str, Check] = {}
        if self._evaluation:
            checks[IN_EVALUATION] = self._evaluation.find
        if self._options.duplicates != "keep":
            checks["duplicate"] = self._is_duplicate
        if self._options.language_identification:
            checks["another language"] = partial(_is_in_another_language, LanguageIdentifier(languages), languages)
        return checks

    def clean_all(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Cleans a whole stream: for each chunk, what is left of it, as `clean` does."""
        filled = (chunk for chunk in chunks if len(chunk) > 0)
        for chunk, following in pairwise(chain(filled, [None])):
            yield self.clean(chunk, is_continued=following is not None and not _begins(following)[0])

    def clean(self, chunk: pa.RecordBatch, *, is_continued: bool = False) -> pa.RecordBatch:
        """The rows of a chunk that are kept, normalised and in order.

        Where the first rows of a document are left out, the next one that is kept begins it.

        Args:
            chunk: pairs or running text.
            is_continued: whether the row that will follow the chunk continues its last document, which is then not a
                document in one row. `clean_all` finds that out.
        """
        self.report.rows += len(chunk)
        begins = _begins(chunk)
        is_whole = begins & np.append(begins[1:], not is_continued)[: len(begins)]
        rows, kept = chunk, np.arange(len(chunk))
        for reason, check in self._damage.items():
            rows, kept = self._drop(reason, check(rows), rows, kept)
        rows = self._normalized(rows)
        if self._evaluation:
            self.report.leaked_lines += int(self._evaluation.find(_select(rows, ~is_whole[kept])).sum())
        for reason, check in self._checks.items():
            is_bad = is_whole[kept]
            is_bad[is_bad] = check(_select(rows, is_bad))
            rows, kept = self._drop(reason, is_bad, rows, kept)
        return self._with_begins(rows, kept, begins) if "begins" in rows.schema.names else rows

    def _drop(self, reason: str, is_bad: Mask, rows: pa.RecordBatch, kept: Indices) -> tuple[pa.RecordBatch, Indices]:
        if not is_bad.any():
            return rows, kept
        self.report.drop(reason, _texts(_select(rows, is_bad)))
        return _select(rows, ~is_bad), kept[~is_bad]

    def _normalized(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        for index, name in enumerate(rows.schema.names):
            if name not in NO_TEXT:
                column = normalize(rows.column(index), self._options.normalization)
                if self._options.strip and name != "text":
                    column = strip(column)
                rows = rows.set_column(index, rows.schema.field(index), column)
        return rows

    def _with_begins(self, rows: pa.RecordBatch, kept: Indices, begins: Mask) -> pa.RecordBatch:
        """Sets `begins` where a document's first rows are gone.

        Args:
            rows: the N rows that are kept of a chunk.
            kept: (N,), their indices in the chunk.
            begins: for all rows of the chunk, true where one begins a document.
        """
        document = self._documents + np.cumsum(begins, dtype=np.intp)[kept]
        is_first = np.diff(document, prepend=self._last_document) > 0
        self._documents += int(np.count_nonzero(begins))
        if len(rows) > 0:
            self._last_document = int(document[-1])
        return rows.set_column(1, rows.schema.field(1), pa.array(is_first))

    def _is_duplicate(self, rows: pa.RecordBatch) -> Mask:
        of_column = exact_hashes if self._options.duplicates == "exact" else normalized_hashes
        return ~self._seen.add(reduce(combined_hashes, map(of_column, _texts(rows))))


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


def _is_in_another_language(identifier: LanguageIdentifier, languages: tuple[str, ...], rows: pa.RecordBatch) -> Mask:
    sides = zip(_texts(rows), languages, strict=True)
    return np.logical_or.reduce([identifier.is_other(column.to_pylist(), language) for column, language in sides])


def _texts(rows: pa.RecordBatch) -> list[pa.Array]:
    """The texts of N rows: of source and target, or of the text alone, (N,) each."""
    return [rows.column(name) for name in rows.schema.names if name not in NO_TEXT]


def _begins(rows: pa.RecordBatch) -> Mask:
    """For N rows, (N,), true where one begins a document; every pair does."""
    return np.asarray(rows.column("begins")) if "begins" in rows.schema.names else np.ones(len(rows), np.bool_)


def _select(rows: pa.RecordBatch, is_chosen: Mask) -> pa.RecordBatch:
    return rows if is_chosen.all() else rows.filter(pa.array(is_chosen))
