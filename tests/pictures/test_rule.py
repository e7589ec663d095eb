"""A guess on trial: bars to scale of both laws, u on the right side of the line, and the token that takes its place."""

from collections.abc import Mapping

import pytest

from pages.pictures import rule
from pages.pictures.scene import Scene, Shape, Value, state, width
from spec_core.methods import discover
from spec_core.run import Request, chat_prompt, collect, run
from spec_core.trace import Sampling, Trace
from tests.toy import talking_model, toy_networks

Tried = tuple[rule.Trial, Scene]


def say(key: str, values: Mapping[str, Value]) -> str:
    return key


def decoded(key: str, knobs: dict[str, str | int], seed: int) -> Trace:
    model = talking_model()
    method = discover()[key]
    network = toy_networks(model).get(method.network)
    request = Request(method, chat_prompt(model, "Hi"), knobs, Sampling(1.5, seed=seed), budget=30)
    return collect(run(model, network, request))


@pytest.fixture(scope="module")
def drawn() -> Trace:
    return decoded("eagle", {"shape": "sampled", "depth": 4}, 1)


@pytest.fixture(scope="module")
def tried(drawn: Trace) -> list[Tried]:
    return [(rule.trial(drawn, case), rule.reject(drawn, case, say)) for case in rule.cases(drawn)]


def shapes(scene: Scene) -> dict[str, Shape]:
    found = {shape.id: shape for shape in scene.shapes}
    assert len(found) == len(scene.shapes)
    return found


def test_every_tested_guess_has_its_laws(drawn: Trace) -> None:
    tested = [asked for step in drawn.steps for asked in step.verdict.decisions if asked.rule == "reject"]
    found = [rule.trial(drawn, case) for case in rule.cases(drawn)]
    assert [one.asked for one in found] == tested
    assert tested
    for one in found:
        assert one.laws.node == one.asked.node
        place = one.laws.tokens.index(one.token)
        assert one.laws.p[place] == pytest.approx(one.asked.p, rel=1e-3, abs=1e-9)
        assert one.laws.q[place] == pytest.approx(one.asked.q, rel=1e-3, abs=1e-9)


def test_bars_are_as_long_as_the_probabilities(tried: list[Tried]) -> None:
    for one, scene in tried:
        found = shapes(scene)
        for row, token in enumerate(rule.rows_of(one)):
            i = one.laws.tokens.index(token)
            assert found[f"p{row}"].w == pytest.approx(max(1.5, one.laws.p[i] * rule.FULL))
            assert found[f"q{row}"].w == pytest.approx(max(1.5, one.laws.q[i] * rule.FULL))


def test_the_number_lies_in_the_zone_just_where_the_guess_holds(tried: list[Tried]) -> None:
    for one, scene in tried:
        zone, needle = shapes(scene)["zone"], shapes(scene)["needle"]
        inside = needle.x + needle.w / 2 < zone.x + one.ratio * rule.LINE
        assert inside == one.asked.accepted


def test_the_end_shows_the_verdict(tried: list[Tried]) -> None:
    kinds = {one.asked.accepted for one, _ in tried}
    assert False in kinds
    for one, scene in tried:
        last = state(scene, len(scene.frames) - 1)
        tokens = rule.rows_of(one)
        look = str(last[f"t{tokens.index(one.token)}"]["look"])
        if one.asked.accepted:
            assert scene.frames[-1].kind == "held"
            assert "accepted" in look
            continue
        assert [frame.kind for frame in scene.frames][-3:] == ["refused", "over", "instead"]
        bonus = one.step.verdict.bonus
        assert one.laws.over[one.laws.tokens.index(bonus)] > 0 or sum(one.laws.over) == 0
        assert last[f"t{tokens.index(bonus)}"]["mark"] == "★"


def test_what_p_has_over_q_ends_where_p_does(tried: list[Tried]) -> None:
    for one, scene in tried:
        found = shapes(scene)
        for row, _ in enumerate(rule.rows_of(one)):
            if over := found.get(f"o{row}"):
                assert over.x + over.w == pytest.approx(rule.BARS + found[f"p{row}"].w, abs=0.1)


def test_telling_cases_are_of_their_kind(drawn: Trace) -> None:
    found = rule.telling(drawn)
    assert "refused" in found
    for name, case in found.items():
        one = rule.trial(drawn, case)
        held = one.asked.accepted
        assert name == ("refused" if not held else "sure" if one.asked.p >= one.asked.q else "luck")


def test_labels_fit_and_nothing_leaves_the_picture(tried: list[Tried]) -> None:
    for _, scene in tried:
        for shape in scene.shapes:
            assert shape.x + shape.w <= scene.width + 2
            assert shape.y + shape.h <= scene.height
            if shape.look == "chip":
                assert width(shape.label, shape.size) <= shape.w


def test_match_shows_a_token_that_had_been_guessed(traces: list[Trace]) -> None:
    found = [(trace, case) for trace in traces if (case := rule.matched(trace))]
    assert found
    for trace, case in found:
        step = trace.steps[case.step]
        asked = step.verdict.decisions[case.index]
        assert asked.accepted
        p, guessed = rule.beside(step, asked)
        assert asked.drawn in guessed
        assert p[asked.drawn or 0] == pytest.approx(asked.p, rel=1e-3)
        scene = rule.match(trace, case, say)
        last = state(scene, len(scene.frames) - 1)
        assert [change for change in last.values() if change.get("mark") == "✓"]
        assert [frame.kind for frame in scene.frames] == ["guessed", "law", "named"]


def test_small_probabilities_are_still_told_apart() -> None:
    assert [rule.short(x) for x in (0.5, 0.014, 0.004, 0.00012)] == ["0.50", "0.01", "0.004", "0.0001"]
