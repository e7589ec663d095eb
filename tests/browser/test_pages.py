"""On every page: no complaint in the console, nothing asked of the outside, room on a phone, access for all."""

import ast
import json
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from pages.lessons import ORDER
from tests.browser.app import ROOT
from tests.browser.test_app import Visit

# Rule and part of a selector of what Streamlit itself does wrong, where no page of ours can help it.
STREAMLITS: dict[str, tuple[str, ...]] = {}


def pages() -> list[str]:
    """As app.py lists them, the lessons too."""
    body = ast.parse((ROOT / "app.py").read_text("utf-8")).body
    named = (node for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PAGES")
    return [*ast.literal_eval(next(named).value), *(name for name in ORDER if (ROOT / f"pages/{name}.py").exists())]


def serious(page: Any) -> list[str]:
    """What axe finds that keeps somebody out, each as one line."""
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{one['id']}: {node['target']} {node['html'][:100]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
        if not any(part in json.dumps(node["target"]) for part in STREAMLITS.get(one["id"], ()))
    ]


def turn_dark(page: Any) -> None:
    """As the reader's system does at night."""
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("() => getComputedStyle(document.querySelector('.stApp')).colorScheme === 'dark'")


@pytest.mark.parametrize("name", pages())
def test_a_page_is_quiet_and_open_to_all(window: Visit, server: str, name: str) -> None:
    page = window(f"{'' if name == 'start' else name}?lang=en")
    page.wait_for_load_state("networkidle")
    assert serious(page) == []
    turn_dark(page)
    assert serious(page) == []
    page.set_viewport_size({"width": 390, "height": 780})
    page.wait_for_timeout(300)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    assert page.log.faults == []
    assert [url for url in page.log.asked if not url.startswith((server, "data:", "blob:", "ws:"))] == []
