"""Built once for all readers: pictures and charts of runs and measurements, which never change once they are read.

A hall opens the same few pages at the same moment; whoever comes first builds, the others wait for that.
"""

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import ParamSpec, TypeVar

from pages.parts.colours import theme
from pages.parts.text import language

P = ParamSpec("P")
R = TypeVar("R")


class Entry:
    """What was made of `args`, which it keeps alive: their identity is what it is known by."""

    def __init__(self, args: object) -> None:
        self.args, self.lock = args, threading.Lock()
        self.made: list[object] = []


def once(most: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Remember the last `most` results, each for its arguments in the reader's language and theme.

    What can be hashed counts by value, lists and dicts by their members, all else by being the same object.
    """

    def wrap(build: Callable[P, R]) -> Callable[P, R]:
        known: OrderedDict[Hashable, Entry] = OrderedDict()
        guard = threading.Lock()

        def entry(key: Hashable, args: object) -> Entry:
            with guard:
                found = known.setdefault(key, Entry(args))
                known.move_to_end(key)
                while len(known) > most:
                    known.popitem(last=False)
                return found

        @functools.wraps(build)
        def ask(*args: P.args, **kwargs: P.kwargs) -> R:
            found = entry((language(), theme(), mark(args), mark(kwargs)), (args, kwargs))
            with found.lock:
                if not found.made:
                    found.made.append(build(*args, **kwargs))
            return found.made[0]  # type: ignore[return-value]

        return ask

    return wrap


def mark(value: object) -> Hashable:
    """What an argument is told from others by."""
    if isinstance(value, dict):
        return tuple(map(mark, value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(mark, value))
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value
