"""Commands about tokenizers: train one, look inside, compare several on a text."""

import sys
import warnings
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ftfy.formatting import display_ljust

from ..training.console.colours import is_coloured, paint
from ..training.console.input_error import InputError
from ..training.console.tables import align_rows, measure_width
from .loading import load_fast_tokenizer

if TYPE_CHECKING:
    from ..tokenization.comparison import Measurement

LONGEST_SHOWN = 10  # tokens
SPECIAL_SHOWN = 12  # T5 has a hundred
SENTENCE_SHOWN = 300  # characters
BACKGROUNDS = (153, 223)
"""Pale blue and pale orange of the 256 colours of terminals: black letters on either can be read by everybody."""

MEASURES = {
    "fertility": ("tokens a word (fertility)", "{:.2f}"),
    "tokens_per_sentence": ("tokens a sentence", "{:.1f}"),
    "bytes_per_token": ("bytes a token", "{:.2f}"),
    "characters_per_token": ("characters a token", "{:.2f}"),
    "unknown_rate": ("unknown tokens", "{:.2%}"),
    "whole_word_rate": ("words kept whole", "{:.1%}"),
    "round_trip_rate": ("sentences that come back", "{:.1%}"),
    "sentences_per_second": ("sentences a second", "{:,.0f}"),
}
"""Ratio of a `Measurement` -> its name in the table, and how it is written."""

EXPLANATION = """\
Words are what white space separates. Tokens that are added at the ends of a text, such as </s>, are not counted.
Sentences come back if decoding what was encoded gives exactly the same text. Sentences a second: encoding alone, in
batches, on this machine; it differs by tens of percent from run to run."""


def train_on_files(
    files: list[str],
    output: str,
    algorithm: Literal["byte_bpe", "bpe", "unigram", "wordpiece", "characters"] = "byte_bpe",
    vocab_size: int = 8000,
    append_eos: bool = True,
    min_frequency: int = 2,
    split_digits: bool = False,
    normalization: Literal["none", "NFC", "NFKC"] = "none",
    user_symbols: list[str] | None = None,
    mask_token: bool = False,
    sentinels: int = 0,
) -> None:
    """Train a subword tokenizer on text files and save it, loadable by AutoTokenizer.

    Args:
        files: Text files of any size, UTF-8, one text a line; .gz, .xz, .zst and .bz2 are read too. Give those of both
            languages for a joint vocabulary.
        output: Folder to write.
        algorithm: How text is split: byte_bpe (Radford et al. 2019), bpe (on characters, with bytes for rare ones;
            Sennrich et al. 2016), unigram (Kudo 2018), wordpiece (Schuster and Nakajima 2012; loses white space), or
            characters.
        vocab_size: Entries of the vocabulary, special tokens and, where there are any, the 256 bytes included.
        append_eos: End every text with </s>: true for translation, false for language models.
        min_frequency: How often a pair of symbols must occur to be merged.
        split_digits: Make every digit a token of its own, so that numbers are read and written digit by digit.
        normalization: Unicode normalisation of every text; NFKC also takes ligatures apart and makes plain letters of
            full-width ones.
        user_symbols: Strings that are always one token, such as language tags. Example: '[<2de>,<2fr>]'.
        mask_token: Add <mask>, for masked language models.
        sentinels: How many <extra_id_N> to add, for span corruption (Raffel et al. 2020); T5 has 100.
    """
    from ..tokenization import train_tokenizer
    from ..training.atomic_files import replace_folder
    from ..training.console.progress import say

    if Path(output).exists():
        raise InputError(f"{output} exists; give a new folder for the tokenizer")

    def write(folder: Path) -> None:
        tokenizer = train_tokenizer(
            chain.from_iterable(_text_chunks(files)),
            algorithm=algorithm,
            vocab_size=vocab_size,
            append_eos=append_eos,
            min_frequency=min_frequency,
            split_digits=split_digits,
            normalization=normalization,
            user_symbols=user_symbols or [],
            mask_token=mask_token,
            sentinels=sentinels,
        )
        tokenizer.save_pretrained(folder)

    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", UserWarning)
        try:
            replace_folder(Path(output), write)  # which first tries whether the folder can be made
        except ValueError as error:
            raise InputError(str(error)) from error
    for note in notes:
        say(f"note: {note.message}")
    print(f"{len(load_fast_tokenizer(output)):,} tokens: {output}")


