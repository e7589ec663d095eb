"""What further rows of a target pass cost: the chart's numbers, what is said of them, and what where none are."""

import pytest

from pages.parts import machines, rows
from pages.parts.cards import Origin
from pages.parts.machines import Machine
from pages.parts.text import catalogue
from spec_core.measurement import Measurement, Point, Setup, Task
from spec_core.trace import Network
from tests.pages.conftest import open_page

EN = catalogue("en")
TIMES = {1: 10.0, 4: 11.0, 8: 14.0, 16: 22.0, 32: 40.0}


def point(length: int, ms: float) -> Point:
    return Point(Task("target", length, 256), ms, ms * 0.9, ms * 1.1, 9, {"target": ms}, length, length)


POINTS = [point(length, ms) for length, ms in TIMES.items()]


def machine(points: list[Point], dtype: str = "float32", device: str = "a cpu", origin: Origin = "replay") -> Machine:
    network = Network("Toy", "hash", 1, 2, 3, 4, 5)
    setup = Setup("id", "2026-11-30", device, dtype, 2, {}, network, {}, [], 1, 9)
    return Machine("toy", Measurement(setup, {p.task: p for p in points}), origin)


def test_company_makes_a_row_cheaper() -> None:
    assert rows.told(POINTS) == {"rows": 8, "times": pytest.approx(1.4), "part": pytest.approx(0.175)}


def test_the_time_has_doubled_between_two_measured_points() -> None:
    assert rows.doubled(POINTS) == 14  # 14 ms at 8 rows, 22 at 16: 20 are reached at the fourteenth
    assert rows.doubled(POINTS[:3]) is None


def test_the_chart_has_every_point_and_both_lines() -> None:
    chart = rows.chart(POINTS)
    assert [row[EN["rows.ms"]] for row in chart.rows] == list(TIMES.values())
    assert [row[EN["rows.times"]] for row in chart.rows] == [1.0, 1.1, 1.4, 2.2, 4.0]
    full, flat, measured = chart.figure.to_plotly_json()["data"]
    assert list(full["y"]) == [0.0, 320.0]
    assert list(flat["y"]) == [10.0, 10.0]
    assert list(measured["x"]) == list(TIMES)


def test_the_page_says_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "machines", lambda: [machine([]), machine(POINTS)])
    at = open_page("why")
    assert not at.exception
    said = EN["rows.told"].format(**rows.told(POINTS)) + " " + EN["rows.turn"].format(turn=14)
    assert said in [one.value for one in at.markdown]
    assert any(caption.value.startswith("Toy · REPLAY") for caption in at.caption)


FEW = [point(length, ms) for length, ms in {1: 4.0, 8: 12.0, 16: 21.0}.items()]


def test_few_bits_are_drawn_beside_and_counted_by_their_own_first_row() -> None:
    chart = rows.chart(POINTS, FEW)
    assert list(chart.figure.to_plotly_json()["data"][-1]["y"]) == [4.0, 12.0, 21.0]
    assert [row[EN["rows.times"]] for row in chart.rows if row[EN["rows.read"]] == EN["rows.few"]] == [1.0, 3.0, 5.25]
    assert {len(row) for row in chart.rows} == {len(chart.rows[0])}


@pytest.mark.parametrize(("device", "beside"), [("a cpu", True), ("another", False)])
def test_only_the_same_machine_stands_beside(device: str, beside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    few = machine(FEW, "float32 (few bits)", device)
    monkeypatch.setattr(machines, "machines", lambda: [few, machine(POINTS)])
    at = open_page("why")
    assert not at.exception
    said = EN["rows.few.told"].format(**rows.told(FEW), left=0.4)
    assert (said in [one.value for one in at.markdown]) == beside
    assert EN["rows.told"].format(**rows.told(POINTS)) in " ".join(one.value for one in at.markdown)


def test_the_readers_own_machine_comes_first() -> None:
    few, shipped = machine(FEW, "float32 (few bits)"), machine(POINTS)
    own, other = machine(POINTS[:3], device="mine", origin="measured"), machine(POINTS, device="another")
    assert chosen([own, shipped, few]) == (own, [])
    assert chosen([other, shipped, few]) == (shipped, FEW)
    assert chosen([other, few, machine(POINTS, "bfloat16")]) == (other, [])


def chosen(known: list[Machine]) -> tuple[Machine | None, list[Point]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machines, "machines", lambda: known)
        one, _, few = rows.choose()
    return one, few


def test_without_a_measurement_the_page_says_how_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "machines", lambda: [machine(POINTS[:1])])
    at = open_page("why")
    assert not at.exception
    assert EN["rows.none"] in [box.value for box in at.info]
