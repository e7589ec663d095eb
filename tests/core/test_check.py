"""The check says whether a pair fits, fetches it or says why not, and knows wrong wiring when it sees it."""

import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from models import catalog
from models.catalog import Offer
from models.decoder import read_config
from models.memory import size
from models.shapes import QWEN3, SHAPES
from spec_core import check
from spec_core.trace import Prompt, Sampling, Trace
from tests.core.test_terminal import head, step


def known(numbers: float) -> catalog.Pair:
    pair = catalog.find("qwen3-4b")
    return replace(pair, key="some", numbers=numbers)


@pytest.mark.parametrize(("numbers", "status", "said"), [(1.0, 0, "it fits"), (1e9, 1, "it does not fit: choose a")])
def test_the_facts_say_whether_it_fits(
    numbers: float, status: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also without --facts, nothing is fetched that cannot run."""
    monkeypatch.setattr(catalog, "PAIRS", (known(numbers),))
    assert check.command(["some", "--device", "cpu", *(["--facts"] if numbers == 1.0 else [])]) == status
    out = capsys.readouterr().out
    assert "dflash: z-lab/Qwen3-4B-DFlash-b16, layout z-lab, 540 million weights; tau upstream 6.54" in out
    assert " GB needed in " in out
    assert out.splitlines()[-1].startswith(said)


def test_a_machine_without_the_hub_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The hub's own client runs, in its offline mode: nothing leaves this machine."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(catalog, "PAIRS", (known(1.0),))
    assert check.command(["some", "--device", "cpu"]) == 2
    assert "cannot be fetched from the model hub" in capsys.readouterr().err


SIZES = {
    "qwen3-0.6b": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16},
    "qwen3-1.7b": {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16},
}
VICUNA = {"model_type": "llama", "vocab_size": 32000, "rms_norm_eps": 1e-6, "max_position_embeddings": 2048}
SIZES = {key: {**QWEN3, **own, "tie_word_embeddings": True} for key, own in SIZES.items()} | {
    "vicuna-7b": {**VICUNA, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32}
    | {"num_attention_heads": 32},
    "vicuna-13b": {**VICUNA, "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40}
    | {"num_attention_heads": 40},
}


@pytest.mark.parametrize("pair", [pair for pair in catalog.PAIRS if pair.offers], ids=lambda pair: pair.key)
def test_the_catalogs_sizes_are_the_configs(pair: catalog.Pair) -> None:
    weights = size(read_config((SIZES | SHAPES)[pair.key]))
    assert pair.numbers == pytest.approx(weights / 1e6, rel=0.002)


def test_every_named_target_has_its_published_drafters() -> None:
    kinds = {pair.key: set(pair.drafters) for pair in catalog.PAIRS}
    assert kinds["llama3.1-8b"] == {"eagle", "eagle3", "dflash"}
    assert kinds["qwen3-4b"] == kinds["qwen3-8b"] == {"eagle3", "dflash"}
    assert kinds["vicuna-13b"] == {"eagle", "eagle3"}
    for pair in (pair for pair in catalog.PAIRS if pair.offers):
        assert set(pair.drafters.values()) <= {offer.source for offer in pair.offers}
        assert all(catalog.offer_of(offer.source) is offer for offer in pair.offers)


# A drafter of the user's own.


def test_a_drafter_of_ones_own_is_described_and_run(
    toy_target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = Path(shutil.copytree(catalog.find(toy_target).drafters["dflash"], tmp_path / "mine"))
    assert check.command([toy_target, "--drafter", str(mine), "--tokens", "8"]) == 0
    out = capsys.readouterr().out
    assert "  DFlash drafter in the layout of z-lab or SpecForge" in out
    assert f"dflash [{mine}] works: same text as plain decoding" in out
    (mine / "model.safetensors").write_bytes(b"half")
    assert check.command([toy_target, "--drafter", str(mine)]) == 2
    assert "model.safetensors cannot be read" in capsys.readouterr().err


def test_a_drafter_for_another_target_is_explained_and_replaced_by_nothing(
    toy_target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = Path(shutil.copytree(Path(__file__).parent.parent / "golden/eagle3/draft", tmp_path / "mine"))
    assert check.command([toy_target, "--drafter", str(mine), "--tokens", "8"]) == 1
    out = capsys.readouterr().out
    assert "eagle3 fails: this drafter was trained for hidden size 64, the target has 32" in out
    assert "nothing runs in its place" in out


# Verdicts.


def traces(held: int, drafted: int = 4, dtype: str = "float32") -> list[Trace]:
    """Thirty steps of which `held` guesses in a row were accepted."""
    header = msgspec.structs.replace(head({}), dtype=dtype)
    guesses = list(range(10, 10 + drafted))
    whole = step(guesses, 1)
    part = msgspec.structs.replace(whole.verdict, path=list(range(held + 1)))
    one = msgspec.structs.replace(whole, verdict=part, committed=[*guesses[:held], 1])
    return [Trace(header, [step([], 1), *[one] * 30])]


def test_a_first_slot_far_below_the_published_one_is_wrong_wiring() -> None:
    offer = Offer("dflash", "x", "z-lab", 1, curve={1: 0.854})
    well, said = check.wiring(traces(2), offer)
    assert well
    assert "slots hold 1.00 1.00 0.00, published 1: 0.85" in said
    well, said = check.wiring(traces(0), offer)
    assert not well
    assert "something is wired wrong" in said
    assert check.wiring(traces(0), None) == (True, "slots hold 0.00")


@pytest.mark.parametrize(("dtype", "gap", "fine"), [("float32", 1e-5, True), ("float32", 0.01, False)])
def test_a_text_that_leaves_plain_decodings(
    dtype: str, gap: float, fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = traces(0, dtype=dtype)
    monkeypatch.setattr(check, "difference", lambda one, other: check_difference(gap))
    assert check.departures(traces(0, dtype=dtype), plain)[0] == fine


def test_half_precision_may_decide_near_ties_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for gap, fine in ((0.2, True), (2.0, False)):
        monkeypatch.setattr(check, "difference", lambda one, other, gap=gap: check_difference(gap))
        assert check.departures(traces(0, dtype="bfloat16"), traces(0, dtype="bfloat16"))[0] == fine


def check_difference(gap: float) -> object:
    from spec_core.trace import Difference

    return Difference(3, gap)


def test_a_block_is_drafted_as_it_was_trained(toy_target: str) -> None:
    """The usual block is 16; the toy's is 8, as Llama-3.1's published one is 10."""
    model = check.load_target(toy_target, "cpu")
    ready, _ = check.get_ready(model, list(check.discover().values()))
    blocks = {one.method.key: one.published for one in ready}
    assert blocks["dflash"]["block"] == blocks["ddtree"]["block"] == 8
    assert "block" not in blocks["eagle3"]
    one = next(one for one in ready if one.method.key == "dflash")
    trace = one.decode(model, Prompt("", [5, 6, 7], "raw"), one.published, Sampling(), 4)
    assert max(len(s.draft.tokens) for s in trace.steps) <= 8
