"""Latency measurements on toy models: what is timed, how it streams, what a file holds, and what is refused."""

import gzip
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch

from models import shapes
from models.layers import Linear
from models.load import Model, Network
from spec_core import contention, measurement, worker
from spec_core.contract import Clock
from spec_core.job import Failure, Gone, LatencySpec, Spec, Timing, decode_answer
from spec_core.jobs import Jobs, Limits
from spec_core.measure import (
    Plan,
    Subject,
    collect,
    command,
    equipped,
    file_name,
    head_works,
    measure,
    table,
    works,
)
from spec_core.measurement import (
    Finish,
    Line,
    Measurement,
    Point,
    Setup,
    Task,
    at,
    claims,
    curve,
    growth,
    lines,
    targets,
)
from spec_core.methods import discover
from spec_core.run import RequestError
from spec_core.trace import TraceError
from tests.toy import toy_folder, toy_model, toy_networks

PLAN = Plan((1, 4, 16), (32,), 2)


@pytest.fixture(scope="module")
def model() -> Model:
    return toy_model()


@pytest.fixture(scope="module")
def subject(model: Model) -> Subject:
    return Subject(model, toy_networks(model), frozenset({"eagle"}), model.decoder.config.layers)


@pytest.fixture(scope="module")
def measured(subject: Subject) -> Measurement:
    return collect(measure(subject, PLAN))


def point(form: measurement.Form, length: int, ms: float, method: str = "", layers: int = 0) -> Point:
    return Point(Task(form, length, 32, method, layers), ms, ms, ms, 3)


def drawn(subject: Subject, *points: Point) -> Measurement:
    """A measurement of times written down by hand."""
    setup = next(measure(subject, PLAN))
    assert isinstance(setup, Setup)
    return Measurement(setup, {p.task: p for p in points})


def test_a_measurement_is_a_setup_then_points_then_a_finish(subject: Subject) -> None:
    first, *points, last = (part for part in measure(subject, PLAN))
    assert isinstance(first, Setup)
    points = [part for part in points if isinstance(part, Point)]  # a busy machine adds a second setup
    assert len(points) == first.timings
    assert isinstance(last, Finish)
    assert last.reason == "done"
    assert all(p.low <= p.median <= p.high for p in points)
    half = len(points) // 2
    assert [p.task for p in points[:half]] == [p.task for p in points[half:]], "rounds take everything in turns"
    assert {p.n for p in points[:half]} == {1}
    assert {p.n for p in points[half:]} == {2}


def test_every_curve_of_every_method_is_there_at_every_length(measured: Measurement, subject: Subject) -> None:
    wanted = {
        Line(key, form.form, form.layers)
        for key, method in discover().items()
        for form in method.curves
        if form.form != "budget" and form.layers <= subject.networks[method.network].layers
    }
    assert set(lines(measured)) == wanted
    assert {line.layers for line in wanted if line.form == "block"} == {1, 2}, "the toy drafter has two layers"
    assert all([p.task.length for p in curve(measured, line, 32)] == [1, 4, 16] for line in wanted)
    assert [p.task.length for p in targets(measured, 32)] == [1, 2, 4, 8, 16, 32, 64]


class Watched(Clock):
    """A clock that keeps the rows and layers of every pass."""

    def passes_of(self, kind: str) -> list[tuple[int, int]]:
        return [(p.rows, p.layers) for p in self.passes if p.kind == kind]


@pytest.mark.parametrize("length", [1, 4, 16])
def test_what_is_timed_is_a_draft_of_that_length(subject: Subject, length: int) -> None:
    found = {}
    with torch.inference_mode():
        for work in works(subject, Plan((length,), (32,), 1)):
            clock = Watched()
            work.do(clock)
            found[work.task.form, work.task.method, work.task.layers] = clock
    chain, block = found["chain", "eagle3", 1], found["block", "dflash", 2]
    assert chain.passes_of("draft") == [(1, 1)] * length, "one row a pass, and the first reads the newest feature"
    assert chain.passes_of("head") == [(1, 0)] * length
    assert block.passes_of("draft") == [(length + 2, 2)], "K + 1 slots and the newest feature's row"
    assert found["block", "dflash", 1].passes_of("draft") == [(length + 2, 1)]
    assert block.passes_of("head") == [(length, 0)]
    assert len(found["tree", "eagle3", 1].passes_of("draft")) == length


