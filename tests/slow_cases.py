"""Marks the slow ones among the cases of a test, so that the quick ones run by default."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def slow_if(is_slow: Callable[..., bool], cases: Iterable[Any]) -> list[Any]:
    """Returns ``cases`` for ``parametrize``, with the mark ``slow`` where ``is_slow`` says so.

    Args:
        is_slow: Called with each case; with its parts if it is a tuple.
        cases: What the test is run with.
    """
    marked = []
    for case in cases:
        parts = case if isinstance(case, tuple) else (case,)
        marked.append(pytest.param(*parts, marks=pytest.mark.slow) if is_slow(*parts) else case)
    return marked
