"""Train a subword tokenizer from text, and save it as a plain fast tokenizer.

The same texts give the same tokenizer, in any order. Except with `wordpiece`, decoding what was encoded, with
`skip_special_tokens=True`, gives back every text without lone surrogates, or the normalised text if there is a
`normalization`. This includes texts that spell a special token: with `split_special_tokens=True`, which is saved along,
a `</s>` in a corpus or in a user's input is four ordinary characters, and cannot end a sentence. Programs that read
`tokenizer.json` without `tokenizer_config.json` do not see that setting.
"""

import sys
import warnings
from collections.abc import Iterable, Sequence, Sized
from typing import Any

from tokenizers import Tokenizer, normalizers, processors
from transformers import PreTrainedTokenizerFast

from .algorithms import ALGORITHMS, AlgorithmName
from .corpus import Normalization, log_progress, read
from .reserved_tokens import BOS_TOKEN, EOS_ID, EOS_TOKEN, MASK_TOKEN, PAD_TOKEN, UNK_TOKEN, ReservedTokens
from .training_options import TrainingOptions

NORMALIZERS = {"NFC": normalizers.NFC, "NFKC": normalizers.NFKC}


def train_tokenizer(
    texts: Iterable[str],
    vocab_size: int,
    *,
    append_eos: bool,
    algorithm: AlgorithmName = "byte_bpe",
    prefix_space: bool | None = None,
    split_digits: bool = False,
    min_frequency: int = 2,
    normalization: Normalization = "none",
    user_symbols: Sequence[str] = (),
    mask_token: bool = False,
    sentinels: int = 0,
    find_special_tokens: bool = False,
    model_max_length: int | None = None,
    length: int | None = None,
    show_progress: bool = True,
) -> PreTrainedTokenizerFast:
    """Train a tokenizer; what it gives back of a text is said at the top of this file.

    Args:
        texts: The corpus; read once, never held in memory as a whole. What is held are its different words. For a joint
            vocabulary (Vaswani et al., 2017, section 5.1) chain the source and the target texts.
        vocab_size: Number of tokens, all special tokens and user symbols included, and, except with `wordpiece`, the
            256 bytes; with `characters` an upper bound.
        append_eos: Whether `</s>` ends each encoded text. True for encoder-decoder models (padded on the right), False
            for decoder-only models (padded on the left, so that generation continues the text itself).
        algorithm: What a token is; see `AlgorithmName`.
        prefix_space: Whether encoding puts one space before the text, and decoding takes one away: a word then has the
            same token at the start of a text as inside it. Decoding a continuation by itself would lose its first
            space, so decoder-only models want False. Default: the value of `append_eos`. `wordpiece` and `characters`
            have no use for it.
        split_digits: Whether each digit is a token by itself (Touvron et al., 2023, arXiv 2302.13971, section 2.1), so
            that numbers are read and written digit by digit. Otherwise frequent digit sequences are merged. With
            `characters` every digit is a token anyway.
        min_frequency: How often a pair must occur to be merged, and a character to be a token. Unigram has no such
            limit for its longer tokens.
        normalization: Unicode normalisation form of all texts, in training and in use.
        user_symbols: Strings that are one token wherever they stand in a text, such as the language tag `<2de>`. What
            stands around one is encoded like a text of its own, with a prefix space: write "<2de>Hello" in one.
        mask_token: Whether there is a special token `<mask>`, for masked language modelling (Devlin et al., 2019).
        sentinels: How many special tokens `<extra_id_0>`, ... there are, for span corruption (Raffel et al., 2020).
        find_special_tokens: Whether a special token in a text is found, instead of being read as its characters: for
            users who write `<mask>` or `<extra_id_0>`, which take the space before them, as BERT's and T5's do.
        model_max_length: Longest input of the model in tokens; `truncation=True` cuts there. Default: unlimited.
        length: Number of texts, for the progress bar, where `texts` has no `len()`.
        show_progress: Whether to show progress on standard error: bars in a terminal, in a log file lines.

    Returns:
        A fast tokenizer; `save_pretrained` writes a folder that `AutoTokenizer` loads without custom code.

    Raises:
        TypeError: `texts` or `user_symbols` is one string instead of many.
        ValueError: There is no text, or only empty ones; `vocab_size` cannot hold the special tokens, the user's
            symbols and the bytes, or, with `unigram`, the characters of the texts; another argument is out of its
            range; a user symbol cannot be told from other tokens; or `prefix_space` is True for an algorithm that has
            none.

    Warns:
        UserWarning: The texts have too few pairs to merge; the vocabulary is smaller than `vocab_size`.
    """
    options = TrainingOptions(
        vocab_size=vocab_size,
        reserved=ReservedTokens(mask=mask_token, sentinel_count=sentinels, user_symbols=user_symbols),
        prefix_space=append_eos if prefix_space is None else prefix_space,
        split_digits=split_digits,
        min_frequency=min_frequency,
        normalization=normalization,
        length=len(texts) if length is None and isinstance(texts, Sized) else length,
        show_progress=show_progress,
    )
    tokenizer = _train(texts, algorithm, options, prefix_space)
    options.reserved.add_to(tokenizer, words_begin_with_space=ALGORITHMS[algorithm].has_prefix_space)
    return _wrap_for_transformers(
        tokenizer,
        options.reserved,
        append_eos=append_eos,
        model_max_length=model_max_length,
        split_special_tokens=not find_special_tokens,
    )


