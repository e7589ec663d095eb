"""One file per method. A file that exports METHOD is a method: nothing else lists them."""

import importlib
import pkgutil

from spec_core.contract import KnobError, Method


def discover() -> dict[str, Method]:
    """All methods by key, in their shown order. Imports no torch."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    found = [importlib.import_module(f"{__name__}.{name}").METHOD for name in names]
    return {method.key: method for method in sorted(found, key=lambda method: method.order)}


def find(key: str) -> Method:
    methods = discover()
    if key not in methods:
        raise KnobError(f"there is no method {key!r}: choose one of {', '.join(methods)}")
    return methods[key]


def yardstick() -> Method:
    """The first method: it drafts nothing, and every text and every speed is compared with its."""
    return next(iter(discover().values()))
