"""What is random in a test follows from the test's name: what fails once fails again.

Global generators are seeded, and what this process draws from the operating system or from OpenSSL
comes from a seeded stream instead: fresh generators of numpy, ``secrets``, T, batches, noise. Only
OpenDP's noise and what another program draws stay random. ``TEST_SEED=7 pytest`` takes other
numbers.
"""

from __future__ import annotations

import hashlib
import os
import random
import ssl
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

_seed = random.Random.seed


class _Stream:
    """Bytes that follow from a name, and in a forked process from its place among the forks."""

    def __init__(self) -> None:
        self.begin("import")

    def begin(self, name: str) -> None:
        self.name, self._forks = name, 0
        self._generator = np.random.default_rng(_number(name))

    def bytes(self, size: int) -> bytes:
        return self._generator.bytes(size)

    def count_fork(self) -> None:
        self._forks += 1

    def begin_fork(self) -> None:
        self.begin(f"{self.name} fork {self._forks}")


def _number(name: str) -> int:
    text = f"{os.environ.get('TEST_SEED', '')} {name}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


_stream = _Stream()


def _seed_from_stream(generator: random.Random, a: Any = None, version: int = 2) -> None:
    _seed(generator, _stream.bytes(32) if a is None else a, version)


def pytest_configure() -> None:
    """Puts the stream in the place of the system's randomness, for good."""
    os.urandom = _stream.bytes
    random._urandom = _stream.bytes  # type: ignore[attr-defined]  # of secrets, and so of numpy
    ssl.RAND_bytes = _stream.bytes
    random.Random.seed = _seed_from_stream  # type: ignore[method-assign]
    os.register_at_fork(before=_stream.count_fork, after_in_child=_stream.begin_fork)


def begin(name: str) -> None:
    """Makes all that is drawn from here on a function of ``name``."""
    _stream.begin(name)
    random.seed(_number(name))
    np.random.seed(_number(name) % 2**32)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(_number(name) % 2**63)


@pytest.hookimpl(tryfirst=True)
def pytest_collectstart(collector: pytest.Collector) -> None:
    """What a module draws while it is imported follows from its name."""
    begin(collector.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    begin(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    """What several tests share does not depend on which of them came first."""
    if fixturedef.scope == "function":
        return (yield)
    before = vars(_stream).copy()
    begin(f"{fixturedef.baseid} {fixturedef.argname} {fixturedef.cache_key(request)!r}")
    try:
        return (yield)
    finally:
        begin(before["name"])
        vars(_stream).update(before)
