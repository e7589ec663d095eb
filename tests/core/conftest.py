"""What the core's tests share: one tiny random pair, and the real target with whatever drafters are bundled."""

import pytest

from models.load import Model, Network, load_target
from tests.toy import toy_model, toy_networks


@pytest.fixture(scope="session")
def model() -> Model:
    return toy_model()


@pytest.fixture(scope="session")
def networks(model: Model) -> dict[str, Network]:
    return toy_networks(model)


@pytest.fixture(scope="session")
def smollm() -> Model:
    return load_target()
