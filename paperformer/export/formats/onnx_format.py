"""ONNX: graphs for onnxruntime, on CPUs, in browsers and on phones; the search lies beside them as a file of Python."""

import hashlib
import logging
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from ..export_file import ExportFile
from .format import Engine, Exportable, Format, Ids, Refusal, require

DECODING = Path(__file__).with_name("onnx_decoding.py")
WEIGHTS = "model.weights"
LARGEST_FILE = 1_500_000_000
"""Bytes; above, weights lie in a file of their own: a file of protocol buffers cannot have 2 GB."""
SMALLEST_OUTSIDE = 1024
"""Bytes of a weight; what is smaller, and what shapes are computed from, stays in the graph."""
ALIGNMENT = 64
"""Bytes: where a weight begins in the file."""


def _write(exportable: Exportable, folder: Path, quantization: str) -> None:
    from .onnx_graph import build_graphs

    folder.mkdir(parents=True, exist_ok=True)
    graphs = build_graphs(exportable.model)
    if quantization == "int8":
        graphs = {name: _quantized(graph, folder) for name, graph in graphs.items()}
    _save(graphs, folder)
    shutil.copyfile(DECODING, folder / "decode.py")


def _save(graphs: dict[str, Any], folder: Path) -> None:
    """A file for each graph; weights in one beside them, each once, where there are several graphs or too much."""
    import onnx
    from onnx.external_data_helper import set_external_data

    tensors = [tensor for graph in graphs.values() for tensor in graph.graph.initializer]
    if len(graphs) > 1 or sum(len(tensor.raw_data) for tensor in tensors) > LARGEST_FILE:
        places: dict[bytes, int] = {}
        with (folder / WEIGHTS).open("wb") as file:
            for tensor in tensors:
                if (length := len(tensor.raw_data)) < SMALLEST_OUTSIDE:
                    continue
                key = hashlib.sha256(tensor.raw_data).digest()
                if key not in places:
                    file.write(bytes(-file.tell() % ALIGNMENT))
                    places[key] = file.tell()
                    file.write(tensor.raw_data)
                set_external_data(tensor, location=WEIGHTS, offset=places[key], length=length)
                tensor.ClearField("raw_data")
    for name, graph in graphs.items():
        onnx.save_model(graph, str(folder / f"{name}.onnx"))


def _quantized(graph: Any, folder: Path) -> Any:
    """Weights as whole numbers of 8 bits, and what they are multiplied with as well, when it is known."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    size = sum(len(weight.raw_data) for weight in graph.graph.initializer)
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)  # it advises to do what has no effect on these graphs
    try:
        with TemporaryDirectory(dir=folder) as place:
            plain, rounded = (Path(place) / name for name in ("plain.onnx", "rounded.onnx"))
            onnx.save_model(graph, str(plain), save_as_external_data=size > LARGEST_FILE, location="plain.weights")
            # Unsigned, because products of signed numbers overflow on processors without VNNI.
            quantize_dynamic(plain, rounded, op_types_to_quantize=["MatMul", "Gather"], weight_type=QuantType.QUInt8)
            return onnx.load(rounded)
    finally:
        logging.getLogger().setLevel(level)


def _round(quantization: str, weight: torch.Tensor) -> torch.Tensor:
    """What is left of a matrix: whole numbers of 1/255 of what lies between its smallest and its largest value."""
    if weight.dim() < 2:
        return weight
    low, high = weight.min().clamp(max=0), weight.max().clamp(min=0)
    scale = 255 / (high - low).clamp(min=1e-30)
    return (weight * scale).round() / scale


class OnnxEngine(Engine):
    """A model of any family in onnxruntime; see `format.Engine`.

    Args:
        folder: what `paperformer export --to onnx` has written.
    """

    def __init__(self, folder: Path) -> None:
        require("onnxruntime", "onnx")
        from .onnx_decoding import OnnxModel

        self.facts = ExportFile.read(folder)
        self.model = OnnxModel(folder, torch.get_num_threads())

    def values(self, inputs: Ids, outputs: Ids) -> list[np.ndarray]:
        if self.facts.family == "encoder":
            return [self.model.encode(list(ids))[self.facts.compared][0] for ids in inputs]
        ends = self.facts.end_ids[:1] if self.facts.family == "seq2seq" else []
        return [
            self.model.log_probabilities(list(given), [*following, *ends])
            for given, following in zip(inputs, outputs, strict=True)
        ]

    def decode(self, inputs: Ids, *, num_beams: int, length_penalty: float, max_new_tokens: int) -> list[list[int]]:
        settings = {"num_beams": num_beams, "max_new_tokens": max_new_tokens}
        return self.model.decode_batch([list(ids) for ids in inputs], length_penalty=length_penalty, **settings)


REFUSALS = (
    Refusal(
        "rope_parameters",
        lambda config: (config.rope_parameters or {}).get("rope_type") in ("dynamic", "longrope"),
        "its frequencies do not change with the length of a text",
        "use it with torch",
    ),
)

ONNX = Format(
    name="onnx",
    title="ONNX",
    packages=("onnx", "onnxruntime"),
    extra="onnx",
    families={"seq2seq": ({},), "lm": ({},), "encoder": ({},)},
    quantizations=("float32", "int8"),
    of_encoder="logits",
    rounding=_round,
    refusals=REFUSALS,
    write=_write,
    open=OnnxEngine,
)
