"""A live run in a real browser: stopped, left for another page, found again by a reload, drawn when it is over."""

from pathlib import Path
from typing import Any


def run_live(page: Any, prompt: str) -> None:
    """Type and press at once, as a reader does who never leaves the text by hand."""
    page.get_by_role("button", name="Run it live").click()
    page.get_by_label("Your prompt").fill(prompt)
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_label("Your prompt").wait_for(state="detached", timeout=30_000)


def test_a_run_outlives_a_visit_elsewhere_and_a_reload(browser: Any, live: tuple[str, Path]) -> None:
    address, log = live
    page = browser.new_page()
    page.goto(f"{address}/race?lang=en")
    page.locator(".stage .scene .shape rect").first.wait_for(timeout=60_000)
    run_live(page, "Go on # & on")
    page.get_by_text("getting ready").wait_for(timeout=30_000)
    page.get_by_role("link", name="About").first.click()
    page.get_by_text("Decoding: run 1 of 2").wait_for(timeout=30_000)
    page.reload()
    page.get_by_text("Decoding: run").wait_for(timeout=30_000)
    page.get_by_role("link", name="Race").first.click()
    for _ in range(2):
        page.wait_for_url("**trace=own**", timeout=60_000)
        page.locator(".ds-asked", has_text="Go on # & on").wait_for(timeout=60_000)
        page.locator(".ds-card").nth(2).wait_for(state="detached", timeout=30_000)  # the recorded runs' cards are gone
        page.get_by_text("Identical text").wait_for(timeout=30_000)
        assert "prompt=Go" in page.url
        page.reload()
    page.close()
    assert "Traceback" not in log.read_text()


def test_a_run_is_stopped_and_the_next_one_is_drawn_with_a_link_to_it(browser: Any, live: tuple[str, Path]) -> None:
    address, log = live
    page = browser.new_page()
    page.goto(f"{address}/step?lang=zh&live=1&tokens=12&methods=plain&prompt=%E4%BD%A0%E5%A5%BD")
    page.get_by_role("button", name="运行", exact=True).click(timeout=60_000)
    page.get_by_role("button", name="停止", exact=True).click(timeout=30_000)
    page.get_by_role("button", name="停止", exact=True).wait_for(state="detached", timeout=30_000)
    assert "trace=own" not in page.url
    page.get_by_role("button", name="现场运行").click()
    page.get_by_role("button", name="运行", exact=True).click(timeout=60_000)
    page.wait_for_url("**trace=own**", timeout=60_000)
    page.get_by_role("button", name="保存", exact=True).wait_for(timeout=30_000)
    page.locator(".stage .scene .shape rect").first.wait_for(timeout=30_000)
    assert "prompt=" in page.url
    assert "tokens=12" in page.url, "the form keeps what the link set"
    assert "job=" in page.url
    page.close()
    assert "Traceback" not in log.read_text()


def test_a_form_opened_by_hand_shows_what_it_starts_from_and_runs_it(browser: Any, live: tuple[str, Path]) -> None:
    """The browser is told of a widget's value once, when the form it lies in is still shut."""
    address, log = live
    page = browser.new_page()
    page.goto(f"{address}/step?lang=en")
    page.locator(".stage .scene .shape rect").first.wait_for(timeout=60_000)
    page.get_by_role("button", name="Run it live").click()
    asked = page.get_by_label("Your prompt")
    asked.wait_for(timeout=30_000)
    page.wait_for_timeout(1000)
    assert asked.input_value().startswith("Why")
    sliders = page.get_by_test_id("stSlider").get_by_role("slider")
    assert sliders.first.input_value() == "64"
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url("**trace=own**", timeout=60_000)
    assert "tokens=" not in page.url, "all knobs are at their defaults, which no address repeats"
    assert "knobs=" not in page.url
    page.close()
    assert "Traceback" not in log.read_text()
