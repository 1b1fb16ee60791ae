"""A proposer of your own: any Optuna sampler proposes the pilots of a private search.

It sees hyperparameters and private scores by slot, and nothing else; whatever it proposes is
charged for alike. This one goes a step from the best so far, and knows nothing of privacy.
"""

from typing import Any

import numpy as np
import optuna
from dp_accounting.rdp import RdpAccountant

import optuna_dp as odp


class StepFromBest(optuna.samplers.RandomSampler):
    def sample_independent(
        self, study: optuna.Study, trial: Any, name: str, distribution: Any
    ) -> Any:
        drawn = super().sample_independent(study, trial, name, distribution)
        seen = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
        seen = [t for t in seen if name in t.params]
        if not seen or not isinstance(distribution, optuna.distributions.FloatDistribution):
            return drawn
        best = max(seen, key=lambda t: t.value)
        return float(
            np.clip(0.7 * best.params[name] + 0.3 * drawn, distribution.low, distribution.high)
        )


if __name__ == "__main__":
    plan = odp.plan_budget(epsilon=3.0, records=2000, batch_size=200, epochs=4, pilots=(6,))
    study = optuna.create_study(
        direction="maximize", sampler=odp.BudgetSampler(plan, proposer=StepFromBest())
    )

    def objective(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        x = trial.suggest_float("x", 0.0, 1.0)  # Yours: train, and hand in what that spent.
        noise, rate, steps = run.noise_multiplier, run.sample_rate, run.steps
        training = odp.dp_sgd(noise_multiplier=noise, sample_rate=rate, steps=steps)
        run.spent(RdpAccountant().compose(training))  # the accountant of your loop
        return run.score(np.full(2000, 1.0 - abs(x - 0.6)))

    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    print(odp.release(study).params)
