"""Private scores: the noise is what the event says, and no record moves more than promised."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from refusals import refuses
from scipy import stats

import optuna_dp as odp
from optuna_dp import scoring
from optuna_dp.errors import InvalidArgumentError

# The noise is OpenDP's: everything is tested at levels near 1e-9 (6.2 standard errors).
RUNS = 6200
Score = Callable[[], float]


def draws(score: Score, count: int = RUNS) -> npt.NDArray[np.float64]:
    return np.array([score() for _ in range(count)])


def spread_is(sample: npt.NDArray[np.float64], sigma: float) -> bool:
    """A test of the standard deviation at level 1e-9."""
    statistic = (len(sample) - 1) * sample.var(ddof=1) / sigma**2
    tail = stats.chi2(len(sample) - 1)
    return bool(tail.ppf(5e-10) < statistic < tail.isf(5e-10))


@pytest.mark.promise("noise")
@pytest.mark.slow
def test_the_noise_of_an_accuracy_is_the_events() -> None:
    correct = np.arange(200) < 150
    sample = draws(lambda: scoring.private_accuracy(correct, size=200, noise_multiplier=6.0))
    sigma = 6.0 / 2 / 200
    assert abs(sample.mean() - 0.75) < 6.2 * sigma / math.sqrt(RUNS)
    assert spread_is(sample, sigma)
    # The same test tells noise that is 15 % off.
    assert not spread_is(sample, 1.15 * sigma)
    assert not spread_is(sample, 0.85 * sigma)
    assert stats.kstest((sample - 0.75) / sigma, "norm").pvalue > 1e-9


@pytest.mark.slow
def test_the_noise_of_a_mean_is_the_events() -> None:
    values = np.linspace(-3.0, 5.0, 100)
    sample = draws(
        lambda: scoring.private_mean(values, lower=-3, upper=5, size=100, noise_multiplier=2.0)
    )
    sigma = 2.0 * 8.0 / 2 / 100
    assert abs(sample.mean() - 1.0) < 6.2 * sigma / math.sqrt(RUNS)
    assert spread_is(sample, sigma)
    assert not spread_is(sample, 1.15 * sigma)


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "with_noise", lambda total, scale: total)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("record", [-math.inf, -7.0, 0.1, 2.0, 1e300, math.inf, math.nan])
@pytest.mark.parametrize("nan_as", ["lower", "upper"])
def test_no_record_moves_the_sum_by_more_than_one_contribution(record: float, nan_as: str) -> None:
    def mean(values: list[float]) -> float:
        return scoring.private_mean(
            values, lower=0.1, upper=2.7, size=50, noise_multiplier=1.0, nan_as=nan_as
        )

    values = [0.3, 1.9, 0.7] * 16
    contribution = (2.7 - 0.1) / 2 / 50
    rounding = 1e-12
    assert abs(mean([*values, record]) - mean(values)) <= contribution + rounding
    # Replacing moves it by up to two, and by two where the extremes meet.
    assert abs(mean([*values, record]) - mean([*values, 0.1])) <= 2 * contribution + rounding
    assert mean([*values, 2.7]) - mean([*values, 0.1]) == pytest.approx(2 * contribution)


@pytest.mark.usefixtures("no_noise")
def test_the_denominator_is_public() -> None:
    """Dividing by the number of records found there would tell whether one is missing."""

    def accuracy(correct: list[bool]) -> float:
        return scoring.private_accuracy(correct, size=10, noise_multiplier=1.0)

    assert accuracy([True] * 10) == 1.0
    assert accuracy([True] * 9) == 0.95
    assert accuracy([]) == 0.5


@pytest.mark.usefixtures("no_noise")
def test_without_noise_it_is_the_mean_of_the_clamped_values() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=500)
    found = scoring.private_mean(values, lower=-1, upper=0.5, size=500, noise_multiplier=1.0)
    assert found == pytest.approx(np.clip(values, -1, 0.5).mean(), abs=1e-6)
    nan = [math.nan] * 4
    kwargs = {"lower": 0.0, "upper": 9.0, "size": 4, "noise_multiplier": 1.0}
    assert scoring.private_mean(nan, **kwargs) == 0.0
    assert scoring.private_mean(nan, **kwargs, nan_as="upper") == 9.0


def test_the_noise_asked_of_opendp_is_relative_to_one_contribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, float]] = []

    def listen(total: int, scale: float) -> int:
        asked.append((total, scale))
        return total

    monkeypatch.setattr(scoring, "with_noise", listen)
    scoring.private_accuracy([True, False, True], size=3, noise_multiplier=2.5)
    ((total, scale),) = asked
    assert scale == 2.5 * total  # one more right than wrong: the sum is one contribution


def test_the_event_is_read_under_the_studys_relation() -> None:
    """Replacing moves the sum by two contributions: as much as half the noise when adding."""
    event = scoring.score_event(8.0)
    replace = odp.Guarantee(event, "replace_one").epsilon(1e-5)
    assert replace == pytest.approx(odp.Guarantee(odp.gaussian(4.0)).epsilon(1e-5), rel=1e-6)
    assert odp.Guarantee(event).epsilon(1e-5) < replace


@pytest.mark.parametrize("noise", [0.1, pytest.param(1.0, marks=pytest.mark.slow)])
def test_the_noise_on_whole_numbers_costs_what_the_event_says(noise: float) -> None:
    """The profile of a discrete Gaussian, summed exactly, against the continuous one's."""
    shift = scoring.UNITS
    scale = noise * shift
    k = np.arange(-int(9 * scale), int(9 * scale) + shift, dtype=np.float64)
    log_p = -0.5 * ((k - shift) / scale) ** 2 - math.log(scale * math.sqrt(2 * math.pi))
    loss = shift * (2 * k - shift) / (2 * scale**2)
    for epsilon in (0.5, 3.0) if noise == 1.0 else (40.0, 60.0):
        above = loss > epsilon
        discrete = float(np.sum(np.exp(log_p[above]) * -np.expm1(epsilon - loss[above])))
        mu = 1 / noise
        upper = stats.norm.sf(epsilon / mu - mu / 2)
        continuous = upper - math.exp(epsilon) * stats.norm.sf(epsilon / mu + mu / 2)
        assert discrete == pytest.approx(continuous, rel=1e-8)


