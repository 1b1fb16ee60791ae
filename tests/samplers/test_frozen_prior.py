"""The barrier, and the frozen prior that all selection runs are drawn from."""

from __future__ import annotations

import copy
import itertools
import json
import math
import threading
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState
from pilot_support import PILOT, Nearest, X, pilot_sampler
from support import RUN, exactly, objective, study_of

import optuna_dp as odp
from optuna_dp.models.scores import RunOutcome
from optuna_dp.private_selection.densities.frozen_prior import FrozenPrior, FrozenPriorSettings
from optuna_dp.errors import (
    ReleaseRefusedError,
    WaitError,
)
from optuna_dp.protocol.pilot_keys import FROZEN_KEY, PILOT_KEY
from optuna_dp.protocol.records import DRAW_KEY, trial_id_of

# The barrier and the frozen prior.


def test_nobody_draws_from_the_prior_before_all_pilots_have_ended() -> None:
    study = study_of(pilot_sampler(X, pilots=4, pilot_batch_size=4, trials=exactly(8)))
    ended_then: dict[int, int] = {}
    all_run = threading.Barrier(4)
    too_early = threading.Event()

    def watches(trial: optuna.Trial) -> float:
        value = objective(trial)
        if odp.is_pilot(trial):
            all_run.wait()
            if trial.number == 3:
                # The others are free to draw; who does would end this wait.
                too_early.wait(timeout=0.2)
            return value
        too_early.set()
        trials = study._storage.get_all_trials(study._study_id, deepcopy=False)
        ended_then[trial.number] = sum(t.state.is_finished() for t in trials[:4])
        return value

    study.optimize(watches, n_jobs=4)
    assert ended_then == dict.fromkeys(range(4, 12), 4)


def test_waiting_for_a_run_of_ones_own_thread_is_an_error_that_can_be_mended() -> None:
    study = study_of(pilot_sampler(X, pilots=1))
    pilot = study.ask()
    later = study.ask()
    with pytest.raises(WaitError, match="PilotSampler"):
        objective(later)
    study.tell(pilot, objective(pilot))
    study.tell(later, objective(later))
    study.optimize(objective)
    odp.release(study, RUN)


def test_a_worker_that_gives_up_makes_the_study_impossible_to_release() -> None:
    study = study_of(pilot_sampler(X, pilots=1, trials=exactly(2), timeout=0.05))
    pilot = study.ask()
    thread = threading.Thread(
        target=lambda: study.optimize(objective, n_trials=1, catch=(WaitError,))
    )
    thread.start()
    thread.join()
    assert study.trials[1].state == TrialState.FAIL
    study.tell(pilot, objective(pilot))
    study.optimize(objective)
    with pytest.raises(ReleaseRefusedError, match="gave up") as caught:
        odp.release(study, RUN)
    assert caught.value.trial_number == 1


PILOT_OUTPUTS = [RunOutcome({"k": "a"}, 1.0), RunOutcome({"k": "b"}, 0.0), RunOutcome({}, None)]
K: dict[str, Any] = {"k": CategoricalDistribution(["a", "b", "c"])}


def test_the_law_of_the_frozen_prior_is_the_one_described() -> None:
    """Every draw, the first of a set or a later one, has the law worked out by enumeration."""
    share, sharpness, n = 0.2, 0.8, 3
    prior = FrozenPrior(FrozenPriorSettings(sharpness, share, n, Nearest()), PILOT_OUTPUTS, K)
    y = np.array([1.0, 0.0, 0.0])
    z = (y - y.mean()) / y.std()
    # A pilot that recorded no parameters lies in the middle of everything: only a, b are known.
    weight = np.exp(sharpness * Nearest().fit(_codes("ab?"), z).predict(_codes("abc"))[0])
    expected = np.zeros(3)
    for pool in itertools.product(range(3), repeat=n):
        for i in pool:
            expected[i] += weight[i] / sum(weight[j] for j in pool) / 3**n
    expected = share / 3 + (1 - share) * expected
    rng = np.random.default_rng(5)
    sets = 6000
    draws = np.stack([prior.sample(K, 3, rng).columns["k"] for _ in range(sets)])
    for position in range(3):
        found = np.bincount(draws[:, position].astype(int), minlength=3) / sets
        assert np.all(np.abs(found - expected) < 4.5 * np.sqrt(expected / sets))
    assert expected[0] > 0.45
    # Draws of one call are independent here: each has candidates of its own.
    both = np.mean((draws[:, 0] == 0) & (draws[:, 1] == 0))
    assert abs(both - expected[0] ** 2) < 0.03


def _codes(letters: str) -> Any:
    rows = [[1.0 / 3] * 3 if c == "?" else [float(c == k) for k in "abc"] for c in letters]
    return np.array(rows) * math.sqrt(0.5)


