"""Made-up records of a table by MST of SmartNoise, within epsilon 3, and a classifier of them.

    pip install --no-deps smartnoise-synth smartnoise-sql "mbi<2"  # else PyTorch with CUDA comes
    pip install "pandas<3" jax optax chex opt-einsum networkx disjoint-set faker graphviz \
        "antlr4-python3-runtime==4.9.3" scikit-learn .
    python with_smartnoise.py
    optuna-dp check with_smartnoise.py:objective --plan PLAN

A run takes some twenty seconds on one core, most of it for JAX to compile.
"""

import warnings

import numpy as np
import optuna
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.naive_bayes import CategoricalNB
from snsynth.mst import MSTSynthesizer

import optuna_dp as odp

warnings.filterwarnings("ignore", module="mbi")
pixels, labels = load_digits(return_X_y=True)
RECORDS = 1797  # public; MST itself uses the exact number of the records
LEVELS = 4  # of darkness: public constants, no quantiles of the records
dark = pixels.reshape(-1, 2, 4, 2, 4).mean((2, 4)).reshape(-1, 4) / 16
# The last column is the digit.
DATA = np.column_stack([np.minimum(dark * LEVELS, LEVELS - 1), labels]).astype(int)
DELTA = 1e-7


def training_event(noise, steps):
    """What the synthesizer costs. The noise of the plan is one over its epsilon."""
    return odp.approximate_dp(1 / noise, DELTA)


PLAN = odp.plan_budget(epsilon=3.0, delta=1e-5, run=training_event, steps=1, pilots=0)


def objective(trial, data=DATA):
    run = odp.start_run(trial)
    table = pd.DataFrame(data, columns=[*"abcd", "digit"])
    synthesizer = MSTSynthesizer(epsilon=1 / run.noise_multiplier, delta=DELTA)
    # All columns have a fixed set of values; for continuous ones it would look at the records.
    synthesizer.fit(table, categorical_columns=list(table), preprocessor_eps=0.0)
    run.spent(odp.approximate_dp(synthesizer.epsilon, synthesizer.delta))
    made_up = synthesizer.sample(RECORDS)
    made_up.to_csv("made_up.csv", index=False)
    model = CategoricalNB(min_categories=LEVELS).fit(made_up[list("abcd")], made_up["digit"])
    return run.score(model.predict(table[list("abcd")]) == table["digit"], size=RECORDS)


def main():
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(PLAN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study, vouched="SmartNoise got the plan's epsilon and delta")
    print(release.value, release.guarantee.epsilon(delta=1e-5))
    print(release.statement())


if __name__ == "__main__":
    main()