def test_a_task_done_again_starts_from_the_same_context(subject: Subject) -> None:
    with torch.inference_mode():
        for work in works(subject, Plan((4,), (32,), 1)):
            first, second = Watched(), Watched()
            work.do(first)
            work.do(second)
            assert [(p.kind, p.rows) for p in first.passes] == [(p.kind, p.rows) for p in second.passes]


def test_a_point_knows_what_its_draft_asks_of_the_target(measured: Measurement) -> None:
    asked = {p.task: (p.rows, p.width) for p in measured.points.values() if p.task.length == 16}
    assert asked[Task("chain", 16, 32, "eagle3", 1)] == (17, 1)
    assert asked[Task("block", 16, 32, "dflash", 2)] == (17, 16)
    assert asked[Task("tree", 16, 32, "eagle3", 1)] == (60, 10)
    assert asked[Task("target", 16, 32)][0] == 16


def test_trees_of_a_budget_and_far_contexts_are_timed_on_their_own(subject: Subject) -> None:
    found = collect(measure(subject, Plan((4, 16), (16, 32), 1, far=(64,), budgets=(8, 20))))
    assert measurement.contexts(found) == [16, 32], "a far context has no curve over lengths"
    trees = measurement.budgets(found)
    assert [(p.task.length, p.task.context, p.rows) for p in trees] == [(8, 16, 9), (20, 16, 21)]
    assert {9, 21} <= {p.task.length for p in targets(found, 16)}, "the target's pass over each tree is there too"
    assert {9, 21}.isdisjoint(p.task.length for p in targets(found, 32))
    assert [p.task.context for p in measurement.passes_by_context(found, 16)] == [16, 32, 64]
    assert measurement.by_context(found, 8) == {}, "one context is no curve"
    both = collect(measure(subject, Plan((4, 8), (16,), 1, far=(64, 128))))
    assert all([p.task.context for p in points] == [16, 64, 128] for points in measurement.by_context(both, 8).values())
    assert len(measurement.by_context(both, 8)) == len(lines(both))


def test_heads_are_named_by_their_words(measured: Measurement, subject: Subject) -> None:
    own, full = subject.networks["eagle3"].head_rows, subject.model.decoder.config.vocab
    assert own < full
    for form in ("calls", "rows"):
        assert list(measurement.heads(measured, form)) == [own, full]
        assert [p.task.length for p in measurement.heads(measured, form)[own]] == [1, 4, 16]


def test_medians_are_of_the_timings_and_recording_is_left_out() -> None:
    from spec_core.measure import Work

    lengths = iter([9.0, 3.0, 1.0, 2.0])  # the first is the warm-up

    def do(clock: Clock) -> int:
        ms = next(lengths) / 1000
        clock.note("draft", clock.begun, clock.begun + ms)
        clock.note("record", clock.begun + ms, clock.begun + 100 * ms)
        clock.fill = lambda: None  # no host time behind it
        return 5

    work = Work(Task("chain", 1), do)
    seen = [work.time(Clock(), 0.0) for _ in range(3)]
    assert [round(p.median, 6) for p in seen] == [3.0, 2.0, 2.0]
    assert (seen[-1].low, seen[-1].high, seen[-1].n) == (1.5, 2.5, 3)
    assert (seen[-1].split, seen[-1].rows) == ({"draft": 2.0}, 5)


@pytest.mark.parametrize("allowed", [0, 1, 7])
def test_a_measurement_called_off_ends_before_its_next_timing(subject: Subject, allowed: int) -> None:
    asked = itertools.count()
    parts = list(measure(subject, PLAN, lambda: next(asked) >= allowed))
    assert sum(isinstance(part, Point) for part in parts) == allowed
    assert isinstance(parts[-1], Finish)
    assert parts[-1].reason == "cancelled"


@pytest.mark.parametrize("name", ["m.jsonl", "m.jsonl.gz"])
def test_what_is_saved_is_what_is_loaded(measured: Measurement, tmp_path: Path, name: str) -> None:
    measurement.save(measured, tmp_path / name)
    assert measurement.load(tmp_path / name) == measured


