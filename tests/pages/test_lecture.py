"""A link for a lecture brings back the page it was made on, with controls hidden or held fast."""

from urllib.parse import parse_qsl, urlsplit

import pytest

from pages.parts import lecture
from pages.parts.lecture import Wishes, link
from tests.pages.conftest import address, open_page


def asked_by(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def test_a_link_keeps_choices_and_says_the_rest_anew() -> None:
    now = {"trace": "code", "clock": "passes", "at": "7", "lang": "zh", "present": "1", "hide": "save", "job": "1,2"}
    wishes = Wishes("en", present=False, hide=("code", "pages"), lock=("trace",))
    expected = {"trace": "code", "clock": "passes", "at": "7", "lang": "en", "hide": "code,pages", "lock": "trace"}
    assert asked_by(link("http://host/race", now, wishes)) == expected
    assert asked_by(link("http://host/race", now, Wishes(moment=False))) == {"trace": "code", "clock": "passes"}


def test_runs_of_ones_own_go_along_by_their_numbers() -> None:
    assert asked_by(link("", {"trace": "own", "job": "1,2"}, Wishes())) == {"trace": "own", "job": "1,2"}


def test_a_link_round_trip_restores_everything_and_holds_it() -> None:
    sent = open_page("race", "zh", trace="list", tuning="published", clock="passes")
    wishes = Wishes("zh", present=True, lock=("trace", "tuning", "clock", "live"), hide=("save", "pages"))
    asked = asked_by(link("http://host/race", address(sent), wishes))
    received = open_page("race", asked.pop("lang"), **asked)
    assert not received.exception
    assert {key: address(received)[key] for key in ("trace", "tuning", "clock")} == {
        "trace": "list",
        "tuning": "published",
        "clock": "passes",
    }
    assert received.selectbox(key="trace").disabled
    assert received.button_group(key="tuning").disabled
    assert received.button_group(key="clock").disabled
    again = asked_by(link("http://host/race", address(received), wishes))
    assert again == asked | {"lang": "zh"}


def test_what_is_hidden_is_out_of_sight_and_what_is_no_control_is_ignored() -> None:
    style = "".join(block.proto.body for block in open_page("step", "en", hide="twin,save,x{}").get("html"))
    hidden = next(line for line in style.split("<style>") if "display: none !important" in line)
    assert hidden.startswith(f"{lecture.PLACES['save']}, {lecture.PLACES['twin']} {{")
    assert not any("!important" in block.proto.body for block in open_page("step", "en", hide="x").get("html"))


@pytest.mark.parametrize("page", ["step", "race"])
def test_the_dialog_writes_the_link(page: str) -> None:
    at = open_page(page, "en", trace="list")
    at.button(key="lecture").click().run()
    assert not at.exception
    assert "trace=list" in at.code[0].value
    assert any("present" in toggle.label.lower() for toggle in at.toggle)


def test_what_a_link_asks_for_holds_on_every_page_of_the_visit(pinned: None) -> None:
    """A menu's link empties the address."""
    at = open_page("about", "zh", hide="clock", lock="trace", present="1")
    at.query_params.clear()
    at.switch_page("pages/start.py").run()
    assert {key: value for key, value in address(at).items() if key in lecture.STAYING} == {
        "lang": "zh",
        "hide": "clock",
        "lock": "trace",
        "present": "1",
    }


def test_presenting_is_a_press_away_and_so_is_the_way_back(pinned: None) -> None:
    at = open_page("step", "en", trace="list")
    assert not [one for one in at.button if one.key == "unpresent"]
    at.button(key="present").click().run()
    assert address(at)["present"] == "1"
    at.switch_page("pages/race.py").run()
    assert address(at)["present"] == "1"
    at.button(key="unpresent").click().run()
    assert not at.exception
    assert "present" not in address(at)
    at.switch_page("pages/step.py").run()
    assert "present" not in address(at)
