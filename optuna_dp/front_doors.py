"""Packages whose public names are loaded when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def front_door(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Returns ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Args:
        package: The package's ``__name__``.
        names: Public names, separated by spaces, by the module of the package that has them.
    """
    homes = {name: module for module, words in names.items() for name in words.split()}
    public = sorted(homes)

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: public, public
