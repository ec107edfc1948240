"""The command: what it says, how it ends, and what it refuses."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import paperformer
from paperformer.cli import main
from paperformer.serving.server import TOKEN_VARIABLE, greet, listen, read_token
from paperformer.training.console.input_error import InputError


def post(address: str, body: Any, token: str = "") -> Any:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.proof
def test_it_greets_answers_and_finishes_what_it_took_when_it_is_stopped(lm: Any, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    command = [sys.executable, "-m", "paperformer.cli", "serve", str(lm.folder), "--port", "0", "--name", "small"]
    server = subprocess.Popen(
        [*command, "--token_file", str(tmp_path / "token"), "--batch_wait", "2"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert server.stderr is not None
        first, second = server.stderr.readline(), server.stderr.readline()
        said = re.fullmatch(r"serving small \(text-generation\) at (http://127\.0\.0\.1:\d+); Ctrl-C stops it\n", first)
        assert said is not None, first
        assert f"try: curl {said[1]}/v1/completions" in second
        with pytest.raises(urllib.error.HTTPError, match="401"):
            post(f"{said[1]}/v1/completions", {"prompt": "A dog"}, "other")
        with ThreadPoolExecutor(1) as pool:
            held = pool.submit(post, f"{said[1]}/v1/completions", {"prompt": "A dog", "max_tokens": 5}, "s3cret")
            time.sleep(0.5)  # it waits for others to share its batch
            server.send_signal(signal.SIGTERM)
            assert held.result(60)["usage"]["completion_tokens"] <= 5
        rest = server.stderr.read()
        assert (server.wait(60), rest) == (0, "")
        assert "s3cret" not in first + second
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize("has_token", [False, True])
def test_the_example_is_a_command(has_token: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "s3cret")
    with listen("127.0.0.1", 0) as listener:
        lines = greet("it's", "fill-mask", listener, mask="[MASK]", has_token=has_token).splitlines()
        script = f"curl() {{ printf '%s\\n' \"$@\"; cat; }}; {lines[1].removeprefix('try: ')} < /dev/null"
        if has_token:
            script = script.removesuffix(" < /dev/null")
        shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
        assert shown[0] == f"http://127.0.0.1:{listener.getsockname()[1]}/fill-mask"
        assert json.loads(shown[shown.index("-d") + 1]) == {"text": "Hello [MASK]."}
        assert ("Authorization: Bearer s3cret" in shown) == has_token
        assert "s3cret" not in " ".join(shlex.split(lines[1]))


def test_whoever_opens_it_to_others_is_told() -> None:
    with listen("0.0.0.0", 0) as listener:
        assert "anybody who reaches 0.0.0.0 can use it" in greet("m", "translation", listener, mask="", has_token=False)
        assert "anybody" not in greet("m", "translation", listener, mask="", has_token=True)
    with listen("127.0.0.1", 0) as listener:
        assert "anybody" not in greet("m", "translation", listener, mask="", has_token=False)


def test_bad_options_are_refused_in_a_line(lm: Any, tmp_path: Path, refused: Callable[..., str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("serve", lm.folder, "--port", port)
        hint = "give another --port, or 0 for any that is free"
        assert said == f"127.0.0.1:{port} cannot be listened at: Address already in use; {hint}"
    assert "port is 70000" in refused("serve", lm.folder, "--port", 70000)
    assert "cannot be listened at" in refused("serve", lm.folder, "--host", "192.0.2.1")
    assert "there is no folder ./none" in refused("serve", "./none")
    assert "timeout is 0.0; it must be greater than 0" in refused("serve", lm.folder, "--timeout", 0)
    assert "num_beams is 0" in refused("serve", lm.folder, "--num_beams", 0)
    assert "cannot be read: No such file" in refused("serve", lm.folder, "--token_file", tmp_path / "none")


@pytest.mark.parametrize("content", ["", "two words", "ä", "a\nb"])
def test_what_cannot_be_a_token_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    (tmp_path / "token").write_text(content, "utf-8")
    with pytest.raises(InputError, match="holds no token"):
        read_token(str(tmp_path / "token"))
    monkeypatch.setenv(TOKEN_VARIABLE, content)
    with pytest.raises(InputError, match=TOKEN_VARIABLE):
        read_token(None)


def test_a_missing_package_is_named(
    lm: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Importing it again sets the attribute of the package too, which has to be undone as well.
    monkeypatch.setattr(paperformer, "serving", paperformer.serving)
    for module in [name for name in sys.modules if name.startswith("paperformer.serving")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(SystemExit) as stopped:
        main(["serve", str(lm.folder)])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "error: serve needs prometheus_client: pip install 'paperformer[serve]'\n"
