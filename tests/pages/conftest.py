"""The app on a toy pair: a tiny random target on disk and its random drafters, found through the catalog."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from models import catalog
from models.load import load_network, load_target
from pages.parts import recorded, source
from spec_core.methods import discover
from spec_core.run import Request, chat_prompt, collect, run
from spec_core.trace import save
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


@pytest.fixture(scope="session")
def shipped(toy_pair: catalog.Pair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of recordings: two prompts, every method, both presets."""
    folder = tmp_path_factory.mktemp("traces")
    model = load_target(toy_pair.source)
    networks = {kind: load_network(model, path) for kind, path in toy_pair.drafters.items()}
    for key, method in discover().items():
        for prompt in ("story", "list"):
            request = Request(method, chat_prompt(model, prompt), {}, budget=12)
            trace = collect(run(model, networks.get(method.network), request))
            for preset in ("device", "published"):
                save(trace, folder / f"{prompt}.{key}.{preset}.jsonl.gz")
    return folder


@pytest.fixture(autouse=True)
def pinned(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(recorded, "FOLDER", shipped)
    st.cache_data.clear()
    yield
    st.cache_data.clear()  # whatever is tested next sees the recordings that ship


@pytest.fixture
def on_toys(toy_pair: catalog.Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Live runs use the toy pair."""
    monkeypatch.setenv("DRAFTSCOPE_DEVICE", "cpu")
    monkeypatch.setattr(catalog, "PAIRS", (toy_pair,))
    monkeypatch.setattr(source, "TARGET", toy_pair.key)


def open_page(name: str, language: str = "en", **query: str) -> AppTest:
    """The page as a link with these choices opens it."""
    at = AppTest.from_file(APP, default_timeout=60)
    at.query_params["lang"] = language
    at.run().switch_page(f"pages/{name}.py")
    for key, value in {"lang": language, **query}.items():  # a change of page empties the address
        at.query_params[key] = value
    return at.run()


def scene_of(at: AppTest) -> str:
    """What the first picture was sent, as JSON."""
    return at.get("bidi_component")[0].proto.bytes.decode()


def address(at: AppTest) -> dict[str, str]:
    """What stands in the address now."""
    return {key: value if isinstance(value, str) else value[0] for key, value in at.query_params.items()}


@pytest.fixture
def app(on_toys: None) -> AppTest:
    """The race page, with a prompt of our own in its form."""
    at = open_page("race")
    at.slider(key="tokens").set_value(16)
    at.text_area(key="prompt").set_value("Hi 你好")
    return at.run()
