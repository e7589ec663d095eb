"""A target of eight tiny layers, dialogues it wrote itself, and their stored features."""

from collections.abc import Iterator

import pytest
import torch

from models.decoder import Decoder, read_config
from models.load import Model
from spec_core.trace import Sampling
from spec_core.training.corpus import Dialogue
from spec_core.training.data import Store
from spec_core.training.features import Writer, take
from spec_core.training.generate import Text, write
from tests.toy import randomise, target_config

VOCAB, LAYERS = 64, 8  # EAGLE-3's three features need seven layers to be different ones
MASK = 3  # the dialogues never contain it


def tiny_model() -> Model:
    decoder = Decoder(read_config(target_config(VOCAB) | {"num_hidden_layers": LAYERS}))
    randomise(decoder, 0)
    with torch.no_grad():
        decoder.lm_head.weight *= 4  # sure of itself, as a trained target is: else there is little to learn
    return Model(decoder.eval().requires_grad_(False), None, "tiny", "tiny", frozenset({2}))


def dialogues(decoder: Decoder, count: int, answer: int = 24) -> list[Dialogue]:
    """Random questions of 6 to 9 tokens and the target's greedy answers; no token 3 in either."""
    rng = torch.Generator().manual_seed(0)
    prompts = [torch.randint(4, VOCAB, (6 + i % 4,), generator=rng).tolist() for i in range(3 * count)]
    texts = [Text(list(p), Sampling()) for p in prompts]
    write(decoder, texts, frozenset({2}), answer, rng)
    found = [Dialogue(t.ids, len(p), 0.0, "self", t.ended) for t, p in zip(texts, prompts, strict=True)]
    return [d for d in found if MASK not in d.ids and len(d.answer) == answer][:count]


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices this small only lose by being shared out."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def model() -> Model:
    return tiny_model()


@pytest.fixture(scope="session")
def store(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Eight dialogues, all for training."""
    folder = tmp_path_factory.mktemp("features")
    writer = Writer(folder, model.decoder)
    found = dialogues(model.decoder, 8)
    assert len(found) == 8
    with torch.inference_mode():
        for kept in take(model.decoder, found):
            writer.add(*kept)
    writer.commit()
    store = Store(folder)
    store.documents["held_out"] = 0
    return store
