"""One real decode per method and knob setting, on a toy pair: what the pictures are drawn from."""

import pytest

from spec_core.methods import discover
from spec_core.run import Request, chat_prompt, collect, run
from spec_core.trace import KnobValue, Trace
from tests.toy import talking_model, toy_networks

CASES: list[tuple[str, dict[str, KnobValue]]] = [(key, {}) for key in discover()]
CASES += [("eagle3", {"shape": "chain", "depth": 4}), ("eagle2", {"tokens": 6, "depth": 3, "top_k": 3})]
CASES += [("eagle", {"shape": "sampled", "depth": 3}), ("dflash", {"block": 32})]


@pytest.fixture(scope="session")
def traces() -> list[Trace]:
    model = talking_model()
    networks = toy_networks(model)
    prompt = chat_prompt(model, "Zähle: 一二三 🙂")
    methods = discover()
    return [
        collect(run(model, networks.get(methods[key].network), Request(methods[key], prompt, knobs, budget=20)))
        for key, knobs in CASES
    ]
