"""CTranslate2: whatever is not refused computes the same as torch, and decodes to the same tokens."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paperformer.export.coverage import OPTIONS, config_of, says
from paperformer.export.formats import ctranslate2_engine
from paperformer.export.formats.ctranslate2_format import CTRANSLATE2, tokens_of
from paperformer.training.console.input_error import InputError

from ...examples import examples
from .conftest import Names, both, decoded, is_about_caches, largest_difference, random_model

EVERY = [(family, name) for family in CTRANSLATE2.families for name in OPTIONS]
SAID = [(family, name) for family, name in EVERY if says(CTRANSLATE2, family, OPTIONS[name])]
REFUSED = {
    ("seq2seq", "positions alibi"),
    ("encoder", "positions alibi"),
    ("lm", "positions relative"),
    ("seq2seq", "qk_norm"),
    *((family, "rope scaled: dynamic") for family in CTRANSLATE2.families),
    *((family, "attention_window") for family in CTRANSLATE2.families),
    *((family, "attention_stride") for family in CTRANSLATE2.families),
    *((family, "linear_attention") for family in CTRANSLATE2.families),
}


@pytest.mark.parametrize(
    ("family", "name"), [pair for pair in SAID if pair[0] == "seq2seq" or is_about_caches(pair[1])]
)
def test_an_option_computes_the_same(family: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = both(CTRANSLATE2, random_model(family, **OPTIONS[name]), tmp_path / "export")
    assert largest_difference(ours, theirs) < 1e-5
    if family != "encoder" and is_about_caches(name):
        assert decoded(theirs, 1) == decoded(ours, 1)
        # Random models are never sure, and find their best translations late.
        monkeypatch.setattr(ctranslate2_engine, "PATIENCE", 12.0)
        assert decoded(theirs, 4) == decoded(ours, 4)


def test_what_is_refused() -> None:
    assert set(EVERY) - set(SAID) == REFUSED


@pytest.mark.parametrize(("family", "name"), sorted(REFUSED))
def test_what_is_refused_would_be_another_function(family: str, name: str, tmp_path: Path) -> None:
    if name in ("rope scaled: dynamic", "linear_attention", "attention_window", "attention_stride"):
        return  # the specification has no place for them at all
    model: Any = random_model(family, **OPTIONS[name])
    if name == "positions relative":
        torch.nn.init.normal_(model.model.positions.table.weight, std=5.0)
    ours, theirs = both(CTRANSLATE2, model, tmp_path / "export")
    assert largest_difference(ours, theirs) > 0.1 or decoded(theirs, 1) != decoded(ours, 1)


COMBINED = st.fixed_dictionaries(
    {
        "norm_position": st.sampled_from(["post", "pre", "peri"]),
        "norm_type": st.sampled_from(["layernorm", "rmsnorm"]),
        "position_embedding_type": st.sampled_from(["sinusoidal", "learned", "rope", "alibi", "relative", "none"]),
        "num_attention_heads": st.sampled_from([1, 3, 6]),
        "num_key_value_heads": st.sampled_from([1, None]),
        "head_dim": st.sampled_from([8, 10]),
        "hidden_act": st.sampled_from(["relu", "gelu", "gelu_new", "silu", "sigmoid"]),
        "norm_eps": st.sampled_from([1e-5, 1e-2]),
    }
    | {
        name: st.booleans()
        for name in ("gated_mlp", "use_bias", "embedding_norm", "qk_norm", "scale_embedding", "tie_word_embeddings")
    }
)


@given(family=st.sampled_from(sorted(CTRANSLATE2.families)), options=COMBINED)
@settings(max_examples=examples(25), derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_options_combine(family: str, options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    config = config_of(family, options)
    if any(CTRANSLATE2.refused(config)):
        with pytest.raises(InputError, match="which CTranslate2 cannot say"):
            CTRANSLATE2.check(config)
        return
    model = random_model(family, **options)
    ours, theirs = both(CTRANSLATE2, model, tmp_path_factory.mktemp("combined") / "export")
    assert largest_difference(ours, theirs) < 3e-5


def test_embeddings_that_are_not_shared_and_segments_and_an_output_bias(tmp_path: Path) -> None:
    apart = {"share_embeddings": False, "tie_word_embeddings": False, "output_bias": True}
    for family, options in (("seq2seq", apart), ("encoder", {"type_vocab_size": 3, "scale_embedding": True})):
        ours, theirs = both(CTRANSLATE2, random_model(family, **options), tmp_path / family)
        assert largest_difference(ours, theirs) < 1e-5


def test_every_row_has_a_name_of_its_own() -> None:
    class Odd(Names):
        def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
            return ["<pad>", "<unused 3>", "", "<pad>", *(f"token {index}" for index in ids[4:])]

    odd: Any = Odd()
    names = tokens_of(odd, 41)
    assert names[:4] == ["<pad>", "<unused 3>", "<unused 2>", "<unused 3>>"]
    assert len(set(names)) == len(names) == 41


def test_a_refusal_names_the_option_its_value_and_the_way_out() -> None:
    with pytest.raises(InputError) as refused:
        CTRANSLATE2.check(config_of("seq2seq", {"qk_norm": True}))
    assert "qk_norm is True" in str(refused.value)
    assert "export it to onnx" in str(refused.value)
    with pytest.raises(InputError, match="attention_window is 3, which CTranslate2 cannot say"):
        CTRANSLATE2.check(config_of("lm", {"attention_window": 3}))
