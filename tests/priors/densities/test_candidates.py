"""The chosen point's density relative to the prior is within [c, C], whatever the policy.

The statistical checks compare the frequency of an event B of known prior probability with C times
that (for a policy that wants B) and with c times it (for one that avoids B), one-sided at 4.5
standard deviations (3 in a million by chance; seeds are fixed). With 6000 draws and a probability
of 0.1 they reject a bound exceeded by 30 %: ``test_the_check_rejects_wider_bounds``. In other
spaces half as many draws tell a policy that is bounded in another way: ``sabotage`` below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from optuna_dp.priors.around import around
from optuna_dp.priors.densities.adaptive_density import AdaptiveDensity, Proposal
from optuna_dp.priors.densities.informed import FixedCandidates
from optuna_dp.priors.prior import Candidates, Prior, UniformPrior
from optuna_dp.priors.scores import RunOutcome

C_LOW, C_HIGH = 0.75, 2.0
Event = Callable[[dict[str, np.ndarray]], np.ndarray]


class _Antidiagonal(Prior):
    """A prior of a user's own, whose parameters depend on each other."""

    def sample(self, space: Any, n: int, rng: np.random.Generator) -> Candidates:
        x = rng.random(n)
        return Candidates(space, {"x": x, "y": 1.0 - x}, n)


# name -> space, prior, event B on the internal columns, prior probability of B
CASES: dict[str, tuple[dict[str, BaseDistribution], Prior, Event, float]] = {
    "float": (
        {"lr": FloatDistribution(1e-4, 1.0, log=True)},
        UniformPrior(),
        lambda c: c["lr"] < 10**-3.6,
        0.1,
    ),
    "mixed": (
        {
            "x": FloatDistribution(0, 1, step=0.25),
            "n": IntDistribution(1, 4),
            "k": CategoricalDistribution(["a", "b"]),
        },
        UniformPrior(),
        lambda c: (c["x"] == 0.5) & (c["n"] < 3) & (c["k"] == 0),
        0.05,
    ),
    "categorical": (
        {"k": CategoricalDistribution(list("abcdefgh"))},
        UniformPrior(),
        lambda c: c["k"] == 3,
        0.125,
    ),
    "ten-dimensional": (
        {f"x{i}": FloatDistribution(0, 1) for i in range(10)},
        UniformPrior(),
        lambda c: sum(c.values()) < 5.0 - 1.2816 * math.sqrt(10 / 12),  # type: ignore[operator]
        0.1,
    ),
    "corner": (
        {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)},
        UniformPrior(),
        lambda c: (c["x"] < 0.1) & (c["y"] < 0.1),
        0.01,
    ),
    "guess": (
        {"x": FloatDistribution(1e-6, 1e6, log=True)},
        around({"x": 1.0}),
        lambda c: c["x"] < math.exp(-1.2816),
        0.1,
    ),
    "joint": (
        {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)},
        _Antidiagonal(),
        lambda c: c["y"] < 0.1,
        0.1,
    ),
}


class Adversary(AdaptiveDensity):
    """Weighs candidates as it is told to: by the history, the data or anything else."""

    def __init__(self, weigh: Any, **settings: Any) -> None:
        super().__init__(**settings)
        self.weigh = weigh

    def log_weights(self, history: Any, candidates: Candidates, sign: float) -> np.ndarray:
        return self.weigh(candidates)


def propose(
    prior: Prior,
    space: dict[str, BaseDistribution],
    n: int,
    weigh: Any,
    bounds: tuple[float, float],
    projection: Any,
    rng: np.random.Generator,
) -> Proposal:
    adversary = Adversary(weigh, bounds=bounds, prior=prior, projection=projection, candidates=n)
    return adversary.propose([RunOutcome({}, 0.0)], space, rng)


Draw = Callable[[dict[str, BaseDistribution], Prior, Any, np.random.Generator], Proposal]


def _honest(
    space: dict[str, BaseDistribution], prior: Prior, weigh: Any, rng: np.random.Generator
) -> Proposal:
    return propose(prior, space, 48, weigh, (C_LOW, C_HIGH), "kl", rng)


def _excess(name: str, sign: float, draw: Draw, n: int, seed: int) -> tuple[float, float]:
    """Deviates by which the bound is exceeded (positive: beyond it), and the density ratio."""
    space, prior, event, p = CASES[name]
    rng = np.random.default_rng(seed)

    def weigh(candidates: Candidates) -> np.ndarray:
        return np.where(event(candidates.columns), sign * 50.0, 0.0)

    hits = 0
    for _ in range(n):
        params = draw(space, prior, weigh, rng).params
        point = {k: np.array([space[k].to_internal_repr(v)]) for k, v in params.items()}
        hits += int(event(point)[0])
    bound = (C_HIGH if sign > 0 else C_LOW) * p
    deviates = sign * (hits - n * bound) / math.sqrt(n * bound * (1.0 - bound))
    return deviates, hits / n / p


