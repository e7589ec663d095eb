"""Scenes as plain data, and the rulers that keep text inside its box."""

import json

from pages.pictures.scene import Frame, Scene, Shape, fit, state, width


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
