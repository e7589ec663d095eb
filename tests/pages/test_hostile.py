"""Trace files that nobody's decode made: each is refused in one sentence, or shown without harm."""

import gzip
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from models import catalog
from models.load import load_network, load_target
from pages.parts import cards, source
from pages.parts.text import Value, catalogue
from pages.pictures import lanes, step
from spec_core.methods import find
from spec_core.run import Request, chat_prompt, collect, run
from spec_core.trace import Trace, baseline, encode

EN, ZH = catalogue("en"), catalogue("zh")
SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"
ODD = (-1, 0, 2, 2**31, 2**63, 10**40, 1e308, -1e308, 0.5, "", "x" * 5000, SCRIPT, "\x00\u202e", None, [], {}, True)


@pytest.fixture(scope="module")
def trace(toy_pair: catalog.Pair) -> Trace:
    model = load_target(toy_pair.source, "cpu")
    network = load_network(model, toy_pair.drafters["eagle3"])
    small = {"tokens": 4, "depth": 2}
    return collect(run(model, network, Request(find("eagle3"), chat_prompt(model, "Hi"), small, budget=4)))


@pytest.fixture(scope="module")
def lines(trace: Trace) -> list[Any]:
    assert trace.end
    return [json.loads(encode(part)) for part in (trace.header, *trace.steps, trace.end)]


def packed(parts: list[Any]) -> bytes:
    return "".join(json.dumps(part) + "\n" for part in parts).encode()


def outcome(raw: bytes) -> str:
    """The key of what is said, or "" where the file opens; then all that is made of it has to come out."""
    try:
        found = source.open_file("f", raw)
    except source.Problem as problem:
        notice = problem.notice
        said = [words[notice.key].format(**notice.values) for words in (EN, ZH)]
        return notice.key if all(said) else "nothing"
    draw(found)
    return ""


def say(key: str, values: Mapping[str, Value] | None = None) -> str:
    return EN[key].format_map(values or {})


def draw(trace: Trace) -> None:
    """Every picture and card of it; what it says reaches no markup unescaped."""
    step.picture(trace, say)
    for clock in lanes.CLOCKS:
        lanes.picture([trace, trace], clock, say)
    html = cards.scores([trace], "replay") + cards.card_html(trace, baseline([trace], trace), "replay")
    assert "<script" not in html
    assert "<img" not in html
    cards.numbers_table([trace])
    cards.depths_table([trace])


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every value of a JSON document stands."""
    inside = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in inside:
        yield (*path, key)
        yield from places(value, (*path, key))


def replaced(lines: list[Any], path: tuple[Any, ...], value: object) -> list[Any]:
    copy = json.loads(json.dumps(lines))
    *way, last = path
    there = copy
    for key in way:
        there = there[key]
    there[last] = value
    return copy


def test_what_is_not_touched_opens(lines: list[Any]) -> None:
    assert outcome(packed(lines)) == ""


@pytest.mark.parametrize("seed", range(3))
def test_any_value_anywhere_is_refused_or_shown(lines: list[Any], seed: int) -> None:
    """A value of every kind of place, and odd ones put there."""
    chance = random.Random(seed)
    every = list(places(lines))
    kinds = {tuple("#" if isinstance(key, int) else key for key in path): path for path in every}
    chosen = [*kinds.values(), *chance.sample(every, 30)]
    said = [outcome(packed(replaced(lines, path, chance.choice(ODD)))) for path in chosen]
    assert set(said) <= {"", "file.line", "file.schema", "file.step", "file.odd", "file.big", "file.start"}
    assert {"", "file.line", "file.odd"} <= set(said)


@pytest.mark.parametrize("value", [-2, 2**20])
@pytest.mark.parametrize("place", [("decisions", 0, "child"), ("draft", "passes", 1)])
def test_a_guess_or_a_pass_that_nobody_made_is_refused(lines: list[Any], place: tuple[Any, ...], value: int) -> None:
    path = next(path for path in places(lines) if path[-len(place) :] == place)
    assert outcome(packed(replaced(lines, path, value))) == "file.odd"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"[" * 100_000 + b"\n", "file.line"),
        (b'{"header":' * 50_000 + b"\n", "file.line"),
        (b'{"step":{"draft":{"tokens":[' + b"9" * 5000 + b"]}}}\n", "file.line"),
        (b'{"end":{"reason":"stop","steps":1,"tokens":1,"ms":1e999,"peak_memory_mb":0}}\n', "file.line"),
        (b'{"header":{"schema":99999999999999999999999}}\n', "file.schema"),
        (b'{"header":{"schema":2,"id":"next year"}}\n', "file.schema"),
        (b"PK\x03\x04 a zip", "file.start"),
        (b"\x80\x04\x95 a pickle\x94.\n", "file.line"),
        (b"!!python/object/apply:os.system ['true']\n", "file.line"),
    ],
)
def test_hostile_files_are_one_sentence(raw: bytes, said: str) -> None:
    assert outcome(raw) == said
    assert outcome(gzip.compress(raw)) == said


def test_a_file_that_unpacks_to_too_much_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTSCOPE_HOSTED", "1")
    bomb = gzip.compress(b"\0" * (41 * 2**20))
    assert len(bomb) < 2**20
    assert outcome(bomb) == "file.big"


def test_a_script_in_a_token_is_text(lines: list[Any]) -> None:
    """In words of tokens, in the names of the method and the device, in the prompt."""
    changed = json.loads(json.dumps(lines))
    head = changed[0]["header"]
    head["method"] = {"key": "'\"><svg onload=x>", "title": SCRIPT, "paper": SCRIPT, "idea": SCRIPT}
    head["device"] = head["date"] = head["prompt"]["text"] = SCRIPT
    for part in changed:
        for words in (part.get("header", {}).get("words", {}), part.get("step", {}).get("words", {})):
            words.update(dict.fromkeys(words, SCRIPT))
    assert outcome(packed(changed)) == ""


def test_pictures_and_pages_make_no_markup_of_their_own() -> None:
    """Few files write HTML, each escaping what it is given; the browser's player fills texts in as texts."""
    root = Path(__file__).parents[2]
    writers = {path.name for path in (root / "pages").rglob("*.py") if ".html(" in path.read_text("utf-8")}
    assert writers <= {"cards.py", "runs.py", "family.py", "lecture.py", "code.py"}
    player = "".join(path.read_text("utf-8") for path in (root / "assets").rglob("*.mjs"))
    for door in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser"):
        assert door not in player
