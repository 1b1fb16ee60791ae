"""The hyperparameters that earlier trials share, kept from proposal to proposal."""

import copy
import pickle

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.search_space import intersection_search_space
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.priors.history import SharedSpace

CHOICES = {
    "a": [FloatDistribution(0.0, 1.0)] * 9 + [FloatDistribution(0.0, 2.0)],
    "b": [CategoricalDistribution(("x", "y"))],
    "c": [FloatDistribution(0.1, 1.0)],
}


def trials(rng: np.random.Generator, count: int) -> list[FrozenTrial]:
    """Trials of which most have all hyperparameters, and some have failed."""
    found = []
    for number in range(count):
        space = {
            name: several[rng.integers(len(several))]
            for name, several in CHOICES.items()
            if name == "b" or rng.random() < 0.97
        }
        values = {name: "x" if name == "b" else 0.5 for name in space}
        failed = rng.random() < 0.2
        state = TrialState.FAIL if failed else TrialState.COMPLETE
        found.append(
            optuna.create_trial(
                state=state,
                value=None if failed else 1.0,
                params=values,
                distributions=space,
            )
        )
        found[-1].number = number
    return found


def test_it_is_what_optuna_computes_from_all_trials() -> None:
    rng = np.random.default_rng(0)
    sizes = set()
    for _ in range(50):
        shared, every = SharedSpace(), trials(rng, 30)
        for count in sorted(rng.integers(0, 31, size=10)):
            expected = intersection_search_space(every[:count])
            assert shared.of(every[:count]) == expected
            assert list(shared.of(every[:count])) == list(expected)
            sizes.add(len(expected))
    assert sizes == {0, 1, 2, 3}


def test_it_forgets_what_is_no_longer_so() -> None:
    rng = np.random.default_rng(1)
    shared = SharedSpace()
    for _ in range(20):
        every = trials(rng, 12)
        shared.of(every)
        assert shared.of(every[:3]) == intersection_search_space(every[:3])
        # Other trials in place of the first ones.
        other = trials(rng, 3) + every[3:]
        assert shared.of(other) == intersection_search_space(other)


def test_copies_and_pickles_are_empty_and_work() -> None:
    every = trials(np.random.default_rng(2), 5)
    shared = SharedSpace()
    shared.of(every)
    for twin in (copy.deepcopy(shared), pickle.loads(pickle.dumps(shared))):
        assert twin.of(every[:1]) == intersection_search_space(every[:1])
