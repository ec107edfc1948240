"""Trading time for memory and memory for time: compiled blocks, and activations that are computed twice."""

import torch
from torch import nn
from torch._inductor.cpp_builder import get_cpp_compiler
from transformers import PreTrainedModel

from ....modeling.blocks import TransformerBlock
from ...console.input_error import InputError

RECOMPILE_LIMIT = 16
"""Programs that torch.compile may make of a block's code. Encoder and decoder, batches with and without padding, of one
row and of several, are eight already, which is torch's own limit; beyond it shapes run without being compiled."""


def compile_blocks(model: nn.Module) -> None:
    """Compiles each Transformer block with torch.compile, for all shapes of batches at once.

    Blocks of the same kind share their programs, so that a deep model takes no longer to compile than a flat one. It is
    done in place: names of parameters stay. Only training uses them: in evaluation mode, where caches grow and each
    prompt has another form, blocks run as they always do. Copies of the model are not compiled.
    """
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, RECOMPILE_LIMIT)
    for block in model.modules():
        if isinstance(block, TransformerBlock):
            block.compile(dynamic=True)
            _compile_in_training_only(block)


def _compile_in_training_only(block: nn.Module) -> None:
    compiled = block._compiled_call_impl  # set by Module.compile, and what a call goes to if it is not None
    assert compiled is not None

    def call(*args: object, **kwargs: object) -> torch.Tensor:
        return (compiled if block.training else block._call_impl)(*args, **kwargs)

    block._compiled_call_impl = call


def check_compiler(device: torch.device) -> None:
    """Checks for what torch.compile needs: on a CPU a C++ compiler, on a GPU Triton and a C compiler.

    Raises:
        InputError: if it is not there.
    """

    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    try:
        if device.type == "cpu":
            get_cpp_compiler()
        else:
            torch.compile(double)(torch.ones(2, device=device))  # takes a second
    except (RuntimeError, ImportError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"optimization.compile is true, and torch.compile does not work here on {device.type} ({reason}); install "
            "a C++ compiler such as g++, or set optimization.compile to false"
        ) from error


def recompute_activations(model: PreTrainedModel) -> None:
    """Keeps only the input of each block for the backward pass, which computes the rest again (Chen et al. 2016, arXiv
    1604.06174).
    """
    # The name changed in transformers 5.18 or later; the old one is deprecated where the new one exists.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable()
