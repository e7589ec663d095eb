"""The command in the terminal: what it prints, what it refuses in one line, and the trace it leaves."""

import io
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from spec_core import terminal
from spec_core.command import INTERRUPTED, WRONG
from spec_core.methods import discover
from spec_core.run import Part, Request, chat_prompt, run
from spec_core.terminal import Writer, clean, command
from spec_core.trace import (
    Card,
    DraftTree,
    End,
    Header,
    Network,
    Prompt,
    Sampling,
    Step,
    Verdict,
    Wanted,
    Word,
    ids,
    load,
    words,
)
from tests.toy import talking_model

STOP = 99
CARD, NETWORK = Card("any", "Any", "", ""), Network("t", "", 1, 1, 100, 1, 1)


def head(known: dict[int, Word]) -> Header:
    sampling, prompt = Sampling(), Prompt("", [1], "ids")
    return Header("i", "d", CARD, {}, NETWORK, None, "cpu", "float32", 1, {}, prompt, sampling, 9, [STOP], 99, known)


def step(drafted: list[int], bonus: int, known: dict[int, Word] | None = None) -> Step:
    """A step that accepts the whole chain `drafted` and adds `bonus`."""
    n = len(drafted) + 1
    tree = DraftTree([0, *drafted], list(range(-1, n - 1)), [0] * n, [1.0] * n, [True] * n, list(range(n)))
    wanted = [Wanted(0, [1, 2], [0.9, 0.1], 0.0)]
    return Step(tree, Verdict(list(range(n)), bonus, [1.0] * n, wanted, []), [], [*drafted, bonus], known or {})


def shown(parts: list[Part], colour: bool = False) -> list[str]:
    """What every part adds on the screen."""
    out = io.StringIO()
    writer, found = Writer(out, colour), []
    for part in parts:
        before = len(out.getvalue())
        writer.show(part)
        found.append(out.getvalue()[before:])
    return found


def test_accepted_and_bonus_tokens_are_marked() -> None:
    known: dict[int, Word] = {1: "The", 2: " cat", 3: " sat"}
    parts = [head(known), step([], 1), step([2], 3)]
    assert shown(parts)[1:] == ["{The}", "[ cat]{ sat}"]
    assert shown(parts, colour=True)[2] == "\x1b[32m cat\x1b[0m\x1b[1m sat\x1b[0m"


def test_a_character_waits_for_all_its_bytes() -> None:
    tea, cup = "茶".encode(), "🍵".encode()
    known: dict[int, Word] = {1: list(tea[:1]), 2: list(tea[1:]), 3: list(cup[:3]), 4: list(cup[3:]), 5: "é"}
    parts: list[Part] = [head(known), step([], 1), step([2], 3), step([], 4), step([5], 1), End("length", 4, 6, 1, 1)]
    assert shown(parts)[1:] == ["", "[茶]", "{🍵}", "[é]", "\\xe8\n"]


def test_the_stop_token_is_not_text_and_unknown_ids_have_a_name() -> None:
    assert shown([head({STOP: "<|im_end|>", 1: "Hi"}), step([1], STOP), step([], 7)])[1:] == ["[Hi]", "{<7>}"]


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert clean("a\x1b[31m\tb\nc\x07\x9b") == "a\\x1b[31m\tb\nc\\x07\\x9b"


def test_what_is_printed_is_the_text_of_the_ids() -> None:
    model = talking_model()
    parts = list(run(model, None, Request(discover()["lookup"], chat_prompt(model, "é茶🍵"), {}, budget=60)))
    out = io.StringIO()
    writer = Writer(out, colour=False)
    writer.show(parts[0])
    start, writer.drafted, writer.bonus = len(out.getvalue()), ("", ""), ("", "")
    for part in parts[1:]:
        writer.show(part)
    assert model.tokenizer is not None
    tokens = [token for part in parts if isinstance(part, Step) for token in part.committed]
    raw = b"".join(model.tokenizer.token_bytes(token) for token in tokens if token not in model.stops)
    assert len(raw) > 20
    assert out.getvalue()[start:] == clean(raw.decode(errors="backslashreplace")) + "\n"


