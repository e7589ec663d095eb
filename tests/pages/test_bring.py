"""A drafter of the reader's own is described and run, or it is said what does not fit; never on a public server."""

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from models import catalog

ROOT = Path(__file__).parent.parent.parent
EN = json.loads((ROOT / "assets/locales/en/bring.json").read_text())


def page(folder: Path | str) -> AppTest:
    """The About page after somebody named a folder."""
    at = AppTest.from_file(ROOT / "app.py", default_timeout=60).run()
    at.switch_page("pages/about.py").run()
    at.text_input(key="bring.folder").set_value(str(folder))
    return next(b for b in at.button if b.label == EN["bring.look"]).click().run()


@pytest.fixture
def mine(on_toys: None, toy_pair: catalog.Pair, tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_pair.drafters["dflash"], tmp_path / "mine"))


def said(at: AppTest) -> str:
    return "\n".join(str(element.value) for element in (*at.markdown, *at.success, *at.error))


def test_what_fits_is_described_and_can_be_raced(mine: Path) -> None:
    at = page(mine)
    text = said(at)
    assert EN["bring.kind"].format(kind="DFlash", layout="z-lab or SpecForge") in text
    assert EN["bring.block"].format(layers=2, block=8) in text
    assert not at.error
    at.button(key="bring.run").click().run()
    asked = at.session_state["desk"].asked
    assert len(asked) == 3  # plain decoding, DFlash, and the tree that reads the same block


def test_a_drafter_for_another_target_is_explained(mine: Path) -> None:
    at = page(ROOT / "tests/golden/eagle3/draft")
    assert EN["bring.kind"].format(kind="EAGLE-3", layout="SafeAILab") in said(at)
    assert at.error[0].value.startswith(EN["bring.refused"][:20])
    assert "trained for hidden size 64, the target has 32" in at.error[0].value
    assert not [button for button in at.button if button.key == "bring.run"]


def test_what_is_no_drafter_is_one_clear_sentence(mine: Path, tmp_path: Path) -> None:
    at = page(tmp_path / "nowhere")
    assert EN["bring.nowhere"].format(folder=tmp_path / "nowhere") in said(at)
    mark = tmp_path / "ran"

    class Program:
        def __reduce__(self) -> tuple[object, ...]:
            return os.system, (f"touch {mark}",)

    (mine / "model.safetensors").unlink()
    (mine / "pytorch_model.bin").write_bytes(pickle.dumps({"fc.weight": Program()}))
    at = page(mine)
    assert "a pickle with more in it than tensors: it was not opened" in at.error[0].value
    assert not mark.exists()


def test_a_public_server_opens_no_folders(on_toys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTSCOPE_HOSTED", "1")
    at = AppTest.from_file(ROOT / "app.py", default_timeout=60).run()
    at.switch_page("pages/about.py").run()
    assert not at.exception
    assert not [field for field in at.text_input if field.key == "bring.folder"]
    assert EN["bring.title"] not in [head.value for head in at.subheader]
