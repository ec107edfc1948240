"""Unicode normalisation, and white space around sentences."""

import unicodedata

import pyarrow as pa
import pyarrow.compute as pc

from ...recipe.cleaning import Normalization


def normalize(column: pa.Array, form: Normalization) -> pa.Array:
    """The texts in a normal form of Unicode (Unicode Standard Annex 15)."""
    if form == "none":
        return column
    is_other = pc.invert(pc.string_is_ascii(column))  # ASCII is in every normal form
    texts = column.filter(is_other).to_pylist()
    if all(unicodedata.is_normalized(form, text) for text in texts):
        return column
    normal = pa.array([unicodedata.normalize(form, text) for text in texts], pa.string())
    return pc.replace_with_mask(column, is_other, normal)


def strip(column: pa.Array) -> pa.Array:
    """The texts without the white space around them, of whatever script."""
    return pc.utf8_trim_whitespace(column)
