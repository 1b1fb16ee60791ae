"""What has to hold of a study, however it came about."""

from __future__ import annotations

import math
from typing import Any

import optuna
from optuna.trial import TrialState
from scipy.optimize import brentq
from scipy.stats import norm

import optuna_dp as odp
from optuna_dp.evidence.reading import read_evidence
from optuna_dp.samplers.budget.settings import PROCEDURE, BudgetSettings
from optuna_dp.study.entries import BEYOND, SLOT
from optuna_dp.study.trials import read_plan


def plan_of(study: optuna.Study):
    plan = read_plan(study)
    return plan


def check_exactly_t(study: optuna.Study, executed: list[int], *, crashes: bool = False) -> int:
    """Exactly T slots, one plan, no run lost and none repeated; returns T.

    Args:
        study: The study.
        executed: Numbers of all runs that any worker made.
        crashes: Whether slots may have been lost with their workers.
    """
    evidence = read_evidence(study)  # Refuses wherever a release would be refused.
    if evidence.plan.design.procedure == PROCEDURE:
        return check_budget(study, evidence, executed, crashes=crashes)
    slots = evidence.plan.slots
    trials = study.get_trials(deepcopy=False)
    assert [t.number for t in trials] == list(range(len(trials)))
    assert len(executed) == len(set(executed)), "a run took place twice"
    assert set(executed) <= set(range(slots)), "a run took place beyond the last slot"
    completed = {t.number for t in trials if t.state == TrialState.COMPLETE}
    assert completed <= set(executed)
    for trial in trials:
        if trial.number >= slots:
            assert not trial.params
    if not crashes:
        assert completed == set(executed) == set(range(slots))
        nonces = {t.system_attrs[SLOT.key]["nonce"] for t in trials if t.number < slots}
        assert nonces <= {evidence.plan.nonce}
        assert all(BEYOND.key in t.system_attrs for t in trials if t.number >= slots)
        ties = [t.system_attrs[SLOT.key]["tie_break"] for t in trials[:slots]]
        draws = [t.params["x"] for t in trials[:slots]]
        assert len(set(ties)) == len(set(draws)) == slots, "two workers drew the same"
    return slots


def check_budget(study: optuna.Study, evidence: Any, executed: list[int], *, crashes: bool) -> int:
    """Every run that began is charged for, none twice; returns how many were to take place."""
    settings = BudgetSettings.of(evidence.plan.design)
    pilots, numbers = settings.pilots, [run.trial.number for run in evidence.runs]
    assert len(executed) == len(set(executed)), "a run took place twice"
    assert set(executed) <= set(numbers), "a run took place that is not charged for"
    last = [number for number in numbers if number >= pilots]
    assert 1 <= len(last) <= settings.paid
    states = {t.number: t.state for t in study.get_trials(deepcopy=False)}
    assert all(states[number] == TrialState.FAIL for number in last[:-1])
    if not crashes:
        assert sorted(executed) == numbers == list(range(pilots + 1))
    return pilots + len(last)


def release_of(study: optuna.Study) -> odp.Release:
    """The release, with a word for runs whose cost was stated as an event."""
    plan = plan_of(study)
    assert plan is not None
    if plan.design.procedure == PROCEDURE:
        return odp.release(study)
    return odp.release(study, failures="chance", vouched="a test")


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Balle & Wang (2018): the epsilon of one Gaussian of sensitivity mu and deviation 1."""

    def excess(e: float) -> float:
        return norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta

    return brentq(excess, 0.0, 100.0)


def check_charged(release: odp.Release, started: list[float]) -> None:
    """A release charges for no less than objectives were given: so many Gaussians of noise."""
    spent = sum(1 / noise**2 for noise in started) ** 0.5
    assert release.guarantee.epsilon(1e-5) >= gaussian_epsilon(spent, 1e-5) * (1 - 1e-9)
