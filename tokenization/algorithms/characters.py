"""Characters as tokens, with byte fallback for the rare ones."""

from collections import deque
from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models
from tqdm import tqdm

from ..corpus import CharacterCounts
from ..reserved_tokens import UNK_TOKEN
from ..training_options import TrainingOptions
from .byte_fallback import list_base_tokens


def train_characters(texts: Iterable[str], options: TrainingOptions) -> Tokenizer:
    """Count characters; see `train_tokenizer`."""
    base = list_base_tokens(options.reserved)
    counts = CharacterCounts()
    bar = tqdm(counts.watch(texts), "Count characters", options.length, disable=not options.show_bar, leave=False)
    deque(bar, maxlen=0)  # walks through
    learned = [character for character in counts.frequent(options.min_frequency) if character not in base]
    vocab = {token: index for index, token in enumerate((base + learned)[: options.vocab_size])}
    # A BPE without merges: the library's own model of whole words, of which characters could be made, knows no bytes.
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token=UNK_TOKEN, byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer
