"""Ten noisy pilot runs teach a sharp prior; a private selection draws from it.

Runs offline on scikit-learn's digits in a few seconds.
"""

from __future__ import annotations

import optuna
from optuna_dp.accounting.pilots import pilots_guarantee

import optuna_dp as odp
from optuna_dp.digits import cost_of_one_run, objective

optuna.logging.set_verbosity(optuna.logging.WARNING)

RATIO = 4.0  # pilots have four times the noise of a selection run, in training and score

run, pilot = cost_of_one_run(), cost_of_one_run(noise_ratio=RATIO)
trials = odp.Geometric(mean=10)

sampler = odp.PilotSampler(pilots=10, pilot_run=pilot, trials=trials)
study = optuna.create_study(direction="maximize", sampler=sampler)
study.optimize(
    lambda trial: objective(trial, noise_ratio=RATIO if odp.is_pilot(trial) else 1.0),
    callbacks=[odp.PrivacyCallback(run)],
)
release = odp.release(study)

print(release.params, release.value)
epsilon = release.guarantee.epsilon(delta=1e-5)
selection = odp.selection_guarantee(run, trials)
print(f"epsilon of the selection alone: {selection.epsilon(delta=1e-5):.3f}")
print(f"epsilon with ten pilots:        {epsilon:.3f}")

# The printed number is the accountant's, whatever the study did.
assert epsilon == pilots_guarantee(pilot, 10, run, trials).epsilon(delta=1e-5)
