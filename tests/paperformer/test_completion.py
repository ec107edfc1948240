"""The scripts of `paperformer completion`: bash completes with one of them, in an environment without paperformer."""

import contextlib
import io
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from paperformer.cli import COMMANDS, Group, main
from paperformer.training.tasks.registry import OBJECTIVES

BASH = shutil.which("bash")
TYPED = """
source ./script
{{ while read -r line; do
    COMP_LINE="$line"; read -ra COMP_WORDS <<< "$line"
    [[ "$line" == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
    {function} paperformer "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"
    echo "${{COMPREPLY[@]}}"
done; }} 2>&1
"""


FISH = shutil.which("fish")
ZSH = shutil.which("zsh")
IN_ZSH = """
zmodload zsh/zpty
zpty z "env -i HOME=$PWD ZDOTDIR=$PWD TERM=dumb PATH=/usr/bin:/bin zsh -i"
zpty -w -n z "$1"$'\\t\\t'
# What it lists comes in pieces.
for attempt in {1..100}; do
    sleep 0.05
    while zpty -r -t z piece; do said+=$piece; done
    [[ "$said" == *$2* ]] && break
done
print -r -- "$said"
zpty -d z
"""


@cache
def script(shell: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        main(["completion", shell])
    return said.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the script for bash, and some files."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "script").write_text(script("bash"), "utf-8")
    (folder / "my-runs").mkdir()
    (folder / "my.tsv").touch()
    return folder


def complete(folder: Path, *lines: str) -> list[set[str]]:
    """What bash offers behind each line, with nothing but itself on the path."""
    assert BASH is not None
    (function,) = {
        line.split("-F ")[1].split()[0]
        for line in (folder / "script").read_text("utf-8").splitlines()
        if line.strip().startswith("complete ") and "-F " in line
    }
    typed = "".join(line.replace("\t", "") + "\n" for line in lines)
    result = subprocess.run(
        [BASH, "--norc", "-c", TYPED.format(function=function).replace("read -r line", "IFS= read -r line")],
        input=typed, capture_output=True, text=True, cwd=folder, env={"PATH": "/nowhere"}, timeout=60, check=False,
    )  # fmt: skip
    assert result.stderr == ""
    return [set(line.split()) for line in result.stdout.split("\n")[: len(lines)]]


def test_bash_completes(folder: Path) -> None:
    commands, trans, members, some, value, both, files, config, shells = complete(
        folder,
        "paperformer ",
        "paperformer trans",
        "paperformer train ",
        "paperformer train lm --optimization.adam",
        "paperformer train lm --optimization.schedule ",
        "paperformer export model out --to ",
        "paperformer translate my",
        "paperformer train lm --config tiny",
        "paperformer completion ",
    )
    assert set(COMMANDS) <= commands
    assert trans == {"translate"}
    assert set(OBJECTIVES) <= members
    assert some == {"--optimization.adam_beta1", "--optimization.adam_beta2", "--optimization.adam_epsilon"}
    assert value == {"inverse_sqrt", "cosine", "linear", "wsd", "constant"}
    assert both == {"ctranslate2", "onnx", "gguf"}
    assert {"my-runs", "my.tsv"} <= {name.rstrip("/") for name in files}
    assert {"tinyshakespeare", "tinyshakespeare-6x192"} <= config
    assert {"bash", "zsh", "fish"} <= shells


def test_every_command_and_its_options_are_known(folder: Path) -> None:
    words = set(re.findall(r"[\w.-]+", (folder / "script").read_text("utf-8")))
    for name, command in COMMANDS.items():
        assert {name, *(command.commands if isinstance(command, Group) else ())} <= words
    assert {"--model.norm_position", "--num_beams", "--hidden_size", "--data.source_language"} <= words


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_the_same_commands(shell: str) -> None:
    text = script(shell)
    for word in (*COMMANDS, "optimization.schedule", "inverse_sqrt", "tinyshakespeare-6x192"):
        assert word in text
    assert text.startswith("#compdef paperformer") == (shell == "zsh")


@pytest.mark.skipif(FISH is None, reason="no fish is installed")
def test_fish_completes(folder: Path) -> None:
    assert FISH is not None
    (folder / "script.fish").write_text(script("fish"), "utf-8")
    lines = ["train lm --optimization.schedule ", "train lm --config tiny", "runs x my", "runs --w", "demo my"]
    typed = "; ".join(f"complete -C 'paperformer {line}' | cut -f1 | string join ' '" for line in lines)
    result = subprocess.run(
        [FISH, "--no-config", "-c", f"source script.fish; {typed}"],
        capture_output=True, text=True, cwd=folder, env={"PATH": "/usr/bin:/bin", "HOME": str(folder)}, timeout=60,
        check=False,
    )  # fmt: skip
    assert result.stderr == ""
    values, recipes, files, option, more = (set(line.split()) for line in result.stdout.splitlines())
    assert values == {"inverse_sqrt", "cosine", "linear", "wsd", "constant"}
    assert {"tinyshakespeare", "tinyshakespeare-6x192"} <= recipes
    assert files == more == {"my-runs/", "my.tsv"}
    assert option == {"--web"}


@pytest.mark.skipif(ZSH is None, reason="no zsh is installed")
def test_zsh_completes_the_second_of_several(folder: Path) -> None:
    assert ZSH is not None
    (folder / "_paperformer").write_text(script("zsh"), "utf-8")
    (folder / ".zshrc").write_text("fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D", "utf-8")
    result = subprocess.run(
        [ZSH, "-f", "-c", IN_ZSH, "zsh", "paperformer runs x my", "my.tsv"],
        capture_output=True, text=True, cwd=folder, env={"PATH": "/usr/bin:/bin"}, timeout=60, check=False,
    )  # fmt: skip
    assert "my.tsv" in result.stdout


def test_without_shtab_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit, match="2"):
        main(["completion", "bash"])
    assert capsys.readouterr().err.endswith("needs shtab: pip install 'paperformer[completion]'\n")
