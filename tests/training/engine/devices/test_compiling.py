import copy
from collections.abc import Callable, Iterator
from functools import partialmethod
from typing import Any

import pytest
import torch
from torch import nn

from paperformer import (
    PaperformerForCausalLM,
    PaperformerForConditionalGeneration,
    PaperformerLMConfig,
    PaperformerSeq2SeqConfig,
)
from paperformer.training.console.input_error import InputError
from paperformer.training.engine.devices.compiling import check_compiler, compile_blocks, recompute_activations
from paperformer.training.engine.devices.precision import Precision

VOCABULARY = 30
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SHAPES = [
    (3, 5, 7),
    (4, 7, 5),
    (5, 6, 6),
    (3, 9, 4),
    (6, 4, 9),
    (2, 8, 8),
    (7, 3, 10),
    (8, 10, 3),
    (9, 9, 9),
    (2, 2, 2),
]

Model = PaperformerForCausalLM | PaperformerForConditionalGeneration


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The sizes of the programs that torch.compile makes; they run without being translated, which takes minutes."""
    sizes: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        sizes.append(len(graph.graph.nodes))
        return graph.forward

    monkeypatch.setattr(nn.Module, "compile", partialmethod(nn.Module.compile, backend=backend))
    torch._dynamo.reset()
    yield sizes
    torch._dynamo.reset()


def make(family: str, **options: Any) -> Model:
    torch.manual_seed(0)
    if family == "lm":
        model: Model = PaperformerForCausalLM(PaperformerLMConfig(**SIZES, **IDS, num_hidden_layers=2, **options))
    else:
        layers = {"encoder_layers": 2, "decoder_layers": 2, "decoder_start_token_id": 1}
        model = PaperformerForConditionalGeneration(PaperformerSeq2SeqConfig(**SIZES, **IDS, **layers, **options))
    model.config.use_cache = False
    return model.train()


def batch(family: str, rows: int, source: int, target: int, *, padded: bool) -> dict[str, torch.Tensor]:
    def ids(length: int) -> torch.Tensor:
        return torch.randint(3, VOCABULARY, (rows, length))

    if family == "lm":
        text = ids(target)
        return {"input_ids": text, "labels": text}
    mask = torch.ones(rows, source, dtype=torch.int64)
    mask[0, -1] = int(not padded)
    return {"input_ids": ids(source), "attention_mask": mask, "labels": ids(target)}


def passes(model: Model, inputs: dict[str, torch.Tensor], precision: str = "no") -> tuple[torch.Tensor, Any]:
    """The loss and all gradients."""
    model.zero_grad()
    with Precision(precision, torch.device("cpu")).autocast():
        loss = model(**inputs, return_logits=False).loss
    loss.backward()
    return loss.detach(), [p.grad for p in model.parameters()]


@pytest.mark.proof
@pytest.mark.parametrize(
    ("family", "positions", "recomputed", "precision"),
    [("lm", "rope", True, "bf16"), ("lm", "alibi", False, "no"), ("seq2seq", "sinusoidal", True, "no")],
)
def test_no_shape_is_compiled_for_after_the_first_few(
    compilations: list[int], family: str, positions: str, recomputed: bool, precision: str
) -> None:
    model = make(family, position_embedding_type=positions, dropout=0.1)
    if recomputed:
        recompute_activations(model)
    compile_blocks(model)
    for shape in SHAPES[:3]:
        for padded in (True, False):
            passes(model, batch(family, *shape, padded=padded), precision)
    made = len(compilations)
    # One for each kind of block and of mask; twice that where two sizes of the first shape happened to be equal.
    assert 1 <= made <= (2 if family == "lm" else 8)
    for shape in SHAPES[3:]:
        for padded in (True, False):
            passes(model, batch(family, *shape, padded=padded), precision)
    assert len(compilations) == made


@pytest.mark.proof
@pytest.mark.parametrize(
    ("family", "recomputed", "precision"), [("lm", False, "no"), ("lm", True, "bf16"), ("seq2seq", True, "no")]
)
def test_compiled_blocks_compute_the_same(
    compilations: list[int], family: str, recomputed: bool, precision: str
) -> None:
    model = make(family, dropout=0.0)
    compiled = copy.deepcopy(model)
    compile_blocks(compiled)
    if recomputed:
        recompute_activations(compiled)
    for shape in SHAPES[:3]:
        inputs = batch(family, *shape, padded=True)
        actual, expected = passes(compiled, inputs, precision), passes(model, inputs, precision)
        torch.testing.assert_close(actual, expected, **({"rtol": 2e-2, "atol": 1e-3} if precision == "bf16" else {}))
    assert compilations


def test_dropout_still_drops(compilations: list[int]) -> None:
    model = make("lm", dropout=0.3)
    compile_blocks(model)
    inputs = batch("lm", *SHAPES[0], padded=False)
    torch.manual_seed(1)
    first, _ = passes(model, inputs)
    assert first != passes(model, inputs)[0]
    torch.manual_seed(1)
    assert first == passes(model, inputs)[0]
    assert compilations


def test_names_and_copies_stay_as_they_are(compilations: list[int]) -> None:
    model = make("seq2seq")
    names = list(model.state_dict())
    compile_blocks(model)
    assert list(model.state_dict()) == names
    passes(copy.deepcopy(model), batch("seq2seq", *SHAPES[0], padded=True))
    assert not compilations


@pytest.mark.parametrize("family", ["lm", "seq2seq"])
def test_evaluation_and_generation_compile_nothing(compilations: list[int], family: str) -> None:
    model = make(family)
    plain = copy.deepcopy(model).eval()
    compile_blocks(model)
    passes(model, batch(family, *SHAPES[0], padded=True))
    made = len(compilations)
    assert made
    model.eval()
    prompt = {"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.ones(1, 3, dtype=torch.int64)}
    options = {"max_new_tokens": 5, "do_sample": False, "use_cache": True}
    assert torch.equal(model.generate(**prompt, **options), plain.generate(**prompt, **options))
    inputs = batch(family, *SHAPES[1], padded=True)
    with torch.no_grad():
        assert torch.equal(model(**inputs).loss, plain(**inputs).loss)
    assert len(compilations) == made
    model.train()
    passes(model, inputs)  # and training goes on
    assert len(compilations) >= made


def test_a_machine_without_a_compiler_is_told_so_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    check_compiler(cpu)
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", (None, "/nowhere/g++"))
    message = r"^optimization.compile is true, and torch.compile does not work here on cpu \(No working C\+\+ compiler"
    with pytest.raises(InputError, match=message) as caught:
        check_compiler(cpu)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["activation_checkpointing_enable", "gradient_checkpointing_enable"])
def test_activations_are_recomputed_by_the_method_that_transformers_has(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    class Older:
        pass

    called = []
    model: Any = Older()
    setattr(model, name, lambda: called.append(name))
    recompute_activations(model)
    assert called == [name]


def test_recomputing_keeps_less_and_computes_the_same() -> None:
    model = make("lm", dropout=0.1)
    recomputing = copy.deepcopy(model)
    recompute_activations(recomputing)
    inputs, kept, results = batch("lm", 4, 0, 8, padded=False), [], []
    for one in (model, recomputing):
        sizes: list[int] = []

        def pack(tensor: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(tensor.numel())
            return tensor

        torch.manual_seed(1)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = one(**inputs).loss
        loss.backward()
        kept.append(sum(sizes))
        results.append([loss.detach(), *(p.grad for p in one.parameters())])
    assert kept[1] < 0.5 * kept[0]
    torch.testing.assert_close(results[1], results[0])
