"""Faults in trainings of other private libraries are found; CI runs it where these are."""

import numpy as np
import pytest

import optuna_dp as odp
from optuna_dp.testing.watched_fits import fit_of

# What these libraries and scikit-learn warn of is not ours to mend.
pytestmark = pytest.mark.filterwarnings("default")

RECORDS, SCORE_NOISE = 400, 20.0
COLUMNS = np.random.default_rng(1).uniform(0, 1, (RECORDS, 3))
X = np.hstack([COLUMNS, np.ones((RECORDS, 1))]) / 2.0  # within norm 1
PUBLIC = X[::-1].copy()
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


def test_no_dp_ebm_is_judged_by_what_its_runs_repeat():
    """Its noise comes from the operating system. Here, its first run differs by that."""
    runs = []

    def objective(trial):
        train(trial)
        runs.append(trial)
        return 0.5 + (len(runs) == 1)

    train = boosting()
    report = odp.check_objective(objective, event_of(1.0, 1e-6), public_score=True)
    assert not report.findings, str(report)
    assert any("DP-EBM draws noise that cannot be repeated" in gap for gap in report.not_checked)


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


@pytest.mark.parametrize("kind", ["nominal", ["0.0", "1.0"]])
def test_categories_of_a_dp_ebm_are_found(kind):
    settings = {
        "feature_types": ["continuous", "continuous", kind],
        "privacy_bounds": [(0, 1), (0, 1), None],
    }
    found = faults(boosting(**settings), event_of(1.0, 1e-6))
    assert "values of the records" in found


def test_bounds_that_are_extremes_of_the_records_are_a_hint():
    for objective, event in (
        (logistic_regression(data_norm=float(np.linalg.norm(X, axis=1).max())), event_of(1.0)),
        (
            boosting(privacy_bounds=list(zip(COLUMNS.min(0), COLUMNS.max(0), strict=True))),
            event_of(1.0, 1e-6),
        ),
    ):
        report = odp.check_objective(objective, event)
        assert [found.name for found in report.findings] == ["bounds of the records"]
        assert report.ok, "they may be public all the same"


def test_extremes_in_steps_are_a_hint_if_all_bounds_are_such_and_not_if_one_is():
    grey = np.round(16 * COLUMNS) / 16 * np.array([1.0, 0.9375, 0.8125])
    grey[0], grey[1] = 0.0, [1.0, 0.9375, 0.8125]
    extremes = [*zip(grey.min(0), grey.max(0), strict=True)]
    models = pytest.importorskip("interpret.privacy")

    def hints(bounds):
        model = models.DPExplainableBoostingClassifier(privacy_bounds=bounds)
        return fit_of("DP-EBM", model, (grey, Y), {}, 0).from_extremes

    quarters = grey + np.array([0.25, 0.5, 0.125])
    assert hints([(0, 1)] * 3) == ()
    assert hints(extremes) == ()  # two numbers with a fraction may be chance
    model = models.DPExplainableBoostingClassifier(
        privacy_bounds=[*zip(quarters.min(0), quarters.max(0), strict=True)]
    )
    assert fit_of("DP-EBM", model, (quarters, Y), {}, 0).from_extremes == ("privacy_bounds",)


def on_data(settings_of, scale=lambda x: x):
    """An objective that takes its records, and computes its settings from them."""
    models = pytest.importorskip("diffprivlib.models")

    def objective(trial, data):
        trial.suggest_float("unused", 0, 1)
        x, y = scale(np.asarray(data[0])), data[1]
        given = {"data_norm": 1.0, "fit_intercept": False} | settings_of(x)
        model = models.LogisticRegression(epsilon=1.0, **given).fit(x, y)
        correct = np.asarray(model.predict(x) == y)
        return odp.scoring.private_accuracy(correct, size=RECORDS, noise_multiplier=SCORE_NOISE)

    return objective


def findings_on_data(objective, event):
    report = odp.check_objective(objective, event, data=(X, Y))
    found = {(finding.name, finding.certain) for finding in report.findings}
    # diffprivlib's own: it refuses data of one class.
    return found - {("failure on data", True)}, report


def test_nothing_is_found_where_bounds_and_scales_are_public():
    findings, report = findings_on_data(on_data(lambda x: {}, lambda x: x / 1.25), event_of(1.0))
    assert findings == set(), str(report)
    assert not any("come from" in sentence for sentence in report.not_checked)


def test_bounds_that_follow_a_record_are_a_fault():
    def largest(x):
        return {"data_norm": 1.1 * float(np.linalg.norm(x, axis=1).max())}

    findings, _ = findings_on_data(on_data(largest), event_of(1.0))
    assert ("bounds of the records", True) in findings


def test_a_fault_is_not_hidden_by_a_hint_of_the_same_kind():
    """Bounds that are the extremes are a hint before a record is replaced, and a fault then."""

    def largest(x):
        return {"data_norm": float(np.linalg.norm(x, axis=1).max())}

    uneven = 0.987 * X[:, :3] / np.sqrt(3)
    report = odp.check_objective(on_data(largest), event_of(1.0), data=(uneven, Y))
    found = [f.certain for f in report.findings if f.name == "bounds of the records"]
    assert found == [True], str(report)


