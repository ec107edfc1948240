import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperformer.training.data.cleaning.normalization import Normalization, normalize, strip

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=20)


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
@given(sentences=texts)
def test_each_text_is_normalised(form: Normalization, sentences: list[str]) -> None:
    normal = normalize(pa.array(sentences, pa.string()), form)
    assert normal.to_pylist() == [unicodedata.normalize(form, text) for text in sentences]


def test_forms() -> None:
    column = pa.array(["plain", "scho\u0308n", "½\u00a0ﬁsh ", "schön"])
    assert normalize(column, "none").to_pylist() == column.to_pylist()
    assert normalize(column, "NFC").to_pylist() == ["plain", "schön", "½\u00a0ﬁsh ", "schön"]
    assert normalize(column, "NFKC").to_pylist() == ["plain", "schön", "1⁄2 fish ", "schön"]


@given(texts)
def test_white_space_of_all_scripts_is_stripped(sentences: list[str]) -> None:
    padded = [f"\u3000\u00a0\t{text} \u2009\n" for text in sentences]
    assert strip(pa.array(padded, pa.string())).to_pylist() == [text.strip() for text in sentences]
