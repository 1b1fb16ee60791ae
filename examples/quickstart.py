"""The three-line change, on real data: private tuning of a classifier of handwritten digits.

Run it with ``python examples/quickstart.py``. The objective trains with DP-SGD and scores with
noise; both are in ``optuna_dp/digits.py``, and both are part of what one run costs.
"""

import optuna

import optuna_dp as odp
from optuna_dp.digits import cost_of_one_run, objective

optuna.logging.set_verbosity(optuna.logging.WARNING)

run = cost_of_one_run()
trials = odp.Geometric(mean=10)

study = optuna.create_study(direction="maximize", sampler=odp.RandTuneSampler(trials=trials))
study.optimize(objective, callbacks=[odp.PrivacyCallback(run)])
release = odp.release(study)

print(release.params, release.value)
epsilon = release.guarantee.epsilon(delta=1e-5)
print(f"epsilon of one run:          {odp.Guarantee(run).epsilon(delta=1e-5):.2f}")
print(f"epsilon of the whole search: {epsilon:.2f}")

# The printed number is the accountant's, whatever the study did.
assert epsilon == odp.selection_guarantee(run, trials).epsilon(delta=1e-5)
