"""WordPiece: a word is its longest known beginning, then the longest known continuation, and so on.

Schuster and Nakajima, 2012, "Japanese and Korean Voice Search", with the spelling of BERT (Devlin et al., 2018, arXiv
1810.04805): a continuation starts with "##". The tokenizers library learns the vocabulary by the merges of BPE instead
of the likelihood of the paper.

Not lossless. Text is split at white space and punctuation, and decoding puts one space between all words: "Hello,
world!" comes back as "Hello , world !". Control characters are dropped, a Chinese character is a word, and a word
with an unknown character, or of more than 100 characters, is `<unk>`.
"""

import unicodedata
from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from ..corpus import CharacterCounts
from ..reserved_tokens import UNK_TOKEN
from ..training_options import TrainingOptions

CONTINUATION = "##"


def train_wordpiece(texts: Iterable[str], options: TrainingOptions) -> Tokenizer:
    """Train a WordPiece; see `train_tokenizer`.

    With `split_digits` no merge is learned across digits; the tokenizer itself splits only at white space and
    punctuation, so that a number stays one word and is decoded as such.
    """
    counts = CharacterCounts()
    learning = _build_tokenizer(models.WordPiece())
    if options.split_digits:
        digits = pre_tokenizers.Digits(individual_digits=True)
        learning.pre_tokenizer = pre_tokenizers.Sequence([digits, learning.pre_tokenizer])
    inner = _list_inner_characters()
    room = options.vocab_size - len(options.reserved.all)
    trainer = trainers.WordPieceTrainer(
        # A fourth more than wanted, in place of those that turn out to be rare characters.
        vocab_size=len(inner) + room + room // 4,
        min_frequency=options.min_frequency,
        special_tokens=inner,
        show_progress=options.show_bar,
    )
    learning.train_from_iterator(counts.watch(texts), trainer=trainer, length=options.length)
    vocab = learning.get_vocab(with_added_tokens=False)
    learned = sorted(vocab, key=vocab.__getitem__)[len(inner) :]

    splitting = _build_tokenizer(models.WordPiece())  # as the trained one will
    characters = [character for character in counts.frequent(options.min_frequency) if character in vocab]
    alphabet = set(characters)
    pieces = dict.fromkeys(options.reserved.all)  # an ordered set
    for character in characters:
        pieces[character] = None
        if _continues_words(character, splitting):
            pieces[CONTINUATION + character] = None
    for token in learned:
        part = token.removeprefix(CONTINUATION)
        if len(part) > 1 and alphabet.issuperset(part):
            pieces[token] = None
    kept = list(pieces)[: options.vocab_size]
    return _build_tokenizer(models.WordPiece({piece: index for index, piece in enumerate(kept)}, unk_token=UNK_TOKEN))


def _build_tokenizer(model: models.Model) -> Tokenizer:
    """Build the way from text to words and back around a model."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(CONTINUATION, cleanup=False)
    return tokenizer


def _list_inner_characters() -> list[str]:
    """Continuations of one character, so that the trainer has them in a fixed order.

    Those that it is not given it (tokenizers 0.23) numbers in the order of a randomly seeded hash map, and it breaks
    ties by these numbers, so that each training on the same texts would give another vocabulary. The ones left out are
    Chinese characters, which are words by themselves, and the scripts of antiquity.
    """
    codes = (*range(0x3400), *range(0xA000, 0x10000), *range(0x1D400, 0x1D800), *range(0x1F000, 0x20000))
    return [CONTINUATION + chr(code) for code in codes if unicodedata.category(chr(code))[0] in "LMNS"]


def _continues_words(character: str, tokenizer: Tokenizer) -> bool:
    """Whether the character can stand inside a word, which punctuation and Chinese characters cannot."""
    return len(tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str("a" + character))) == 1
