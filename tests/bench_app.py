"""`python -m tests.bench_app`: how soon the app's pictures come and how smoothly they play, each beside its bar.

No test, because the numbers are the machine's: run it when nothing else runs. The picture counts as there when its
first shape is in the page; frame intervals are those between the browser's animation frames while the picture plays.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from models.catalog import find
from pages.parts.recorded import FOLDER
from pages.parts.source import TARGET
from spec_core.job import Spec
from spec_core.jobs import Jobs
from spec_core.methods import discover
from spec_core.trace import Sampling, load
from tests.browser.app import CHROMIUM, NO_CHROMIUM, QUIET, SHAPE, served

MANY = 60  # nodes a step picture has at least when its frames are counted
COLD_S, FIRST_S, TOKEN_S, FPS = 1.5, 3.0, 8.0, 50.0
LONGEST_MS = 60_000
# Notes when the first shape is there. It is inside a shadow root, which document.querySelector does not look into.
WATCH = """
const there = () => [...document.querySelectorAll("*")].some((e) => e.shadowRoot?.querySelector(".stage .shape rect"));
const look = () => there() ? (window.drawnAt = performance.now()) : requestAnimationFrame(look);
requestAnimationFrame(look);
"""
COUNT = """(ms) => new Promise((done) => {
  const stamps = [];
  const tick = (now) => {
    stamps.push(now);
    if (now - stamps[0] < ms) requestAnimationFrame(tick);
    else done(stamps.slice(1).map((stamp, i) => stamp - stamps[i]));
  };
  requestAnimationFrame(tick);
})"""


@dataclass(frozen=True)
class Result:
    """One number beside its bar. least: the bar is a lower one. values: what it is the median of, or its companions."""

    name: str
    value: float
    unit: str
    bar: float
    least: bool
    values: dict[str, float] | list[float]

    @property
    def holds(self) -> bool:
        return self.value >= self.bar if self.least else self.value <= self.bar

    def line(self) -> str:
        sign, word = (">=" if self.least else "<="), ("ok" if self.holds else "MISSED")
        return f"{self.name:<34} {self.value:6.2f} {self.unit:<3}  bar {sign} {self.bar:g}  {word:<6}  {self.values}"


@contextmanager
def visit(browser: Any, address: str, motion: str = "no-preference") -> Iterator[Any]:
    """A page in a context of its own, with nothing cached."""
    context = browser.new_context(viewport={"width": 1280, "height": 720}, reduced_motion=motion)
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(address, wait_until="commit")
    try:
        yield page
    finally:
        context.close()


def seconds_to_picture(browser: Any, address: str) -> float:
    with visit(browser, address) as page:
        page.wait_for_function("window.drawnAt", timeout=LONGEST_MS)
        return round(page.evaluate("window.drawnAt") / 1000, 2)


def first_picture(name: str, values: list[float], bar: float = FIRST_S) -> Result:
    return Result(f"first picture, {name}", statistics.median(values), "s", bar, False, values)


def first_live_tokens(count: int) -> Result:
    """From an order in a queue without a worker: a process starts, loads torch and the model, and begins a run."""
    values = [seconds_to_token() for _ in range(count)]
    return Result("first live token, no worker yet", statistics.median(values), "s", TOKEN_S, False, values)


def seconds_to_token() -> float:
    method = max(discover().values(), key=lambda one: one.order)
    begin, jobs = time.perf_counter(), Jobs()
    drafter = find(TARGET).drafters[method.network]
    id = jobs.submit(Spec(TARGET, drafter, method.key, {}, "Why is the sky blue?", "chat", Sampling(), 4))
    while not ((now := jobs.snapshot(id)).trace and now.trace.steps) and not now.over:
        time.sleep(0.02)
    taken = time.perf_counter() - begin
    jobs.close()
    if now.failure:
        raise SystemExit(f"the live run failed: {now.failure}")
    return round(taken, 2)


def start_on_fresh_servers(browser: Any, count: int) -> Result:
    values = []
    for _ in range(count):
        with served() as address:
            values.append(seconds_to_picture(browser, address))
    return first_picture("start, fresh server", values, COLD_S)


def frames(browser: Any, address: str, name: str, speed: str, ms: int) -> Result:
    """Play the picture from its beginning and count."""
    with visit(browser, address) as page:
        page.locator(SHAPE).first.wait_for(timeout=LONGEST_MS)
        page.wait_for_load_state("networkidle")
        page.locator(".stage .pace").select_option(speed)
        page.locator(".stage").press("Home")
        page.wait_for_timeout(1000)
        page.locator(".stage .play").click()
        intervals = sorted(page.evaluate(COUNT, ms))
        shown = int(page.locator(".stage .scrub").input_value())
    if not shown:
        raise SystemExit(f"the {name} picture did not play")
    median, late = statistics.median(intervals), intervals[int(0.95 * len(intervals))]
    values = {"median_ms": round(median, 1), "p95_ms": round(late, 1), "mean_ms": round(statistics.mean(intervals), 1)}
    return Result(f"frames, {name}", round(1000 / median, 1), "fps", FPS, True, values)


def large_step() -> str:
    """The address of a step picture with at least MANY nodes."""
    for path in sorted(FOLDER.glob("*.published.jsonl.gz")):
        if max(len(step.draft.tokens) for step in load(path).steps) >= MANY:
            prompt, method, tuning = path.name.split(".")[:3]
            return f"step?trace={prompt}&method={method}&tuning={tuning}&at=0"
    raise SystemExit(f"no recording has a draft of {MANY} nodes")


def measure(browser: Any, servers: int, visits: int) -> Iterator[Result]:
    yield start_on_fresh_servers(browser, servers)
    yield first_live_tokens(servers)
    with served() as address:
        seconds_to_picture(browser, f"{address}/race")
        for page in ("race", "step"):
            times = [seconds_to_picture(browser, f"{address}/{page}") for _ in range(visits)]
            yield first_picture(f"{page}, warm server", times)
        yield frames(browser, f"{address}/{large_step()}", f"step with {MANY} nodes or more", "4", 8000)
        yield frames(browser, f"{address}/race", "race of all lanes", "1", 8000)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench_app", description="Time the app in a browser.")
    parser.add_argument("--servers", type=int, default=3, help="fresh servers the start page is opened on")
    parser.add_argument("--visits", type=int, default=3, help="visits to every page of the warm server")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    args = parser.parse_args(argv)
    if CHROMIUM is None:
        print(NO_CHROMIUM, file=sys.stderr)
        return 2
    from playwright.sync_api import sync_playwright

    results = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        for result in measure(browser, args.servers, args.visits):
            results.append(result)
            print(result.line(), flush=True)
        browser.close()
    if args.json:
        args.json.write_text(json.dumps([asdict(r) | {"holds": r.holds} for r in results], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