def smallest_vocab_size(algorithm: AlgorithmName, user_symbols: Sequence[str] = ()) -> int:
    """The least `vocab_size` of `train_tokenizer`: reserved tokens, and what the algorithm cannot do without.

    Raises:
        ValueError: A user symbol is empty, given twice, or reserved.
    """
    reserved = ReservedTokens(mask=False, sentinel_count=0, user_symbols=user_symbols)
    return len(reserved.all) + ALGORITHMS[algorithm].needs[0]


def _train(
    texts: Iterable[str], algorithm: AlgorithmName, options: TrainingOptions, prefix_space: bool | None
) -> Tokenizer:
    """Check what was asked for, and train what every tokenizer of the algorithm has."""
    if isinstance(texts, str):
        raise TypeError("texts is one string; pass an iterable of strings, such as [text]")
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm is {algorithm!r}, and must be one of {', '.join(ALGORITHMS)}")
    chosen = ALGORITHMS[algorithm]
    if prefix_space and not chosen.has_prefix_space:
        raise ValueError(f"prefix_space is True, and {algorithm} has no prefix space")
    smallest = len(options.reserved.all) + chosen.needs[0]
    if options.vocab_size < smallest:
        raise ValueError(
            f"vocab_size is {options.vocab_size}, and must be at least {smallest}: "
            f"{options.reserved} and {chosen.needs[0]} {chosen.needs[1]}"
        )
    if options.show_progress and not sys.stderr.isatty():
        texts = log_progress(texts, options.length)
    cleaned = read(texts, normalization=options.normalization, user_symbols=options.reserved.user_symbols)
    tokenizer = chosen.train(cleaned, options)
    size = tokenizer.get_vocab_size()
    if size < options.vocab_size and chosen.shortage is not None:
        warnings.warn(
            f"the vocabulary has {size} tokens instead of vocab_size={options.vocab_size}: "
            f"{chosen.shortage.format(min_frequency=options.min_frequency)}",
            stacklevel=3,
        )
    if options.normalization != "none":
        first = NORMALIZERS[options.normalization]()
        rest = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([first, *rest])
    return tokenizer


def _wrap_for_transformers(
    tokenizer: Tokenizer,
    reserved: ReservedTokens,
    *,
    append_eos: bool,
    model_max_length: int | None,
    split_special_tokens: bool,
) -> PreTrainedTokenizerFast:
    if append_eos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {EOS_TOKEN}",
            pair=f"$A {EOS_TOKEN} $B {EOS_TOKEN}",
            special_tokens=[(EOS_TOKEN, EOS_ID)],
        )
    # What is passed here is saved in tokenizer_config.json; what is set later as an attribute is not.
    given: dict[str, Any] = {
        "model_max_length": model_max_length,
        "mask_token": MASK_TOKEN if reserved.mask else None,
        "extra_special_tokens": reserved.sentinels or None,
    }
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD_TOKEN,
        bos_token=BOS_TOKEN,
        eos_token=EOS_TOKEN,
        unk_token=UNK_TOKEN,
        padding_side="right" if append_eos else "left",
        split_special_tokens=split_special_tokens,
        clean_up_tokenization_spaces=False,  # a saved True asks the loader to join "a ." into "a."
        **{name: value for name, value in given.items() if value is not None},
    )
