"""The bench: which prompts, what its figures mean, when texts count as identical, and what ends with status 1."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from models import catalog
from models.load import load_target
from spec_core import bench, ratios, sweep
from spec_core.bench import Bench, command
from spec_core.command import Ready
from spec_core.methods import discover
from spec_core.presets import Preset, read
from spec_core.prompts import PromptFileError, Question, load, sample
from spec_core.report import Ratio, loops, speedup, tie
from spec_core.trace import Pass, Prompt, Sampling, Trace, Wanted, ids, tau
from tests.core.test_terminal import head, step

FIELDS = ["tau", "tau_published", "tau_published_by_set", "tokens_per_second", "speedup"]
FIELDS += ["identical", "prompts", "accepted_by_depth", "time_split"]


@pytest.fixture(autouse=True)
def _short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "WARM_UP", 1)
    monkeypatch.setattr(sweep, "WARM_UP", 1)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    rows = [{"set": s, "id": i, "turns": [f"{s} {i}", "more"]} for s in ("a", "b") for i in range(3)]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


def bench_args(target: str, prompts: Path, tmp_path: Path) -> list[str]:
    args = ["--target", target, "--prompts", str(prompts), "--limit", "2", "--tokens", "8"]
    return [*args, "--json", str(tmp_path / "bench.json")]


def written(tmp_path: Path) -> dict[str, Any]:
    return json.loads((tmp_path / "bench.json").read_text())


def test_every_set_gives_the_same_number_of_prompts(prompts: Path) -> None:
    questions = load(prompts)
    assert [q.name for q in sample(questions, 4)] == ["a 0", "a 1", "b 0", "b 1"]
    assert [q.name for q in sample(questions, 3)] == ["a 0", "a 1", "b 0"]
    assert sample(questions, 9) == questions
    assert [q.key for q in sample([Question(str(i), "x") for i in range(5)], 2)] == ["0", "1"]
    assert questions[0].text == "a 0"


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "no prompts"), ("{]", "line 1 is not JSON"), ("[]", "no JSON object"), ('{"turns": []}', "line 1 is empty")],
)
def test_a_prompt_file_that_cannot_be_used_says_where(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(PromptFileError, match=message):
        load(path)


def timed(tokens: int, ms: float) -> Trace:
    """A trace of the prefill and one step that commits `tokens` in `ms`; recording cost on top."""
    one = step(list(range(tokens - 1)), 7)
    passes = [Pass("target", 0, ms, 1, 1), Pass("record", ms, 500, 0, 0)]
    return Trace(head({}), [step([], 1), msgspec.structs.replace(one, passes=passes)])


def test_speedup_is_the_median_of_ratios_prompt_by_prompt() -> None:
    plain = [timed(1, 10), timed(1, 20), timed(1, 40)]
    assert speedup([timed(3, 10), timed(3, 30), timed(2, 40)], plain) == pytest.approx(2)
    answered_at_once = Trace(head({}), [step([], 1)])
    assert speedup([answered_at_once, timed(2, 10)], [answered_at_once, timed(1, 10)]) == pytest.approx(2)


def test_circles_are_noticed() -> None:
    line = list(range(8))
    assert loops(line * 4)
    assert not loops([*line, 98, *line, 99, *line])
    assert not loops(list(range(100)))
    assert not loops([1, 2])


def test_ratios_know_which_side_of_their_bar_is_good() -> None:
    assert Ratio(0.6, 0.7, "lower").holds
    assert not Ratio(0.8, 0.7, "lower").holds
    assert Ratio(1.5, 1.4, "higher").holds
    assert not Ratio(1.3, 1.4, "higher").holds


def test_every_method_is_compared(
    toy_target: str, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command([*bench_args(toy_target, prompts, tmp_path), "--knob", "lookup.tokens=2"]) == 0
    found, printed = written(tmp_path), capsys.readouterr()
    assert list(found["methods"]) == list(discover())
    for key, one in found["methods"].items():
        assert list(one) == FIELDS
        assert (one["identical"], one["prompts"]) == (2, 2)
        assert one["tau"] >= 1
        assert f"{key} " in printed.out
    assert found["methods"]["plain"]["speedup"] == 1
    assert found["presets"]["lookup"] == {"ngram": 3, "tokens": 2}
    assert (found["target"], found["dtype"], found["ratios"]) == ("Toy", "float32", {})
    assert printed.out.count("2/2") == len(discover())
    assert "[2/2] b 0: plain" in printed.err


def test_drawn_tokens_are_not_compared(toy_target: str, prompts: Path, tmp_path: Path) -> None:
    assert command([*bench_args(toy_target, prompts, tmp_path), "--temperature", "1", "--methods", "eagle"]) == 0
    found = written(tmp_path)["methods"]
    assert list(found) == ["plain", "eagle"]
    assert [one["identical"] for one in found.values()] == [None, None]


def other_text(trace: Trace, gap: float) -> tuple[Trace, Trace]:
    """Lookup's trace with another second token, and plain's with a top-2 gap of `gap` there."""
    last = trace.steps[1]
    second = msgspec.structs.replace(last, committed=[(last.committed[0] + 1) % 9, *last.committed[1:]])
    wanted = [Wanted(0, [1, 2], [0.5, 0.5 * math.exp(-gap)], 0.0)]
    sure = msgspec.structs.replace(last, verdict=msgspec.structs.replace(last.verdict, wanted=wanted))
    first, _, *rest = trace.steps
    return Trace(trace.header, [first, second, *rest]), Trace(trace.header, [first, sure, *rest])


@pytest.mark.parametrize(("gap", "status", "identical"), [(5e-5, 0, 2), (2e-4, 1, 1)])
def test_only_a_near_tie_may_differ(
    gap: float,
    status: int,
    identical: int,
    toy_target: str,
    prompts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Bench.run

    def run_and_spoil(self: Bench) -> None:
        run(self)
        plain = self.traces["plain", "this device"]
        self.traces["lookup", "this device"][0], plain[0] = other_text(plain[0], gap)

    monkeypatch.setattr(Bench, "run", run_and_spoil)
    assert command([*bench_args(toy_target, prompts, tmp_path), "--methods", "lookup"]) == status
    found = written(tmp_path)
    assert found["methods"]["lookup"]["identical"] == identical
    listed = found["differences"] if status else found["near_ties"]
    mine = [one for one in listed if one["preset"] == "this device" and one["method"] == "lookup"]
    assert [(one["prompt"], one["position"]) for one in mine] == [("a 0", 1)]
    assert mine[0]["gap"] == pytest.approx(gap, rel=1e-3)


def test_a_half_precision_tie_is_wider() -> None:
    assert (tie("float32"), tie("float32 (few bits)"), tie("bfloat16")) == (1e-4, 1e-4, 0.5)


def test_no_prompt_at_all_is_refused(toy_target: str, prompts: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        command([*bench_args(toy_target, prompts, tmp_path), "--limit", "0"])


def test_published_alone_keeps_to_what_the_weights_were_trained_with(
    toy_target: str, prompts: Path, tmp_path: Path
) -> None:
    assert command([*bench_args(toy_target, prompts, tmp_path), "--methods", "dflash", "--published"]) == 0
    assert written(tmp_path)["presets"]["dflash"]["block"] == 8


def test_tau_is_a_mean_over_prompts_and_equal_presets_run_once(
    toy_target: str, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Preset] = []
    canned = {"a 0": timed(2, 10), "b 0": Trace(head({}), [step([], 1), step([5], 6), step([5, 6, 7], 8)])}

    def decode(self: Bench, one: object, name: Preset, prompt: Any, tokens: int) -> Trace:
        runs.append(name)
        return canned[prompt.text]

    monkeypatch.setattr(Bench, "decode", decode)
    assert command([*bench_args(toy_target, prompts, tmp_path), "--methods", "plain"]) == 0
    assert written(tmp_path)["methods"]["plain"]["tau"] == (tau(canned["a 0"]) + tau(canned["b 0"])) / 2 == 2.5
    assert runs.count("this device") == 3  # the warm-up and two prompts
    assert runs.count("published") == 1  # only warmed up


def test_sets_are_told_apart_and_a_file_without_any_is_one(
    toy_target: str, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unnamed, runs = tmp_path / "unnamed.jsonl", []
    unnamed.write_text('{"text": "c"}')
    canned = {"a 0": timed(2, 10), "b 0": timed(4, 10), "c": timed(3, 10)}

    def decode(self: Bench, one: object, name: Preset, prompt: Any, tokens: int) -> Trace:
        runs.append(self.knobs["lookup", name])
        return canned[prompt.text]

    monkeypatch.setattr(Bench, "decode", decode)
    args = ["--target", toy_target, "--prompts", str(prompts), str(unnamed), "--limit", "3", "--tokens", "8"]
    args += ["--methods", "lookup", "--published", "--knob", "lookup.ngram=2", "--json", str(tmp_path / "bench.json")]
    assert command(args) == 0
    assert written(tmp_path)["methods"]["lookup"]["tau_published_by_set"] == {"a": 2, "b": 4, "unnamed": 3}
    assert [knobs["ngram"] for knobs in runs if knobs["ngram"] == 2]
    assert {knobs["tokens"] for knobs in runs} == {10}  # the published draft length, never this device's


def test_missing_weights_are_reported(
    toy_target: str,
    prompts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = catalog.find(toy_target)
    poor = catalog.Pair("poor", "Poor", known.source, {"eagle": known.drafters["eagle"], "eagle3": str(tmp_path)})
    monkeypatch.setattr(catalog, "PAIRS", (poor,))
    assert command(bench_args("poor", prompts, tmp_path)) == 0
    found, printed = written(tmp_path), capsys.readouterr()
    assert list(found["methods"]) == ["plain", "lookup", "eagle", "eagle2"]
    assert list(found["skipped"]) == ["eagle3", "dflash", "ddtree"]
    assert "has no config.json" in found["skipped"]["eagle3"]
    assert "skipped dflash: No DFlash drafter is known for Poor" in printed.out
    assert "skipped dflash" in printed.err


def test_ratios_are_measured_against_transformers(
    toy_target: str, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ratios, "ROUNDS", 3)
    monkeypatch.setattr(ratios, "LONG_ROUNDS", 1)
    monkeypatch.setattr(ratios, "TOKENS", 9)
    assert command([*bench_args(toy_target, prompts, tmp_path), "--methods", "plain", "--ratios"]) == 0
    found = written(tmp_path)["ratios"]
    bars = {name: (one["bar"], one["better"]) for name, one in found.items()}
    assert bars == {"ours_1_row": (0.6, "lower"), "ours_16_rows": (1.1, "lower"), "plain_vs_generate": (1.6, "higher")}
    assert all(0.01 < one["value"] < 100 for one in found.values())


def test_both_sides_of_the_ratios_do_the_same_work(toy_target: str) -> None:
    model = load_target(toy_target)
    theirs, tokens = ratios.reference(model, toy_target), list(range(5, 25))
    rows = torch.tensor([tokens])
    said = theirs.generate(rows, max_new_tokens=9, do_sample=False, pad_token_id=0)  # type: ignore[operator]
    endless = replace(model, stops=frozenset())
    ours = Ready(discover()["plain"], None).decode(endless, Prompt("", tokens, "ids"), {}, Sampling(), 9)
    assert said[0, 20:].tolist() == ids(ours)


def lasting(drafted: list[int], *ms: float) -> Trace:
    """A trace whose steps all accept that, and take so long."""
    one = step(drafted, 7)
    steps = [msgspec.structs.replace(one, passes=[Pass("target", 0, time, 1, 1)]) for time in ms]
    return Trace(head({}), [step([], 1), *steps])


def test_a_burst_in_one_step_does_not_choose_a_setting() -> None:
    """The middle step counts, prompt by prompt, against plain decoding's."""
    calm = lasting([5], 10, 10, 10, 10, 10)
    burst = lasting([5], 10, 10, 10, 10, 900)
    plain = lasting([], 20, 20, 20)
    assert sweep.steady(calm) == sweep.steady(burst) == 200
    assert sweep.speedup([calm, burst, burst], [plain] * 3) == 4
    assert sweep.steady(Trace(head({}), [step([], 1)])) == 0


