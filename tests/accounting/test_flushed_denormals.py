"""Numbers below 2.2e-308 may count as zero: ``torch.set_flush_denormal(True)`` asks for it."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
import sys
from collections.abc import Iterator

import pytest

import optuna_dp as odp

_FLUSH = 0x8040  # flush to zero, and denormals are zeros
_MXCSR = 28  # where glibc keeps it in an fenv_t


@pytest.fixture
def flushed() -> Iterator[None]:
    """Sets what torch sets, for this thread."""
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    before = ctypes.create_string_buffer(64)
    libm.fegetenv(before)
    control = int.from_bytes(before.raw[_MXCSR : _MXCSR + 4], "little") | _FLUSH
    changed = bytearray(before.raw)
    changed[_MXCSR : _MXCSR + 4] = control.to_bytes(4, "little")
    libm.fesetenv(ctypes.create_string_buffer(bytes(changed), 64))
    yield
    libm.fesetenv(before)


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="the control word is reached through glibc's fenv_t of x86-64",
)
@pytest.mark.usefixtures("flushed")
@pytest.mark.parametrize(
    "make",
    [
        lambda: odp.Guarantee(odp.gaussian(3.0)),
        lambda: odp.Guarantee(odp.compose(odp.bounded_range(0.5), odp.laplace(2.0))),
        lambda: odp.selection_guarantee(odp.pure_dp(0.7), odp.Poisson(3)),
        lambda: odp.selection_guarantee(odp.gaussian(7.0), odp.Geometric(5)),
        pytest.param(
            lambda: odp.selection_guarantee(
                odp.pure_dp(0.9), odp.Geometric(4), density_bounds=(0.75, 2.0)
            ),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_epsilons_do_not_need_denormal_numbers(make) -> None:
    assert float("1e-300") * 1e-20 == 0.0, "the processor does not flush"
    guarantee = make()
    for delta in (1e-3, 1e-5, 1e-12):
        assert 0.0 < guarantee.epsilon(delta) < 10.0
