"""Which packages are installed, and whether they are what paperformer needs."""

import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

SHOWN = ("torch", "transformers", "tokenizers", "datasets", "accelerate", "huggingface_hub", "safetensors", "sacrebleu")
"""Packages whose versions a bug report wants."""

EXTRAS = {
    "plots": "paperformer plot, and the pictures of exercises",
    "tracking": "TensorBoard and Trackio",
    "langid": "cleaning by language",
    "energy": "what training takes of an NVIDIA GPU's energy",
    "lm-eval": "the tasks of the Evaluation Harness",
    "serve": "paperformer serve",
    "demo": "paperformer demo",
    "ray": "translate and likelihood on several machines",
    "ctranslate2": "exports to CTranslate2, and translating with it",
    "onnx": "exports to ONNX, and translating with them",
    "gguf": "exports to llama.cpp",
    "completion": "paperformer completion",
}
"""What each extra is for; those for developers, dev and docs, are not among them."""


@dataclass(frozen=True)
class Package:
    """A package that paperformer needs, or that one of its extras brings."""

    requirement: Requirement
    extra: str | None
    """The extra that brings it; None: it is always needed."""
    installed: str | None
    """The installed version; None: there is none."""

    @property
    def is_fitting(self) -> bool:
        """Whether it is installed in a version that will do; pre-releases, and builds of one's own, may."""
        return self.installed is not None and self.requirement.specifier.contains(self.installed, prereleases=True)


def find_version(package: str) -> str | None:
    """The installed version of a package, without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def describe_versions() -> str:
    """What a bug report begins with: the versions of paperformer, of what it stands on, and of the system."""
    versions = {"Python": platform.python_version()} | {name: find_version(name) or "missing" for name in SHOWN}
    others = ", ".join(f"{name} {number}" for name, number in versions.items())
    return f"paperformer {version('paperformer')} ({others}; {platform.platform()}, {sys.executable})"


def find_packages() -> Iterator[Package]:
    """All that paperformer's metadata asks for, the extras for its developers aside."""
    for text in requires("paperformer") or []:
        requirement = Requirement(text)
        extra = _extra_of(requirement)
        if extra is None or extra in EXTRAS:
            yield Package(requirement, extra, find_version(requirement.name))


def _extra_of(requirement: Requirement) -> str | None:
    """The extra in a requirement's marker, which is `extra == "plots"`, perhaps among others."""
    marker = str(requirement.marker or "")
    _, found, rest = marker.partition('extra == "')
    return rest.partition('"')[0] if found else None
