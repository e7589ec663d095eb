"""Scenes as plain data, and the rulers that keep text inside its box."""

import json

import pytest

from pages.pictures.scene import Bars, Frame, Scene, Shape, fit, fit_end, part, state, width


def test_fit_shortens_until_it_fits() -> None:
    assert fit("short", 100, 10) == "short"
    cut = fit("a rather long label", 60, 10)
    assert cut.endswith("…")
    assert width(cut, 10) <= 60
    assert fit("anything", 1, 10) == ""


def test_wide_characters_count_double() -> None:
    assert width("中文", 10) == 2 * width("ab", 10)


def test_data_is_json_and_leaves_defaults_out() -> None:
    scene = Scene(10, 10, [Shape("a", "rect", 1, 2, w=3)], [Frame("c", "s", {"a": {"on": True}})])
    data = json.loads(json.dumps(scene.data()))
    assert data["shapes"] == [{"id": "a", "kind": "rect", "x": 1, "y": 2, "w": 3}]
    assert data["frames"][0]["set"] == {"a": {"on": True}}


def test_state_keeps_the_last_word_on_every_field() -> None:
    frames = [Frame("", "", {"a": {"on": True, "x": 1}}), Frame("", "", {"a": {"x": 2}})]
    assert state(Scene(1, 1, [], frames), 1) == {"a": {"on": True, "x": 2}}


def test_a_part_looks_as_the_whole_does_at_its_frames() -> None:
    frames = [
        Frame("", "", {"a": {"on": True}, "b": {"on": True, "x": 1}}, at=1),
        Frame("", "", {"a": {"on": False}, "b": {"x": 2}}, at=2),
        Frame("", "", {"b": {"x": 3}}, at=3),
        Frame("", "", {"b": {"look": "late"}}, at=2),
    ]
    shapes = [Shape("a", "rect", 0, 0, bars="one"), Shape("b", "rect", 0, 0, bars="two")]
    whole = Scene(1, 1, shapes, frames, {"one": Bars([]), "two": Bars([])})
    second = part(whole, lambda frame: frame.at == 2)
    assert [shape.id for shape in second.shapes] == ["b"]
    assert list(second.bars) == ["two"]
    assert [state(second, i)["b"] for i in (0, 1)] == [state(whole, i)["b"] for i in (1, 3)]


@pytest.mark.parametrize("text", ["", "short", "a" * 300, "字" * 200, "mixed 字 and words " * 20])
def test_a_line_that_grows_keeps_its_end(text: str) -> None:
    """As long as it fits, and no shorter than it has to be."""
    found = fit_end(text, 500, 13)
    assert width(found, 13) <= 500
    if found != text:
        assert found[0] == "…"
        assert text.endswith(found[1:])
        assert width("…" + text[-len(found) :], 13) > 500