def test_flat_is_the_uniform_prior_and_greedy_is_greedy() -> None:
    rng = np.random.default_rng(1)
    flat = FrozenPrior(FrozenPriorSettings(0.0, 0.0, 8, Nearest()), PILOT_OUTPUTS, K)
    counts = np.bincount(flat.sample(K, 3000, rng).columns["k"].astype(int))
    assert np.all(np.abs(counts - 1000) < 130)
    greedy = FrozenPrior(FrozenPriorSettings(1e9, 0.0, 64, Nearest()), PILOT_OUTPUTS, K)
    assert set(greedy.sample(K, 300, rng).columns["k"]) == {0.0}
    turned = FrozenPrior(
        FrozenPriorSettings(1e9, 0.0, 64, Nearest()), PILOT_OUTPUTS, K, "minimize"
    )
    assert 0.0 not in set(turned.sample(K, 300, rng).columns["k"])


@pytest.mark.parametrize("scores", [[None] * 3, [1.0] * 3, [math.inf, -math.inf, 0.0]])
def test_odd_outputs_give_a_prior_all_the_same(scores: list[float | None]) -> None:
    pilots = [RunOutcome({"k": k}, score) for k, score in zip("abc", scores, strict=True)]
    for model in (Nearest(), FrozenPriorSettings().surrogate):
        prior = FrozenPrior(FrozenPriorSettings(5.0, 0.1, 16, model), pilots, K)
        assert len(prior.sample(K, 50, np.random.default_rng(0))) == 50
        json.dumps(prior.probes(), allow_nan=False)


def test_selection_runs_follow_the_pilots() -> None:
    """The mean distance is 0.053 with a standard deviation of 0.008 (60 studies)."""
    study = study_of(
        odp.PilotSampler(
            X, pilots=12, pilot_run=PILOT, trials=exactly(30), sharpness=50.0, uniform_share=0.0
        )
    )
    study.optimize(objective)
    assert np.mean([abs(t.params["x"] - 0.3) for t in study.trials[12:]]) < 0.25
    assert len({t.system_attrs[FROZEN_KEY] for t in study.trials[12:]}) == 1


def test_adapting_within_bounds_of_the_frozen_prior() -> None:
    study = study_of(pilot_sampler(X, trials=exactly(40), density_bounds=(0.75, 2.0)))
    study.optimize(objective)
    ratios = [t.system_attrs[DRAW_KEY]["density_ratio"] for t in study.trials[3:]]
    assert ratios[0] == 1.0
    assert all(0.75 <= ratio <= 2.0 for ratio in ratios)
    assert max(ratios) > 1.0
    event = odp.release(study, RUN).guarantee.event
    assert event.events[-1].density_bounds == (0.75, 2.0)
    assert event.events[-1].policy == "history"


# A prior that moves is refused.


def _refits(lies: bool) -> type[odp.PilotSampler]:
    """A variant that fits the prior to the selection runs as well, and may hide it."""

    class PilotSampler(odp.PilotSampler):
        def _ended(self, study: Any, number: int, before: int) -> Any:
            known = super()._ended(study, number, before)
            return super()._ended(study, number, number) if before == self._pilots else known

        def _space_of(self, study: Any, plan: Any, number: int) -> Any:
            space = super()._space_of(study, plan, number)
            if lies and number >= self._pilots:
                honest = odp.PilotSampler._ended(self, study, number, self._pilots)
                from optuna_dp.samplers.pilot_settings import outputs_digest

                study._storage.set_trial_system_attr(
                    trial_id_of(study, number), FROZEN_KEY, outputs_digest(honest)
                )
            return space

    return PilotSampler


@pytest.mark.parametrize("lies", [False, True])
def test_a_prior_that_is_refitted_between_selection_runs_is_refused(lies: bool) -> None:
    variant = _refits(lies)(
        X, pilots=3, pilot_run=PILOT, trials=exactly(6), candidates=32, sharpness=50.0
    )
    study = study_of(variant)
    study.optimize(objective)
    before = copy.deepcopy([t.__dict__ for t in study.trials])
    with pytest.raises(ReleaseRefusedError, match="not frozen") as caught:
        odp.release(study, RUN)
    assert caught.value.trial_number == 4
    assert [t.__dict__ for t in study.trials] == before


def test_pilots_that_were_changed_afterwards_are_noticed() -> None:
    study = study_of(pilot_sampler(X))
    study.optimize(objective)
    study._storage._get_trial(study.trials[1]._trial_id).values = [5.0]  # type: ignore[attr-defined]
    with pytest.raises(ReleaseRefusedError, match="not frozen"):
        odp.release(study, RUN)


def test_a_pilot_mark_that_is_not_the_plans_is_noticed() -> None:
    study = study_of(pilot_sampler(X))
    study.optimize(objective)
    trial = study._storage._get_trial(study.trials[5]._trial_id)  # type: ignore[attr-defined]
    trial.system_attrs[PILOT_KEY] = True
    with pytest.raises(ReleaseRefusedError, match="pilot"):
        odp.release(study, RUN)
