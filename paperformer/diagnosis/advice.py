"""What to do about what is missing, wrong or slow: a line each."""

from collections.abc import Iterator, Sequence

from .installation import EXTRAS, Package
from .machine import Machine

LITTLE_DISK = 5 * 10**9
"""Bytes: a small model with its checkpoints, and the text of a run, need some of it."""

LITTLE_MEMORY = 2 * 10**9
CLEARLY_FASTER = 1.3


def find_problems(packages: Sequence[Package]) -> Iterator[str]:
    """What keeps paperformer from working as it should."""
    for package in packages:
        if package.is_fitting or (package.extra is not None and package.installed is None):
            continue
        wanted = f"{package.requirement.name}{package.requirement.specifier}"
        is_there = f"is {package.installed}" if package.installed else "is missing"
        yield f"{package.requirement.name} {is_there}; paperformer needs {wanted}: pip install '{wanted}'"


def find_advice(packages: Sequence[Package], machine: Machine) -> Iterator[str]:
    """What would make it faster, or bring what it cannot do yet."""
    yield from _advise_on_extras(packages, machine)
    yield from _advise_on_devices(machine)
    yield from _advise_on_surroundings(machine)


def _advise_on_extras(packages: Sequence[Package], machine: Machine) -> Iterator[str]:
    missing = {package.extra for package in packages if package.extra is not None and package.installed is None}
    for extra, purpose in EXTRAS.items():
        if extra in missing and (extra != "energy" or machine.has_nvidia_driver):
            yield f"for {purpose}: pip install 'paperformer[{extra}]'"


def _advise_on_devices(machine: Machine) -> Iterator[str]:
    if machine.has_nvidia_driver and not machine.has_gpu:
        yield (
            "there is an NVIDIA driver, and PyTorch sees no GPU: "
            + (
                "compare its CUDA version with the driver's (nvidia-smi), and look at CUDA_VISIBLE_DEVICES"
                if machine.torch_is_for_gpus
                else "it was built for CPUs only; install it anew as pytorch.org/get-started says"
            )
        )
    where = "this GPU" if machine.has_gpu else "this CPU"
    ratio = machine.bf16_flops / machine.float32_flops
    if ratio > CLEARLY_FASTER:
        yield (
            f"{where} multiplies bfloat16 {ratio:.1f} times as fast as float32: "
            "train with --optimization.mixed_precision bf16"
        )
    elif ratio < 1 / CLEARLY_FASTER:
        yield (
            f"{where} multiplies bfloat16 at {ratio:.2f} times the speed of float32: "
            "give recipes that say bf16 --optimization.mixed_precision no"
        )
    if not machine.has_gpu and machine.threads > machine.cores:
        yield (
            f"torch computes with {machine.threads} threads on {machine.cores} cores, where they wait for each other: "
            f"set OMP_NUM_THREADS={machine.cores}"
        )
    if machine.busy_cores > machine.cores + 0.5:
        yield (
            f"{machine.busy_cores:.1f} cores were wanted in the last minute, and there are {machine.cores}: "
            "what other programs take is missing here, and speeds that are measured now are too low"
        )


def _advise_on_surroundings(machine: Machine) -> Iterator[str]:
    if machine.free_memory < LITTLE_MEMORY:
        yield f"only {machine.free_memory / 1e9:.1f} GB of memory are free: close programs, or make batches smaller"
    for folder, free in machine.free_disk.items():
        if free < LITTLE_DISK:
            yield f"only {free / 1e9:.1f} GB are free where {folder} is: checkpoints and downloads may not fit"
    if machine.is_offline:
        yield "HF_HUB_OFFLINE is set: of the Hub only what has been downloaded before can be used"
    elif not machine.has_token:
        yield "not logged in to the Hub, which publishing and private models need: hf auth login"
    if machine.encoding != "utf-8":
        yield f"standard output is written as {machine.encoding}, which cannot show every script: set PYTHONUTF8=1"
