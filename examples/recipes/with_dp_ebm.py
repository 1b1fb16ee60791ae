"""A DP-EBM of InterpretML within epsilon 3: four pilots choose its length, then one last run.

pip install interpret-core optuna-dp
python with_dp_ebm.py
optuna-dp check with_dp_ebm.py:objective --plan PLAN
"""

import pickle

import optuna
from interpret.privacy import DPExplainableBoostingClassifier
from sklearn.datasets import load_digits

import optuna_dp as odp

pixels, labels = load_digits(return_X_y=True)
RECORDS = len(labels)  # a public number
x, y = pixels.reshape(-1, 4, 2, 4, 2).mean((2, 4)).reshape(-1, 16), labels % 2
DELTA = 1e-7  # of one training


def training_event(noise, steps):
    """What a training costs. The noise of the plan is one over the training's epsilon."""
    return odp.approximate_dp(1 / noise, DELTA)


PLAN = odp.plan_budget(
    epsilon=3.0, delta=1e-5, run=training_event, steps=1, pilots=4, noise_increase=1.5
)


def objective(trial):
    run = odp.fidelity(trial)
    model = DPExplainableBoostingClassifier(
        epsilon=1 / run.noise_multiplier,
        delta=DELTA,
        max_rounds=trial.suggest_int("max_rounds", 10, 300, log=True),
        feature_types=["continuous"] * x.shape[1],  # left out, they are read off the records
        privacy_bounds=[(0, 16)] * x.shape[1],  # left out, they are the records' own
        n_jobs=1,  # no random_state: the noise comes from the operating system
    )
    model.fit(x, y)
    if not run.is_pilot:  # the last run's model may be shown
        with open("model.pickle", "wb") as file:
            pickle.dump(model, file)
    run.spent(odp.approximate_dp(model.epsilon, model.delta))
    return run.score(model.predict(x) == y, size=RECORDS)


def main():
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(PLAN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    print(release.params, release.value, release.guarantee.epsilon(delta=1e-5))
    print(release.statement())


if __name__ == "__main__":
    main()
