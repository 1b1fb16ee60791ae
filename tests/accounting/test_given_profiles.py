"""Runs given by a profile or a PLD: never below the truth, and exact in JSON.

Mechanisms with a handful of outputs are judged through each input and compared with their exact
hockey sticks, in both directions, alone and as the runs of a selection. The same comparison must
catch every variant of an input that is wrong in a way that is easily made.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from dp_accounting.pld import privacy_loss_distribution as plds
from scipy.stats import norm
from selection.bounds.discrete_runs import random_laws

import optuna_dp as odp
from optuna_dp.accounting.kinds.profile import MOST_POINTS, ProfileDpEvent
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.errors import InvalidArgumentError

INSTANCES = int(os.environ.get("GIVEN_PROFILE_INSTANCES", "20"))
DELTA = 1e-5
AT = np.array([-2.0, -0.4, 0.0, 0.05, 0.2, 0.5, 0.9, 1.4, 2.0, 3.0, 5.0, 12.0])
LAWS: list[odp.TrialCount] = [
    odp.Geometric(3.0),
    odp.Logarithmic(4.0),
    odp.Poisson(2.0),
    odp.Binomial(4, 2.0),
    odp.NegativeBinomial(shape=2.0, mean=5.0).capped(6),
]
Laws = tuple[np.ndarray, np.ndarray]
Input = Callable[[np.random.Generator, np.ndarray, np.ndarray], Any]


def stick(on: np.ndarray, off: np.ndarray, epsilons: np.ndarray) -> np.ndarray:
    return np.maximum(on - np.exp(epsilons)[:, None] * off, 0.0).sum(axis=1)


def winner(law: np.ndarray, order: np.ndarray, trials: odp.TrialCount) -> np.ndarray:
    """The law of the best of T draws; its last entry is that of no run."""
    below = np.concatenate([[0.0], np.cumsum(law[order])]).clip(0.0, 1.0)
    return np.append(np.diff(trials.pgf(below)), trials.pmf(0))


# -- the inputs, and wrong ones ------------------------------------------------------------------


def points(rng: np.random.Generator, on: np.ndarray, off: np.ndarray) -> tuple[Any, Any, Any]:
    at = np.unique(np.append(rng.exponential(1.0, rng.integers(1, 9)), rng.choice([0.0, 4.0])))
    return at, stick(on, off, at), stick(off, on, at)


def as_profile(rng: np.random.Generator, on: np.ndarray, off: np.ndarray) -> Any:
    at, forward, reverse = points(rng, on, off)
    if rng.random() < 0.3:
        return odp.from_profile(at, np.maximum(forward, reverse))
    return odp.from_profile(at, forward, reverse_deltas=reverse)


def pld_of(rng: np.random.Generator, on: np.ndarray, off: np.ndarray, **options: Any) -> Any:
    laws = [{i: math.log(p) for i, p in enumerate(law) if p > 0.0} for law in (off, on)]
    interval = rng.choice([0.003, 0.05, 0.4])
    return plds.from_two_probability_mass_functions(
        *laws, value_discretization_interval=interval, **{"symmetric": False, **options}
    )


def as_pld(rng: np.random.Generator, on: np.ndarray, off: np.ndarray) -> Any:
    return odp.from_pld(pld_of(rng, on, off))


def joined_in_epsilon(rng: np.random.Generator, on: np.ndarray, off: np.ndarray) -> Any:
    """Chords in epsilon instead of e^epsilon."""
    at, forward, reverse = points(rng, on, off)
    dense = np.linspace(at[0], at[-1], 60)
    pair = [np.interp(dense, at, side) for side in (forward, reverse)]
    return unchecked(dense if dense[-1] > dense[0] else at[:1], pair)


def nothing_beyond(rng: np.random.Generator, on: np.ndarray, off: np.ndarray) -> Any:
    """Zero after the last point."""
    at, *sides = points(rng, on, off)
    return unchecked(np.append(at, at[-1] + 0.1), [np.append(side, 0.0) for side in sides])


def one_direction(rng: np.random.Generator, on: np.ndarray, off: np.ndarray) -> Any:
    at, forward, _ = points(rng, on, off)
    return odp.from_profile(at, forward)


def optimistic(rng: np.random.Generator, on: np.ndarray, off: np.ndarray) -> Any:
    pld = pld_of(rng, on, off, pessimistic_estimate=False)
    for side in (pld._pmf_remove, pld._pmf_add):
        side._pessimistic_estimate = True
    return odp.from_pld(pld)


def one_sided_pld(rng: np.random.Generator, on: np.ndarray, off: np.ndarray) -> Any:
    """dp-accounting's default: the loss of one direction, taken for both."""
    return odp.from_pld(pld_of(rng, on, off, symmetric=True))


