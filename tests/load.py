"""`python -m tests.load`: a lecture hall on one server of ours, on this machine, and what it survives, beside the bars.

No test, because its times are the machine's: run it when nothing else runs. It starts its own servers on loopback, with
the rules of a public one. --toy decodes with a tiny random target, to try the command itself.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlencode

from tests.browser.app import ROOT, free_port, wait_for
from tests.visitor import Broken, Visitor

P95_S, GROWTH = 1.0, 0.10
PAGES = ("race", "step", "", "latency")
CASES = (
    ("eagle3", "Why is the sky blue?"),
    ("plain", "Count from one to ten."),
    ("dflash", "Write a haiku about the sea."),
    ("lookup", "Say the word echo five times."),
    ("eagle", "Name three fruits."),
    ("eagle2", "What is two plus two?"),
    ("plain", "用中文介绍一下你自己。"),
    ("eagle3", "Tell a story about a fox."),
)
WAIT = 600.0  # seconds that a run may wait and take on a busy machine


@dataclass(frozen=True)
class Plan:
    clients: int
    live: int
    seconds: float
    runs: int
    tokens: int
    toy: bool


@dataclass(frozen=True)
class Result:
    """One number beside its bar, which it may reach but not pass."""

    name: str
    value: float
    bar: float
    unit: str = ""

    @property
    def holds(self) -> bool:
        return self.value <= self.bar


@dataclass(frozen=True)
class Server:
    address: str
    process: subprocess.Popen[bytes]

    def workers(self) -> list[int]:
        """Process ids of what it started."""
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for file in children for pid in file.read_text().split()]

    def megabytes(self) -> float:
        """Memory that this server and its workers have for themselves: files they share do not count."""
        return sum(map(private_megabytes, [self.process.pid, *self.workers()]))

    async def count(self, name: str) -> float:
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(self.address + "/metrics", timeout=30).read())
        return sum(float(line.split()[-1]) for line in text.decode().splitlines() if line.startswith(name))


def private_megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) / 1024


@asynccontextmanager
async def served(plan: Plan, folder: Path) -> AsyncIterator[Server]:
    """A fresh server under the rules of a public one, with room for everything the plan asks for."""
    port = free_port()
    given = {"DRAFTSCOPE_HOSTED": "1", "DRAFTSCOPE_QUEUE": "400"}
    if plan.toy:
        from tests.toy import toy_folder

        given |= {"DRAFTSCOPE_TARGET": str(toy_folder(folder / "toy")), "DRAFTSCOPE_DEVICE": "cpu"}
    options = ["--server.port", str(port), "--server.address", "127.0.0.1", "--server.fileWatcherType", "none"]
    with (folder / "server.log").open("a") as log:
        command = [sys.executable, "-m", "pages.parts.serve", *options]
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ | given, stdout=log, stderr=log)
        try:
            await asyncio.to_thread(wait_for, f"http://127.0.0.1:{port}", 120)
            yield Server(f"http://127.0.0.1:{port}", process)
        finally:
            process.terminate()
            process.wait(60)


async def asking(server: Server, method: str, prompt: str, tokens: int) -> Visitor:
    """A reader with the form of the race filled in."""
    asked = {"lang": "en", "live": "1", "methods": method, "prompt": prompt, "tokens": str(tokens)}
    return await Visitor(query=urlencode(asked)).arrive(server.address)


async def ran(visitor: Visitor) -> str:
    """Press the button, wait for the run, and read the text that comes."""
    await visitor.press("run")
    await visitor.until(lambda: bool(visitor.jobs) and not visitor.running, WAIT)
    await visitor.rerun()
    texts = visitor.texts()
    if len(texts) != 1:
        raise Broken(f"no text came: {visitor.said()}")
    return texts[0]


async def solo(server: Server, plan: Plan) -> dict[tuple[str, str], str]:
    """What everybody gets alone."""
    found = {}
    for method, prompt in cases(plan):
        visitor = await asking(server, method, prompt, plan.tokens)
        found[method, prompt] = await ran(visitor)
        await visitor.leave()
    return found


def cases(plan: Plan) -> list[tuple[str, str]]:
    """The toy target has no drafters."""
    drafted = ("plain", "lookup")
    known = [
        (method if not plan.toy or method in drafted else drafted[i % 2], p) for i, (method, p) in enumerate(CASES)
    ]
    return known[: plan.live]


async def wander(server: Server, end: float, chance: random.Random) -> list[float]:
    """A reader of recorded runs: opens a page, changes something every 5 to 25 seconds, and goes on to another page.

    Playing and stepping need no rerun, so what asks for one is a choice of prompt, method or language.
    """
    laps: list[float] = []
    while time.monotonic() < end:
        visitor = Visitor(chance.choice(PAGES), f"lang={chance.choice(('en', 'zh'))}")
        await visitor.arrive(server.address)
        for _ in range(chance.randint(3, 12)):
            await asyncio.sleep(min(chance.uniform(5, 25), max(0.0, end - time.monotonic())))
            await visitor.rerun()
        laps += visitor.laps[1:]
        await visitor.leave()
    return laps


async def press_often(server: Server, end: float, case: tuple[str, str], plan: Plan) -> tuple[list[float], list[str]]:
    """A reader who runs the same again and again: the laps, and every text."""
    visitor, texts = await asking(server, *case, plan.tokens), []
    while not texts or time.monotonic() < end:
        if texts:  # a new visit, since the form rests behind what is shown
            await visitor.leave()
            laps = visitor.laps
            visitor = await asking(server, *case, plan.tokens)
            visitor.laps[:0] = laps
        texts.append(await ran(visitor))
        await asyncio.sleep(10)
    await visitor.leave()
    return visitor.laps[1:], texts


async def crowd(server: Server, plan: Plan, alone: dict[tuple[str, str], str]) -> list[Result]:
    """The hall: most look at recordings, some run the model, all at once."""
    end, chance = time.monotonic() + plan.seconds, random.Random(1)
    readers = [wander(server, end, random.Random(chance.random())) for _ in range(plan.clients - plan.live)]
    runners = [press_often(server, end, case, plan) for case in cases(plan)]
    found = await asyncio.gather(*readers, *runners, return_exceptions=True)
    faults = [error for error in found if isinstance(error, BaseException)]
    for error in faults:
        print(f"  {type(error).__name__}: {error}", flush=True)
    laps = sorted(lap for one in found[: len(readers)] if isinstance(one, list) for lap in one)
    wrong = 0
    for case, one in zip(cases(plan), found[len(readers) :], strict=True):
        if isinstance(one, tuple):
            laps = sorted(laps + one[0])
            wrong += sum(text != alone[case] for text in one[1])
    p95 = laps[int(0.95 * len(laps))] if laps else float("inf")
    print(f"  {len(laps)} reruns, median {laps[len(laps) // 2]:.2f} s" if laps else "  nothing came", flush=True)
    return [
        Result("errors in the crowd", len(faults), 0),
        Result("rerun asked for to finished, p95", p95, P95_S, "s"),
        Result("texts that are not the solo run's", wrong, 0),
    ]


async def cold(plan: Plan, folder: Path) -> list[Result]:
    """Five readers press at once on a server that has not loaded its model."""
    async with served(plan, folder) as server:
        visitors = await asyncio.gather(*(asking(server, *cases(plan)[1], plan.tokens) for _ in range(5)))
        texts = await asyncio.gather(*map(ran, visitors))
        await asyncio.gather(*(visitor.leave() for visitor in visitors))
        started, there = await server.count("draftscope_workers_total"), len(server.workers())
        return [
            Result("workers started by five cold starts", max(started, there), 1),
            Result("different texts of five cold starts", len(set(texts)), 1),
        ]


async def killed(server: Server, plan: Plan, alone: dict[tuple[str, str], str]) -> list[Result]:
    """kill -9 in the middle of a run: a message, a retry, the right text."""
    case = cases(plan)[0]
    visitor = await asking(server, *case, plan.tokens)
    (worker,) = server.workers()
    os.kill(worker, signal.SIGSTOP)  # else a tiny run is over before it can be killed
    await visitor.press("run")
    await visitor.turn()
    os.kill(worker, signal.SIGKILL)
    await visitor.until(lambda: bool(visitor.find("again")), WAIT)
    told = any("broke off" in text for text in visitor.said())
    await visitor.press("again")
    await visitor.until(lambda: not visitor.running, WAIT)
    await visitor.rerun()
    same = visitor.texts() == [alone[case]]
    await visitor.leave()
    return [Result("kill -9: without message, or another text", (not told) + (not same), 0)]


async def growth(server: Server, plan: Plan) -> list[Result]:
    """Memory after many runs, against memory after as many as the queue remembers."""
    method, prompt = cases(plan)[1]
    first, warm = 0.0, min(60, plan.runs // 3)
    for number in range(plan.runs):
        visitor = await asking(server, method, prompt, 8)
        await ran(visitor)
        await visitor.leave()
        if number == warm:
            first = server.megabytes()
    last = server.megabytes()
    print(f"  {first:.0f} MB after {warm} runs, {last:.0f} MB after {plan.runs}", flush=True)
    return [Result(f"memory growth over {plan.runs} runs", last / first - 1 if first else 0.0, GROWTH)]


async def everything(plan: Plan, folder: Path) -> list[Result]:
    print("five cold starts", flush=True)
    found = await cold(plan, folder)
    async with served(plan, folder) as server:
        print("every run alone", flush=True)
        alone = await solo(server, plan)
        print(f"{plan.clients} readers for {plan.seconds:.0f} s, {plan.live} of them with live runs", flush=True)
        found += await crowd(server, plan, alone)
        print("kill -9 of the worker", flush=True)
        found += await killed(server, plan, alone)
        print(f"{plan.runs} runs", flush=True)
        found += await growth(server, plan) if plan.runs else []
        found.append(Result("script errors in the server's log", complaints(folder / "server.log"), 0))
    return found


def complaints(log: Path) -> int:
    return log.read_text().count("Traceback")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.load", description="A lecture hall on one server.")
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--live", type=int, default=8, choices=range(2, len(CASES) + 1))
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    plan = Plan(args.clients, args.live, args.seconds, args.runs, args.tokens, args.toy)
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(everything(plan, Path(folder)))
        log = (Path(folder) / "server.log").read_text()
    for one in found:
        print(f"{'holds' if one.holds else 'FAILS'}  {one.name}: {one.value:.3g} {one.unit} (at most {one.bar:g})")
    if args.json:
        args.json.write_text(json.dumps({"plan": asdict(plan), "results": [asdict(one) for one in found]}, indent=1))
    if not all(one.holds for one in found):
        print(log[-4000:], file=sys.stderr)
    return 0 if all(one.holds for one in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