def test_a_newer_point_replaces_an_older_one_and_a_file_keeps_the_newest(subject: Subject) -> None:
    parts = list(measure(subject, PLAN))
    found = measurement.read(measurement.encode(part) for part in parts)
    assert len(found.points) * PLAN.rounds == found.setup.timings
    assert found.done == 1.0
    assert measurement.read(measurement.file_bytes(found).splitlines(keepends=True)) == found


BROKEN = {
    b"hello\n": "not a line of a DraftScope measurement",
    b'{"step":1}\n': "holds no setup, point or finish",
    b'{"point":{"task":{"form":"chain","length":1},"median":1,"low":2,"high":3,"n":1}}\n': "out of order",
    b'{"point":{"task":{"form":"chain","length":0},"median":1,"low":1,"high":1,"n":1}}\n': "less than nothing",
    b'{"point":{"task":{"form":"chain","length":1},"median":1,"low":1,"high":1,"n":1}}\n': "does not start with",
    b'{"setup"': "first line is missing",
}


@pytest.mark.parametrize("line", BROKEN)
def test_a_bad_file_costs_one_clear_sentence(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(line)
    with pytest.raises(TraceError, match=BROKEN[line]):
        measurement.load(path)
    with pytest.raises(TraceError, match="cannot be read"):
        measurement.load(tmp_path / "none.jsonl")


def test_another_schema_and_half_a_gzip_are_refused(measured: Measurement, tmp_path: Path) -> None:
    old = Measurement(msgspec.structs.replace(measured.setup, schema=99), measured.points)
    path = tmp_path / "old.jsonl.gz"
    measurement.save(old, path)
    with pytest.raises(TraceError, match="schema 99"):
        measurement.load(path)
    path.write_bytes(gzip.compress(measurement.file_bytes(measured))[:-200])
    with pytest.raises(TraceError, match="cannot be read"):
        measurement.load(path)


def test_a_file_that_broke_off_is_read_as_far_as_it_goes(measured: Measurement, tmp_path: Path) -> None:
    path = tmp_path / "torn.jsonl"
    path.write_bytes(measurement.file_bytes(measured)[:-30])
    found = measurement.load(path)
    assert found.finish is None
    assert found.points == measured.points


def test_growth_and_its_bars(subject: Subject) -> None:
    found = drawn(
        subject,
        *(point("chain", k, k * 2.0, "eagle3", 1) for k in (4, 8, 16)),
        *(point("block", k, 5.0 + k * 0.5, "dflash", 5) for k in (4, 8, 16)),
        point("block", 4, 5.0, "dflash", 1),
    )
    assert growth(found, Line("eagle3", "chain", 1), 32, 4, 8) == 2.0
    assert growth(found, Line("dflash", "block", 1), 32, 4, 16) is None
    said = claims(found, 32, discover())
    assert said[Line("eagle3", "chain", 1)].value == 4.0
    assert said[Line("eagle3", "chain", 1)].holds
    assert said[Line("dflash", "block", 5)].value == pytest.approx(13 / 7)
    assert not said[Line("dflash", "block", 5)].holds
    assert len(said) == 2
    assert "eagle3 chain: 16 tokens cost 4.00 times 4, bar 3.0 (higher is better): holds" in table(found)
    assert "dflash block, 5 layers: 16 tokens cost 1.86 times 4, bar 1.6 (lower is better): does not hold" in table(
        found
    )


def test_between_measured_lengths_lie_straight_lines(subject: Subject) -> None:
    points = [point("target", rows, ms) for rows, ms in ((1, 10.0), (4, 16.0), (8, 20.0))]
    assert [at(points, rows) for rows in (1, 2, 4, 6, 8, 16)] == [10.0, 12.0, 16.0, 18.0, 20.0, 28.0]
    assert at([], 3) == 0.0
    assert at(points[:1], 3) == 10.0


WRONG = {
    Plan((), (32,), 1): "Draft lengths run from 1 to 31",
    Plan((0,), (32,), 1): "Draft lengths run from 1 to 31",
    Plan((32,), (32,), 1): "Draft lengths run from 1 to 31",
    Plan((4,), (513,), 1): "Context lengths run from 1 to 512",
    Plan((4,), (32,), 0): "Rounds run from 1",
}


@pytest.mark.parametrize("plan", WRONG, ids=str)
def test_a_plan_out_of_range_is_refused_before_the_first_part(subject: Subject, plan: Plan) -> None:
    with pytest.raises(RequestError, match=WRONG[plan]):
        next(measure(subject, plan))


def test_a_target_without_drafters_is_measured_with_random_ones_and_says_so(model: Model) -> None:
    setup = next(measure(equipped(model), PLAN))
    assert isinstance(setup, Setup)
    assert setup.untrained == ["dflash", "eagle", "eagle3"]
    assert setup.drafters["dflash"].layers == 5
    assert not setup.modelled


def test_trained_drafters_are_loaded_and_not_called_random(subject: Subject, model: Model) -> None:
    networks = toy_networks(model)
    named = Model(model.decoder, None, "toy", "", frozenset(), {kind: kind for kind in networks})

    def load(_: Model, source: str) -> Network:
        return networks[source]

    setup = next(measure(equipped(named, load), PLAN))
    assert isinstance(setup, Setup)
    assert setup.untrained == []
    assert {card.id for card in setup.drafters.values()} == {"toy-eagle", "toy-eagle3", "toy-dflash"}


@pytest.fixture
def small_shape(monkeypatch: pytest.MonkeyPatch) -> str:
    """A shape of six layers, so small that it fits anywhere."""
    config = shapes.LLAMA3 | {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96}
    config |= {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 6, "max_position_embeddings": 512}
    monkeypatch.setitem(shapes.SHAPES, "small", config)
    monkeypatch.setitem(shapes.TITLES, "small", "Small")
    return "small"


def test_a_shape_is_built_with_one_layer_and_its_target_is_a_model(small_shape: str) -> None:
    from spec_core.measure import of_shape

    subject = of_shape(small_shape, "cpu")
    found = collect(measure(subject, Plan((2,), (32,), 1)))
    assert (found.setup.built, found.setup.target.layers, found.setup.modelled) == (1, 6, True)
    assert "MODEL: target times are 6 times one layer's" in table(found)
    whole = of_shape(small_shape, "cpu", whole=True)
    assert whole.scale == 1.0
    assert not next(measure(whole, Plan((2,), (32,), 1))).modelled  # type: ignore[union-attr]


def test_a_modelled_target_is_one_layer_so_many_times_and_one_head() -> None:
    from spec_core.measure import split_of

    clock = Clock()
    for kind, ms in (("target", 2.0), ("head", 3.0), ("host", 0.5)):
        clock.note(kind, clock.begun, clock.begun + ms / 1000)  # type: ignore[arg-type]
    assert {kind: round(ms, 6) for kind, ms in split_of(clock, 6.0).items()} == {"target": 15.0, "host": 0.5}


def test_random_weights_are_finite_and_differ(small_shape: str) -> None:
    model = shapes.load_shape(small_shape, "cpu")
    for kind in shapes.KINDS:
        for weight in shapes.random_network(kind, model).module.parameters():
            assert torch.isfinite(weight).all()
            assert weight.std() > 0
    assert model.decoder.model.embed_tokens.weight is model.decoder.lm_head.weight


def test_a_shape_that_does_not_fit_says_how_much_it_needs(monkeypatch: pytest.MonkeyPatch, small_shape: str) -> None:
    monkeypatch.setattr(shapes, "free_gigabytes", lambda device: 1e-9)
    with pytest.raises(shapes.TooBig, match="Small needs .* GB here and .* are free"):
        shapes.load_shape(small_shape, "cpu")


def test_where_fp32_is_too_big_half_of_it_is_tried(monkeypatch: pytest.MonkeyPatch, small_shape: str) -> None:
    cpu = torch.device("cpu")
    need = shapes.gigabytes(small_shape, 1, cpu, torch.bfloat16)
    assert shapes.gigabytes(small_shape, 1, cpu, torch.float32) == pytest.approx(4 * need)
    monkeypatch.setattr(shapes, "free_gigabytes", lambda device: 2 * need)
    assert shapes.load_shape(small_shape, "cpu").decoder.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("key", "least", "most"), [("qwen3-4b", 2.2, 3.6), ("qwen3-8b", 4.0, 6.0), ("llama3.1-8b", 3.6, 6.0)]
)
def test_the_published_shapes_have_the_size_of_their_drafters(key: str, least: float, most: float) -> None:
    """In bf16: the drafters of the papers, the LM head and one layer."""
    assert least < shapes.gigabytes(key, 1, torch.device("cpu"), torch.bfloat16) < most


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> LatencySpec:
    target = str(toy_folder(tmp_path_factory.mktemp("lab") / "target"))
    return LatencySpec(target, [1, 4], [16], 2, device="cpu")


