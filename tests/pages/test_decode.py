"""The first page, driven as a reader would, on a tiny model that really decodes."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from streamlit.testing.v1 import AppTest

from models import catalog
from pages.parts import source
from pages.parts.state import Desk
from pages.parts.text import catalogue
from spec_core.methods import discover
from spec_core.trace import Trace, ids

ROOT = Path(__file__).parents[2]
EN, ZH = catalogue("en"), catalogue("zh")


def choose(at: AppTest, *keys: str) -> AppTest:
    at.button_group(key="methods").set_value(list(keys))
    return at


def press_run(at: AppTest) -> Desk:
    """Run, and look again as the browser does, until everything is over."""
    at.button(key="run").click().run()
    return wait(at)


def wait(at: AppTest) -> Desk:
    deadline = time.monotonic() + 60
    while at.session_state["desk"].todo:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        at.run()
        assert not at.exception
    return at.session_state["desk"]


def shown(at: AppTest) -> str:
    return "".join(block.proto.body for block in at.get("html"))


def errors(at: AppTest) -> list[str]:
    return [error.value for error in at.error]


@pytest.fixture
def finished(app: AppTest) -> list[Trace]:
    return press_run(choose(app, "plain", "lookup")).traces


def test_all_methods_run_and_their_texts_are_proved_identical(app: AppTest) -> None:
    traces = press_run(app).traces
    assert [trace.header.method.key for trace in traces] == list(discover())
    assert len({tuple(ids(trace)) for trace in traces}) == 1
    proof = EN["proof.identical"].format(tokens=len(ids(traces[0])))
    assert shown(app).count(proof) == len(traces) - 1
    assert "\ufffd" not in shown(app)
    assert len(app.get("plotly_chart")) == 1


def test_a_difference_is_never_called_identical(app: AppTest, finished: list[Trace]) -> None:
    step = finished[1].steps[0]
    other = msgspec.structs.replace(step, committed=[step.committed[0] ^ 1])
    app.session_state["desk"].traces[1] = msgspec.structs.replace(finished[1], steps=[other, *finished[1].steps[1:]])
    app.run()
    assert EN["proof.differs"][:20] in shown(app)
    assert EN["proof.identical"][:15] not in shown(app)


def test_knobs_come_from_the_cards_and_reach_the_run(app: AppTest) -> None:
    choose(app, "plain", "dflash")
    app.button_group(key="preset").set_value("published").run()
    assert app.slider(key="dflash.block.published").value == 16
    app.slider(key="dflash.block.published").set_value(4).run()
    trace = press_run(app).traces[1]
    assert trace.header.knobs["block"] == 4
    assert max(len(step.draft.tokens) for step in trace.steps[1:]) == 4


def test_drawn_texts_claim_no_proof(app: AppTest) -> None:
    app.slider(key="warmth").set_value(0.8)
    press_run(choose(app, "plain", "lookup"))
    assert EN["proof.sampled"][:10] in shown(app)
    assert "✓" not in shown(app)


@pytest.mark.parametrize("prompt", ["", "  \n "])
def test_an_empty_prompt_is_one_clear_message(app: AppTest, prompt: str) -> None:
    app.text_area(key="prompt").set_value(prompt)
    assert not press_run(app).traces
    assert errors(app) == [EN["problem.empty"]]


def test_a_prompt_too_long_is_one_clear_message_for_all_methods(app: AppTest) -> None:
    app.text_area(key="prompt").set_value("long " * 200)
    assert not press_run(app).traces
    assert len(errors(app)) == 1
    assert re.search(r"\d+ tokens and the target reads 512 at most", errors(app)[0])


def test_a_missing_drafter_stops_its_method_only(
    app: AppTest, toy_pair: catalog.Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = catalog.Pair("toy", "toy", toy_pair.source, {"dflash": "bundled:nowhere/dflash"})
    monkeypatch.setattr(catalog, "PAIRS", (missing,))
    traces = press_run(choose(app, "plain", "dflash")).traces
    assert [trace.header.method.key for trace in traces] == ["plain"]
    assert errors(app) == [EN["problem.drafter"].format(method="DFlash")]


def test_the_switch_changes_the_language() -> None:
    at = AppTest.from_file(ROOT / "app.py", default_timeout=60).run()
    assert at.title[0].value == EN["start.title"]
    at.button_group(key="lang").set_value("zh").run()
    assert at.title[0].value == ZH["start.title"]


def test_a_change_of_language_keeps_the_results(app: AppTest, finished: list[Trace]) -> None:
    app.session_state["lang"] = "zh"  # after st.rerun() AppTest shows the page alone, without app.py's switch
    app.run()
    assert app.title[0].value == ZH["decode.title"]
    assert ZH["proof.identical"].format(tokens=len(ids(finished[0]))) in shown(app)
    assert app.session_state["desk"].traces == finished


def test_the_address_chooses_the_language() -> None:
    at = AppTest.from_file(ROOT / "app.py", default_timeout=60)
    at.query_params["lang"] = "zh"
    assert at.run().title[0].value == ZH["start.title"]


def until(check: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def halfway(at: AppTest) -> Iterator[None]:
    """Two runs, the first of which has decoded something and now stands still, its worker halted."""
    at.slider(key="tokens").set_value(256)
    choose(at, "plain", "lookup").run().button(key="run").click().run()
    first = at.session_state["desk"].todo[0]
    until(lambda: (now := source.look(first)) and now.trace and now.trace.steps)
    worker = source.jobs().worker
    assert worker
    os.kill(worker.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker.process.pid, signal.SIGCONT)


def test_a_stopped_run_keeps_what_it_has(app: AppTest) -> None:
    with halfway(app):
        app.run().button(key="stop").click().run()
    place = wait(app)
    assert [trace.header.method.key for trace in place.traces] == ["plain"], "what had not begun leaves nothing"
    end = place.traces[0].end
    assert end
    assert end.reason == "cancelled"
    assert 1 <= len(ids(place.traces[0])) < 256
    assert EN["note.cancelled"] in shown(app)
    assert not errors(app)
    assert app.button(key="run")


def test_a_visit_to_another_page_leaves_the_runs_alone(app: AppTest) -> None:
    with halfway(app):
        app.switch_page("pages/about.py").run()
        assert EN["progress.elsewhere"].format(number=1, count=2) in [line.value for line in app.caption]
        assert app.query_params["job"] == ",".join(app.session_state["desk"].asked)
    app.switch_page("pages/decode.py").run()
    assert app.text_area(key="prompt").value == "Hi 你好"
    assert [trace.end.reason for trace in wait(app).traces if trace.end] == ["length", "length"]


def test_a_reload_finds_the_runs_again(app: AppTest, finished: list[Trace]) -> None:
    address = app.query_params["job"]
    again = AppTest.from_file(ROOT / "app.py", default_timeout=60).run().switch_page("pages/decode.py")
    again.query_params["job"] = address
    assert wait(again.run()).traces == finished
    assert again.text_area(key="prompt").value == "Hi 你好"
    assert shown(again).count("ds-card") == shown(app).count("ds-card")


def test_a_link_to_a_forgotten_run_is_one_clear_message() -> None:
    at = AppTest.from_file(ROOT / "app.py", default_timeout=60).run().switch_page("pages/decode.py")
    at.query_params["job"] = "gone,too"
    assert errors(at.run()) == [EN["problem.gone"]]


def test_a_full_queue_is_one_clear_message(app: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source.jobs(), "size", 1)
    assert not press_run(choose(app, "plain", "lookup")).traces
    assert errors(app) == [EN["problem.full"]]


def test_a_dead_worker_is_one_clear_message_and_the_next_run_goes_on(app: AppTest) -> None:
    with halfway(app):
        worker = source.jobs().worker
        assert worker
        worker.process.kill()
    place = wait(app)
    assert errors(app) == [EN["problem.died"].format(method="Plain decoding", reason="signal 9")]
    assert [trace.header.method.key for trace in place.traces] == ["lookup"]


def test_a_saved_run_opens_again_and_is_the_same(finished: list[Trace]) -> None:
    for trace in finished:
        assert source.open_file("run.jsonl.gz", source.file_bytes(trace)) == trace


@pytest.mark.parametrize("raw", [b"", b"\x1f\x8bnothing", b"hello\n", b"{}\n", "秋".encode() + b"\n"])
def test_a_bad_file_is_one_clear_sentence(raw: bytes) -> None:
    with pytest.raises(source.Problem) as caught:
        source.open_file("bad.jsonl", raw)
    notice = caught.value.notice
    assert notice.key == "problem.file"
    assert "Traceback" not in str(notice.values["message"])


def test_the_app_opens_and_replays_without_torch(finished: list[Trace], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(source.file_bytes(finished[1]))
    script = f"""
        import sys
        for name in ("torch", "transformers", "tokenizers", "safetensors"):
            sys.modules[name] = None
        from pathlib import Path
        from streamlit.testing.v1 import AppTest
        from pages.parts import source
        from tests.pages.server import make_visited
        make_visited()
        at = AppTest.from_file("app.py", default_timeout=60).run().switch_page("pages/decode.py").run()
        assert not at.exception, at.exception
        raw = Path({str(path)!r}).read_bytes()
        at.session_state["desk"].show([source.open_file("run", raw)], "replay")
        at.run()
        assert not at.exception, at.exception
        print([box.value for box in at.info], "REPLAY" in "".join(b.proto.body for b in at.get("html")))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == f"{[EN['replay.only']]} True"
