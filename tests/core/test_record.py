"""Recording what the app ships, and the check of a pair: files, sizes, refusals, exit status."""

from pathlib import Path

import msgspec
import pytest

from models import catalog
from spec_core import check, record
from spec_core.command import Ready
from spec_core.contract import Method
from spec_core.methods import discover
from spec_core.presets import preset
from spec_core.prompts import load as load_prompts
from spec_core.trace import KnobValue, Step, Trace, ids, load, save
from tests.core.test_terminal import head, step

SHIPPED = Path(__file__).parents[2] / "assets/prompts/traces.jsonl"
KEYS = ["story", "code", "maths", "list", "translation", "summary", "chat", "repetition"]
SHORT = ("published", "device")


@pytest.fixture(autouse=True)
def _short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "WARM_UP", 1)


def variants() -> dict[str, tuple[str, str]]:
    """File name → method and variant, of all that lessons ask for."""
    return {
        f"{v.prompt}.{key}.{name}.jsonl.gz": (key, name)
        for key, m in discover().items()
        for name, v in m.lessons.items()
    }


def record_args(target: str, folder: Path) -> list[str]:
    return ["--target", target, "--prompts", str(SHIPPED), "--out", str(folder / "traces"), "--tokens", "4"]


def test_the_shipped_prompts_are_the_eight() -> None:
    questions = load_prompts(SHIPPED)
    assert [question.key for question in questions] == KEYS
    assert all(len(question.text) < 500 for question in questions)


def as_toys(method: Method) -> dict[str, KnobValue]:
    """The toys' blocks are of eight."""
    return method.published | ({"block": 8} if "block" in method.published else {})


def test_every_method_is_recorded_under_both_presets(toy_target: str, tmp_path: Path) -> None:
    assert record.command([*record_args(toy_target, tmp_path), "--only", "chat,list"]) == 0
    written = {path.name: load(path) for path in (tmp_path / "traces").glob("*.jsonl.gz")}
    found = {name: trace for name, trace in written.items() if name not in variants()}  # a lesson may ask for more
    names = {f"{key}.{method}.{short}.jsonl.gz" for key in ("chat", "list") for method in discover() for short in SHORT}
    warm = {name: found.pop(name) for name in list(found) if ".warm." in name}
    drawn = {name: found.pop(name) for name in list(found) if ".sampled." in name}
    assert found.keys() == names
    chains = [key for key, method in discover().items() if method.drawn]
    assert drawn.keys() == {f"{key}.{method}.sampled.jsonl.gz" for key in ("chat", "list") for method in chains}
    for trace in drawn.values():
        assert all(asked.rule == "reject" for step in trace.steps[1:] for asked in step.verdict.decisions[:1])
    drafting = [key for key, method in discover().items() if method.network]
    assert warm.keys() == {f"{key}.{method}.warm.jsonl.gz" for key in ("chat", "list") for method in drafting}
    assert {trace.header.sampling.temperature for trace in warm.values()} == {1.0}
    texts = {name.split(".")[0]: ids(trace) for name, trace in found.items()}
    for name, trace in found.items():
        key, method, short, *_ = name.split(".")
        card = discover()[method]
        expected = as_toys(card) if short == "published" else preset(card, "this device")
        assert trace.header.knobs == {**expected, **card.recorded}
        assert trace.end is not None
        assert ids(trace) == texts[key]


def test_the_runs_lessons_need_are_recorded_with_their_knobs_and_plain_decodings_text(
    toy_target: str, tmp_path: Path
) -> None:
    prompts = ",".join(sorted({v.prompt for method in discover().values() for v in method.lessons.values()}))
    args = [*record_args(toy_target, tmp_path), "--only", prompts]
    assert record.command([*args, "--variants"]) == 0
    found = {path.name: load(path) for path in (tmp_path / "traces").glob("*.jsonl.gz")}
    assert found.keys() == variants().keys()
    assert len(found) > 4
    record.command(args)  # all there is to record of these prompts, variants included
    assert found.keys() < {path.name for path in (tmp_path / "traces").glob("*.jsonl.gz")}
    for name, (key, variant) in variants().items():
        method = discover()[key]
        changed = method.lessons[variant].knobs
        assert changed.items() <= found[name].header.knobs.items()
        assert found[name].header.knobs == {**as_toys(method), **method.recorded, **changed}
        plain = load(tmp_path / "traces" / f"{method.lessons[variant].prompt}.plain.published.jsonl.gz")
        assert ids(found[name]) == ids(plain)


