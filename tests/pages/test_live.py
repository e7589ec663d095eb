"""Runs asked for on the race and step pages, as a reader would, on a tiny model that really decodes."""

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
from pages.parts import knobs, live, runs, source
from pages.parts.state import Desk, Notice
from pages.parts.text import catalogue
from spec_core.contract import Knob
from spec_core.job import Moment
from spec_core.jobs import Limits
from spec_core.methods import discover
from spec_core.process import Process
from spec_core.trace import KnobValue, Trace, encode, ids
from tests.pages.conftest import address, open_page, scene_of

ROOT = Path(__file__).parents[2]
PATIENCE = 240.0  # seconds: a worker imports torch first, which takes long on a busy machine
EN, ZH = catalogue("en"), catalogue("zh")


def choose(at: AppTest, *keys: str) -> AppTest:
    at.button_group(key="methods").set_value(list(keys))
    return at


def press_run(at: AppTest) -> Desk:
    """Run, and look again as the browser does, until everything is over."""
    at.button(key="run").click().run()
    return wait(at)


def wait(at: AppTest) -> Desk:
    deadline = time.monotonic() + PATIENCE
    while at.session_state["desk"].todo:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        at.run()
        assert not at.exception
    return at.session_state["desk"]


def shown(at: AppTest) -> str:
    return "".join(block.proto.body for block in at.get("html"))


def upload(at: AppTest, raw: bytes, name: str = "bad.jsonl") -> None:
    at.file_uploader(key="files").set_value([(name, raw, "application/jsonl")]).run()


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


def test_a_difference_is_never_called_identical(app: AppTest, finished: list[Trace]) -> None:
    step = finished[1].steps[0]
    other = msgspec.structs.replace(step, committed=[step.committed[0] ^ 1])
    app.session_state["desk"].traces[1] = msgspec.structs.replace(finished[1], steps=[other, *finished[1].steps[1:]])
    app.run()
    assert EN["proof.differs"][:20] in shown(app)
    assert EN["proof.identical"][:15] not in shown(app)


def test_knobs_come_from_the_cards_and_reach_the_run(app: AppTest) -> None:
    choose(app, "plain", "dflash")
    app.button_group(key="preset.race").set_value("published").run()
    assert app.slider(key="dflash.block.published").value == 16
    app.slider(key="dflash.block.published").set_value(4).run()
    trace = press_run(app).traces[1]
    assert trace.header.knobs["block"] == 4
    assert max(len(step.draft.tokens) for step in trace.steps[1:]) == 4


def test_drawn_texts_claim_no_proof(app: AppTest) -> None:
    app.slider(key="temp").set_value(0.8)
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


@pytest.mark.parametrize("text", ["word " * 20_000, "字" * 100_000])
def test_a_huge_paste_is_one_clear_message_at_once(app: AppTest, text: str) -> None:
    app.text_area(key="prompt").set_value(text)
    begun = time.process_time()
    app.button(key="run").click().run()
    assert time.process_time() - begun < 1
    assert errors(app) == [EN["problem.characters"].format(length=100_000, most=40_000)]
    assert not app.session_state["desk"].todo
    app.text_area(key="prompt").set_value("Hi")
    assert len(press_run(choose(app, "plain")).traces) == 1, "and the session goes on"


def test_odd_characters_run_and_reach_no_markup(app: AppTest) -> None:
    text = "\x01\x1b[31m \u202e <script>alert(1)</script> <b onclick=x>\x7f"
    app.text_area(key="prompt").set_value(text)
    (trace,) = press_run(choose(app, "plain")).traces
    assert trace.header.prompt.text == text
    assert "<script" not in shown(app)
    assert "<b " not in shown(app)


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
    assert app.title[0].value == ZH["race.title"]
    assert ZH["proof.identical"].format(tokens=len(ids(finished[0]))) in shown(app)
    assert app.session_state["desk"].traces == finished


def test_the_address_chooses_the_language() -> None:
    at = AppTest.from_file(ROOT / "app.py", default_timeout=60)
    at.query_params["lang"] = "zh"
    assert at.run().title[0].value == ZH["start.title"]


