"""What the decoder looks at in the source as it writes each word.

Shapes: L layers, H heads, T target words, S source words.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..decoding.alignment import cross_attentions
from ..decoding.translator import Translator
from .beams import SearchedText
from .tokens import group_words


@dataclass(frozen=True)
class WordAttention:
    """Cross-attention between words."""

    sources: list[str]
    targets: list[str]

    weights: NDArray[np.float32]
    """(L, H, T, S). Of a word that is written the mean over its tokens, of one that is looked at the sum over its
    tokens; what goes to white space is left out, so that a row sums to 1 at the most."""


@torch.no_grad()
def attend_words(translator: Translator, searched: SearchedText, number: int = 0) -> WordAttention:
    """The attention as the model writes one of its translations.

    Args:
        number: which, from 0.

    Raises:
        InputError: if the attention is linear, which never computes weights.
    """
    translation = searched.translations[number]
    layers = cross_attentions(translator.model, [searched.source_ids], [translation.ids])
    weights: NDArray[Any] = torch.cat(layers).float().cpu().numpy()  # (L, H, target tokens, source tokens)
    sources, targets = group_words(searched.source), group_words(translation.tokens)
    columns = np.stack([weights[..., list(word.places)].sum(-1) for word in sources], -1)
    rows = np.stack([columns[..., list(word.places), :].mean(-2) for word in targets], -2)
    return WordAttention([word.text for word in sources], [word.text for word in targets], rows.astype(np.float32))
