"""Faults in trainings of other private libraries are found; CI runs it where these are."""

import numpy as np
import pytest

import optuna_dp as odp

# What these libraries and scikit-learn warn of is not ours to mend.
pytestmark = pytest.mark.filterwarnings("default")

RECORDS, SCORE_NOISE = 400, 20.0
COLUMNS = np.random.default_rng(1).uniform(0, 1, (RECORDS, 3))
X = np.hstack([COLUMNS, np.ones((RECORDS, 1))]) / 2.0  # within norm 1
Y = (COLUMNS[:, 0] + COLUMNS[:, 1] > 1).astype(int)


def event_of(epsilon, delta=0.0):
    return odp.compose(odp.approximate_dp(epsilon, delta), odp.scoring.score_event(SCORE_NOISE))


def score(model, features):
    correct = np.asarray(model.predict(features) == Y)
    return odp.scoring.private_accuracy(correct, size=RECORDS, noise_multiplier=SCORE_NOISE)


def faults(objective, event):
    report = odp.check_objective(objective, event)
    return {finding.name for finding in report.findings if finding.certain}


def logistic_regression(*, times=1, **settings):
    models = pytest.importorskip("diffprivlib.models")

    def objective(trial):
        trial.suggest_float("unused", 0, 1)
        for _ in range(times):
            given = {"epsilon": 1.0, "data_norm": 1.0, "fit_intercept": False} | settings
            model = models.LogisticRegression(**given).fit(X, Y)
        return score(model, X)

    return objective


def boosting(**settings):
    privacy = pytest.importorskip("interpret.privacy")

    def objective(trial):
        trial.suggest_float("unused", 0, 1)
        given = {
            "epsilon": 1.0,
            "delta": 1e-6,
            "max_rounds": 5,
            "feature_types": ["continuous"] * 3,
            "privacy_bounds": [(0, 1)] * 3,
            "n_jobs": 1,
        }
        model = privacy.DPExplainableBoostingClassifier(**given | settings).fit(COLUMNS, Y)
        return score(model, COLUMNS)

    return objective


def test_an_honest_logistic_regression_of_diffprivlib_is_not_accused():
    assert faults(logistic_regression(), event_of(1.0)) == set()


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"random_state": 0}, "fixed seed"),
        ({"data_norm": None}, "privacy warning"),
        ({"epsilon": 5.0}, "wrong epsilon"),
        ({"times": 2}, "wrong epsilon"),
    ],
)
def test_a_fault_in_a_training_of_diffprivlib_is_found(settings, fault):
    assert faults(logistic_regression(**settings), event_of(1.0)) == {fault}


def test_an_honest_dp_ebm_is_not_accused():
    assert faults(boosting(), event_of(1.0, 1e-6)) == set()


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"random_state": 0}, "fixed seed"),
        ({"privacy_bounds": None}, "privacy warning"),
        ({"feature_types": None}, "privacy warning"),
        ({"epsilon": 2.0}, "wrong epsilon"),
        ({"delta": 1e-4}, "wrong epsilon"),
    ],
)
def test_a_fault_in_a_dp_ebm_is_found(settings, fault):
    assert fault in faults(boosting(**settings), event_of(1.0, 1e-6))


def test_a_plan_compares_what_diffprivlib_recorded():
    diffprivlib = pytest.importorskip("diffprivlib")
    models = pytest.importorskip("diffprivlib.models")
    plan = odp.plan_budget(
        epsilon=2.0,
        delta=1e-5,
        run=lambda noise, steps: odp.pure_dp(1 / noise),
        steps=1,
        pilots=0,
        score=None,
    )

    def objective(times):
        def train(trial):
            run = odp.fidelity(trial)
            accountant = diffprivlib.BudgetAccountant()
            for _ in range(times):
                models.LogisticRegression(
                    epsilon=1 / run.noise_multiplier,
                    data_norm=1.0,
                    fit_intercept=False,
                    accountant=accountant,
                ).fit(X, Y)
            run.spent(accountant)
            return 0.5

        return train

    def judged(times):
        report = odp.check_objective(objective(times), plan=plan, public_score=True)
        return {finding.name for finding in report.findings if finding.certain}

    assert judged(1) == set()
    assert "failure" in judged(2)  # run.spent refuses twice the epsilon