def test_a_sweep_saves_the_fastest(
    toy_target: str,
    prompts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "presets.json"
    monkeypatch.setattr(sweep, "TOKENS", 6)
    monkeypatch.setattr(sweep, "speedup", lambda traces, plain: -abs(traces[0].header.knobs["tokens"] - 4))
    monkeypatch.setattr(sweep.sweep, "__defaults__", (path,))
    args = ["--target", toy_target, "--prompts", str(prompts), "--limit", "2", "--methods", "lookup", "--sweep"]
    assert command(args) == 0
    assert read(path).presets == {"lookup": {"tokens": 4}}
    tried = read(path).tried
    assert [one.knobs for one in tried] == [dict(knobs) for knobs in discover()["lookup"].sweep]
    assert all(one.drafted <= int(one.knobs["tokens"]) and one.tau >= 1 and one.tokens_per_second for one in tried)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "fastest" in line][0].split()[:2] == ["lookup", "tokens=4"]
    assert sum(line.startswith("lookup") for line in lines) == len(discover()["lookup"].sweep)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--methods", "eagle9"], "there is no method 'eagle9'"),
        (["--knob", "tokens=3"], "write METHOD.name=value"),
        (["--knob", "lookup.width=3"], "no knob 'width'"),
        (["--prompts", "no-such-file.jsonl"], "No such file"),
    ],
)
def test_what_cannot_be_measured_says_why(
    args: list[str], message: str, toy_target: str, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["--target", toy_target, "--prompts", str(prompts), "--limit", "1", "--tokens", "2", *args]) == 2
    assert message in capsys.readouterr().err
