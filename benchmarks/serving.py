"""How a server of `paperformer serve` holds up: throughput, waiting times, and what a storm of requests leaves behind.

    python benchmarks/serving.py MODEL SENTENCES [--requests 10000] [--beams 5] [--output benchmarks/results/serving.md]

Starts a server of its own, as a process, and asks it over HTTP as clients do that each send a request when the last one
is answered. Three parts:

1. One client and a server that puts no requests together, beside 1, 8 and 64 clients of one that does; the parts take
   turns, several rounds, because other work on the machine comes and goes.
2. A storm: 10,000 requests of 64 clients, every tenth of which is wrong in one of several ways, or leaves before its
   answer. Each answer is compared with the translation of its own sentence that was made before, without a server.
3. The server's memory during the storm, and how it ends on SIGTERM.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil

import paperformer

CLIENTS = (1, 8, 64)
REFUSED: list[tuple[int, dict[str, Any]]] = [
    (422, {"content": b"{broken"}),
    (422, {"content": b'{"text": 5}'}),
    (422, {"content": b'{"text": "a", "num_beams": 0}'}),
    (422, {"content": b'{"text": "a", "beams": 2}'}),
    (413, {"content": b'{"text": "' + b"a" * 1_000_001 + b'"}'}),
]
"""Malformed requests, and the status that each must get."""


@dataclass
class Tally:
    """What came of requests."""

    seconds: list[float] = field(default_factory=list)
    """Of each answered one, from sending it to its whole answer."""
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[str, str]] = field(default_factory=list)
    """Answers that are other than without a server."""
    wall: float = 0.0
    cpu: float = 0.0
    """Seconds of a processor that the server took."""


Server = tuple[str, subprocess.Popen[str]]
"""Address and process."""


@contextmanager
def server(model: str, *options: str) -> Iterator[Server]:
    """A server and its address; stopped by SIGTERM at the end."""
    command = [sys.executable, "-m", "paperformer.cli", "serve", model, "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.search(r"http://\S+:\d+", said)
        assert found is not None, said
        process.stderr.readline()
        yield found[0], process
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, process.stderr.read()
    finally:
        process.kill()
        process.wait()


async def translate(client: httpx2.AsyncClient, sentence: str, expected: str | None, tally: Tally) -> None:
    """Asks for a translation until it is there, as a client does that obeys Retry-After."""
    while True:
        start = time.perf_counter()
        answer = await client.post("/translate", json={"text": sentence})
        if answer.status_code != 429:
            break
        tally.outcomes["429, and asked again"] += 1
        await asyncio.sleep(float(answer.headers["Retry-After"]))
    tally.outcomes[str(answer.status_code)] += 1
    if answer.status_code == 200:
        tally.seconds.append(time.perf_counter() - start)
        text = answer.json()["translations"][0][0]["text"]
        if expected is not None and text != expected:
            tally.wrong.append((sentence, text))


async def ask_wrongly(client: httpx2.AsyncClient, number: int, tally: Tally) -> None:
    """A malformed request, or one whose client leaves."""
    kind = number % (len(REFUSED) + 1)
    if kind == len(REFUSED):
        try:
            await client.post("/translate", json={"text": "A man who leaves. " * 8}, timeout=0.01)
            tally.outcomes["too fast to leave"] += 1
        except httpx2.TimeoutException:
            tally.outcomes["left"] += 1
        return
    status, body = REFUSED[kind]
    answer = await client.post("/translate", headers={"Content-Type": "application/json"}, **body)
    assert answer.status_code == status, (status, answer.text)
    assert answer.json()["error"]["message"]
    tally.outcomes[f"{status} as it should be"] += 1


async def run_clients(
    address: str, clients: int, works: list[Callable[[httpx2.AsyncClient, Tally], Awaitable[None]]]
) -> Tally:
    """So many clients that share the works, each with one request at a time."""
    tally, left = Tally(), iter(works)
    limits = httpx2.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx2.AsyncClient(base_url=address, timeout=120, limits=limits) as client:

        async def one() -> None:
            for work in left:
                await work(client, tally)

        start = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(clients)))
        tally.wall = time.perf_counter() - start
    return tally


def translations_of(sentences: list[str], known: dict[str, str]) -> list[Any]:
    return [
        lambda client, tally, sentence=sentence: translate(client, sentence, known.get(sentence), tally)
        for sentence in sentences
    ]


def measure_throughput(
    single: Server, shared: Server, sentences: list[str], rounds: int, seconds: float
) -> dict[str, list[Tally]]:
    """Rounds in which each setting has its turn, of about so many seconds each."""
    found: dict[str, list[Tally]] = {}
    counts = {"alone": 10} | {str(clients): max(10, 2 * clients) for clients in CLIENTS}
    for number in range(rounds):
        for name in counts:
            (address, process), clients = (single, 1) if name == "alone" else (shared, int(name))
            picked = random.Random(number).choices(sentences, k=counts[name])
            before = sum(psutil.Process(process.pid).cpu_times()[:2])
            tally = asyncio.run(run_clients(address, clients, translations_of(picked, {})))
            tally.cpu = sum(psutil.Process(process.pid).cpu_times()[:2]) - before
            found.setdefault(name, []).append(tally)
            counts[name] = max(clients, round(counts[name] / tally.wall * seconds))
            print(f"round {number + 1}, {name}: {len(tally.seconds) / tally.wall:.1f} a second", flush=True)
    return found


async def storm(
    address: str, process: subprocess.Popen[str], sentences: list[str], known: dict[str, str], count: int
) -> tuple[Tally, list[float]]:
    """All requests in a shuffled order, and the server's memory in MB meanwhile."""
    randomness = random.Random(1)
    works: list[Any] = []
    for number in range(count):
        if number % 10 == 9:
            works.append(lambda client, tally, number=number // 10: ask_wrongly(client, number, tally))
        else:
            works += translations_of([randomness.choice(sentences)], known)
    watched, memory = psutil.Process(process.pid), []

    async def watch() -> None:
        while True:
            memory.append(watched.memory_info().rss / 1e6)
            await asyncio.sleep(1)

    watching = asyncio.create_task(watch())
    tally = await run_clients(address, 64, works)
    watching.cancel()
    return tally, memory


def report(arguments: argparse.Namespace, rounds: dict[str, list[Tally]], tally: Tally, memory: list[float]) -> str:
    rows = []
    cpu = {name: 1000 * sum(t.cpu for t in own) / sum(len(t.seconds) for t in own) for name, own in rounds.items()}
    for name, tallies in rounds.items():
        speeds = [len(each.seconds) / each.wall for each in tallies]
        times = np.concatenate([each.seconds for each in tallies]) * 1000
        what = "1, no common batches" if name == "alone" else name
        p50, p90, p99 = np.percentile(times, [50, 90, 99])
        rows.append(
            f"| {what} | {np.median(speeds):.1f} ({min(speeds):.1f} to {max(speeds):.1f}) "
            f"| {p50:.0f} | {p90:.0f} | {p99:.0f} | {cpu[name]:.1f} | {len(times):,} |"
        )
    speed = {name: np.median([len(each.seconds) / each.wall for each in own]) for name, own in rounds.items()}
    part = max(1, len(memory) // 10)
    answered = sum(tally.outcomes.values()) - tally.outcomes["429, and asked again"]
    outcomes = "\n".join(f"| {what} | {count:,} |" for what, count in sorted(tally.outcomes.items()))
    times = np.percentile(np.array(tally.seconds) * 1000, [50, 90, 99])
    return f"""# Serving

`python benchmarks/serving.py {shlex.join(sys.argv[1:])}`, {date.today()}, {platform.processor() or platform.machine()},
{psutil.cpu_count()} cores shared with other work (load {os.getloadavg()[0]:.1f} at the end),
{os.environ.get("OMP_NUM_THREADS", "all")} thread(s) for the model. Clients run on the same cores. Model:
`{Path(arguments.model).resolve().parent.name}`, {arguments.beams} beam(s).

## Throughput and waiting

Single sentences, each client sends one when its last is answered. {len(next(iter(rounds.values())))} rounds in which
the settings take turns, since other work on the machine comes and goes: the median of the rounds, the slowest and the
fastest. Times are of all rounds together, in ms, over HTTP.

| clients | sentences a second | p50 | p90 | p99 | CPU-ms a sentence | requests |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}

With 64 clients the server translates {speed["64"] / speed["alone"]:.1f} times as much as for one after another, and a
sentence costs {cpu["alone"] / cpu["64"]:.1f} times less of the processor, which other work does not change much.

## A storm

{arguments.requests:,} requests of 64 clients, every tenth malformed or abandoned, in {tally.wall:.0f} s: {answered:,}
of {arguments.requests:,} have ended, {len(tally.wrong)} answers differ from the sentence's translation without a server
(compared by text, all that were answered). Waiting of translations: p50 {times[0]:.0f}, p90 {times[1]:.0f}, p99
{times[2]:.0f} ms.

| outcome | requests |
|---|---|
{outcomes}

Memory of the server's process (RSS): {np.median(memory[:part]):.0f} MB in the first tenth of the storm,
{np.median(memory[-part:]):.0f} MB in the last, at most {max(memory):.0f} MB. It ended on SIGTERM with exit code 0.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Load test of `paperformer serve`.")
    parser.add_argument("model", help="folder of a translation model")
    parser.add_argument("sentences", type=Path, help="file of sentences to translate, one a line")
    parser.add_argument("--requests", type=int, default=10_000, help="of the storm")
    parser.add_argument("--beams", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0, help="of a setting in a round, about")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/serving.md"))
    arguments = parser.parse_args()
    sentences = [line for line in arguments.sentences.read_text("utf-8").splitlines() if line.strip()]
    outputs = paperformer.translate(arguments.model, sentences, arguments.beams)
    known = dict(zip(sentences, outputs, strict=True))
    beams = ("--num_beams", str(arguments.beams))
    with (
        server(arguments.model, *beams, "--batch_wait", "0", "--tokens_per_batch", "1") as single,
        server(arguments.model, *beams) as shared,
    ):
        rounds = measure_throughput(single, shared, sentences, arguments.rounds, arguments.seconds)
        tally, memory = asyncio.run(storm(*shared, sentences, known, arguments.requests))
    text = report(arguments, rounds, tally, memory)
    for sentence, found in tally.wrong[:10]:
        print(json.dumps({"sentence": sentence, "expected": known[sentence], "found": found}, ensure_ascii=False))
    arguments.output.write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
