"""The exact step: whole numbers, sums without error, rounded noise; faults are noticed."""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp
from scipy import stats
from started import claimed, started

import optuna_dp as odp
from optuna_dp.errors import PlanError
from optuna_dp.study.entries import TRAININGS
from optuna_dp.training import exact_step
from optuna_dp.training.exact_step import ExactStep, rounded_gaussians

# Bounds of random numbers are for false failures below 1e-6: 5.2 standard deviations.
DEVIATIONS = 5.2


@pytest.fixture(params=["numpy", "torch"])
def arrays(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """From an array of numpy to one of either library."""
    if request.param == "numpy":
        return np.array
    torch = pytest.importorskip("torch")
    return lambda array: torch.from_numpy(np.array(array))


def summed(step: ExactStep, *parts: Any) -> Any:
    """The sum, in units of the grid."""
    numbers = np.concatenate([np.asarray(total) for total in step.sum_of(list(parts))])
    assert (numbers == np.round(numbers)).all()
    return numbers.astype(np.int64)


def share_of_norm(step: ExactStep, numbers: Any) -> float:
    """The norm of a sum over the clipping norm; its square is a sum of whole numbers."""
    return math.sqrt(int((numbers * numbers).sum())) / step.units


def rows_of_all_kinds(numbers: int) -> dict[str, Any]:
    rng = np.random.default_rng(numbers)
    normal = rng.normal(size=numbers)
    one_large = np.full(numbers, 1e-4)
    one_large[0] = 1.0
    return {
        "normal": normal,
        "short": normal * 1e-6,
        "long": normal * 1e6,
        "denormal": normal * 1e-42,
        "of 1e18": np.full(numbers, 1e18),
        "equal": np.full(numbers, 0.1),
        "one large": one_large,
        "half units": (rng.integers(0, 2**9, numbers) + 0.5) / 2**18,
        "just at the norm": normal / np.linalg.norm(normal),
        "heavy tails": rng.standard_cauchy(numbers),
    }


@pytest.mark.promise("gradients")
@pytest.mark.parametrize("clipping_norm", [1e-9, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("numbers", [1, 7, 256, 5_000, 1_000_000])
def test_no_row_is_longer_than_the_clipping_norm(
    arrays: Callable[[Any], Any], numbers: int, clipping_norm: float
) -> None:
    step = ExactStep(clipping_norm, 1.0, numbers)
    for kind, row in rows_of_all_kinds(numbers).items():
        for scale in (1.0, clipping_norm):
            total = summed(step, arrays((row * scale)[None].astype(np.float32)))
            assert share_of_norm(step, total) <= 1.0, kind


def test_a_row_is_not_clipped_by_much_more_than_the_norm(
    arrays: Callable[[Any], Any],
) -> None:
    for numbers, least in ((10, 0.9999), (100_000, 0.9990), (12_000_000, 0.9979)):
        row = np.random.default_rng(0).normal(size=(1, numbers)).astype(np.float32)
        step = ExactStep(1.0, 1.0, numbers)
        assert least < share_of_norm(step, summed(step, arrays(row))) <= 1.0


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan, 1e30, 3e38])
def test_what_is_not_finite_or_overflows_counts_as_nothing(
    arrays: Callable[[Any], Any], bad: float
) -> None:
    rows = np.random.default_rng(0).normal(size=(5, 9)).astype(np.float32)
    step = ExactStep(1.0, 1.0, 9)
    expected = summed(step, arrays(rows[1:]))
    rows[0, 3] = bad
    found = summed(step, arrays(rows))
    assert np.array_equal(found, expected)


def chunks_of(rows: Any, sizes: list[int]) -> list[Any]:
    ends = np.cumsum(sizes)
    return [part for part in np.split(rows, ends[ends < len(rows)]) if len(part)]


@given(
    seed=st.integers(0, 2**32 - 1),
    records=st.integers(1, 300),
    numbers=st.integers(1, 40),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
)
@settings(max_examples=60, deadline=None)
def test_the_sum_is_the_same_for_every_order_and_chunk_and_moves_by_one_row(
    seed: int, records: int, numbers: int, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    rows = (scale * rng.standard_cauchy((records, numbers))).astype(np.float32)
    step = ExactStep(0.7, 1.0, numbers)
    sums = []
    for _ in range(3):
        ordered = rows[rng.permutation(records)]
        parts = chunks_of(ordered, rng.integers(1, 100, 300).tolist())
        sums.append(sum(summed(step, part) for part in parts))
    assert np.array_equal(sums[0], sums[1])
    assert np.array_equal(sums[0], sums[2])
    without = summed(step, np.delete(rows, 0, axis=0)) if records > 1 else 0
    assert share_of_norm(step, sums[0] - without) <= 1.0


def test_a_record_that_is_replaced_moves_the_sum_by_two_clipping_norms_at_most(
    arrays: Callable[[Any], Any],
) -> None:
    step, row = ExactStep(1.0, 1.0, 50), np.random.default_rng(0).normal(size=(1, 50)) * 10
    moved = summed(step, arrays(row)) - summed(step, arrays(-row))
    assert 1.999 < share_of_norm(step, moved) <= 2.0


def test_the_parts_of_a_row_are_clipped_together(arrays: Callable[[Any], Any]) -> None:
    rows = np.random.default_rng(0).normal(size=(3, 12)).astype(np.float32)
    step = ExactStep(1.0, 1.0, 12)
    whole = summed(step, arrays(rows))
    assert np.array_equal(summed(step, arrays(rows[:, :5]), arrays(rows[:, 5:])), whole)


def test_a_parameter_may_have_no_numbers(arrays: Callable[[Any], Any]) -> None:
    step = ExactStep(1.0, 1.0, 5)
    totals = step.sum_of([arrays(np.zeros((3, 0))), arrays(np.ones((3, 5)))])
    assert [len(noisy) for noisy in step.with_noise(totals)] == [0, 5]


def test_sixty_four_rows_of_one_norm_add_exactly(arrays: Callable[[Any], Any]) -> None:
    step = ExactStep(1.0, 1.0, 1)
    (one,) = summed(step, arrays(np.full((1, 1), 5.0, dtype=np.float32)))
    for records in (64, 65, 1_000):
        rows = np.full((records, 1), 5.0, dtype=np.float32)
        rows[-1] = 2.0**-18
        (total,) = summed(step, arrays(rows))
        assert total == (records - 1) * one + 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("weights", [100, 20_000_000])
def test_a_known_sum_is_found_in_every_precision(dtype: str, weights: int) -> None:
    torch = pytest.importorskip("torch")
    like = torch.zeros(3, dtype=getattr(torch, dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ExactStep(1.0, 1.0, weights).is_exact(like)


def test_gradients_are_not_changed_and_may_share_memory(arrays: Callable[[Any], Any]) -> None:
    rows = arrays(np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32) * 3)
    before = np.asarray(rows).copy()
    step = ExactStep(1.0, 1.0, 12)
    shared = summed(step, rows, rows)
    assert np.array_equal(np.asarray(rows), before)
    assert np.array_equal(shared, summed(step, arrays(before), arrays(before)))


def test_rows_that_repeat_one_number_in_memory_are_right() -> None:
    torch = pytest.importorskip("torch")
    column = torch.randn(4, 1)
    step = ExactStep(1.0, 1.0, 6)
    wide = column.expand(4, 6)
    assert np.array_equal(summed(step, wide), summed(step, wide.clone()))


@pytest.mark.parametrize(
    ("clipping_norm", "noise"), [(1e-10, 1.0), (1e10, 1.0), (math.nan, 1.0), (1.0, 1e12)]
)
def test_numbers_for_which_nothing_is_proved_are_refused(
    clipping_norm: float, noise: float
) -> None:
    with pytest.raises(ValueError, match="clipping"):
        ExactStep(clipping_norm, noise, 10)


# -- noise ----------------------------------------------------------------------------------------


@pytest.mark.promise("noise")
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("count", [1, 2, 7, 16_384, 16_385, 200_001])
def test_noise_is_gaussian_of_its_scale(library: str, count: int) -> None:
    module = pytest.importorskip(library)
    draws = [rounded_gaussians(count, 1e5, module) for _ in range(min(200_001 // count, 500))]
    numbers = np.concatenate([np.asarray(draw) for draw in draws]) / 1e5
    n = len(numbers)
    assert abs(numbers.mean()) < DEVIATIONS / math.sqrt(n)
    # Finds a scale that is off by 9.2 deviations: by 1.5 % of 200,000 numbers.
    assert abs(numbers.var() - 1.0) < DEVIATIONS * math.sqrt(2.0 / n)
    assert stats.kstest(numbers, "norm").pvalue > 1e-7


def test_numbers_of_noise_are_independent() -> None:
    n = 1 << 15
    draws = np.stack([rounded_gaussians(n, 1e5) for _ in range(4)]) / 1e5
    # Of pairs that one Box-Muller made, neighbours, blocks, and different draws.
    pairs = [
        (draws[:, : n // 2], draws[:, n // 2 :]),
        (draws[:, : n // 4], draws[:, n // 4 : n // 2]),
        (draws[:, 1:], draws[:, :-1]),
        (draws[1:], draws[:-1]),
    ]
    for first, second in pairs:
        for power in (1, 2):
            a, b = first**power, second**power
            a, b = (a - a.mean()) / a.std(), (b - b.mean()) / b.std()
            assert abs((a * b).mean()) < DEVIATIONS / math.sqrt(a.size)


def of_keys(monkeypatch: pytest.MonkeyPatch, *draws: list[int]) -> None:
    """Lets OpenSSL's generator return these whole numbers of 63 bits."""
    left = [np.array(draw, dtype=np.int64).tobytes() for draw in draws]
    monkeypatch.setattr(ssl, "RAND_bytes", lambda count: left.pop(0)[:count])


def test_noise_is_box_mullers_of_63_bits_and_63_more_in_the_tail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    radius_keys, angle_keys = [2**62, 5, 0, 2**63 - 1], [2**60, 2**61 + 3, 2**62, 1]
    more = [2**61, 2**62 + 1]  # For the two small ones.
    of_keys(monkeypatch, radius_keys + angle_keys, more)
    found = np.asarray(exact_step.gaussians(8, np))
    mp.dps = 40
    uniforms = [mp.mpf(key) / 2**63 for key in radius_keys]
    for place, key in zip((1, 2), more, strict=True):
        uniforms[place] += (mp.mpf(key) + 0.5) / 2**126
    for function, half in ((mp.cos, found[:4]), (mp.sin, found[4:])):
        for u, angle_key, number in zip(uniforms, angle_keys, half, strict=True):
            expected = mp.sqrt(-2 * mp.log(u)) * function(2 * mp.pi * angle_key / 2**63)
            # Near a radius of zero the uniform has 53 bits.
            assert abs(number - float(expected)) < (1e-7 if u > 0.999 else 1e-13)


def test_radii_in_the_tail_lie_closer_together_than_the_grid() -> None:
    """With 53 bits an observer excludes one of two neighbours, with 1.6e-12 a pair."""
    grid = 2.0**-18
    for key in (1, 10, 1_000, 2**20, 2**40, 2**52 - 1):
        # Two neighbouring uniforms: below 2^52 a key has 63 bits more, of which double keeps 53.
        u = np.array([key, np.nextafter(float(key), np.inf)]) * 2.0**-63
        radii = np.sqrt(-2.0 * np.log(u))
        assert abs(radii[1] - radii[0]) < grid * 1e-9
    # Above that a key itself is the lattice.
    u = (2.0**52 + np.array([0.0, 1.0])) * 2.0**-63
    radii = np.sqrt(-2.0 * np.log(u))
    assert abs(radii[1] - radii[0]) < grid * 1e-9


def test_the_largest_and_smallest_keys_make_finite_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    for byte in (b"\x00", b"\xff"):
        monkeypatch.setattr(ssl, "RAND_bytes", lambda count, byte=byte: byte * count)
        assert np.isfinite(rounded_gaussians(4, 1e5)).all()


@pytest.mark.promise("noise")
@pytest.mark.promise("gradients")
def test_a_noisy_sum_is_a_whole_number_of_units(arrays: Callable[[Any], Any]) -> None:
    step = ExactStep(0.3, 1.7, 1_000)
    totals = step.sum_of([arrays(np.random.default_rng(0).normal(size=(40, 1_000)))])
    (noisy,) = step.with_noise(totals)
    units = np.asarray(noisy) / (0.3 / step.units)
    assert np.abs(units - np.round(units)).max() < 1e-6
    noise = (np.round(units) - np.asarray(totals[0])) / step.units
    assert abs(noise.std() / 1.7 - 1.0) < DEVIATIONS / math.sqrt(2_000)


# -- faults that these tests notice ---------------------------------------------------------------


def in_place(step: ExactStep, part: Any, factors: Any) -> Any:
    part *= factors[:, None].astype(part.dtype)
    return np.round(part, out=part).sum(0, dtype=np.float64)


def in_single_precision(step: ExactStep, part: Any, factors: Any) -> Any:
    return np.round(part * factors[:, None].astype(part.dtype)).cumsum(0, dtype=np.float32)[-1]


def in_half_precision(step: ExactStep, part: Any, factors: Any) -> Any:
    """As a device adds that keeps 11 bits of each number."""
    mantissas, exponents = np.frexp(part * factors[:, None])
    return np.ldexp(np.round(mantissas * 2**11), exponents - 11).sum(0)


def plain_squares(rows: Any) -> Any:
    """As torch.linalg.vector_norm adds them: one after another, in single precision."""
    return np.cumsum(rows * rows, axis=1, dtype=np.float32)[:, -1].astype(np.float64)


@pytest.mark.promise("gradients")
def test_where_sums_are_rounded_no_training_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExactStep, "sum_of_rows", in_half_precision)
    run, model = started(20), odp.SoftmaxRegression(features=2, classes=2)
    records = np.ones((20, 2)), np.arange(20) % 2
    with pytest.raises(PlanError):
        odp.train(run, model, records, optimizer="sgd", learning_rate=0.1, score=None)
    assert claimed(run, TRAININGS) == []


def test_single_precision_totals_plain_norms_shared_memory_and_unrounded_noise_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(0.3, 0.6, size=(1_000, 3)).astype(np.float32)
    step, orders = ExactStep(1.0, 1.0, 3), (rows, rows[::-1].copy())
    many = 1_000_000
    one_large = np.full((1, many), 2.3e-4, dtype=np.float32)
    one_large[0, 0] = 1.0
    of_many = ExactStep(1.0, 1.0, many)

    with monkeypatch.context() as patch:
        patch.setattr(ExactStep, "sum_of_rows", in_single_precision)
        assert len({tuple(np.asarray(step.sum_of([each])[0])) for each in orders}) == 2
    with monkeypatch.context() as patch:
        patch.setattr(ExactStep, "sum_of_rows", in_half_precision)
        assert not step.is_exact(np.zeros(1, dtype=np.float32))
    with monkeypatch.context() as patch:
        patch.setattr(ExactStep, "sum_of_rows", in_place)
        copied = summed(step, rows.copy(), rows.copy())
        assert not np.array_equal(summed(step, *[rows.copy()] * 2), copied)
    with monkeypatch.context() as patch:
        patch.setattr(exact_step, "squared_norms", plain_squares)
        assert share_of_norm(of_many, summed(of_many, one_large)) > 1.0
    with monkeypatch.context() as patch:
        patch.setattr(
            exact_step, "rounded_gaussians", lambda count, deviation, _: np.full(count, 0.3)
        )
        (noisy,) = step.with_noise([np.zeros(3)])
        assert (noisy * step.units != np.round(noisy * step.units)).all()
    assert share_of_norm(of_many, summed(of_many, one_large)) <= 1.0