def unchecked(at: np.ndarray, sides: list[np.ndarray]) -> Any:
    """What was made wrongly is made convex, so that no refusal hides it."""
    t = np.exp(at)
    hulls = []
    for side in sides:
        y = side.copy()
        for i in range(1, y.size - 1):
            left, right = (t[i] - t[:i])[:, None], t[i + 1 :] - t[i]
            chords = (y[:i, None] * right + side[i + 1 :] * left) / (left + right)
            y[i] = min(y[i], chords.min())
        hulls.append(np.minimum.accumulate(y))
    return odp.from_profile(at, hulls[0], reverse_deltas=hulls[1])


def shortfall(make: Input, seed: int, *, of_selections: bool) -> float:
    """By how much what is claimed lies below the truth, at most; random instance ``seed``."""
    rng = np.random.default_rng([33, seed])
    on, off = random_laws(rng, int(rng.integers(2, 6)))
    event = make(rng, on, off)
    if not of_selections:
        pair = pair_of(event)
        truths = [stick(on, off, AT), stick(off, on, AT)]
        claims = [pair.delta(AT), pair.reversed().delta(AT)]
        return float(np.max(np.array(truths) - np.array(claims)))
    trials = LAWS[seed % len(LAWS)]
    order = rng.permutation(on.size)
    best = [winner(law, order, trials) for law in (on, off)]
    epsilons = AT[AT >= 0.0]
    truth = np.maximum(stick(*best, epsilons), stick(*best[::-1], epsilons))
    guarantee = odp.selection_guarantee(event, trials)
    return float(np.max(truth - [guarantee.delta(e) for e in epsilons]))


@pytest.mark.promise("given-curves")
@pytest.mark.slow
@pytest.mark.parametrize("make", [as_profile, as_pld])
def test_no_profile_is_below_the_truth(make: Input) -> None:
    for seed in range(12):
        assert shortfall(make, seed, of_selections=False) <= 1e-12, seed


@pytest.mark.slow
@pytest.mark.parametrize("make", [as_profile, as_pld])
def test_no_selection_is_below_the_truth(make: Input) -> None:
    """GIVEN_PROFILE_INSTANCES=1000 was run for each input."""
    for seed in range(INSTANCES):
        assert shortfall(make, seed, of_selections=False) <= 1e-12, seed
        assert shortfall(make, seed, of_selections=True) <= 1e-12, seed


@pytest.mark.parametrize(
    "wrong",
    [
        *(joined_in_epsilon, nothing_beyond, one_direction),
        *(optimistic, one_sided_pld),
    ],
)
def test_a_wrong_input_is_caught(wrong: Input) -> None:
    assert max(shortfall(wrong, seed, of_selections=False) for seed in range(8)) > 1e-6


# -- how close, and what becomes of them ---------------------------------------------------------


@pytest.mark.slow
def test_a_pld_is_as_good_as_the_event_it_was_made_of() -> None:
    step = plds.from_gaussian_mechanism(1.0, sampling_prob=0.02)
    given = odp.from_pld(step.self_compose(300))
    event = odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.02, steps=300)
    for wrap in (odp.Guarantee, lambda run: odp.selection_guarantee(run, odp.Geometric(10))):
        assert wrap(given).epsilon(DELTA) == pytest.approx(wrap(event).epsilon(DELTA), rel=2e-3)
    several = [odp.Guarantee(odp.compose(run, run, odp.gaussian(8.0))) for run in (given, event)]
    assert several[0].epsilon(DELTA) == pytest.approx(several[1].epsilon(DELTA), rel=3e-3)


