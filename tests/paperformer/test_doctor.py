"""`paperformer doctor`: what is wrong is told, what is not wrong is not, and nothing that is secret."""

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement

from paperformer.cli import main
from paperformer.diagnosis import installation, machine
from paperformer.diagnosis.advice import find_advice, find_problems
from paperformer.diagnosis.installation import EXTRAS, Package, find_packages
from paperformer.diagnosis.machine import Machine

WELL = Machine(
    hardware="2 cores of a CPU",
    has_gpu=False,
    has_nvidia_driver=False,
    torch_is_for_gpus=False,
    cores=2,
    threads=2,
    busy_cores=1.0,
    memory=16 * 10**9,
    free_memory=8 * 10**9,
    cache=Path("cache"),
    free_disk={Path("here"): 10**11},
    float32_flops=1e11,
    bf16_flops=1e11,
    hub="https://huggingface.co",
    is_offline=False,
    has_token=True,
    encoding="utf-8",
)


def package(text: str, installed: str | None, extra: str | None = None) -> Package:
    return Package(Requirement(text), extra, installed)


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"bf16_flops": 3e11}, "this CPU multiplies bfloat16 3.0 times as fast as float32: train with "),
        ({"bf16_flops": 3e11, "has_gpu": True}, "this GPU multiplies bfloat16 3.0 times"),
        ({"bf16_flops": 2e10}, "at 0.20 times the speed of float32: give recipes that say bf16 "),
        ({"has_nvidia_driver": True}, "it was built for CPUs only"),
        ({"has_nvidia_driver": True, "torch_is_for_gpus": True}, "compare its CUDA version"),
        ({"threads": 8}, "torch computes with 8 threads on 2 cores, where they wait for each other: set OMP_NUM_"),
        ({"busy_cores": 5.0}, "5.0 cores were wanted in the last minute, and there are 2"),
        ({"free_memory": 10**9}, "only 1.0 GB of memory are free"),
        ({"free_disk": {Path("here"): 10**9}}, "only 1.0 GB are free where here is"),
        ({"is_offline": True}, "HF_HUB_OFFLINE is set"),
        ({"has_token": False}, "not logged in to the Hub"),
        ({"encoding": "iso8859-1"}, "standard output is written as iso8859-1"),
    ],
)
def test_what_is_found_is_told_and_nothing_else(change: dict[str, Any], advice: str) -> None:
    (line,) = find_advice([], replace(WELL, **change))
    assert advice in line


def test_there_is_no_advice_where_all_is_well() -> None:
    packages = [package("torch>=2.11", "2.13.0+cpu"), package("lm-eval>=0.4.13", "0.4.14", "lm-eval")]
    for fine in ({}, {"has_nvidia_driver": True, "has_gpu": True}, {"bf16_flops": 1.2e11}):
        assert list(find_advice(packages, replace(WELL, **fine))) == []
    assert list(find_problems(packages)) == []


def test_packages_that_are_missing_or_too_old() -> None:
    packages = [
        package("torch>=2.11", "2.10.0"),
        package("transformers>=5.17,<6", None),
        package("matplotlib>=3.9", None, "plots"),
        package("trackio>=0.43", "0.1", "tracking"),
        package("nvidia-ml-py>=12.535", None, "energy"),
    ]
    assert list(find_problems(packages)) == [
        "torch is 2.10.0; paperformer needs torch>=2.11: pip install 'torch>=2.11'",
        "transformers is missing; paperformer needs transformers<6,>=5.17: pip install 'transformers<6,>=5.17'",
        "trackio is 0.1; paperformer needs trackio>=0.43: pip install 'trackio>=0.43'",
    ]
    (plots,) = find_advice(packages, WELL)
    assert plots.endswith("pip install 'paperformer[plots]'")
    _, energy = find_advice(packages, replace(WELL, has_nvidia_driver=True, has_gpu=True))
    assert energy.endswith("pip install 'paperformer[energy]'")


def test_every_package_and_every_extra_is_looked_at() -> None:
    packages = list(find_packages())
    assert {found.extra for found in packages} == {None, *EXTRAS}
    assert {"torch", "transformers", "sacrebleu"} <= {found.requirement.name for found in packages if not found.extra}
    assert all(found.is_fitting for found in packages if found.extra is None)  # of the environment of the tests
    metadata = installation.requires("paperformer") or []
    for_developers = ('extra == "dev"', 'extra == "docs"')
    assert len(packages) == len([text for text in metadata if not text.endswith(for_developers)])


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "measure_flops", lambda precision: {"fp32": 1e11, "bf16": 1.1e11}[precision])


@pytest.mark.usefixtures("fast")
def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secretsecret")

    def run(*options: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["doctor", *options])
        said = capsys.readouterr()
        assert "secret" not in said.out + said.err
        return ended.value.code, said.out  # type: ignore[return-value]

    code, text = run()
    assert code == 0
    assert text.startswith("paperformer 0.")
    assert f"torch {version('torch')}" in text
    assert "100 GFLOP/s in float32, 110 in bf16" in text
    assert ", logged in" in text
    assert text.endswith("\n\nAll that is needed is installed.\n")
    code, text = run("--json")
    found = json.loads(text)
    assert (code, found["problems"], found["machine"]["has_token"]) == (0, [], True)
    assert found["machine"]["threads"] == torch.get_num_threads()

    find = installation.find_version
    monkeypatch.setattr(installation, "find_version", lambda name: None if name == "ftfy" else find(name))
    code, text = run()
    assert code == 1
    assert "\nTo be mended:\n- ftfy is missing; paperformer needs ftfy>=6.3: pip install 'ftfy>=6.3'\n" in text


@pytest.mark.usefixtures("fast")
def test_a_cache_that_is_not_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.constants, "HF_HUB_CACHE", str(tmp_path / "not" / "yet"))
    examined = machine.examine_machine()
    assert examined.free_disk[tmp_path / "not" / "yet"] > 0
    assert not (tmp_path / "not").exists()


def test_the_version_comes_with_its_surroundings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["--version"])
    said = capsys.readouterr().out
    assert said.startswith(f"paperformer {installation.version('paperformer')} (Python 3.")
    assert f"torch {version('torch')}, transformers " in said
    assert said.count("\n") == 1
    find: Callable[[str], str | None] = installation.find_version
    monkeypatch.setattr(installation, "find_version", lambda name: find("no-such-package"))
    assert "torch missing, " in installation.describe_versions()
