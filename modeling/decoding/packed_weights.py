"""Products with a few rows on a CPU, near the speed at which weights can be read.

A step of decoding multiplies one row for each sentence or beam with every matrix of the model, and reading the matrices
is most of its time. The library behind `nn.Linear` is made for many rows: with one it reads at half of the memory's
speed where a matrix has more rows than columns, and with 16 it computes at a third of the CPU's. One row is faster with
such a matrix stored by columns, several with oneDNN's blocks. So a model that is told to (`pack_weights`) keeps copies
in the orders that it comes to need, and products of the same input (queries, keys and values; gate and up) are one.

On request the copies are whole numbers of 8 bits, a quarter of what there is to read, and so are the rows, which are
rounded each by itself (Dettmers et al. 2022, arXiv 2208.07339, section 2.1).

A copy can grow old. Copies are used within `packed_weights` only, which `generate()` and a forward of a whole model
enter, and which compares them with the weights: by place in memory, by torch's count of changes (optimizers,
`load_state_dict`), and by some of the values, because what is changed through `.data` is not counted.
"""

import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

TYPES = (torch.float32, torch.bfloat16)
FEWEST_ROWS = 4  # oneDNN takes longer for two or three: 4,300 us for 512 x 20,000, and 2,500 us for four
ROWS_TO_PACK_FOR = 16  # which decides the order of the blocks; it is the same for any number but 1
SAMPLED_VALUES = 8  # of each weight, that tell whether it was changed uncounted
HUGE_PAGE = 2**21  # bytes
ZERO_POINT = 128  # oneDNN's fast products are of unsigned rows
_ROUNDED_ZERO = torch.tensor(ZERO_POINT + 0.5)  # the conversion to whole numbers cuts off

_inside = threading.local()


