"""What is taken away: one file that holds everything and lets no text break out, and tables that stay tables."""

import csv
import io
import json
import re
from html.parser import HTMLParser

import pytest

from pages.parts import handout, stage
from pages.pictures.scene import Frame, Scene, Shape

NASTY = "</script><script>alert(1)</script><!-- <b>&amp;"
AROUND = {"lang": "en", "title": "T", "prompt": "P", "origin": "O", "noscript": "N"}


class Outside(HTMLParser):
    """Collects scripts and every address a tag asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.asked: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.asked += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]
        self.inside = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.scripts.append(data)


def page() -> str:
    scene = Scene(10, 10, [Shape("a", "rect", 0, 0, label=NASTY)], [Frame(NASTY, NASTY, {"a": {"on": True}})])
    return handout.alone(scene, 0, stage.Data(words={}, hues={}), AROUND).decode()


def test_the_file_holds_its_data_whole_and_no_text_ends_a_script() -> None:
    found = Outside()
    found.feed(page())
    assert len(found.scripts) == 2
    data = json.loads(found.scripts[0])
    assert data["scene"]["shapes"][0]["label"] == NASTY
    assert found.scripts[1].rstrip().endswith(";")


def test_the_file_asks_for_nothing() -> None:
    found = Outside()
    found.feed(page())
    assert found.asked == []
    assert re.findall(r"""(?:url\(|import\(|@import|fetch\(|from ["'])""", page()) == []


def test_every_place_of_the_template_is_filled() -> None:
    before = page().split('<script type="module">')[0]
    assert "$" not in before.replace(NASTY, "")


def test_the_player_is_one_module_without_imports() -> None:
    assert not re.search(r"^import ", stage.script(), re.MULTILINE)
    assert "export class Stage" in stage.script()


@pytest.mark.parametrize(("token", "shown"), [("=1+1", "'=1+1"), ("@x", "'@x"), ("=", "="), ("a,b\n", "a,b\n")])
def test_a_table_keeps_its_cells_and_starts_no_formula(token: str, shown: str) -> None:
    read = csv.DictReader(io.StringIO(handout.sheet([{"token": token, "q": 0.5}]).decode("utf-8-sig"), newline=""))
    assert [row["token"] for row in read] == [shown]


def test_rows_may_name_different_columns() -> None:
    table = handout.sheet([{"method": "plain"}, {"method": "eagle", "draft": 2.0}]).decode("utf-8-sig")
    assert list(csv.reader(io.StringIO(table))) == [["method", "draft"], ["plain", ""], ["eagle", "2.0"]]
