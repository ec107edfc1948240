"""Packed weights: the same outputs from other copies of the weights, whatever has become of these."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

from paperformer.modeling.decoding import packed_weights as module
from paperformer.modeling.decoding.packed_weights import PackedWeights, project

from ...examples import examples

VOCAB = 50
KINDS: dict[str, dict[str, Any]] = {
    "post": {"norm_position": "post", "use_bias": True},
    "gated": {"norm_position": "pre", "gated_mlp": True, "qk_norm": True, "position_embedding_type": "rope"},
    "bare": {"norm_position": "peri", "use_bias": False, "position_embedding_type": "alibi"},
    "wide": {"intermediate_size": 8, "num_key_value_heads": 4, "position_embedding_type": "relative"},
}


@pytest.fixture(scope="module")
def models(make_seq2seq, make_lm) -> dict[str, Any]:
    """One model of each kind and family; tests copy what they change."""
    makers = {"seq2seq": make_seq2seq, "lm": make_lm}
    return {f"{family}-{kind}": make(**KINDS[kind]) for family, make in makers.items() for kind in KINDS}


@pytest.fixture
def products(monkeypatch) -> list[int]:
    """The number of rows of each product with packed weights."""
    rows: list[int] = []
    own: Callable[..., Tensor] = PackedWeights._product
    monkeypatch.setattr(PackedWeights, "_product", lambda self, x: rows.append(len(x)) or own(self, x))
    return rows


def inputs(count: int, length: int = 5) -> dict[str, Tensor]:
    ids = torch.randint(3, VOCAB, (count, length), generator=torch.Generator().manual_seed(count))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def logits(model: Any, count: int = 2) -> Tensor:
    batch = inputs(count)
    if model.config.is_encoder_decoder:
        batch["decoder_input_ids"] = batch["input_ids"][:, :3]
    with torch.no_grad():
        output: Tensor = model(**batch).logits
    return output


def tokens(model: Any, count: int, **options: Any) -> list[list[int]]:
    torch.manual_seed(1)
    output: Tensor = model.generate(**inputs(count), max_new_tokens=8, eos_token_id=None, pad_token_id=0, **options)
    return output.tolist()


@given(
    st.sampled_from([f"{family}-{kind}" for family in ("seq2seq", "lm") for kind in KINDS]),
    st.integers(1, 6),
    st.sampled_from([{"do_sample": False}, {"do_sample": True}, {"num_beams": 3, "do_sample": False}]),
)
@settings(max_examples=examples(20))
def test_tokens_are_the_same(models, name: str, count: int, options: dict[str, Any]) -> None:
    expected = tokens(models[name], count, **options)
    assert tokens(copy.deepcopy(models[name]).pack_weights(), count, **options) == expected


def test_all_products_are_with_packed_weights(models, products) -> None:
    model = copy.deepcopy(models["lm-gated"]).pack_weights()
    tokens(model, 1, do_sample=False)
    of_a_block, blocks = 4, model.config.num_hidden_layers  # q, k, v; o; gate and up; down
    assert products == [5] * of_a_block * blocks + [1] + [1] * 7 * (of_a_block * blocks + 1)


def test_outputs_are_the_same_for_every_family(make_any_model, products) -> None:
    model = make_any_model()
    batch = inputs(2) | ({"decoder_input_ids": inputs(2)["input_ids"]} if model.config.is_encoder_decoder else {})
    with torch.no_grad():
        expected = model(**batch).logits
        assert not products
        torch.testing.assert_close(model.pack_weights()(**batch).logits, expected, rtol=1e-4, atol=1e-4)
    model.__dict__.pop("has_packed_weights")
    assert products


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 17])
@pytest.mark.parametrize("shape", [(5, 7), (7, 5)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_products_are_those_of_the_maps(rows: int, shape: tuple[int, int], dtype: torch.dtype, products) -> None:
    maps = nn.ModuleList(nn.Linear(shape[0], width) for width in (shape[1], 3)).to(dtype).eval()
    x = torch.randn(rows, 2, shape[0])[:, :1].to(dtype)
    module.pack(maps)
    with torch.no_grad(), module.packed_weights(maps):
        found = project(x, *maps)
    assert products == [rows]
    for own, each in zip(found, maps, strict=True):
        tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
        torch.testing.assert_close(own, each(x), **tolerance)


def test_copies_lie_on_huge_pages() -> None:
    linear = nn.ModuleList([nn.Linear(600, 1000, bias=False), nn.Linear(1000, 600, bias=False)]).eval()
    module.pack(linear)
    with torch.no_grad(), module.packed_weights(linear):
        for each in linear:
            x = torch.randn(1, each.in_features)
            torch.testing.assert_close(project(x, each)[0], each(x), rtol=1e-5, atol=1e-5)
            assert each.packed.by_columns.data_ptr() % module.HUGE_PAGE == 0


needs_vnni = pytest.mark.skipif(not torch.cpu._is_vnni_supported(), reason="int8 needs a CPU with AVX-512 VNNI")


def rounded(rows: Tensor) -> Tensor:
    """Each row in units of 1/127 of its largest value."""
    units = rows.double().abs().amax(-1, keepdim=True) / 127
    return (rows.double() / units).round() * units


@needs_vnni
@pytest.mark.parametrize("rows", [1, 3, 17])
@pytest.mark.parametrize("shape", [(5, 7), (130, 70)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_int8_products_are_those_of_rounded_rows(rows: int, shape: tuple[int, int], dtype: torch.dtype) -> None:
    maps = nn.ModuleList(nn.Linear(shape[0], width, bias=width > 3) for width in (shape[1], shape[1] + 1)).to(dtype)
    x = (torch.randn(rows, shape[0]) * torch.logspace(-3, 3, rows)[:, None]).to(dtype)
    module.pack(maps.eval(), torch.int8)
    with torch.no_grad(), module.packed_weights(maps):
        found = project(x, *maps)
    for own, each in zip(found, maps, strict=True):
        expected = rounded(x) @ rounded(each.weight).T + each.bias.double()
        one_step = x.abs().amax(-1, keepdim=True).double() * each.weight.abs().max() / 127  # where a half is rounded
        assert own.dtype == dtype
        assert (
            (own.double() - expected).abs() <= one_step + expected.abs() * (1e-5 if dtype == torch.float32 else 1e-2)
        ).all()


@needs_vnni
def test_int8_keeps_zeros_and_shows_what_is_not_finite() -> None:
    maps = nn.ModuleList([nn.Linear(4, 3)]).eval()
    maps[0].weight.data[1] = 0
    module.pack(maps, torch.int8)
    with torch.no_grad(), module.packed_weights(maps):
        out = project(torch.tensor([[0.0] * 4, [1.0] * 4, [1.0, float("nan"), 0.0, 0.0]]), maps[0])[0]
    assert torch.equal(out[0], maps[0].bias)
    assert out[1, 1] == maps[0].bias[1]
    assert out[2].isnan().all()


@needs_vnni
def test_int8_models_decode_near_to_themselves(models, products) -> None:
    for name in ("lm-gated", "seq2seq-post"):
        model = copy.deepcopy(models[name]).pack_weights(torch.int8)
        expected, found = logits(models[name]), logits(model)
        assert products
        products.clear()
        assert 0 < (found - expected).norm() / expected.norm() < 0.05
        copied = pickle.loads(pickle.dumps(model))
        torch.testing.assert_close(logits(copied), found)
        assert tokens(copied, 2, num_beams=3, do_sample=False) == tokens(model, 2, num_beams=3, do_sample=False)
        change_data(model)
        assert not torch.allclose(logits(model), found, rtol=1e-2)
        torch.testing.assert_close(logits(copied.pack_weights()), expected, rtol=1e-4, atol=1e-4)  # in float32 again


def test_int8_is_refused_where_it_cannot_be(models, monkeypatch) -> None:
    model = copy.deepcopy(models["lm-post"])
    with pytest.raises(ValueError, match=r"packed as torch\.int8"):
        model.pack_weights(torch.float16)
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    with pytest.raises(ValueError, match="needs a CPU with AVX-512 VNNI"):
        model.pack_weights(torch.int8)
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: True)
    with pytest.raises(ValueError, match="on the CPU, in float32 or bfloat16"):
        model.double().pack_weights(torch.int8)
    assert "has_packed_weights" not in model.__dict__


def train(model: Any) -> None:
    """One update as a trainer makes it, with an evaluation before."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model.train()
    model(**inputs(2), labels=inputs(2)["input_ids"]).loss.backward()
    optimizer.step()
    model.eval()