@pytest.mark.parametrize("method", discover())
def test_a_run_leaves_a_trace_and_its_figures(
    method: str, toy_target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run.jsonl.gz"
    args = ["--target", toy_target, "--method", method, "--prompt", "hi", "--tokens", "12", "--trace", str(out)]
    assert command(args) == 0
    trace, printed = load(out), capsys.readouterr().out
    assert trace.end is not None
    assert trace.end.tokens == len(ids(trace)) > 0
    assert f"ended: {trace.end.reason} after {trace.end.tokens} tokens" in printed
    assert "tau: " in printed
    assert " tokens/s on " in printed
    assert "�" not in printed


def test_the_knobs_reach_the_header(toy_target: str, tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    args = ["--target", toy_target, "--method", "lookup", "--prompt", "hi", "--tokens", "3", "--trace", str(out)]
    assert command([*args, "--knob", "ngram=2", "--seed", "5", "--temperature", "0.5", "--raw"]) == 0
    header = load(out).header
    assert header.knobs == {"ngram": 2, "tokens": 10}
    assert header.sampling == Sampling(0.5, 1.0, 5)
    assert (header.prompt.text, header.prompt.kind) == ("hi", "raw")


def test_a_dash_reads_standard_input(toy_target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run.jsonl"
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
    assert (
        command(["--target", toy_target, "--method", "plain", "--prompt", "-", "--tokens", "2", "--trace", str(out)])
        == 0
    )
    assert load(out).header.prompt.text == "from a pipe"


REFUSED = {
    "unknown method": (["--method", "medusa"], "choose one of plain, lookup, eagle, eagle2, eagle3, dflash, ddtree"),
    "unknown knob": (["--method", "lookup", "--knob", "depth=2"], "it has: ngram, tokens"),
    "knob out of range": (["--method", "dflash", "--knob", "block=1"], "a whole number from 2 to 32"),
    "knob of another kind": (["--method", "eagle2", "--knob", "shape=star"], "one of tree, chain, sampled"),
    "knob without value": (["--method", "lookup", "--knob", "ngram"], "write name=value"),
    "empty prompt": (["--prompt", " \n"], "The prompt is empty"),
    "over-long prompt": (["--prompt", "x" * 600], "the context holds 512: shorten it"),
    "no tokens": (["--tokens", "0"], "at least one new token"),
    "temperature": (["--temperature", "-1"], "temperature must be 0 or from"),
    "no such drafter": (["--method", "eagle", "--drafter", "./no/such/folder"], "no folder here"),
    "empty drafter": (["--method", "eagle", "--drafter", "{tmp}"], "has no config.json"),
    "drafter of another kind": (["--method", "dflash", "--drafter", "{eagle}"], "needs dflash weights"),
    "no such target": (["--target", "./no/such/folder"], "no folder here"),
    "trace cannot be written": (["--trace", "{tmp}/missing/run.jsonl"], "No such file or directory"),
    "device": (["--device", "abacus"], "choose auto, cpu or cuda"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_run_says_why_in_one_line(
    case: str, toy_target: str, toy_drafters: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args, message = REFUSED[case]
    args = [arg.replace("{tmp}", str(tmp_path)).replace("{eagle}", toy_drafters["eagle"]) for arg in args]
    assert command(["--target", toy_target, "--method", "plain", "--prompt", "hi", *args]) == WRONG
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_a_wrong_argument_costs_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command(["--method", "plain", "--prompt", "hi", "--tokens", "many"])
    error = capsys.readouterr().err
    assert (stopped.value.code, error.count("\n")) == (WRONG, 1)
    assert "invalid int value: 'many'" in error


def test_the_trace_can_be_read_while_it_grows(toy_target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, counts = tmp_path / "run.jsonl", []
    monkeypatch.setattr(Writer, "show", lambda self, part: counts.append(len(load(out).steps)))
    args = ["--target", toy_target, "--method", "plain", "--prompt", "hi", "--tokens", "3", "--trace", str(out)]
    assert command(args) == 0
    assert counts == [0, 1, 2, 3, 3]


def pressing(keys: int) -> Iterator[int]:
    """How often Ctrl-C is pressed at each part shown: at the third, `keys` times."""
    yield from (0, 0, keys)
    while True:
        yield 0


def press_at_third_part(keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    presses, show = pressing(keys), Writer.show

    def show_and_press(self: Writer, part: Part) -> None:
        show(self, part)
        for _ in range(next(presses)):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Writer, "show", show_and_press)


def test_ctrl_c_ends_the_run_with_a_whole_trace(
    toy_target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    press_at_third_part(1, monkeypatch)
    out, before = tmp_path / "run.jsonl", signal.getsignal(signal.SIGINT)
    args = ["--target", toy_target, "--method", "plain", "--prompt", "hi", "--trace", str(out)]
    assert command(args) == 0
    trace = load(out)
    assert trace.end is not None
    assert (trace.end.reason, len(trace.steps)) == ("cancelled", 2)
    assert words(trace).keys() >= set(ids(trace))
    assert "ended: cancelled after 2 tokens" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_does_not_wait(toy_target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    press_at_third_part(2, monkeypatch)
    out, before = tmp_path / "run.jsonl", signal.getsignal(signal.SIGINT)
    args = ["--target", toy_target, "--method", "plain", "--prompt", "hi", "--trace", str(out)]
    assert command(args) == INTERRUPTED
    assert len(load(out).steps) == 2
    assert signal.getsignal(signal.SIGINT) is before


def test_no_color_and_pipes_get_brackets(toy_target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    args = ["--target", toy_target, "--method", "plain", "--prompt", "hi", "--tokens", "2"]
    for setting, coloured in (("", True), ("1", False)):
        monkeypatch.delenv("NO_COLOR", raising=False)
        if setting:
            monkeypatch.setenv("NO_COLOR", setting)
        monkeypatch.setattr("sys.stdout", screen := Screen())
        assert terminal.main(args) == 0
        assert ("\x1b[1m" in screen.getvalue()) is coloured
