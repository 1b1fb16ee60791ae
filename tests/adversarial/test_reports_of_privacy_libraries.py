"""Reports of users of other privacy libraries, each as a test of its kind.

Each test names the report and the kind of its fault. A report is cited as OWNER/REPOSITORY#NUMBER.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import optuna
import pytest
from scipy.optimize import brentq
from scipy.stats import norm
from support import ask, study_of, tell

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError, PlanError

EVENTS = {
    "gaussian": odp.gaussian(3.0),
    "dp-sgd": odp.dp_sgd(noise_multiplier=2.0, sample_rate=0.01, steps=100),
    "laplace": odp.laplace(2.0),
    "zcdp": odp.zcdp(0.01),
    "pure": odp.pure_dp(0.3),
    "approximate": odp.approximate_dp(0.1, 1e-6),
    "renyi": odp.rdp([2.0, 8.0, 32.0], [0.02, 0.08, 0.4]),
}


def epsilon_of_gaussian(noise: float, delta: float) -> float:
    """Returns the exact epsilon of a Gaussian mechanism (Balle and Wang 2018, theorem 8)."""

    def excess(epsilon: float) -> float:
        tail = norm.logcdf(-0.5 / noise - epsilon * noise)
        return float(norm.cdf(0.5 / noise - epsilon * noise) - math.exp(epsilon + tail)) - delta

    return float(brentq(excess, 0.0, 10.0 / noise**2 + 100.0 / noise, xtol=1e-12))


@pytest.mark.parametrize("name", EVENTS)
def test_no_delta_makes_epsilon_negative_or_nan(name: str) -> None:
    """opendp/opendp#621, meta-pytorch/opacus#585 and #844: epsilon below 0 at large deltas."""
    guarantee = odp.Guarantee(EVENTS[name])
    epsilons = [guarantee.epsilon(delta) for delta in (1e-9, 1e-5, 0.1, 0.5, 0.9, 0.999)]
    assert all(epsilon >= 0.0 for epsilon in epsilons)
    assert epsilons == sorted(epsilons, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.2, 0.02, 0.0003])
def test_a_large_epsilon_is_a_number_and_no_error(noise: float) -> None:
    """meta-pytorch/opacus#601, #604 and #775: no epsilon above 10, or above 500."""
    exact = epsilon_of_gaussian(noise, 1e-5)
    assert exact > 30.0
    epsilon = odp.Guarantee(odp.gaussian(noise)).epsilon(1e-5)
    assert exact * (1.0 - 1e-9) <= epsilon <= 1.05 * exact


def test_an_order_near_one_makes_no_mechanism_free() -> None:
    """tensorflow/privacy#166: with an order of 1 + 1e-8, epsilon was 0."""
    noise = 20.0
    orders = [1.0 + 1e-8, *(1.0 + i / 10 for i in range(1, 100)), *range(12, 64)]
    curve = odp.rdp(orders, [order / (2.0 * noise**2) for order in orders])
    for delta in (1e-3, 1e-5):
        assert odp.Guarantee(curve).epsilon(delta) >= epsilon_of_gaussian(noise, delta) > 0.0


def test_a_tiny_delta_neither_makes_epsilon_fall_nor_jump() -> None:
    """microsoft/prv_accountant#17: from a delta of 1.1e-18 to 1.13e-18 epsilon went 0.056 to 3.8.

    Renyi accounting gives 0.669 there, which is an upper bound.
    """
    event = odp.dp_sgd(noise_multiplier=4.0, sample_rate=0.00033, steps=10_000)
    guarantee = odp.Guarantee(event)
    deltas = (1.13e-18, 1.1e-18)
    at_large_delta = guarantee.epsilon(1e-9)
    low, high = (guarantee.epsilon(delta) for delta in deltas)
    assert at_large_delta <= low <= high <= 1.01 * low
    assert high <= 0.67