def test_many_points_are_thinned_to_what_a_record_holds() -> None:
    at = np.linspace(0.0, 3.0, 20_000)
    whole = odp.from_profile(at, norm.cdf(0.125 - at * 4) - np.exp(at) * norm.cdf(-0.125 - at * 4))
    assert len(whole.epsilons) <= MOST_POINTS
    assert len(json.dumps(odp.Guarantee(whole).to_json())) < 40_000
    truth = odp.Guarantee(odp.gaussian(4.0)).epsilon(DELTA)
    assert truth <= odp.Guarantee(whole).epsilon(DELTA) <= 1.001 * truth


def test_a_profile_that_ends_in_zero_is_pure() -> None:
    event = odp.from_profile([0.0, 1.0, 2.0], [0.6, 0.0, 0.0])
    assert odp.Guarantee(event).epsilon(1e-300) == 1.0
    assert odp.selection_guarantee(event, odp.Geometric(5)).epsilon(1e-300) <= 3.0
    for sides in (([0.6, 0.1], [0.6, 0.0]), ([0.6, 0.0], [0.6, 0.1])):
        half = odp.from_profile([0.0, 1.0], sides[0], reverse_deltas=sides[1])
        assert odp.Guarantee(half).epsilon(0.05) == math.inf


def test_a_profile_that_never_falls_below_one_is_not_private() -> None:
    guarantee = odp.Guarantee(odp.compose(odp.from_profile([0.0, 1.0], [1.0, 1.0])))
    assert guarantee.epsilon(0.5) == math.inf
    assert guarantee.reasons(0.5)["profile"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "event",
    [
        odp.from_profile([0.1, 1.0], [0.3, 1e-7], reverse_deltas=[0.2, 0.0]),
        odp.from_pld(plds.from_laplace_mechanism(2.0)),
    ],
    ids=["profile", "pld"],
)
def test_it_goes_through_a_study_a_release_its_file_and_verify(
    event: ProfileDpEvent, tmp_path: Any
) -> None:
    study = optuna.create_study(
        storage=f"sqlite:///{tmp_path / 'study.db'}",
        sampler=odp.RandTuneSampler(trials=odp.Geometric(3), run=event),
    )
    study.optimize(
        lambda trial: trial.suggest_float("x", 0.0, 1.0), callbacks=[odp.PrivacyCallback()]
    )
    release = odp.release(study, vouched="a test")
    (tmp_path / "release.json").write_text(json.dumps(release.to_json()))
    assert odp.verify(tmp_path / "release.json").ok
    again = odp.Guarantee.from_json(json.loads(json.dumps(release.guarantee.to_json())))
    assert again.event.run == event
    assert again.epsilon(0.3) == release.guarantee.epsilon(0.3)
    assert "a given privacy profile" in release.statement()


# -- refusals ------------------------------------------------------------------------------------


@pytest.mark.promise("given-curves")
@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: odp.from_profile([], []), "epsilons"),
        (lambda: odp.from_profile("012", [1, 1, 1]), "epsilons"),
        (lambda: odp.from_profile([0, math.nan], [0.1, 0.1]), "epsilons[1]"),
        (lambda: odp.from_profile([0, math.inf], [0.1, 0.1]), "epsilons[1]"),
        (lambda: odp.from_profile([-1, 0], [0.1, 0.1]), "epsilons[0]"),
        (lambda: odp.from_profile([0, 1, 1], [0.3, 0.2, 0.1]), "epsilons[2]"),
        (lambda: odp.from_profile([0, 1], [0.3]), "deltas"),
        (lambda: odp.from_profile([0, 1], [1.5, 0.1]), "deltas[0]"),
        (lambda: odp.from_profile([0, 1], [0.1, 0.2]), "deltas[1]"),
        (lambda: odp.from_profile([0, 1, 2], [0.5, 0.49, 0.0]), "deltas[1]"),
        (lambda: odp.from_profile([0, 1], [0.2, 0.1], reverse_deltas=[0.1]), "reverse_deltas"),
        (lambda: odp.from_pld("gaussian"), "pld"),
        (lambda: odp.from_pld(plds.identity(), applications=0), "applications"),
        (
            lambda: odp.from_pld(plds.from_laplace_mechanism(1.0, pessimistic_estimate=False)),
            "pld",
        ),
    ],
)
def test_what_is_no_such_curve_is_refused_by_name(make: Callable[[], Any], argument: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        make()
    assert caught.value.argument == argument
