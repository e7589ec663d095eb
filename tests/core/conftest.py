"""What the core's tests share: one tiny random pair, and the real target with whatever drafters are bundled."""

from collections.abc import Iterator

import pytest

from models import catalog
from models.load import Model, Network, load_target
from tests.toy import toy_drafter_folders, toy_folder, toy_model, toy_networks


@pytest.fixture(scope="session")
def model() -> Model:
    return toy_model()


@pytest.fixture(scope="session")
def networks(model: Model) -> dict[str, Network]:
    return toy_networks(model)


@pytest.fixture(scope="session")
def smollm() -> Model:
    return load_target()


@pytest.fixture(scope="session")
def toy_drafters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of random drafters, by kind."""
    return {kind: str(path) for kind, path in toy_drafter_folders(tmp_path_factory.mktemp("drafters")).items()}


@pytest.fixture(scope="session")
def toy_target(tmp_path_factory: pytest.TempPathFactory, toy_drafters: dict[str, str]) -> Iterator[str]:
    """The key of a pair of tiny folders, as the commands name it."""
    folder = toy_folder(tmp_path_factory.mktemp("target"))
    pair = catalog.Pair("toy", "Toy", str(folder), toy_drafters)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "PAIRS", (*catalog.PAIRS, pair))
        yield pair.key
