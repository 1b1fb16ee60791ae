"""A proposer of your own: any Optuna sampler proposes pilots, or candidates, of a private search.

It sees hyperparameters and private scores by slot, and nothing else; whatever it proposes is
charged for alike. This one goes a step from the best so far, and knows nothing of privacy.
"""

from typing import Any

import numpy as np
import optuna

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
        noise = odp.fidelity(trial).noise_multiplier  # Yours: train with it, score with noise.
        rng = np.random.default_rng()
        return -abs(trial.suggest_float("x", 0.0, 1.0) - 0.6) + 0.01 * noise * rng.normal()

    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    print(odp.release(study).params)