@pytest.mark.promise("noise")
def test_nothing_depends_on_numpys_generator() -> None:
    found = set()
    for _ in range(3):
        np.random.seed(0)
        found.add(scoring.private_accuracy([True] * 9, size=9, noise_multiplier=30.0))
    assert len(found) == 3


@pytest.mark.parametrize(
    ("argument", "kwargs"),
    [
        ("size", {"size": 0}),
        ("size", {"size": 2.5}),
        ("size", {"size": 1 << 50}),
        ("noise_multiplier", {"noise_multiplier": 0.0}),
        ("noise_multiplier", {"noise_multiplier": 1e-9}),
        ("noise_multiplier", {"noise_multiplier": math.nan}),
        ("lower", {"lower": math.nan}),
        ("upper", {"upper": 0.0}),
        ("upper", {"upper": math.inf}),
        ("nan_as", {"nan_as": "mean"}),
        ("values", {"values": [[1.0]]}),
        ("values", {"values": ["a"]}),
    ],
)
def test_bad_arguments(argument: str, kwargs: dict[str, object]) -> None:
    good: dict[str, object] = {
        "values": [0.5],
        "lower": 0.0,
        "upper": 1.0,
        "size": 1,
        "noise_multiplier": 1.0,
    }
    with pytest.raises(InvalidArgumentError) as caught:
        scoring.private_mean(**{**good, **kwargs})  # type: ignore[arg-type]
    assert caught.value.argument == argument


def test_an_accuracy_takes_truth_values_only() -> None:
    with refuses("correct"):
        scoring.private_accuracy([0.9, 0.8], size=2, noise_multiplier=1.0)


def test_a_large_sum_does_not_overflow() -> None:
    values = np.ones(5000)
    found = scoring.private_mean(values, lower=0, upper=1, size=5000, noise_multiplier=1.0)
    assert found == pytest.approx(1.0, abs=1e-2)