def wait(jobs: Jobs, id: str, until: Callable[[Timing], bool] = lambda now: now.over) -> Timing:
    deadline = time.monotonic() + 60
    while not until(now := jobs.timing(id)):
        assert time.monotonic() < deadline, f"{now.state} for a minute"
        time.sleep(0.005)
    return now


def test_the_queue_measures_as_it_decodes(spec: LatencySpec) -> None:
    jobs = Jobs()
    try:
        now = wait(jobs, jobs.submit(spec))
        assert (now.state, now.failure) == ("done", None)
        assert now.measurement
        assert now.measurement.done == 1.0
        with pytest.raises(Gone):
            jobs.snapshot(now.id)
        off = jobs.submit(msgspec.structs.replace(spec, rounds=101))
        wait(jobs, off, lambda now: bool(now.measurement and now.measurement.points))
        jobs.cancel(off)
        now = wait(jobs, off)
        assert now.state == "cancelled"
        assert now.measurement
        assert now.measurement.finish
        assert 0 < now.measurement.done < 1
    finally:
        jobs.close()


def test_a_measurement_nobody_asks_for_is_given_up(spec: LatencySpec) -> None:
    jobs = Jobs()
    try:
        left = jobs.submit(msgspec.structs.replace(spec, rounds=101))
        wait(jobs, left, lambda now: bool(now.measurement and now.measurement.points))
        jobs.limits = Limits(patience=0.0)
        wanted = jobs.submit(spec)
        jobs.limits = Limits()
        assert wait(jobs, wanted).state == "done"
        assert jobs.timing(left).state == "cancelled"
        with pytest.raises(Gone):
            jobs.timing(jobs.submit(Spec(spec.target, "", "plain", {}, "Hi", budget=2, device="cpu")))
    finally:
        jobs.close()


