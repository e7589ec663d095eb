"""What the documents promise: links that lead somewhere, the same in both languages, and commands that are the same."""

import ast
import importlib
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from pages.lessons import ORDER
from pages.parts import findings, lecture, recorded
from pages.pictures import lanes
from spec_core.methods import discover

ROOT = Path(__file__).parent.parent
APP = "http://localhost:8501/"
TEACHING = ("docs/TEACHING.md", "docs/TEACHING.zh.md")
READMES = ("README.md", "README.zh.md")

# What may stand in a link to the app, beside `at`.
KNOWN: dict[str, Callable[[str], bool]] = {
    "trace": lambda value: value in recorded.prompts(),
    "tuning": lambda value: value in ("device", "published"),
    "method": lambda value: value in discover(),
    "methods": lambda value: set(value.split(",")) <= set(discover()),
    "clock": lambda value: value in lanes.CLOCKS,
    "size": lambda value: int(value) in findings.SIZES,
    "batch": lambda value: int(value) in findings.BATCHES,
    "temp": lambda value: 0 <= float(value) <= 1.5,
    "lang": lambda value: value in ("en", "zh"),
    "present": lambda value: value == "1",
    "live": lambda value: value == "1",
    "hide": lambda value: set(value.split(",")) <= set(lecture.PLACES),
    "lock": lambda value: set(value.split(",")) <= set(lecture.LOCKABLE),
}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def links(name: str) -> list[str]:
    """The target of every link and picture."""
    return re.findall(r"\]\(([^)\s]+)\)", read(name))


def app_links(name: str) -> list[tuple[str, dict[str, str]]]:
    """Page and choices of every link into the app."""
    parts = [urlsplit(link) for link in links(name) if link.startswith(APP)]
    return [(part.path.strip("/"), dict(parse_qsl(part.query, strict_parsing=bool(part.query)))) for part in parts]


def pages() -> tuple[str, ...]:
    tree = ast.parse(read("app.py"))
    named = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign)}  # type: ignore[attr-defined]
    return ast.literal_eval(named["PAGES"])


def wrong(page: str, choices: dict[str, str]) -> list[str]:
    """What of a link the app would not understand."""
    found = [key for key, value in choices.items() if key != "at" and not (key in KNOWN and KNOWN[key](value))]
    if page not in (*pages(), *ORDER):
        found.append(page)
    if "at" in choices and choices["at"] not in beats(page):
        found.append(choices["at"])
    return found


def beats(page: str) -> set[str]:
    """The names of what a lesson says."""
    if not (ROOT / f"pages/lessons/{page}.py").exists():
        return set()
    return {beat.id for beat in importlib.import_module(f"pages.lessons.{page}").LESSON.beats}


@pytest.mark.parametrize("name", [*TEACHING, *READMES])
def test_every_file_that_is_linked_is_there(name: str) -> None:
    files = [link.split("#")[0] for link in links(name) if "://" not in link]
    assert len(files) >= 1
    assert [file for file in files if not ((ROOT / name).parent / file).exists()] == []


@pytest.mark.parametrize("name", TEACHING)
def test_every_link_into_the_app_is_understood(name: str) -> None:
    found = app_links(name)
    assert len(found) > 40
    assert [(page, wrong(page, choices)) for page, choices in found if wrong(page, choices)] == []


def test_a_wrong_link_would_be_noticed() -> None:
    assert wrong("nowhere", {}) == ["nowhere"]
    assert wrong("eagle", {"at": "no such beat"}) == ["no such beat"]
    assert wrong("race", {"clock": "sun", "colour": "red"}) == ["clock", "colour"]


def test_both_languages_link_to_the_same_places() -> None:
    english, chinese = (app_links(name) for name in TEACHING)
    assert all(choices.pop("lang") == "zh" for _, choices in chinese)
    assert english == chinese


def test_every_task_has_a_folded_solution_in_both_languages() -> None:
    for name in TEACHING:
        tasks = re.findall(r"^### (\d+)\.", read(name), re.MULTILINE)
        assert tasks == [str(n + 1) for n in range(len(tasks))]
        assert 8 <= len(tasks) <= 12
        assert len(re.findall(r"<details><summary>", read(name))) == read(name).count("</details>") == len(tasks)


def commands(name: str) -> list[str]:
    """The lines of all code blocks, without their comments."""
    blocks = re.findall(r"```\n(.*?)```", read(name), re.DOTALL)
    return [re.sub(r"\s+#.*", "", line) for block in blocks for line in block.splitlines()]


def test_the_readmes_name_the_same_commands() -> None:
    assert commands("README.md") == commands("README.zh.md")
    made = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    for name in READMES:
        inline = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", read(name), flags=re.DOTALL))
        asked = set(re.findall(r"\bmake\s+([a-z-]+)", " ".join(inline)))
        assert asked <= made
        assert len(asked) > 5