def show(tokenizer: str, text: str | None = None) -> None:
    """Show what a tokenizer is made of, which texts it cannot give back, and how it splits a text.

    Args:
        tokenizer: A folder with a fast tokenizer, of paperformer or any other, or a name on the Hub.
        text: Text to split; in a terminal the tokens are coloured, elsewhere, or if NO_COLOR is set, | stands between
            them. Spaces are shown as ␣, bytes that are no whole character in hexadecimal.
    """
    from ..tokenization.report import PROBES, TokenText, describe, visible

    if text is not None and any("\ud800" <= character <= "\udfff" for character in text):
        raise InputError("--text is not UTF-8; convert it to UTF-8")  # Python hands such bytes on as lone surrogates
    loaded = load_fast_tokenizer(tokenizer)
    report = describe(loaded, LONGEST_SHOWN)
    tokens = TokenText(loaded)
    special = [f"{tokens.shown(token)} {id_}" for token, id_ in report.special_tokens.items()]
    more = [f"and {len(special) - SPECIAL_SHOWN} more"] if len(special) > SPECIAL_SHOWN else []
    altered = [
        ["", kind, f"{visible(was)} -> {visible(now) or 'nothing'}"] for kind, (was, now) in report.altered.items()
    ]
    tried = f"{len(PROBES) + 1} kinds of text that were tried"
    rows = {
        "tokenizer": tokenizer,
        "model": report.model,
        "vocabulary": f"{report.size:,} tokens",
        "special tokens": ", ".join(special[:SPECIAL_SHOWN] + more) or "none",
        "normaliser": report.normalizer,
        "single bytes": f"{report.single_bytes:,}",
        "single characters": f"{report.single_characters:,}",
        "numbers": f"{report.numbers:,} tokens of digits alone; digits of the longest: {report.longest_number}",
        "longest tokens": " ".join(report.longest_tokens),
        "round trip": f"alters {len(altered)} of {tried}:" if altered else f"gives back all {tried}",
    }
    print(align_rows([[name, value] for name, value in rows.items()]))
    if altered:
        print(align_rows(altered))
    if text is not None:
        ids = loaded(text, verbose=False).input_ids
        print(f"\n{len(ids):,} tokens\n{_split(tokens.all_shown(ids))}")


