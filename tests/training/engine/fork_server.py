"""Starts processes that compute together, as torchrun does, but as forks of this one: importing torch and transformers
takes each process longer than what it is started for.

python fork_server.py: each line of standard input asks for processes (`script`, its `arguments`, their `number`, the
`folder` to run in, and `environment`); the line that answers has their exit codes. What they say is in the folder, in
output-RANK.txt and errors-RANK.txt.
"""

import json
import os
import runpy
import socket
import sys
import traceback
from typing import Any

import torch.distributed.device_mesh
import torch.distributed.fsdp
import torch.distributed.tensor.parallel  # noqa: F401 - with what follows, what the scripts import

import paperformer.training.engine.loop  # noqa: F401


def run(request: dict[str, Any], rank: int) -> int:
    """In a forked process: what `python script arguments` does."""
    os.environ |= request["environment"]
    os.chdir(request["folder"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream, name in ((1, "output"), (2, "errors")):
        os.dup2(os.open(f"{name}-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    sys.argv = [request["script"], *request["arguments"]]
    code = 0
    try:
        runpy.run_path(request["script"], run_name="__main__")
    except BaseException:  # noqa: BLE001 - the parent's code must not run in the child
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def start(request: dict[str, Any]) -> list[int]:
    """The exit codes of a request's processes, once all have ended; a signal is its number with a minus."""
    number, meeting = request["number"], {}
    if number > 1:
        with socket.create_server(("127.0.0.1", 0)) as free:
            meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        meeting |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(number))
    children = []
    for rank in range(number):
        child = os.fork()
        if child == 0:
            if meeting:
                request["environment"] |= meeting | dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
            os._exit(run(request, rank))
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file; nothing is imported from there
    for line in sys.stdin:
        print(json.dumps(start(json.loads(line))), flush=True)
