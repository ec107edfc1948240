"""Tokens that carry their space: the way of BPE and Unigram from text to words, and from tokens to text.

As in SentencePiece (Kudo and Richardson, 2018, arXiv 1808.06226), a space belongs to the word behind it and is written
as U+2581, "▁", so that the tokens alone say where the spaces are.

Lossless for every text: a "▁" in the text itself is written with control characters, as U+0010 (data link escape)
U+0012, and a U+0010 in the text as U+0010 U+0011. No user symbol has a control character, so none can be mistaken for
a part of these.
"""

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.decoders import Decoder
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from ..training_options import TrainingOptions
from .prefix_space import build_strippers

SPACE = "▁"
ESCAPE = "\x10"
ESCAPED = {ESCAPE: ESCAPE + "\x11", SPACE: ESCAPE + "\x12"}  # in this order when encoding


def build_metaspace_tokenizer(model: models.Model, word: Regex, options: TrainingOptions) -> Tokenizer:
    """Build the way from text to tokens and back around a model with byte fallback.

    Args:
        model: Gets words, one at a time, and need not know every character.
        word: Matches the words of a text, each with the space before it.
        options: Of the training.
    """
    normalizer: list[Normalizer] = [normalizers.Replace(raw, escaped) for raw, escaped in ESCAPED.items()]
    pre_tokenizer: list[PreTokenizer] = [
        pre_tokenizers.Split(word, behavior="isolated"),
        pre_tokenizers.Metaspace(SPACE, prepend_scheme="never", split=False),
    ]
    decoder: list[Decoder] = [decoders.ByteFallback(), decoders.Fuse(), decoders.Replace(SPACE, " ")]
    if options.split_digits:
        pre_tokenizer.insert(0, pre_tokenizers.Digits(individual_digits=True))
    if options.prefix_space:
        normalizer.append(normalizers.Prepend(" "))
        decoder += build_strippers(options.reserved.user_symbols)
    decoder += [decoders.Replace(escaped, raw) for raw, escaped in reversed(ESCAPED.items())]

    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(normalizer)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(pre_tokenizer)
    tokenizer.decoder = decoders.Sequence(decoder)
    return tokenizer


def choose_learned(learned: list[str], frequent: list[str], taken: list[str], room: int) -> list[str]:
    """Choose what becomes of a trainer's tokens.

    The trainers give every character of the texts a token, be it one in a million, and even beyond the vocabulary size
    asked for. Here rare characters are left to byte fallback.

    Args:
        learned: Tokens of a trainer, the most useful first.
        frequent: Characters that are worth a token, the most frequent first.
        taken: Tokens that the vocabulary has already.
        room: How many tokens to choose at most.

    Returns:
        The space and the frequent characters, then the longer tokens without other characters.
    """
    known, used = set(learned), set(taken)
    ranked = [SPACE, *(character for character in frequent if character != SPACE)]
    characters = [character for character in ranked if character in known and character not in used][:room]
    alphabet = set(characters)
    longer = [token for token in learned if len(token) > 1 and alphabet.issuperset(token) and token not in used]
    return characters + longer[: room - len(characters)]