def test_records_that_were_scaled_by_all_records_are_a_fault():
    def standardised(x):
        return (x - x.mean(0)) / (1e-9 + x.std(0)) / 10

    findings, _ = findings_on_data(on_data(lambda x: {}, standardised), event_of(1.0))
    assert ("statistics of the records", True) in findings
    paid = odp.compose(event_of(1.0), odp.gaussian(5.0))
    findings, _ = findings_on_data(on_data(lambda x: {}, standardised), paid)
    assert ("statistics of the records", False) in findings, "the event may pay for them"


def test_weights_that_follow_other_records_are_a_fault():
    privacy = pytest.importorskip("interpret.privacy")

    def weighted(weights_of, *, by_name):
        def objective(trial, data):
            trial.suggest_float("unused", 0, 1)
            x, y = np.clip(data[0], 0, 1), np.asarray(data[1])
            given = {"feature_types": ["continuous"] * 3, "privacy_bounds": [(0, 1)] * 3}
            model = privacy.DPExplainableBoostingClassifier(
                epsilon=1.0, delta=1e-6, max_rounds=1, n_jobs=1, **given
            )
            weights = weights_of(y)
            model.fit(x, y, **{"sample_weight": weights}) if by_name else model.fit(x, y, weights)
            correct = np.asarray(model.predict(x) == y)
            return odp.scoring.private_accuracy(
                correct, size=RECORDS, noise_multiplier=SCORE_NOISE
            )

        report = odp.check_objective(objective, event_of(1.0, 1e-6), data=(COLUMNS, Y))
        found = {(finding.name, finding.certain) for finding in report.findings}
        return ("weights of the records", True) in found

    assert weighted(lambda y: np.where(y == 1, 1.0 / max(1, np.sum(y)), 0.01), by_name=True)
    assert weighted(lambda y: np.where(y == 1, 1.0 / max(1, np.sum(y)), 0.01), by_name=False)
    assert not weighted(lambda y: np.where(y == 1, 0.9, 0.4), by_name=True)


@pytest.mark.parametrize(
    ("deletes", "relation"),
    [
        (False, "add_or_remove_one"),
        (False, None),
        (False, "replace_one"),
        (True, "add_or_remove_one"),
    ],
)
def test_a_model_that_tells_the_number_of_records_is_a_hint(deletes, relation):
    privacy = pytest.importorskip("interpret.privacy")
    event = event_of(1.0, 1e-6)
    plan = None
    if relation is not None:
        plan = odp.plan_budget(
            epsilon=2.0,
            delta=1e-5,
            run=lambda noise, steps: odp.approximate_dp(1 / noise, 1e-7),
            steps=1,
            pilots=0,
            score=None,
            neighboring_relation=relation,
        )

    def objective(trial, data):
        noise = 1.0 if plan is None else odp.fidelity(trial).noise_multiplier
        given = {"feature_types": ["continuous"] * 3, "privacy_bounds": [(0, 1)] * 3}
        model = privacy.DPExplainableBoostingClassifier(
            epsilon=1 / noise, delta=1e-7, max_rounds=1, n_jobs=1, **given
        )
        model.fit(np.clip(data[0], 0, 1), data[1])
        if deletes:
            del model.bag_weights_
        return 0.5 + 0.0 * float(np.sum(model.predict(COLUMNS)))

    report = odp.check_objective(
        objective, None if plan else event, plan=plan, data=(COLUMNS, Y), public_score=True
    )
    found = [f.certain for f in report.findings if f.name == "number of records"]
    expected = [False] if not deletes and relation != "replace_one" else []
    assert found == expected, str(report)


def test_a_private_scaler_of_diffprivlib_is_not_accused():
    models = pytest.importorskip("diffprivlib.models")

    def privately_scaled(x):
        scaler = models.StandardScaler(epsilon=1.0, bounds=(np.zeros(4), np.ones(4)))
        scaled = scaler.fit_transform(np.clip(x, 0, 1))
        return scaled / np.maximum(1, np.linalg.norm(scaled, axis=1, keepdims=True))

    event = odp.compose(odp.pure_dp(1.0), event_of(1.0))
    findings, report = findings_on_data(on_data(lambda x: {}, privately_scaled), event)
    assert findings == set(), str(report)


def test_a_public_score_that_changes_with_a_record_held_back_is_a_fault():
    models = pytest.importorskip("diffprivlib.models")

    def objective(trial, data):
        trial.suggest_float("unused", 0, 1)
        x, y = np.asarray(data[0]), np.asarray(data[1])
        model = models.LogisticRegression(epsilon=1.0, data_norm=1.0, fit_intercept=False)
        model.fit(x[::2], y[::2])
        scored = (x[1::2], y[1::2]) if scores_on_private else (PUBLIC, Y[::-1])
        return float(np.mean(model.predict_proba(scored[0])[:, 1] * scored[1]))

    event = odp.pure_dp(1.0)
    for scores_on_private in (True, False):
        report = odp.check_objective(objective, event, data=(X, Y), public_score=True)
        names = {finding.name for finding in report.findings if finding.certain}
        names -= {"failure on data"}  # diffprivlib's own: it refuses data of one class
        assert names == ({"score of private records"} if scores_on_private else set())


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