@pytest.mark.slow
@pytest.mark.parametrize("target", [0.05, 0.31, 1.0, 3.7, 20.0])
def test_no_search_for_a_noise_ends_above_its_target(target: float) -> None:
    """meta-pytorch/opacus#346: a bisection returned a noise of a larger epsilon than asked for."""
    plan = odp.plan_budget(
        epsilon=target,
        delta=1e-5,
        run=lambda noise, steps: odp.gaussian(noise),
        steps=1,
        pilots=3,
        score=None,
    )
    assert plan.guarantee.epsilon(1e-5) <= target
    spent = odp.compose(*(plan.run_at(i).event for i in range(4)))
    exact = sum(plan.run_at(i).noise_multiplier ** -2 for i in range(4)) ** -0.5
    assert epsilon_of_gaussian(exact, 1e-5) <= target * (1.0 + 1e-9)
    assert odp.Guarantee(spent).epsilon(1e-5) <= target * (1.0 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_a_target_that_is_no_budget_is_refused(epsilon: float) -> None:
    """NVIDIA-NeMo/Safe-Synthesizer#367: a target of 0 became infinity, which is no guard."""
    with pytest.raises(InvalidArgumentError):
        odp.plan_budget(epsilon=epsilon, records=1000, batch_size=100, epochs=1)


def test_all_records_in_each_batch_are_accounted_for_and_more_than_all_refused() -> None:
    """meta-pytorch/opacus#74: a sampling rate of 1 is log(0), and rates above 1 went through."""
    whole = odp.dp_sgd(noise_multiplier=10.0, sample_rate=1.0, steps=25)
    exact = epsilon_of_gaussian(2.0, 1e-5)  # 25 answers of noise 10 are one of noise 2
    assert exact * (1.0 - 1e-9) <= odp.Guarantee(whole).epsilon(1e-5) <= 1.01 * exact
    with pytest.raises(InvalidArgumentError):
        odp.dp_sgd(noise_multiplier=10.0, sample_rate=1.2, steps=25)


def test_noise_is_relative_to_what_a_record_moves_in_the_stated_relation() -> None:
    """tensorflow/privacy#104: is the noise relative to the clipping norm or to twice it?

    Replacing a record moves a sum by two clipping norms, so it costs what half the noise costs.
    """
    for delta in (1e-3, 1e-6):
        replaced = odp.Guarantee(odp.gaussian(4.0), "replace_one").epsilon(delta)
        exact = epsilon_of_gaussian(2.0, delta)
        assert exact * (1.0 - 1e-9) <= replaced <= 1.01 * exact


def test_reading_an_epsilon_changes_nothing() -> None:
    """meta-pytorch/opacus#535: reading epsilon took a step out of an accountant's history."""
    accountants = pytest.importorskip("opacus.accountants")
    accountant = accountants.RDPAccountant()
    for _ in range(20):
        accountant.step(noise_multiplier=1.5, sample_rate=0.01)
    history = list(accountant.history)
    plan = training_plan(steps=20)
    for _ in range(2):
        assert handed_in(plan, accountant) is None
    assert accountant.history == history
    guarantee = odp.Guarantee(plan.final.event)
    assert guarantee.epsilon(1e-5) == guarantee.epsilon(1e-5)


def training_plan(steps: int) -> odp.BudgetPlan:
    """A plan of one training of so many steps, at a sampling rate of 0.01 and a noise of 1.5."""

    def event(noise: float, steps: int) -> object:
        return odp.dp_sgd(noise_multiplier=1.5 * noise, sample_rate=0.01, steps=steps)

    largest = odp.Guarantee(event(1.0, steps)).epsilon(1e-5)
    return odp.plan_budget(
        epsilon=largest * (1.0 + 1e-3), delta=1e-5, run=event, steps=steps, pilots=0, score=None
    )


def handed_in(plan: odp.BudgetPlan, spent: object) -> str | None:
    """Returns why ``run.spent`` refuses what a training spent; None if it takes it."""
    study = study_of(odp.BudgetSampler(plan))
    run = odp.start_run(study.ask())
    try:
        run.spent(spent)
    except PlanError as error:
        return str(error)
    return None


@pytest.mark.filterwarnings("ignore:GDP accounting is experimental")
@pytest.mark.parametrize("kind", ["RDPAccountant", "PRVAccountant", "GaussianAccountant"])
def test_an_accountant_of_opacus_is_read_step_by_step(kind: str) -> None:
    """meta-pytorch/opacus#834: an accountant said to have taken 1 step after 100.

    And opendp/smartnoise-sdk#424: a budget that was looked at one step too late.
    """
    accountants = pytest.importorskip("opacus.accountants")
    plan = training_plan(steps=100)
    accountant = getattr(accountants, kind)()
    for _ in range(100):
        accountant.step(noise_multiplier=1.5, sample_rate=0.01)
    assert len(accountant.history) == 1
    assert handed_in(plan, accountant) is None
    accountant.step(noise_multiplier=1.5, sample_rate=0.01)
    assert handed_in(plan, accountant) is not None


@pytest.mark.slow
def test_a_batch_in_pieces_is_judged_by_its_whole_size() -> None:
    """google-deepmind/jax_privacy#271: noise was validated at the rate of one piece of a batch.

    Eight pieces of a hundredth are a rate of 0.08, also where the number of steps is an eighth.
    """
    plan = training_plan(steps=80)
    pieces = odp.dp_sgd(noise_multiplier=1.5, sample_rate=0.01, steps=80)
    whole = odp.dp_sgd(noise_multiplier=1.5, sample_rate=0.08, steps=10)
    assert handed_in(plan, pieces) is None
    assert handed_in(plan, whole) is not None


def test_a_training_whose_batches_are_mostly_empty_takes_all_its_steps() -> None:
    """meta-pytorch/opacus#161, #522 and #612: a batch that is empty by chance ends the training.

    VectorInstitute/FL4Health#114 skips such batches: then the steps show that a record is absent.
    """
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(40, 3)), rng.integers(0, 2, 40)
    plan = odp.plan_budget(epsilon=3.0, delta=1e-5, records=40, batch_size=1, epochs=2, pilots=0)
    chance_of_none_empty = (1.0 - (1.0 - 1.0 / 40) ** 40) ** plan.final.steps
    assert chance_of_none_empty < 1e-9

    def objective(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        learner = odp.SoftmaxRegression(3, 2)
        score: float = odp.train(run, learner, (x, y), score="accuracy").score
        return score

    study = study_of(odp.BudgetSampler(plan))
    study.optimize(objective)
    release = odp.release(study)
    assert release.value is not None


def test_scores_lie_on_a_grid_that_no_record_moves() -> None:
    """opendp/opendp#182, #345 and #414: gaps of floating-point noise tell what it was added to."""
    unit = 2.0**-20
    for values in ([0.1, 0.2, 0.3], [1e-300, 1.0, 0.5], [1 / 3, math.pi / 4, 0.7]):
        for _ in range(20):
            score = odp.scoring.private_mean(
                values, lower=0.0, upper=1.0, size=4, noise_multiplier=1.0
            )
            units = (score - 0.5) / 0.5 / unit * 4
            assert units == round(units)


@pytest.mark.slow
def test_the_noise_of_scores_has_the_stated_mean_and_variance() -> None:
    """opendp/opendp#2638: a division of rational numbers was wrong, and samplers were biased.

    Each bound is exceeded by chance less than once in a million.
    """
    tries, noise = 4000, 8.0
    scores = np.array(
        [
            odp.scoring.private_mean([], lower=-1.0, upper=1.0, size=1, noise_multiplier=noise)
            for _ in range(tries)
        ]
    )
    assert abs(scores.mean()) <= 5.0 * noise / math.sqrt(tries)
    assert abs(scores.var() / noise**2 - 1.0) <= 5.0 * math.sqrt(2.0 / tries)
    for deviations in (-2.0, -1.0, 0.0, 1.0, 2.0):
        share, likely = (scores <= deviations * noise).mean(), norm.cdf(deviations)
        assert abs(share - likely) <= 5.0 * math.sqrt(likely * (1.0 - likely) / tries)


@pytest.mark.slow
def test_a_study_that_goes_on_from_its_storage_is_charged_from_the_start(tmp_path: Path) -> None:
    """meta-pytorch/opacus#373: a training that goes on from a checkpoint has a new accountant."""
    plan = odp.plan_budget(
        epsilon=4.0, run=lambda noise, steps: odp.gaussian(noise), steps=1, pilots=4
    )
    storage = f"sqlite:///{tmp_path}/study.db"
    starts = []

    def objective(trial: optuna.Trial) -> float:
        starts.append(trial.number)
        ask(trial)
        score: float = tell(trial, trial.suggest_float("x", 0.0, 1.0))
        return score

    for trials in (2, 1, None):
        study = study_of(
            odp.BudgetSampler(plan), storage=storage, study_name="s", load_if_exists=True
        )
        study.optimize(objective, n_trials=trials)
    assert starts == [0, 1, 2, 3, 4]
    release = odp.release(study, vouched="a test")
    delta = 1e-5
    assert release.guarantee.epsilon(delta) == pytest.approx(plan.guarantee.epsilon(delta))
    with pytest.raises(optuna.TrialPruned):
        odp.start_run(study.ask())
