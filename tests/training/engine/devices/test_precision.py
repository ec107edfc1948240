import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from paperformer import PaperformerForCausalLM, PaperformerLMConfig
from paperformer.training.console.input_error import InputError
from paperformer.training.engine.devices.cpu_attention import SDPA_FLOAT32
from paperformer.training.engine.devices.precision import Precision

from ..conftest import Together

CPU = torch.device("cpu")


@pytest.fixture
def layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 4)


def adamw(module: nn.Module) -> list[torch.optim.Optimizer]:
    """Two optimizers, as muon has: of the matrices and of all else."""
    parameters = list(module.parameters())
    return [
        torch.optim.AdamW([p for p in parameters if is_matrix(p)], lr=0.1, fused=True)
        for is_matrix in (lambda p: p.dim() > 1, lambda p: p.dim() <= 1)
    ]


def train_step(
    precision: Precision, module: nn.Module, optimizers: list[torch.optim.Optimizer], inputs: Tensor
) -> bool:
    for optimizer in optimizers:
        optimizer.zero_grad()
    with precision.autocast():
        loss = module(inputs).float().square().mean()
    precision.backward(loss)
    precision.unscale(optimizers)
    return precision.step(optimizers)


def weights(module: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in module.parameters()]


@pytest.mark.parametrize(("name", "dtype"), [("no", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_matrix_products_are_in_the_precision_and_weights_in_float32(
    layer: nn.Linear, name: str, dtype: torch.dtype
) -> None:
    precision, optimizers = Precision(name, CPU), adamw(layer)
    with precision.autocast():
        assert layer(torch.ones(1, 4)).dtype == dtype
    assert layer(torch.ones(1, 4)).dtype == torch.float32
    before = weights(layer)
    assert train_step(precision, layer, optimizers, torch.ones(2, 4))
    for parameter, old in zip(layer.parameters(), before, strict=True):
        assert parameter.dtype == parameter.grad.dtype == torch.float32
        assert not torch.equal(parameter, old)


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_attention_stays_in_float32_on_a_cpu(name: str) -> None:
    config = {"vocab_size": 20, "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    model = PaperformerForCausalLM(PaperformerLMConfig(**config))
    Precision("no", CPU).prepare(model)
    assert model.config._attn_implementation == "sdpa"
    Precision(name, CPU).prepare(model)
    assert model.config._attn_implementation == SDPA_FLOAT32
    linear = PaperformerForCausalLM(
        PaperformerLMConfig(**config, linear_attention=True, position_embedding_type="sinusoidal")
    )
    Precision(name, CPU).prepare(linear)  # a function of its own, which stays
    assert linear.config._attn_implementation == "linear_attention"


def test_torch_does_not_warn_of_what_nobody_can_change(recwarn: pytest.WarningsRecorder) -> None:
    config = {"vocab_size": 20, "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "qk_norm": True}
    model, precision = PaperformerForCausalLM(PaperformerLMConfig(**config)), Precision("bf16", CPU)
    torch.set_warn_always(True)  # and not once a process
    try:
        precision.prepare(model)
        with precision.autocast():
            model(torch.ones(1, 2, dtype=torch.long))
    finally:
        torch.set_warn_always(False)
    assert [str(warning.message) for warning in recwarn] == []


def test_an_overflow_in_one_optimizer_skips_the_step_of_all(layer: nn.Linear) -> None:
    precision, optimizers = Precision("fp16", CPU), adamw(layer)
    before = weights(layer)
    precision.backward(layer.weight.sum() + layer.bias[0] * 1e36)  # times 65,536 it is infinite
    precision.unscale(optimizers)
    assert layer.weight.grad.isfinite().all()
    assert not layer.bias.grad.isfinite().all()
    assert not precision.step(optimizers)
    assert all(map(torch.equal, weights(layer), before))
    assert all(len(optimizer.state) == 0 for optimizer in optimizers)  # not even their count of steps
    assert precision.state_dict()["scale"] == 2.0**15


def test_the_scale_halves_until_the_gradient_fits_and_then_training_goes_on(layer: nn.Linear) -> None:
    precision, optimizers = Precision("fp16", CPU), adamw(layer)
    inputs = torch.full((1, 4), 100.0)  # the gradient of the output, times the scale, is above the largest float16
    before, skipped = weights(layer), 0
    while not train_step(precision, layer, optimizers, inputs):
        skipped += 1
        assert precision.state_dict()["scale"] == 2.0 ** (16 - skipped)
        assert all(map(torch.equal, weights(layer), before))
    assert 1 <= skipped < 16
    assert not any(map(torch.equal, weights(layer), before))
    assert all(bool(p.isfinite().all()) for p in layer.parameters())


def test_a_step_left_out_for_another_reason_leaves_the_scale_and_can_be_followed_by_one(layer: nn.Linear) -> None:
    precision, optimizers = Precision("fp16", CPU), adamw(layer)
    for _ in range(3):  # each time a new object, perhaps at the old one's address
        precision.backward(layer(torch.ones(1, 4)).sum() * float("nan"))
        precision.unscale(optimizers)
        precision.skip()
        for optimizer in optimizers:
            optimizer.zero_grad()
    assert precision.state_dict()["scale"] == 2.0**16
    assert train_step(precision, layer, optimizers, torch.full((1, 4), 0.01))


def test_only_a_scale_above_one_is_to_blame_for_a_gradient_that_is_not_finite(layer: nn.Linear) -> None:
    assert not Precision("no", CPU).may_overflow
    precision, optimizers = Precision("fp16", CPU), adamw(layer)
    for _ in range(16):
        assert precision.may_overflow
        assert not train_step(precision, layer, optimizers, torch.full((1, 4), float("nan")))
    assert precision.state_dict()["scale"] == 1
    assert not precision.may_overflow


def test_a_saved_state_goes_on_bit_for_bit(layer: nn.Linear) -> None:
    def continuation(precision: Precision, module: nn.Module, optimizers: list[torch.optim.Optimizer]) -> list[Tensor]:
        for seed in range(4):
            train_step(precision, module, optimizers, torch.randn(2, 4, generator=torch.Generator().manual_seed(seed)))
        return weights(module)

    precision, optimizers = Precision("fp16", CPU), adamw(layer)
    precision.load_state_dict(precision.state_dict() | {"growth_interval": 3})
    assert not train_step(precision, layer, optimizers, torch.full((1, 4), 100.0))
    while not train_step(precision, layer, optimizers, torch.ones(1, 4)):
        pass
    state = precision.state_dict()
    assert (state["scale"], state["_growth_tracker"]) == (2.0**15, 1)

    module = nn.Linear(4, 4)
    module.load_state_dict(layer.state_dict())
    resumed, copied = Precision("fp16", CPU), adamw(module)
    resumed.load_state_dict(state)
    for optimizer, original in zip(copied, optimizers, strict=True):
        optimizer.load_state_dict(copy.deepcopy(original.state_dict()))  # which would be shared
    expected = continuation(precision, layer, optimizers)
    assert all(map(torch.equal, continuation(resumed, module, copied), expected))
    assert resumed.state_dict() == precision.state_dict()
    assert precision.state_dict()["scale"] == 2.0**16  # after three steps that were right, of which one was before


@pytest.mark.parametrize("name", ["no", "bf16"])
def test_other_precisions_have_no_state_and_take_any(name: str) -> None:
    assert Precision(name, CPU).state_dict() == {}
    Precision(name, CPU).load_state_dict(Precision("fp16", CPU).state_dict())
    scaled = Precision("fp16", CPU)
    scaled.load_state_dict({})
    assert scaled.state_dict()["scale"] == 2.0**16


@pytest.mark.parametrize("exponent", [-3, 0, 7, 16])
def test_the_scale_does_not_change_the_update(layer: nn.Linear, exponent: int) -> None:
    def update(precision: Precision) -> list[Tensor]:
        module = nn.Linear(4, 4)
        module.load_state_dict(layer.state_dict())
        optimizers = adamw(module)
        # Without a matrix product, so that all is float32, in which a power of two changes exponents only.
        precision.backward((module.weight.sin().sum(0) * module.bias).square().mean())
        precision.unscale(optimizers)
        assert precision.step(optimizers)
        return weights(module)

    scaled = Precision("fp16", CPU)
    scaled.load_state_dict(scaled.state_dict() | {"scale": 2.0**exponent})
    assert all(map(torch.equal, update(scaled), update(Precision("no", CPU))))


def test_gradients_too_small_for_float16_survive_by_the_scale() -> None:
    def gradient(scale: float) -> Tensor:
        precision, layer = Precision("fp16", CPU), nn.Linear(1, 1, bias=False)
        precision.load_state_dict(precision.state_dict() | {"scale": scale})
        with precision.autocast():
            loss = layer(torch.ones(1, 1)).float().sum() * 1e-9  # the smallest float16 is 6e-8
        precision.backward(loss)
        precision.unscale([torch.optim.SGD(layer.parameters())])
        return layer.weight.grad

    assert gradient(1.0) == 0
    torch.testing.assert_close(gradient(2.0**16), torch.tensor([[1e-9]]), rtol=1e-3, atol=0)


def test_tf32_needs_an_ampere_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    message = r"^optimization.mixed_precision is tf32; it needs an NVIDIA GPU of the Ampere generation or newer$"
    with pytest.raises(InputError, match=message):
        Precision("tf32", CPU)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with pytest.raises(InputError, match=message):
        Precision("tf32", torch.device("cuda"))


@pytest.mark.filterwarnings("ignore:User provided device_type of 'cuda'")  # of a context that is not to be used
def test_tf32_lasts_as_long_as_the_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    precision = Precision("tf32", torch.device("cuda"))
    seen = {}
    parameter = nn.Parameter(torch.ones(()))
    parameter.register_hook(lambda gradient: seen.update(backward=torch.get_float32_matmul_precision()))
    with precision.autocast():
        seen["forward"] = torch.get_float32_matmul_precision()
        loss = parameter * 2
    seen["between"] = torch.get_float32_matmul_precision()
    precision.backward(loss)
    assert seen == {"forward": "high", "between": "highest", "backward": "high"}
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("is_supported", [False, True])
def test_bf16_needs_a_gpu_that_has_it(monkeypatch: pytest.MonkeyPatch, is_supported: bool) -> None:
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")

    def is_bf16_supported(*, including_emulation: bool) -> bool:
        return is_supported or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_bf16_supported)
    if is_supported:
        Precision("bf16", torch.device("cuda"))
    else:
        with pytest.raises(InputError, match=r"mixed_precision is bf16, which Tesla T4 does not compute in; use fp16"):
            Precision("bf16", torch.device("cuda"))


SHARDED = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from paperformer.training.engine.devices.precision import Precision

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Linear(4, 4, bias=False)
fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (2,)))
optimizers = [torch.optim.AdamW(model.parameters(), lr=0.1)]
precision = Precision("fp16", torch.device("cpu"))
factors = torch.ones(4)
for last, expected in ((1e36, False), (1.0, True)):
    factors[3] = last  # of a row that the second process holds
    precision.backward((model(torch.ones(1, 4)) * factors).sum())
    precision.unscale(optimizers)
    own = model.weight.grad.to_local()
    assert bool(own.isfinite().all()) == (rank == 0 or expected), own
    assert precision.step(optimizers) is expected
    assert precision.state_dict()["scale"] == 2.0**15
    optimizers[0].zero_grad()
dist.destroy_process_group()
"""


@pytest.mark.proof
def test_an_overflow_in_the_shard_of_one_process_skips_the_step_of_all(together: Together, tmp_path: Path) -> None:
    (tmp_path / "sharded.py").write_text(SHARDED)
    together(tmp_path / "sharded.py", tmp_path, number=2)