class PackedWeights:
    """Copies of the weights of linear maps that have the same input; none before they are needed.

    Args:
        is_int8: whether they are rounded to whole numbers of 8 bits.
    """

    def __init__(self, is_int8: bool = False) -> None:
        self.is_int8 = is_int8
        self.model = 0  # the id of that which last compared them with its weights
        self.maps: tuple[nn.Linear, ...] = ()
        self.made_from: list[Tensor] = []  # kept, so that nothing else can come to lie where they lie
        self.marks: list[Any] = []  # what changes with them
        self.by_columns: Tensor | None = None  # (K, N), for one row
        self.in_blocks: Tensor | None = None  # oneDNN's, for several
        self.rounded: tuple[Tensor, ...] = ()  # for any number: whole numbers in oneDNN's blocks, units, zeros
        self.bias: Tensor | None = None

    def __reduce__(self) -> Any:
        return PackedWeights, (self.is_int8,)  # what is copied or pickled packs for itself

    def clear(self) -> None:
        """Frees the memory; what is needed again is made again."""
        model = self.model
        self.__init__(self.is_int8)  # type: ignore[misc]
        self.model = model

    def prepare(self, maps: tuple[nn.Linear, ...]) -> None:
        """Takes over the maps; their weights are (N, K) each, with biases, (N,), or without."""
        self.maps = maps
        if not all(_is_plain(each) for each in maps):
            return
        self.made_from = [source.detach() for each in maps for source in each.parameters()]
        self.marks = [_mark(source) for source in self.made_from]
        biases = [source for source in self.made_from if source.dim() == 1]
        self.bias = torch.cat(biases) if biases else None

    def is_current(self) -> bool:
        """Whether the copies are of the weights as they are now."""
        sources = [source for each in self.maps for source in each.parameters()]
        return all(_is_plain(each) for each in self.maps) and self.marks == [_mark(source) for source in sources]

    def products(self, rows: Tensor, maps: tuple[nn.Linear, ...]) -> tuple[Tensor, ...]:
        """x W^T + b, (..., K) -> (..., N) for each."""
        if self.maps != maps:  # at the first time, and where one was replaced
            self.clear()
            self.prepare(maps)
        if not self.made_from or rows.dtype != self.made_from[0].dtype or rows.numel() == 0:
            return tuple(each(rows) for each in maps)
        flat = rows.reshape(-1, rows.shape[-1])
        product = self._product(flat).view(*rows.shape[:-1], -1)
        return (product,) if len(maps) == 1 else product.split([each.out_features for each in maps], dim=-1)

    def _product(self, rows: Tensor) -> Tensor:
        """(R, K) -> (R, N of all)."""
        if self.is_int8:
            return self._rounded_product(rows)
        count = len(rows)
        if count == 1 and rows.dtype == torch.float32:
            if self.by_columns is None:
                weight = self._weight()
                is_wide = weight.shape[0] >= weight.shape[1]
                self.by_columns = _on_huge_pages(weight.t()) if is_wide else _on_huge_pages(weight).t()
            return rows @ self.by_columns if self.bias is None else torch.addmm(self.bias, rows, self.by_columns)
        if self.in_blocks is None:
            self.in_blocks = torch.ops.mkldnn._reorder_linear_weight(self._weight(), ROWS_TO_PACK_FOR)
        if 1 < count < FEWEST_ROWS:
            rows = nn.functional.pad(rows, (0, 0, 0, FEWEST_ROWS - count))
        out: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self.in_blocks, self.bias, "none", [], "")
        return out[:count]

    def _rounded_product(self, rows: Tensor) -> Tensor:
        """The same of whole numbers, in units of 1/127 of the largest value of each row, of both."""
        if not self.rounded:
            self.rounded = _round_rows(self._weight())
        weight, units, zeros = self.rounded
        row_units = torch.linalg.vector_norm(rows, torch.inf, dim=-1, keepdim=True, dtype=torch.float32) / 127  # (R, 1)
        whole = torch.addcdiv(_ROUNDED_ZERO, rows.float(), row_units).to(torch.uint8)
        product = torch.ops.onednn.qlinear_pointwise(
            whole, 1.0, ZERO_POINT, weight, units, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        product = product * row_units if self.bias is None else torch.addcmul(self.bias, product, row_units)
        return product.to(rows.dtype)

    def _weight(self) -> Tensor:
        weights = [source for source in self.made_from if source.dim() == 2]
        return weights[0] if len(weights) == 1 else torch.cat(weights)


def project(rows: Tensor, *maps: nn.Linear) -> tuple[Tensor, ...]:
    """What each of the linear maps makes of one input, (..., K) -> (..., N): `map(rows)`, or from packed weights."""
    packed: Any = None if torch.compiler.is_compiling() else maps[0].__dict__.get("packed")
    if packed is None or packed.model not in getattr(_inside, "models", ()):
        return tuple(each(rows) for each in maps)
    products: tuple[Tensor, ...] = packed.products(rows, maps)
    return products


@contextmanager
def packed_weights(model: nn.Module) -> Iterator[None]:
    """Within it, `project` multiplies with packed weights where the model has some; those that are old are forgotten.

    It does not where anything is to be differentiated, compiled or cast, or the model is training.
    """
    entered: frozenset[int] = getattr(_inside, "models", frozenset())  # an assistant's step is within another's
    if (
        id(model) in entered
        or "has_packed_weights" not in model.__dict__
        or torch.compiler.is_compiling()
        or torch.is_grad_enabled()
        or torch.is_autocast_enabled("cpu")
        or model.training
        or _is_sharded(model)
    ):
        yield
        return
    for module in model.modules():
        packed = module.__dict__.get("packed")
        if packed is not None:
            packed.model = id(model)
            if packed.maps and not packed.is_current():
                packed.clear()
    _inside.models = entered | {id(model)}
    try:
        yield
    finally:
        _inside.models = entered


def pack(model: nn.Module, dtype: torch.dtype | None = None) -> None:
    """Gives each linear map of a model its place for packed weights, if this machine can use them.

    Raises:
        ValueError: for int8, if it cannot.
    """
    if dtype is not None:
        _check_int8(model, dtype)
    if torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        model.has_packed_weights = True  # type: ignore[assignment]
        for module in model.modules():
            if type(module) is nn.Linear:
                module.packed = PackedWeights(dtype is not None)  # type: ignore[assignment]


def _check_int8(model: nn.Module, dtype: torch.dtype) -> None:
    """Without VNNI, products of 8 bits overflow, or are computed one by one."""
    if dtype != torch.int8:
        raise ValueError(f"dtype is {dtype}; weights are packed as torch.int8, or with None as they are")
    has_vnni = getattr(torch.cpu, "_is_vnni_supported", lambda: False)()
    if not (has_vnni and torch.backends.mkldnn.is_available() and hasattr(torch.ops.onednn, "qlinear_pointwise")):
        raise ValueError("int8 needs a CPU with AVX-512 VNNI, and a torch with oneDNN; pack without a dtype here")
    if _is_sharded(model):
        raise ValueError("int8 is for whole models; this one's weights are sharded by FSDP")
    if any(weight.device.type != "cpu" or weight.dtype not in TYPES for weight in model.parameters()):
        raise ValueError(
            "int8 is for models on the CPU, in float32 or bfloat16; this one is elsewhere, or of another type"
        )


def free(model: nn.Module) -> None:
    """Frees what is packed, until it is needed again."""
    for module in model.modules():
        if "packed" in module.__dict__:
            module.packed.clear()  # type: ignore[operator, union-attr]


def memory_of_copies(model: nn.Module) -> int:
    """Bytes of what is packed at present, where maps with the same input have theirs together."""
    held = [module.__dict__["packed"] for module in model.modules() if "packed" in module.__dict__]
    copies = [copy for each in held for copy in (each.by_columns, each.in_blocks, *each.rounded) if copy is not None]
    return sum(copy.numel() * copy.element_size() for copy in copies)


def _on_huge_pages(weight: Tensor) -> Tensor:
    """A copy of a matrix in memory that the system is asked to map in pages of 2 MB, which is read faster.

    Where it knows no such pages, or has none, the copy lies in memory like any other.
    """
    if not hasattr(mmap, "MADV_HUGEPAGE") or weight.nbytes < HUGE_PAGE:
        return weight.contiguous()
    memory = mmap.mmap(-1, weight.nbytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    values = torch.frombuffer(memory, dtype=weight.dtype)  # which keeps the memory
    start = -values.data_ptr() % HUGE_PAGE // weight.itemsize
    return values[start : start + weight.numel()].view(weight.shape).copy_(weight)


def _round_rows(weight: Tensor) -> tuple[Tensor, ...]:
    """Whole numbers of 8 bits for weights (N, K), in oneDNN's blocks; the unit of each row, and zeros, (N,) both."""
    units = weight.abs().amax(1).float() / 127
    whole = (weight / units[:, None]).nan_to_num().round().to(torch.int8)  # 0 / 0 in a row of zeros
    return torch.ops.onednn.qlinear_prepack(whole, None), units, torch.zeros(len(weight), dtype=torch.int32)


def _is_sharded(model: nn.Module) -> bool:
    """Whether FSDP keeps parts of the weights here: copies of the whole would undo that."""
    return any(hasattr(type(module), "unshard") for module in model.modules())


def _is_plain(linear: nn.Linear) -> bool:
    """Whether nobody has replaced, hooked, quantised or sharded it, and its weight is of a type that can be packed."""
    weight = linear.weight
    return (
        type(linear) is nn.Linear
        and not (linear._forward_hooks or linear._forward_pre_hooks or "forward" in linear.__dict__)
        and type(weight) is nn.Parameter
        and weight.dtype in TYPES
        and weight.device.type == "cpu"
        and not weight.is_inference()
        and (weight.dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))
    )


def _mark(source: Tensor) -> tuple[Any, ...]:
    """What differs if a weight does: its place, its count of changes, some of its values."""
    flat = source.detach().view(-1)
    return source.data_ptr(), source._version, flat[:: max(1, len(flat) // SAMPLED_VALUES)].tolist()