def answers(spec: LatencySpec) -> object:
    (line,) = worker.answer(spec, lambda: False)
    return decode_answer(line)


def test_the_worker_says_what_cannot_be_measured(spec: LatencySpec, monkeypatch: pytest.MonkeyPatch) -> None:
    found = answers(msgspec.structs.replace(spec, lengths=[99]))
    assert isinstance(found, Failure)
    assert (found.kind, "1 to 31" in str(found.values)) == ("run", True)
    monkeypatch.setattr(shapes, "free_gigabytes", lambda device: 0.1)
    found = answers(msgspec.structs.replace(spec, shape="qwen3-4b"))
    assert isinstance(found, Failure)
    assert (found.kind, found.values["shape"], found.values["have"]) == ("memory", "Qwen3-4B", 0.1)


def test_other_work_on_the_processor_is_confessed(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**6, 1000))
    monkeypatch.setattr(contention, "foreign_seconds", lambda: float(next(clock)))
    assert collect(measure(subject, PLAN)).setup.contended
    monkeypatch.setattr(contention, "foreign_seconds", lambda: 0.0)
    assert not collect(measure(subject, PLAN)).setup.contended


def test_the_command_prints_a_table_and_writes_a_file(
    spec: LatencySpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--target", spec.target, "--device", "cpu", "--lengths", "4,8,16", "--context", "16,32", "--rounds", "1"]
    assert command([*given, "--json", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "behind 16 tokens" in out
    assert "behind 32 tokens" in out
    assert "random weights" in out
    (file,) = tmp_path.iterdir()
    found = measurement.load(file)
    assert file.name == file_name(found)
    assert measurement.contexts(found) == [16, 32]
    assert table(found).strip() == out.strip()


@pytest.mark.parametrize(
    "given", [["--lengths", "1,x"], ["--shape", "gpt-9"], ["--lengths", "40"], ["--budgets", "999"]]
)
def test_a_wrong_argument_is_one_line_and_status_2(
    given: list[str], spec: LatencySpec, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["--target", spec.target, "--device", "cpu", *given]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_head_narrower_than_its_target_is_timed_too() -> None:
    model = toy_model()
    assert model.decoder.config.hidden == 32
    for work in head_works(model, Linear(16, 48), 48, 3):
        clock = Clock()
        work.do(clock)
        assert [one.kind for one in clock.passes if one.kind != "host"] == ["head"]