def compare(tokenizers: list[str], files: list[str] | str = "-", json: bool = False) -> None:
    """Compare tokenizers on a text: fertility, bytes a token, unknown tokens, words kept whole, speed, and more.

    Args:
        tokenizers: Folders with fast tokenizers, of paperformer or any other, or names on the Hub.
        files: A text file of any size, UTF-8, one sentence a line, compressed or not, or several: '[test.en,test.de]';
            - reads standard input. Take text that the tokenizers were not trained on.
        json: Print JSON, with all counts, instead of a table.
    """
    import json as json_format

    from ..tokenization.comparison import Measurement, measure
    from ..tokenization.report import TokenText
    from ..training.console.progress import ProgressBar

    loaded = {name: load_fast_tokenizer(name) for name in tokenizers}
    totals = dict.fromkeys(loaded, Measurement())
    paths = [files] if isinstance(files, str) else files
    first = ""
    with ProgressBar(total=_plain_size(paths), desc="compare", unit="B", unit_scale=True) as bar:
        for chunk in _text_chunks(paths):
            first = first or next((text for text in chunk if text.strip()), "")
            for name, tokenizer in loaded.items():
                totals[name] += measure(tokenizer, chunk)
            bar.update(sum(len(text.encode()) + 1 for text in chunk))
    if not first:
        raise InputError(f"--files: {', '.join(paths)} has no text; it must have a sentence at least")
    for name, total in totals.items():
        if not total.tokens:
            raise InputError(f"{name} makes no token of {', '.join(paths)}; take other text or another tokenizer")

    first = first[:SENTENCE_SHOWN]
    texts = {name: TokenText(tokenizer) for name, tokenizer in loaded.items()}
    longest = {name: texts[name].longest(total.seen, LONGEST_SHOWN) for name, total in totals.items()}
    split = {
        name: texts[name].all_shown(tokenizer(first, add_special_tokens=False, verbose=False).input_ids)
        for name, tokenizer in loaded.items()
    }
    if json:
        facts = [
            {"tokenizer": name, "vocabulary": len(tokenizer), **_figures(totals[name])}
            | {"longest_tokens": longest[name], "first_sentence": split[name]}
            for name, tokenizer in loaded.items()
        ]
        print(json_format.dumps({"files": paths, "first_sentence": first, "tokenizers": facts}, indent=2))
        return
    sizes = {name: len(tokenizer) for name, tokenizer in loaded.items()}
    print(_comparison(totals, sizes))
    print(f"\n{EXPLANATION}\n\nlongest tokens")
    print(align_rows([["", name, " ".join(tokens)] for name, tokens in longest.items()]))
    print("\nfirst sentence")
    width = measure_width([[name] for name in split])
    for name, tokens in split.items():
        print(f"  {display_ljust(name, width)}  {_split(tokens)}")


def _text_chunks(files: Sequence[str]) -> Iterator[list[str]]:
    """The texts of all files in order, some thousand at a time; - is standard input."""
    from ..training.data.text.chunks import chunks_of_rows
    from ..training.data.text.lines import blocks, decode_lines, read_lines

    def lines() -> Iterator[str | None]:
        for file in files:
            is_piped = file == "-"
            yield from decode_lines(blocks(sys.stdin.buffer), "standard input") if is_piped else read_lines(Path(file))

    # None would stand for a line that is left out; here a line that cannot be used is an error.
    for chunk in chunks_of_rows((line,) for line in lines() if line is not None):
        yield chunk.column("text").to_pylist()


def _plain_size(files: Sequence[str]) -> int | None:
    """Bytes of text in all files, if that is known before they are read."""
    from ..training.data.text.files import COMPRESSIONS

    paths = [Path(file) for file in files]
    is_known = all(path.is_file() and path.suffix not in COMPRESSIONS for path in paths)
    return sum(path.stat().st_size for path in paths) if is_known else None


def _figures(total: "Measurement") -> dict[str, Any]:
    """Counts and ratios, as plain numbers."""
    counts = {name: value for name, value in vars(total).items() if name != "seen"}
    return counts | {"tokens_seen": len(total.seen)} | {ratio: getattr(total, ratio) for ratio in MEASURES}


def _comparison(totals: "dict[str, Measurement]", sizes: dict[str, int]) -> str:
    """A table with a column for each tokenizer."""
    any_total = next(iter(totals.values()))
    text = f"{any_total.sentences:,} sentences, {any_total.words:,} words, {any_total.bytes:,} bytes"
    rows = [["", *totals], ["vocabulary", *(f"{size:,}" for size in sizes.values())]]
    for ratio, (title, form) in MEASURES.items():
        rows.append([title, *(form.format(getattr(total, ratio)) for total in totals.values())])
    return f"{text}\n\n{align_rows(rows, right=range(1, len(rows[0])))}"


def _split(tokens: Sequence[str]) -> str:
    """Tokens side by side, on alternating colours if the output is a terminal that is to have colours."""
    if not is_coloured(sys.stdout):
        return "|".join(tokens)
    return "".join(
        paint(token, f"30;48;5;{BACKGROUNDS[index % len(BACKGROUNDS)]}") for index, token in enumerate(tokens)
    )
