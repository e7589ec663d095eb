"""The app on a toy pair: a tiny random target on disk and its random drafters, found through the catalog."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from models import catalog
from pages.parts import source
from tests.pages.server import make_visited
from tests.toy import toy_drafter_folders, toy_folder

APP = Path(__file__).parents[2] / "app.py"


make_visited()


@pytest.fixture(scope="session")
def toy_pair(tmp_path_factory: pytest.TempPathFactory) -> catalog.Pair:
    """Its key is its folder, so that the worker, whose catalog is the real one, finds it too."""
    root = tmp_path_factory.mktemp("toy")
    drafters = {kind: str(path) for kind, path in toy_drafter_folders(root / "drafters").items()}
    target = str(toy_folder(root / "target"))
    return catalog.Pair(target, "toy", target, drafters)


@pytest.fixture(scope="session", autouse=True)
def closed() -> Iterator[None]:
    """One queue and one worker serve all tests, as they serve all readers."""
    yield
    source.jobs().close()


@pytest.fixture
def app(toy_pair: catalog.Pair, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """The app, opened once, with the toy pair as its target."""
    monkeypatch.setenv("DRAFTSCOPE_DEVICE", "cpu")
    monkeypatch.setattr(catalog, "PAIRS", (toy_pair,))
    monkeypatch.setattr(source, "TARGET", toy_pair.key)
    at = AppTest.from_file(APP, default_timeout=60).run().switch_page("pages/decode.py").run()
    at.slider(key="tokens").set_value(16)
    at.text_area(key="prompt").set_value("Hi 你好")
    return at.run()