def test_a_variant_is_another_run_than_the_published_one() -> None:
    prompts = {question.key for question in load_prompts(SHIPPED)}
    for method in discover().values():
        for name, variant in method.lessons.items():
            assert name not in (*SHORT, record.WARM)
            assert variant.prompt in prompts
            assert method.settle(variant.knobs) != method.published


def test_a_trace_that_is_too_large_is_not_kept(
    toy_target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(record, "MOST_BYTES", 10)
    assert record.command([*record_args(toy_target, tmp_path), "--only", "chat"]) == 1
    assert list((tmp_path / "traces").glob("*.jsonl.gz")) == []
    assert "at most 10 are allowed" in capsys.readouterr().err


def test_another_text_than_plain_decodings_is_an_error(
    toy_target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def decode(self: Ready, *rest: object) -> Trace:
        return Trace(head({}), [step([], 1 if self.network is None else 2)])

    monkeypatch.setattr(Ready, "decode", decode)
    assert record.command([*record_args(toy_target, tmp_path), "--only", "chat"]) == 1
    error = capsys.readouterr().err
    assert "chat.eagle: not plain decoding's text from token 0 on" in error
    assert "chat.lookup: not" not in error


def in_passes(one: Step, alike: bool) -> Step:
    """The same step, drafted in one pass or in one for each guess."""
    passes = [-1, *(0 if alike else i for i in range(len(one.draft.tokens) - 1))]
    return msgspec.structs.replace(one, draft=msgspec.structs.replace(one.draft, passes=passes))


def test_the_recording_with_most_accepted_guesses_opens_the_app(tmp_path: Path) -> None:
    drafter = msgspec.structs.replace(head({}).target, id="drafter")
    drafted = msgspec.structs.replace(head({}), drafter=drafter)
    held = {"dull": 2, "lively": 3, "block": 4}  # accepted guesses in each step; a block's are all of one pass
    for name, count in held.items():
        steps = [step(list(range(10, 10 + n)), 1) for n in (0, *[count] * 4)]
        steps = [in_passes(one, alike=name == "block") for one in steps]
        save(Trace(drafted, steps), tmp_path / f"a.{name}.device.jsonl.gz")
    save(Trace(drafted, [step([1, 2, 3, 4, 5], 1)]), tmp_path / "a.short.device.jsonl.gz")
    assert record.liveliest(tmp_path) == "a.lively.device"
    assert record.liveliest(tmp_path / "nothing") == ""


def test_an_unknown_prompt_is_refused(toy_target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert record.command([*record_args(toy_target, tmp_path), "--only", "poem"]) == 2
    assert "choose among story, code" in capsys.readouterr().err


def test_a_pair_that_works(toy_target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.command([toy_target, "--tokens", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Toy on ")
    assert "float32" in lines[0]
    assert [line.split()[0] for line in lines[1:-1]] == list(discover())
    assert all(" works: same text as plain decoding" in line for line in lines[1:-1])
    assert lines[-1].startswith("memory: ")


def test_a_pair_with_a_damaged_drafter(
    toy_target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = catalog.find(toy_target)
    damaged = tmp_path / "dflash"
    damaged.mkdir()
    (damaged / "config.json").write_text((Path(known.drafters["dflash"]) / "config.json").read_text())
    (damaged / "model.safetensors").write_bytes(b"half a file")
    pair = catalog.Pair("bad", "Bad", known.source, {"eagle": known.drafters["eagle"], "dflash": str(damaged)})
    monkeypatch.setattr(catalog, "PAIRS", (pair,))
    assert check.command(["bad", "--tokens", "8"]) == 1
    printed = capsys.readouterr().out
    assert "dflash fails: model.safetensors cannot be read: download it again" in printed
    assert "eagle3 is not part of this pair" in printed