def _check(name: str, n: int) -> None:
    wanted, ratio = _excess(name, 1.0, _honest, n, seed=1)
    assert wanted < 4.5
    # Not by being timid: the policy's wish is started nearly as far as is allowed.
    assert ratio > 0.85 * C_HIGH
    avoided, ratio = _excess(name, -1.0, _honest, n, seed=2)
    assert avoided < 4.5
    assert ratio < 1.2 * C_LOW


@pytest.mark.promise("bounds")
@pytest.mark.slow
def test_density_bounds_hold_for_an_adversarial_policy() -> None:
    _check("mixed", 2000)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name != "mixed"])
def test_density_bounds_hold_for_an_adversarial_policy_on_every_space(name: str) -> None:
    _check(name, 6000 if name == "float" else 3000)


def _wider(
    space: dict[str, BaseDistribution], prior: Prior, weigh: Any, rng: np.random.Generator
) -> Proposal:
    return propose(prior, space, 48, weigh, (C_LOW / 1.3, C_HIGH * 1.3), "kl", rng)


def _best_of_n(
    space: dict[str, BaseDistribution], prior: Prior, weigh: Any, rng: np.random.Generator
) -> Proposal:
    candidates = prior.sample(space, 48, rng)
    return Proposal(candidates.params(int(np.argmax(weigh(candidates)))), 1.0)


def _unbounded_softmax(
    space: dict[str, BaseDistribution], prior: Prior, weigh: Any, rng: np.random.Generator
) -> Proposal:
    candidates = prior.sample(space, 48, rng)
    p = np.exp(weigh(candidates) / 10.0)
    return Proposal(candidates.params(int(rng.choice(48, p=p / p.sum()))), 1.0)


def _parameter_by_parameter(
    space: dict[str, BaseDistribution], prior: Prior, weigh: Any, rng: np.random.Generator
) -> Proposal:
    # Each parameter within [c, C] of its own prior: C^2 for the trial.
    params: dict[str, Any] = {}
    for name, d in space.items():

        def low(candidates: Candidates, name: str = name) -> np.ndarray:
            return np.where(candidates.columns[name] < 0.1, 50.0, 0.0)

        params |= _honest({name: d}, prior, low, rng).params
    return Proposal(params, 1.0)


@pytest.mark.parametrize("draw", [_best_of_n, _unbounded_softmax])
def test_the_check_rejects_sabotage(draw: Draw) -> None:
    assert _excess("float", 1.0, draw, 3000, seed=3)[0] > 4.5


@pytest.mark.slow
def test_the_check_rejects_bounds_per_parameter() -> None:
    deviates, ratio = _excess("corner", 1.0, _parameter_by_parameter, 3000, seed=3)
    assert deviates > 4.5
    assert ratio == pytest.approx(C_HIGH**2, rel=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_the_check_rejects_wider_bounds(side: float) -> None:
    assert _excess("float", side, _wider, 6000, seed=3)[0] > 4.5


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 3.0, 10.0, 4.0]])
def test_fixed_set_draws_with_the_stated_probabilities(weights: list[float] | None) -> None:
    fixed = FixedCandidates([{"x": i} for i in range(5)], weights)
    space = {"x": IntDistribution(0, 4)}
    rng, n = np.random.default_rng(4), 20_000
    prior = fixed.masses / fixed.masses.sum()

    def weigh(candidates: Candidates) -> np.ndarray:
        return np.array([0.0, 0.0, 50.0, 0.0, 1.0])

    ratios = np.zeros(5)
    counts = np.zeros(5)
    for _ in range(n // 10):
        proposal = propose(fixed, space, 5, weigh, (C_LOW, C_HIGH), "kl", rng)
        counts[proposal.params["x"]] += 1
        ratios[proposal.params["x"]] = proposal.ratio
        assert C_LOW <= proposal.ratio <= C_HIGH
    expected = prior * ratios
    assert expected.sum() == pytest.approx(1.0, abs=1e-6)
    from scipy import stats

    assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-3


def test_one_candidate_is_the_prior() -> None:
    space = {"x": FloatDistribution(0, 1)}
    rng = np.random.default_rng(5)
    proposal = propose(UniformPrior(), space, 1, lambda c: np.array([-3.0]), (0.5, 2.0), "l2", rng)
    assert proposal.ratio == 1.0


def test_an_empty_space_is_no_problem() -> None:
    rng = np.random.default_rng(6)
    proposal = propose(UniformPrior(), {}, 5, lambda c: np.arange(5.0), (0.5, 2.0), "kl", rng)
    assert proposal.params == {}


def test_weights_of_the_wrong_length_are_refused() -> None:
    rng = np.random.default_rng(7)
    with pytest.raises(ValueError, match="weights"):
        propose(UniformPrior(), {}, 5, lambda c: np.zeros(3), (0.5, 2.0), "kl", rng)
