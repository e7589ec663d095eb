"""From a request to a trace: what is refused, and how a run that is called off ends."""

import pytest

from spec_core.methods import discover
from spec_core.run import Request, RequestError, collect, run
from spec_core.trace import Prompt, ids
from tests.toy import toy_model, toy_networks

MODEL = toy_model()
NETWORKS = toy_networks(MODEL)
PROMPT = Prompt("", [5, 6, 7], "ids")


def test_weights_of_another_kind_are_refused() -> None:
    eagle3 = discover()["eagle3"]
    with pytest.raises(RequestError, match="needs eagle3 weights, and was given eagle"):
        next(run(MODEL, NETWORKS["eagle"], Request(eagle3, PROMPT, {})))


def test_a_method_without_drafter_takes_none() -> None:
    with pytest.raises(RequestError, match="takes no drafter"):
        next(run(MODEL, NETWORKS["dflash"], Request(discover()["plain"], PROMPT, {})))


def test_a_run_called_off_ends_as_cancelled() -> None:
    answers = iter([False, False, False, True])
    trace = collect(run(MODEL, None, Request(discover()["plain"], PROMPT, {}), lambda: next(answers)))
    assert trace.end is not None
    assert (trace.end.reason, trace.end.steps, trace.end.tokens) == ("cancelled", 3, 3)
    whole = collect(run(MODEL, None, Request(discover()["plain"], PROMPT, {}, budget=10)))
    assert ids(trace) == ids(whole)[:3]
