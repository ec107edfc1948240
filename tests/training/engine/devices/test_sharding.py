"""Layouts of processes: what the launcher's configuration files lead to, what cannot be split, and four processes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from accelerate import ParallelismConfig
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_multi_gpu_env, prepare_simple_launcher_cmd_env

from paperformer import PaperformerForCausalLM, PaperformerLMConfig
from paperformer.training.console.input_error import InputError
from paperformer.training.engine.devices import sharding
from paperformer.training.engine.devices.compiling import compile_blocks
from paperformer.training.engine.devices.sharding import Layout

from .. import split_blocks
from ..conftest import Together

FILES = sorted((Path(sharding.__file__).parents[2] / "accelerate").glob("*.yaml"))
LAYOUTS = {  # of the last process: is_sharded, tensor_parallel, data_size, data_rank
    "single_gpu": (False, 1, 1, 0),
    "cpu": (False, 1, 1, 0),
    "ddp": (False, 1, 2, 1),
    "fsdp2": (True, 1, 2, 1),
    "tensor_parallel": (False, 2, 1, 0),
    "fsdp2_tensor_parallel": (True, 2, 2, 1),
    "multi_node": (False, 1, 16, 15),
}


def launched(file: Path) -> tuple[Any, dict[str, str]]:
    """What `accelerate launch` makes of a configuration file: its arguments, and the environment of the processes."""
    args = launch_command_parser().parse_args(["--config_file", str(file), "script.py"])
    args, *_ = _validate_launch_command(args)
    if args.multi_gpu or args.use_fsdp:
        return args, prepare_multi_gpu_env(args)
    return args, prepare_simple_launcher_cmd_env(args)[1]


def layout_of(index: int, number: int) -> Layout:
    return Layout.of(SimpleNamespace(process_index=index, num_processes=number))  # type: ignore[arg-type]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_configuration_file_leads_to_its_layout(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ACCELERATE_USE_FSDP", "PARALLELISM_CONFIG_TP_SIZE", "ACCELERATE_USE_CPU"):
        monkeypatch.delenv(variable, raising=False)
    config = load_config_from_file(str(file))
    args, environment = launched(file)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    layout = layout_of(args.num_processes - 1, args.num_processes)
    found = (layout.is_sharded, layout.tensor_parallel, layout.data_size, layout.data_rank)
    assert found == LAYOUTS[file.stem]
    assert (environment.get("ACCELERATE_USE_CPU") == "True") is (file.stem == "cpu")
    # What Accelerate itself makes of it, where there are GPUs.
    if config.parallelism_config:
        accelerator: Any = SimpleNamespace(
            num_processes=args.num_processes,
            multi_device=not layout.is_sharded,
            is_fsdp2=layout.is_sharded,
            is_main_process=False,
        )
        ParallelismConfig()._validate_accelerator(accelerator)  # raises if it would refuse
    if layout.is_sharded:
        assert FullyShardedDataParallelPlugin().fsdp_version == 2


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_configuration_file_says_how_it_is_used(file: Path) -> None:
    text = file.read_text("utf-8")
    assert f"accelerate launch --config_file training/accelerate/{file.name}" in text
    assert "optimization.mixed_precision" in text
    assert "mixed_precision" not in yaml.safe_load(text)


def test_several_machines_differ_in_their_rank_only(tmp_path: Path) -> None:
    (file,) = (file for file in FILES if file.stem == "multi_node")
    second = launch_command_parser().parse_args(["--config_file", str(file), "--machine_rank", "1", "script.py"])
    args, *_ = _validate_launch_command(second)
    assert (args.machine_rank, args.num_machines, args.num_processes) == (1, 2, 16)
    assert (args.main_process_ip, args.main_process_port) == ("192.168.0.10", 29500)


@pytest.mark.parametrize(
    ("number", "fsdp", "size"), [(3, "false", "2"), (3, "true", "2"), (4, "false", "2"), (2, "false", "4")]
)
def test_sizes_that_do_not_fit(number: int, fsdp: str, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", fsdp)
    monkeypatch.setenv("PARALLELISM_CONFIG_TP_SIZE", size)
    with pytest.raises(InputError, match=rf"parallelism_config_tp_size is {size} on {number} processes; it must"):
        layout_of(0, number)
    assert layout_of(0, 1) == Layout(0, 1)  # alone it makes no difference


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"num_attention_heads": 3, "head_dim": 8},
            r"model\.num_attention_heads is 3; .* a multiple of its 2 processes",
        ),
        ({"num_key_value_heads": 1}, r"model\.num_key_value_heads is 1;"),
        ({"intermediate_size": 33}, r"model\.intermediate_size is 33;"),
        ({"position_embedding_type": "alibi"}, r"model\.position_embedding_type is alibi,"),
        ({"attention_dropout": 0.1}, r"model\.attention_dropout is 0\.1; with tensor parallelism it must be 0"),
        ({"activation_dropout": 0.1}, r"model\.activation_dropout is 0\.1;"),
    ],
)
def test_models_that_cannot_be_split(fields: dict[str, Any], message: str) -> None:
    sizes = {"vocab_size": 9, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    model = PaperformerForCausalLM(PaperformerLMConfig(**sizes | {"num_hidden_layers": 1} | fields))
    with pytest.raises(InputError, match=message):
        sharding.split_blocks(model, SimpleNamespace(size=lambda: 2))  # type: ignore[arg-type]


def test_a_compiled_model_cannot_be_split() -> None:
    model = PaperformerForCausalLM(
        PaperformerLMConfig(vocab_size=9, hidden_size=16, num_attention_heads=2, num_hidden_layers=1)
    )
    compile_blocks(model)
    with pytest.raises(InputError, match=r"optimization\.compile is true; with tensor parallelism it must be false"):
        sharding.split_blocks(model, SimpleNamespace(size=lambda: 2))  # type: ignore[arg-type]


@pytest.mark.proof
def test_blocks_split_over_processes_compute_what_one_does(together: Together, tmp_path: Path) -> None:
    first, *_ = together(split_blocks.__file__, tmp_path, number=4)
    assert first == "the same\n"


@pytest.mark.proof
def test_accelerate_launch_reaches_the_layout(together: Together, tmp_path: Path) -> None:
    """It tells its processes by their environment, which is all that they are given here."""
    (tmp_path / "launched.py").write_text(
        "import json, os, pathlib\n"
        "pathlib.Path(os.environ['RANK'] + '.json').write_text(json.dumps(dict(os.environ)))\n"
    )
    (file,) = (file for file in FILES if file.stem == "tensor_parallel")
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(file)]
    command = [*launcher, "--main_process_port", "0", "launched.py"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=250, check=True)
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [each["WORLD_SIZE"] for each in found] == ["2", "2"]
    told = [{name: each[name] for name in each if name.startswith(("ACCELERATE_", "PARALLELISM_"))} for each in found]
    assert told[0] == told[1]

    (tmp_path / "layout.py").write_text(
        "from accelerate import PartialState\n"
        "from paperformer.training.engine.devices.sharding import Layout\n"
        "state = PartialState(cpu=True)\n"
        "print(Layout.of(state))\n"
        "state.destroy_process_group()\n"
    )
    said = together(tmp_path / "layout.py", tmp_path, number=2, environment=told[0])
    expected = [repr(Layout(process_index=index, num_processes=2, tensor_parallel=2)) for index in (0, 1)]
    assert [text.strip() for text in said] == expected
