"""Pictures and charts are built once for all readers, and never the wrong one."""

import threading
import time

import pytest

from pages.parts import once as module
from pages.parts.once import once
from spec_core.measurement import Line


class Thing:
    """Without an equality of its own, and one that cannot be hashed."""

    __hash__ = None  # type: ignore[assignment]


def test_the_same_arguments_are_built_once() -> None:
    built: list[object] = []

    @once(8)
    def build(things: list[Thing], line: Line, rates: dict[str, list[float]], k: int = 1) -> int:
        built.append((things, line, rates, k))
        return len(built)

    one, other = Thing(), Thing()
    assert build([one], Line("eagle", "chain", 1), {"a": [0.5]}) == 1
    assert build([one], Line("eagle", "chain", 1), {"a": [0.5]}) == 1, "equal values are the same argument"
    assert build([other], Line("eagle", "chain", 1), {"a": [0.5]}) == 2, "another thing is not"
    assert build([one], Line("eagle", "chain", 1), {"a": [0.6]}) == 3
    assert build([one], Line("eagle", "chain", 1), {"a": [0.5]}, k=2) == 4
    assert build([one, other], Line("eagle", "chain", 1), {"a": [0.5]}) == 5


def test_a_thing_that_is_gone_lends_its_place_to_no_other() -> None:
    """Identities are used again once a thing is forgotten: what is remembered keeps its arguments."""

    @once(2000)
    def build(thing: Thing) -> Thing:
        return thing

    for _ in range(1000):
        fresh = Thing()
        assert build(fresh) is fresh


def test_the_oldest_is_forgotten() -> None:
    built: list[int] = []

    @once(2)
    def build(k: int) -> None:
        built.append(k)

    for k in (1, 2, 1, 3, 1, 2):
        build(k)
    assert built == [1, 2, 3, 2]


def test_each_language_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    @once(8)
    def build() -> str:
        return module.language()

    for language in ("en", "zh"):
        monkeypatch.setattr(module, "language", lambda said=language: said)
        assert build() == language


def test_readers_who_come_together_wait_for_the_first() -> None:
    built: list[int] = []

    @once(8)
    def build(k: int) -> int:
        time.sleep(0.05)
        built.append(k)
        return k

    readers = [threading.Thread(target=build, args=(1,)) for _ in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert built == [1]


def test_what_failed_is_tried_again() -> None:
    tries: list[int] = []

    @once(8)
    def build() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("broken off")
        return "done"

    with pytest.raises(ValueError, match="broken off"):
        build()
    assert build() == "done"