def until(check: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
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
    assert isinstance(worker, Process)
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
        assert address(app)["job"] == ",".join(app.session_state["desk"].asked)
    app.switch_page("pages/race.py").run()
    assert app.text_area(key="prompt").value == "Hi 你好"
    assert [trace.end.reason for trace in wait(app).traces if trace.end] == ["length", "length"]


def test_a_reload_finds_the_runs_again(app: AppTest, finished: list[Trace]) -> None:
    again = open_page("race", job=address(app)["job"])
    assert wait(again).traces == finished
    assert again.selectbox(key="trace").value == "own"
    assert again.text_area(key="prompt").value == "Hi 你好"
    assert shown(again).count("ds-card") == shown(app).count("ds-card")


def test_a_link_to_a_forgotten_run_is_one_clear_message() -> None:
    at = open_page("race", job="gone,too", trace="own")
    assert errors(at) == [EN["problem.gone"]]
    assert at.selectbox(key="trace").value in ("story", "list")


def test_a_full_queue_is_one_clear_message(app: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source.jobs(), "limits", Limits(waiting=1))
    assert not press_run(choose(app, "plain", "lookup")).traces
    assert errors(app) == [EN["problem.full"].format(waiting=0)]


def test_a_full_queue_offers_what_is_recorded(
    app: AppTest, finished: list[Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source.jobs(), "limits", Limits(waiting=1))
    press_run(app)
    assert app.selectbox(key="trace").value == "own"
    app.button(key="recorded").click().run()
    assert not errors(app)
    assert app.selectbox(key="trace").value in ("story", "list")
    assert not app.session_state["live"], "the form is out of the way"
    assert app.session_state["desk"].traces == finished, "and nothing is lost"


def test_a_place_in_the_line_is_told_with_the_time_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(position: int, wait: float | None) -> str:
        now = Moment("id", "queued", position, wait, None)
        return EN[f"progress.{runs.waiting(now)}"].format(
            method="EAGLE", number=1, count=2, position=position, **runs.about(wait)
        )

    assert said(0, 0.0) == "EAGLE (1 of 2): getting ready"
    assert said(3, None) == "Other runs have the device: 3 before yours."
    assert said(3, 41.2) == "Other runs have the device: 3 before yours, about 45 s."
    assert said(30, 200.0) == "Other runs have the device: 30 before yours, about 4 min."


def test_a_dead_worker_is_one_clear_message_and_the_next_run_goes_on(app: AppTest) -> None:
    with halfway(app):
        worker = source.jobs().worker
        assert worker
        worker.kill()
    place = wait(app)
    assert errors(app) == [EN["problem.died"].format(method="Plain decoding", reason="signal 9")]
    assert [trace.header.method.key for trace in place.traces] == ["lookup"]


def test_a_run_whose_worker_died_is_tried_again_beside_the_others(app: AppTest) -> None:
    with halfway(app):
        worker = source.jobs().worker
        assert worker
        worker.kill()
    wait(app)
    app.button(key="again").click().run()
    place = wait(app)
    assert not errors(app)
    assert [trace.header.method.key for trace in place.traces] == ["lookup", "plain"]
    assert len(ids(place.traces[0])) == len(ids(place.traces[1])) == 256
    assert address(app)["job"] == ",".join(place.asked)
    assert not [button for button in app.button if button.key == "again"]


def test_a_run_that_took_too_long_shows_what_it_has(app: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    with halfway(app):
        monkeypatch.setattr(source.jobs(), "limits", Limits(seconds=0.2))
        until(lambda: [job for job in source.jobs().busy() if job.off])
        monkeypatch.setattr(source.jobs(), "limits", Limits())
    place = wait(app)
    assert errors(app) == [EN["problem.late"].format(method="Plain decoding", seconds=0)]
    assert [len(ids(trace)) < 256 for trace in place.traces] == [True, False]


def test_a_saved_run_opens_again_and_is_the_same(finished: list[Trace]) -> None:
    for trace in finished:
        assert source.open_file("run.jsonl.gz", source.file_bytes(trace)) == trace


FOREIGN = [(b"", "start"), (b"\x1f\x8bnothing", "packed"), (b"hello\n", "line"), (b"{}\n", "line"), (b"\xe7\n", "line")]


@pytest.mark.parametrize(("raw", "kind"), FOREIGN)
def test_a_bad_file_is_one_clear_sentence_and_loses_nothing(
    app: AppTest, finished: list[Trace], raw: bytes, kind: str
) -> None:
    upload(app, raw)
    for language, words in (("en", EN), ("zh", ZH)):
        app.session_state["lang"] = language
        assert errors(app.run()) == [words[f"file.{kind}"].format(file="bad.jsonl")]
    assert app.session_state["desk"].traces == finished


def test_files_of_other_schemas_and_broken_steps_say_so(finished: list[Trace]) -> None:
    trace = finished[0]
    other = encode(msgspec.structs.replace(trace.header, schema=7))
    assert problem(other).key == "file.schema"
    assert problem(other).values == {"file": "bad.jsonl", "schema": "7", "ours": 1}
    assert problem(b'{"header":{"schema":"8b","shape":"unknown"}}\n').values["schema"] == "8b"
    step = msgspec.structs.replace(trace.steps[1], committed=[1, 2, 3, 4])
    assert problem(encode(trace.header) + encode(step)).key == "file.step"


def test_every_kind_of_bad_file_has_its_sentence() -> None:
    kinds = set(re.findall(r'TraceError\([^)]*"(\w+)"', (ROOT / "spec_core" / "trace.py").read_text()))
    assert kinds >= {"line", "schema", "step", "start"}
    assert all(f"file.{kind}" in EN for kind in kinds)


def problem(raw: bytes) -> Notice:
    with pytest.raises(source.Problem) as caught:
        source.open_file("bad.jsonl", raw)
    return caught.value.notice


def test_the_app_opens_and_replays_without_torch(finished: list[Trace], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(source.file_bytes(finished[1]))
    script = f"""
        import sys
        for name in ("torch", "transformers", "tokenizers", "safetensors"):
            sys.modules[name] = None
        from pathlib import Path
        from streamlit.testing.v1 import AppTest
        from pages.parts import knobs, live, source
        from tests.pages.server import make_visited
        make_visited()
        at = AppTest.from_file("app.py", default_timeout=60).run()
        for page in ("start", "step", "latency", "about", "race"):
            at.switch_page(f"pages/{{page}}.py").run()
            assert not at.exception, (page, at.exception)
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


def test_an_uploaded_run_is_shown_at_once(app: AppTest, finished: list[Trace]) -> None:
    again = open_page("step")
    upload(again, source.file_bytes(finished[1]), "run.jsonl.gz")
    assert again.session_state["desk"].traces == [finished[1]]
    assert again.selectbox(key="trace").value == "own"
    assert again.button_group(key="method").value == "lookup"


def test_the_picture_turns_to_the_run_as_soon_as_there_is_one(app: AppTest) -> None:
    app.selectbox(key="trace").set_value("list").run()
    press_run(choose(app, "plain", "lookup"))
    assert app.selectbox(key="trace").value == address(app)["trace"] == "own"
    drawn = scene_of(app)
    assert '"plain.' in drawn
    assert '"eagle.' not in drawn
    app.selectbox(key="trace").set_value("list").run()
    assert app.run().selectbox(key="trace").value == "list", "turned to once, and then the reader's own choice"


def test_a_run_that_fails_leaves_what_was_shown(app: AppTest, finished: list[Trace]) -> None:
    app.text_area(key="prompt").set_value("long " * 200)
    assert press_run(app).traces == finished
    assert len(errors(app)) == 1


def test_the_step_page_runs_one_method_with_its_knobs(on_toys: None) -> None:
    at = open_page("step", prompt="Hi", tokens="12", methods="eagle3", knobs="eagle3.depth:2,eagle3.top_k:3")
    assert {slider.key for slider in at.slider if "." in str(slider.key)} == {
        f"eagle3.{knob}.published" for knob in ("tokens", "depth", "top_k")
    }
    traces = press_run(at).traces
    assert [trace.header.method.key for trace in traces] == ["eagle3"]
    assert (traces[0].header.knobs["depth"], traces[0].header.prompt.text) == (2, "Hi")
    assert at.button_group(key="method").value == "eagle3"
    assert [button.proto.label for button in at.get("download_button")][-1] == "EAGLE-3"


FORM = {
    "prompt": "谢谢 & thanks? #1",
    "methods": "plain,eagle3,dflash",
    "tokens": "96",
    "temp": "0.7",
    "seed": "5",
    "preset": "published",
    "knobs": "eagle3.shape:chain,eagle3.depth:5,dflash.block:8,dflash.guesses:true",
}


def test_a_link_restores_the_form_exactly(on_toys: None) -> None:
    at = open_page("race", **FORM)
    assert not at.exception
    assert FORM.items() <= address(at).items()
    assert at.text_area(key="prompt").value == FORM["prompt"]
    assert at.button_group(key="methods").value == FORM["methods"].split(",")
    assert (at.slider(key="tokens").value, at.slider(key="temp").value) == (96, 0.7)
    assert (at.number_input(key="seed").value, at.button_group(key="preset.race").value) == (5, "published")
    assert (at.slider(key="eagle3.depth.published").value, at.slider(key="dflash.block.published").value) == (5, 8)
    assert at.toggle(key="dflash.guesses.published").value
    assert at.selectbox(key="eagle3.shape.published").value == "chain"


def test_what_is_typed_goes_into_the_address_and_defaults_stay_out(app: AppTest) -> None:
    assert address(app).keys() == {"lang", "trace", "tuning", "clock", "prompt", "tokens", "at"}
    app.slider(key="dflash.block.device").set_value(9)
    choose(app, "dflash").slider(key="temp").set_value(0.3).run()
    assert {"methods": "dflash", "temp": "0.3", "knobs": "dflash.block:9"}.items() <= address(app).items()
    app.slider(key="tokens").set_value(64).run()
    assert "tokens" not in address(app)


def test_a_visit_elsewhere_loses_nothing_of_the_form(on_toys: None) -> None:
    at = open_page("race", **FORM)
    at.switch_page("pages/about.py").run()
    at.switch_page("pages/race.py").run()
    assert FORM.items() <= address(at).items()
    assert at.slider(key="eagle3.depth.published").value == 5


BAD = {
    "tokens": "9999999",
    "temp": "nan",
    "seed": "-1",
    "preset": "none",
    "methods": "no,such",
    "knobs": "eagle3.depth:deep,nothing,:::,eagle3.width:3,dflash.block:999,lookup.tokens",
    "live": "maybe",
    "at": "-",
    "clock": "sundial",
    "trace": "own",
    "method": "x",
    "tuning": "y",
}


@pytest.mark.parametrize("page", ["race", "step"])
def test_bad_values_in_the_address_are_ignored(on_toys: None, page: str) -> None:
    at = open_page(page, **BAD)
    assert not at.exception
    assert not errors(at)
    assert not {"tokens", "temp", "seed", "preset", "methods", "knobs", "live"} & address(at).keys()


@pytest.mark.parametrize("value", [3, 0.5, True, "chain"])
def test_knob_values_survive_the_address(value: KnobValue) -> None:
    assert Knob("any", value, "", 0, 9, ("chain",)).read(knobs.word(value)) == value


def test_what_is_typed_in_the_moment_of_the_press_stays(app: AppTest) -> None:
    app.text_area(key="prompt").set_value("Typed just now")
    app.slider(key="dflash.block.device").set_value(7)
    press_run(choose(app, "plain", "dflash"))
    assert app.text_area(key="prompt").value == address(app)["prompt"] == "Typed just now"
    assert app.button_group(key="methods").value == ["plain", "dflash"]
    assert app.slider(key="dflash.block.device").value == 7


def test_a_prompt_too_long_for_a_link_stays_out_of_it(app: AppTest) -> None:
    app.text_area(key="prompt").set_value("word " * 400).run()
    assert "prompt" not in address(app)
    assert EN["prompt.long"].format(most=live.LINK) in [line.value for line in app.caption]
    app.switch_page("pages/about.py").run()
    assert app.switch_page("pages/race.py").run().text_area(key="prompt").value == "word " * 400


def test_the_third_door_opens_the_form(on_toys: None) -> None:
    assert "live=1" in str([link.proto for link in open_page("start").get("page_link")])
    at = open_page("race", live="1")
    assert at.session_state["live"]
    press_run(choose(at, "plain"))
    assert not at.session_state["live"], "shut once the run is under way"
    assert "live" not in address(at)


def test_the_form_rests_while_a_run_goes_on(app: AppTest) -> None:
    with halfway(app):
        app.run()
        assert app.text_area(key="prompt").disabled
        assert app.button(key="run").disabled
        assert app.button_group(key="methods").disabled
        assert not app.button(key="stop").disabled
    wait(app)
    assert not app.button(key="run").disabled


def test_failures_speak_the_readers_language(app: AppTest) -> None:
    failed = Notice(
        "problem.knob", {"method": "plain", "knob": "depth", "value": "99", "low": 1, "high": 16, "message": ""}
    )
    own = Notice("problem.unheard_of", {"method": "plain", "message": "Only in its own words."})
    app.session_state["lang"] = "zh"
    app.session_state["desk"].notices = [failed, own]
    title = ZH["method.plain.title"]
    assert errors(app.run()) == [
        ZH["problem.knob"].format(method=title, knob="depth", value="99", low=1, high=16),
        ZH["problem.run"].format(method=title, message="Only in its own words."),
    ]
