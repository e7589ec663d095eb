"""The pieces of the pages: catalogues, colours, tokens and facts."""

import ast
import re
import string
import tomllib
from pathlib import Path

import msgspec
import pytest

from pages.parts import cards, colours, facts, tokens
from pages.parts.text import catalogue
from pages.parts.tokens import Mark, pieces
from spec_core.methods import discover
from spec_core.trace import (
    Card,
    DraftTree,
    End,
    Header,
    Network,
    Pass,
    Prompt,
    Sampling,
    Step,
    Trace,
    Verdict,
    Wanted,
    baseline,
)

ROOT = Path(__file__).parents[2]
EN, ZH = catalogue("en"), catalogue("zh")


def placeholders(text: str) -> set[tuple[str | None, str | None]]:
    return {(name, form) for _, name, form, _ in string.Formatter().parse(text) if name}


def test_both_catalogues_have_the_same_keys_and_placeholders() -> None:
    assert list(EN) == list(ZH)
    assert {key: placeholders(text) for key, text in EN.items()} == {
        key: placeholders(text) for key, text in ZH.items()
    }


def page_strings() -> tuple[set[str], set[str]]:
    """All strings of app and pages, and those of them handed to t or say. Pictures get their texts from outside."""
    known: set[str] = set()
    named: set[str] = set()
    for path in [ROOT / "app.py", *sorted((ROOT / "pages").rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                known.add(node.value)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("t", "say"):
                first = node.args[0]
                if isinstance(first, ast.Constant) and path.parent.name != "pictures":
                    named.add(str(first.value))
    return known, named


def test_every_key_the_pages_name_is_in_the_catalogue_and_no_other() -> None:
    known, named = page_strings()
    assert len(named) > 40
    assert named <= set(EN)
    families = tuple(text for text in known if re.fullmatch(r"[a-z.]+\.", text))  # "proof." of f"proof.{verdict}"
    assert [key for key in EN if key not in known and not key.startswith(families)] == []


def test_english_texts_of_methods_are_the_methods_own() -> None:
    for key, method in discover().items():
        assert (EN[f"method.{key}.title"], EN[f"method.{key}.idea"]) == (method.title, method.idea)
        for knob in method.knobs:
            assert EN[f"knob.{key}.{knob.name}.help"] == knob.help
            assert f"knob.{knob.name}" in EN
            assert all(f"choice.{choice}" in EN for choice in knob.choices)


def test_papers_and_inks_are_the_themes() -> None:
    theme = tomllib.loads((ROOT / ".streamlit/config.toml").read_text("utf-8"))["theme"]
    for name, ground in colours.THEMES.items():
        stated = theme[name]
        found = (stated["backgroundColor"], stated["textColor"], stated["borderColor"])
        assert found == (ground.paper, ground.ink, ground.line)


def test_contrast_is_the_standards() -> None:
    assert colours.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert colours.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # the usual example of a near miss


@pytest.mark.parametrize("name", colours.THEMES)
@pytest.mark.parametrize("key", [*discover(), "a method of tomorrow"])
def test_text_and_shapes_stand_out_in_both_themes(name: str, key: str) -> None:
    ground = colours.THEMES[name]
    look = colours.look(key, ground)
    assert min(colours.contrast(look.text, g) for g in (ground.paper, look.tint)) >= 4.5
    assert colours.contrast(look.fill, ground.paper) >= 3
    assert colours.contrast(ground.muted, ground.paper) >= 4.5


def test_every_method_has_its_own_hue() -> None:
    assert len({colours.hue(key) for key in discover()}) == len(discover())
    assert colours.hue("dflash") == "#D55E00"


def texts(words: dict[int, str | list[int]]) -> list[str]:
    return [piece.text for piece in pieces([Mark(token, 1, True, False) for token in words], words)]


def test_half_characters_wait_for_the_other_half() -> None:
    first, *rest = "秋".encode()
    assert texts({1: "a", 2: [first], 3: rest, 4: "b"}) == ["a", "秋", "b"]


def test_bytes_that_never_become_text_are_shown_as_numbers() -> None:
    assert texts({1: [0xE4, 0xBD]}) == ["⟨E4 BD⟩"]
    assert texts({1: [0xFF], 2: "ok"}) == ["⟨FF⟩", "ok"]


def step(committed: list[int], drafted: int, ms: float, p: tuple[float, float] = (0.9, 0.1)) -> Step:
    """A step whose chain of `drafted` guesses held as far as `committed` says; all its time is the target's."""
    n = drafted + 1
    tree = DraftTree(
        [9, *[7] * drafted], [-1, *range(drafted)], [-1, *[0] * drafted], [1.0] * n, [True] * n, [*range(n)]
    )
    path = list(range(max(1, len(committed))))
    verdict = Verdict(path, committed[-1], [1.0] * n, [Wanted(0, [1, 2], list(p), 0.0)], [])
    return Step(tree, verdict, [Pass("target", 0, ms, n, 1)], committed)


def trace(steps: list[Step], words: dict[int, str | list[int]] | None = None, dtype: str = "float32") -> Trace:
    sizes = Network("toy", "x", 1, 1, 1, 1, 1)
    card, prompt = Card("some", "Some", "", ""), Prompt("hi", [1], "chat")
    rest = ("cpu", dtype, 1, {}, prompt, Sampling(), 99, [0], 99, words or {})
    return Trace(Header("id", "2026-01-01", card, {}, sizes, None, *rest), steps, End("length", 0, 0, 0, 0))


PLAIN = [step([3], 0, 10), step([4], 0, 10), step([5], 0, 10, p=(0.500001, 0.499999)), step([6], 0, 10)]


def test_the_run_that_drafts_nothing_is_the_yardstick() -> None:
    plain, other = trace(PLAIN), trace([step([3], 0, 10), step([4, 5, 6], 2, 15)])
    assert baseline([other, plain], other) is plain
    assert baseline([other], other) is None
    assert facts.speedup(other, plain) == pytest.approx(2)


@pytest.mark.parametrize(
    ("ids", "dtype", "verdict"),
    [
        ([3, 4, 5, 6], "float32", "identical"),
        ([3, 4], "float32", "identical"),
        ([3, 4, 8, 6], "float32", "near"),
        ([3, 8, 5, 6], "float32", "differs"),
        ([3, 8, 5, 6], "bfloat16", "half"),
    ],
)
def test_the_proof_allows_near_ties_only(ids: list[int], dtype: str, verdict: str) -> None:
    other = trace([step([ids[0]], 0, 10), step(ids[1:], len(ids) - 2, 10)], dtype=dtype)
    assert facts.proof(other, trace(PLAIN, dtype=dtype)).verdict == verdict


def test_tokens_no_draft_could_hold_are_counted_beside_the_text() -> None:
    outside = trace([step([3], 0, 10), msgspec.structs.replace(step([4, 5], 1, 10), beyond=[5])])
    said = [text for kind, text in cards.remarks(outside, None) if kind == "note"]
    assert EN["beyond.note"].format(n=1, all=3) in said
    assert not any("vocabulary" in text for _, text in cards.remarks(trace([step([3], 0, 10)]), None))


def test_a_slow_run_says_which_passes_made_it_slow() -> None:
    slow = facts.slowness(trace([step([3], 0, 10), step([4], 60, 40)]), trace(PLAIN))
    assert slow
    assert (slow.kind, slow.ratio, slow.share) == ("target", pytest.approx(4), pytest.approx(1))
    assert facts.slowness(trace([step([3], 0, 10), step([4, 5, 6], 2, 15)]), trace(PLAIN)) is None


def test_a_run_on_a_busy_device_is_left_out_of_comparisons() -> None:
    slow, plain = trace([step([3], 0, 10), step([4], 60, 40)]), trace(PLAIN)
    busy = msgspec.structs.replace(slow, header=msgspec.structs.replace(slow.header, contended=True))
    assert "0.25×" in cards.score_row(slow, plain, 1.0)
    for one, other in ((busy, plain), (slow, busy)):
        assert "×" not in cards.score_row(one, other, 1.0)
        assert facts.slowness(one, other) is None


def test_a_speed_no_run_can_have_is_doubted() -> None:
    assert facts.implausible(trace([step([3], 0, 10), step([4], 3, 5)]), trace(PLAIN))
    assert not facts.implausible(trace([step([3], 0, 10), step([4, 5, 6], 2, 15)]), trace(PLAIN))


def test_loops_are_noticed_and_prose_is_not() -> None:
    assert facts.looping([1, 2, 3, *[4, 5, 6, 7] * 3])
    assert not facts.looping([*range(40)])
    assert not facts.looping([5, 5, 5])


def test_markup_in_a_text_stays_text() -> None:
    steps = [step([3], 0, 10), step([4, 5], 1, 10)]
    one = trace(steps, {3: "<b>", 4: "&amp;", 5: "\n"})
    shown = tokens.text_html(one, colours.look("some", colours.THEMES["light"]))
    assert "&lt;b&gt;" in shown
    assert "&amp;amp;" in shown
    assert 'translate="no"' in shown
    assert shown.count('class="ds-draft"') == 1
