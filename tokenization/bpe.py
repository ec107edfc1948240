"""Byte-level byte-pair encoding (BPE), trained with tokenizers and saved as a plain fast tokenizer.

BPE (Sennrich et al., 2016, arXiv 1508.07909) starts from single symbols and adds the most frequent pair of
neighbours to the vocabulary, again and again. On bytes instead of characters (Radford et al., 2019, section
2.2) 256 symbols cover every text of every script, so no input is ever unknown.
"""

import sys
import warnings
from collections.abc import Iterable, Iterator, Sized

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

PAD_TOKEN, BOS_TOKEN, EOS_TOKEN, UNK_TOKEN = "<pad>", "<s>", "</s>", "<unk>"
SPECIAL_TOKENS = (PAD_TOKEN, BOS_TOKEN, EOS_TOKEN, UNK_TOKEN)  # ids 0, 1, 2, 3
MIN_VOCAB_SIZE = len(SPECIAL_TOKENS) + len(pre_tokenizers.ByteLevel.alphabet())  # 4 + 256


def train_bpe(
    texts: Iterable[str],
    vocab_size: int,
    *,
    append_eos: bool,
    prefix_space: bool | None = None,
    split_digits: bool = False,
    min_frequency: int = 2,
    model_max_length: int | None = None,
    length: int | None = None,
    show_progress: bool = True,
) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer.

    For a joint vocabulary (Vaswani et al., 2017, section 5.1) chain the source and the target texts. The same
    texts give the same tokenizer, in any order.

    Decoding what was encoded, with `skip_special_tokens=True`, gives back every text without lone surrogates.
    This includes texts that spell a special token: with `split_special_tokens=True`, which is saved along, a
    `</s>` in a corpus or in a user's input is four ordinary characters, and cannot end a sentence. Programs
    that read `tokenizer.json` without `tokenizer_config.json` do not see that setting.

    Args:
        texts: The corpus; read once, never held in memory as a whole.
        vocab_size: Number of tokens, the 4 special tokens and the 256 bytes included.
        append_eos: Whether `</s>` ends each encoded text. True for encoder-decoder models (padded on the
            right), False for decoder-only models (padded on the left, so that generation continues the text
            itself).
        prefix_space: Whether encoding puts one space before the text, and decoding takes one away: a word
            then has the same token at the start of a text as inside it. Decoding a continuation by itself
            would lose its first space, so decoder-only models want False. Default: the value of `append_eos`.
        split_digits: Whether each digit is a token by itself (Touvron et al., 2023, arXiv 2302.13971, section
            2.1), so that numbers are read and written digit by digit. Otherwise frequent digit sequences are
            merged.
        min_frequency: How often a pair must occur to be merged.
        model_max_length: Longest input of the model in tokens; `truncation=True` cuts there. Default:
            unlimited.
        length: Number of texts, for the progress bar, where `texts` has no `len()`.
        show_progress: Whether to show progress bars, if standard error is a terminal.

    Returns:
        A fast tokenizer; `save_pretrained` writes a folder that `AutoTokenizer` loads without custom code.

    Raises:
        TypeError: `texts` is one string instead of many.
        ValueError: There is no text, or only empty ones; `vocab_size` cannot hold the special tokens and the
            bytes; or `min_frequency` is below 1.

    Warns:
        UserWarning: The texts have too few pairs to merge; the vocabulary is smaller than `vocab_size`.
    """
    if isinstance(texts, str):
        raise TypeError("texts is one string; pass an iterable of strings, such as [text]")
    if vocab_size < MIN_VOCAB_SIZE:
        raise ValueError(
            f"vocab_size is {vocab_size}, and must be at least {MIN_VOCAB_SIZE}: "
            f"{len(SPECIAL_TOKENS)} special tokens and 256 bytes"
        )
    if min_frequency < 1:
        raise ValueError(f"min_frequency is {min_frequency}, and must be at least 1")
    if prefix_space is None:
        prefix_space = append_eos
    if length is None and isinstance(texts, Sized):
        length = len(texts)

    tokenizer = _untrained_bpe(prefix_space, split_digits)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),  # all bytes, also those that the corpus lacks
        show_progress=show_progress and sys.stderr.isatty(),  # in a log the bars would be blank lines
    )
    tokenizer.train_from_iterator(_require_text(texts), trainer=trainer, length=length)

    trained_size = tokenizer.get_vocab_size()
    if trained_size < vocab_size:
        warnings.warn(
            f"the vocabulary has {trained_size} tokens instead of vocab_size={vocab_size}: "
            f"no other pair occurs at least {min_frequency} times (min_frequency) in the texts",
            stacklevel=2,
        )
    if append_eos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {EOS_TOKEN}",
            pair=f"$A {EOS_TOKEN} $B {EOS_TOKEN}",
            special_tokens=[(EOS_TOKEN, SPECIAL_TOKENS.index(EOS_TOKEN))],
        )
    # What is passed here is saved in tokenizer_config.json; what is set later as an attribute is not.
    limit = {} if model_max_length is None else {"model_max_length": model_max_length}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD_TOKEN,
        bos_token=BOS_TOKEN,
        eos_token=EOS_TOKEN,
        unk_token=UNK_TOKEN,
        padding_side="right" if append_eos else "left",
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,  # a saved True asks the loader to join "a ." into "a."
        **limit,
    )


def _untrained_bpe(prefix_space: bool, split_digits: bool) -> Tokenizer:
    """Build the way from text to bytes and back; the vocabulary is still empty."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNK_TOKEN))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if split_digits:
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, tokenizer.pre_tokenizer])
    if prefix_space:
        # Not ByteLevel's add_prefix_space: it adds a space only to a text that has none at its start, so that
        # "a" and " a" become the same tokens. Always adding one and always taking one away keeps them apart.
        tokenizer.normalizer = normalizers.Prepend(" ")
        tokenizer.decoder = decoders.Sequence([tokenizer.decoder, decoders.Strip(" ", left=1, right=0)])
    return tokenizer


def _require_text(texts: Iterable[str]) -> Iterator[str]:
    """Pass the texts on; raise ValueError at their end if none had a character."""
    any_text = False
    for text in texts:
        any_text = any_text or bool(text)
        yield text
    if not any_text:
        raise ValueError("texts is empty: a tokenizer needs at least one non-empty text to train on")
