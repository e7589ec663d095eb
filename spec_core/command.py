"""What the commands share: one-line errors with exit status 2, knobs and methods by name, networks with reasons."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from models.decoder import ConfigError
from models.fetch import FetchError
from models.load import Model, Network
from spec_core.contract import KnobError, Knobs, Method
from spec_core.methods import discover, find
from spec_core.prompts import PromptFileError
from spec_core.run import Request, RequestError, as_trained, collect, network_for, run
from spec_core.trace import KnobValue, Prompt, Sampling, Trace, TraceError

EXPECTED = (ConfigError, FetchError, KnobError, RequestError, PromptFileError, TraceError, OSError, UnicodeDecodeError)
WRONG, INTERRUPTED = 2, 130


class Parser(argparse.ArgumentParser):
    """argparse, but a wrong argument costs one line and not the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG, f"{self.prog}: {message} (--help lists what there is)\n")


def guarded(main: Callable[[], int]) -> int:
    """Run a command; what a user can put right becomes one line on stderr and status 2."""
    try:
        return main()
    except EXPECTED as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def say(message: str) -> None:
    """Progress, beside the result."""
    print(message, file=sys.stderr, flush=True)


def knob(text: str) -> tuple[str, str]:
    """`name=value` → its two sides."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise KnobError(f"{text!r} is no knob: write name=value")
    return name.strip(), value.strip()


def knobs_by_method(texts: Sequence[str]) -> dict[str, dict[str, KnobValue]]:
    """`METHOD.name=value` … → knobs per method key."""
    found: dict[str, dict[str, KnobValue]] = {}
    for text in texts:
        key, dot, rest = text.partition(".")
        if not dot:
            raise KnobError(f"{text!r} names no method: write METHOD.name=value")
        name, value = knob(rest)
        found.setdefault(find(key).key, {})[name] = value
    return found


def choose(text: str) -> list[Method]:
    """`all`, or keys with commas between them → methods, in their shown order."""
    if text == "all":
        return list(discover().values())
    wanted = {find(key.strip()).key for key in text.split(",")}
    return [method for key, method in discover().items() if key in wanted]


@dataclass(frozen=True)
class Ready:
    """A method that can run here, with its weights."""

    method: Method
    network: Network | None

    @property
    def published(self) -> dict[str, KnobValue]:
        """The paper's knobs, with these weights' own where they were trained with others."""
        return self.method.settle(as_trained(self.method, self.network))

    def decode(self, model: Model, prompt: Prompt, knobs: Knobs, sampling: Sampling, tokens: int) -> Trace:
        """One whole run, in memory."""
        return collect(run(model, self.network, Request(self.method, prompt, knobs, sampling, tokens)))


def get_ready(model: Model, methods: Sequence[Method]) -> tuple[list[Ready], dict[str, str]]:
    """The methods whose weights can be had, and for every other one the reason. Methods share loaded networks."""
    loaded: dict[str, Network | None] = {}
    ready: list[Ready] = []
    missing: dict[str, str] = {}
    for method in methods:
        try:
            if method.network not in loaded:
                loaded[method.network] = network_for(model, method)
            ready.append(Ready(method, loaded[method.network]))
        except (ConfigError, RequestError) as error:
            missing[method.key] = str(error)
    return ready, missing