def train_in_evaluation_mode(model: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(**inputs(2), labels=inputs(2)["input_ids"]).loss.backward()
    optimizer.step()


def change_data(model: Any) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(1.5)


def change_a_bias(model: Any) -> None:
    with torch.no_grad():
        next(bias for name, bias in model.named_parameters() if name.endswith("v_proj.bias")).add_(0.7)


def change_a_value_that_is_not_sampled(model: Any) -> None:
    with torch.no_grad():
        model.lm_head.weight[0, 1].add_(5.0)


def load_others(model: Any) -> None:
    model.load_state_dict({name: weight * 1.5 for name, weight in model.state_dict().items()})


def replace_data(model: Any) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data * 1.5


def round_in_bfloat16(model: Any) -> None:
    model.bfloat16().float()


def hook(model: Any) -> None:
    for name, each in model.named_modules():
        if name.endswith(("v_proj", "lm_head")):
            each.register_forward_hook(lambda module, inputs, output: output * 1.1)


def replace_a_map(model: Any) -> None:
    for each in model.modules():
        if hasattr(each, "up_proj"):
            each.up_proj = nn.Linear(each.up_proj.in_features, each.up_proj.out_features)


CHANGES = [
    train,
    train_in_evaluation_mode,
    change_data,
    change_a_bias,
    change_a_value_that_is_not_sampled,
    load_others,
    replace_data,
    round_in_bfloat16,
    hook,
    replace_a_map,
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["lm-post", "seq2seq-post"])
def test_changed_weights_are_noticed(models, name: str, change: Callable[[Any], None]) -> None:
    plain, packed = copy.deepcopy(models[name]), copy.deepcopy(models[name]).pack_weights()
    before = logits(packed, 1), logits(packed, 2)
    tokens(packed, 1, do_sample=False)
    for model in (plain, packed):
        torch.manual_seed(3)
        change(model)
    assert not torch.allclose(logits(packed, 1), before[0], rtol=1e-3, atol=1e-3)
    for count in (1, 2):
        torch.testing.assert_close(logits(packed, count), logits(plain, count), rtol=1e-4, atol=1e-4)
        assert tokens(packed, count, do_sample=False) == tokens(plain, count, do_sample=False)


def test_changed_weights_of_a_model_within_another_s_step_are_noticed(models) -> None:
    """As of an assistant; and a model that is not told to is not run from copies there."""
    outer, inner = (copy.deepcopy(models["lm-post"]).pack_weights() for _ in range(2))
    before = logits(inner, 1)
    change_data(inner)
    expected = logits(inner, 1)
    found = []
    outer.register_forward_pre_hook(lambda *_: found.append(logits(inner, 1)))
    change_data(inner)  # again, so that what was packed for `expected` is old as well
    logits(outer, 1)
    assert not torch.allclose(found[0], before, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(found[0], expected, rtol=1e-3, atol=1e-3)
    plain = copy.deepcopy(models["lm-post"])
    plain.load_state_dict(inner.state_dict())
    torch.testing.assert_close(found[0], logits(plain, 1), rtol=1e-4, atol=1e-4)


def test_training_goes_on_as_if_nothing_had_been_packed(models) -> None:
    plain, packed = copy.deepcopy(models["lm-gated"]), copy.deepcopy(models["lm-gated"]).pack_weights()
    losses: dict[int, list[float]] = {}
    for number, model in enumerate((plain, packed)):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for _ in range(4):
            model.train()
            loss = model(**inputs(3), labels=inputs(3)["input_ids"]).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.setdefault(number, []).append(loss.item())
            model.eval()
            tokens(model, 2, do_sample=False)
    assert losses[0] == losses[1]


def test_training_frees_the_memory(models) -> None:
    model = copy.deepcopy(models["lm-post"]).pack_weights()
    tokens(model, 1, do_sample=False)
    packed = [each.packed for each in model.modules() if type(each) is nn.Linear]
    assert any(each.by_columns is not None for each in packed)
    model.train()
    assert not any(each.made_from or each.by_columns is not None or each.in_blocks is not None for each in packed)


def test_gradients_are_there_after_generation(models) -> None:
    model = copy.deepcopy(models["lm-post"]).pack_weights()
    tokens(model, 1, do_sample=False)
    model(**inputs(2), labels=inputs(2)["input_ids"]).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_nothing_of_it_is_saved_or_copied(models, tmp_path) -> None:
    model = copy.deepcopy(models["seq2seq-post"])
    names = list(model.state_dict())
    model.pack_weights()
    expected = tokens(model, 1, do_sample=False)
    assert list(model.state_dict()) == names
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        copied.model.decoder.layers[0].mlp.up_proj.weight.data.mul_(2)  # not of the original
        assert all(not each.packed.made_from for each in copied.modules() if type(each) is nn.Linear)
        assert tokens(copied, 1, do_sample=False)
    assert tokens(model, 1, do_sample=False) == expected
    model.save_pretrained(tmp_path)
    assert tokens(type(model).from_pretrained(tmp_path), 1, do_sample=False) == expected


def test_an_adapter_is_seen(models) -> None:
    plain = get_peft_model(copy.deepcopy(models["lm-post"]), LoraConfig(target_modules=["q_proj", "up_proj"])).eval()
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn_like(parameter))
    packed = copy.deepcopy(plain)
    packed.base_model.model.pack_weights()
    for merge in (None, True, False):
        for model in (plain, packed) if merge is not None else ():
            (model.merge_adapter if merge else model.unmerge_adapter)()
        assert tokens(packed, 2, do_sample=False) == tokens(plain, 2, do_sample=False)
    merged = [model.merge_and_unload() for model in (plain, packed)]
    assert tokens(merged[1], 2, do_sample=False) == tokens(merged[0], 2, do_sample=False)


@pytest.fixture
def process_group(tmp_path):
    """One process that is a group."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield torch.distributed.init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_sharded_weights_are_left_alone(models, process_group, products) -> None:
    plain, sharded = copy.deepcopy(models["lm-gated"]), copy.deepcopy(models["lm-gated"]).pack_weights()
    for layer in sharded.model.layers:
        fully_shard(layer, mesh=process_group)
    fully_shard(sharded, mesh=process_group)
    for model in (plain, sharded):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)  # before FSDP gathers any
        logits(model, 1)
        model(**inputs(2), labels=inputs(2)["input_ids"]).loss.backward()
        optimizer.step()
    torch.testing.assert_close(logits(sharded, 1), logits(plain, 1), rtol=1e-4, atol=1e-4)
    assert tokens(sharded, 2, do_sample=False) == tokens(plain, 2, do_sample=False)
    assert products == []
    with pytest.raises(ValueError, match=r"sharded by FSDP|needs a CPU"):
        sharded.pack_weights(torch.int8)


def test_other_types_and_autocast_are_left_alone(models, products) -> None:
    for dtype in (torch.float64, torch.float16):
        model = copy.deepcopy(models["lm-post"]).to(dtype).pack_weights()
        assert tokens(model, 2, do_sample=False) == tokens(
            copy.deepcopy(models["lm-post"]).to(dtype), 2, do_sample=False
        )
    model = copy.deepcopy(models["lm-post"]).pack_weights()
    with torch.autocast("cpu", torch.bfloat16):
        logits(model)
    model(**inputs(2))  # with gradients
    assert products == []
