"""What a user with ``mypy --strict`` writes: the public names, with their types."""

from __future__ import annotations

from collections.abc import Callable

import optuna

import optuna_dp as odp
from optuna_dp.errors import ReleaseRefusedError


def objective(trial: optuna.Trial) -> float:
    run = odp.start_run(trial)
    rate = trial.suggest_float("learning_rate", 1e-3, 1.0, log=True)
    noise, sample_rate = run.noise_multiplier, run.sample_rate or 1.0
    run.spent(odp.dp_sgd(noise_multiplier=noise, sample_rate=sample_rate, steps=run.steps))
    return run.score([rate < 0.1] * 20_000)


def searched_schedule(trial: optuna.Trial) -> float:
    """A decay and an optimizer that a trial suggests are plain strings."""
    decay = trial.suggest_categorical("decay", ["constant", "linear", "cosine"])
    optimizer = trial.suggest_categorical("optimizer", ["sgd", "adam"])
    schedule = odp.Schedule(decay, averaged_share=0.25)
    return odp.start_run(trial).learning_rate(optimizer, schedule=schedule)


def search(sampler: optuna.samplers.BaseSampler) -> odp.Release | None:
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, callbacks=[odp.PrivacyCallback(delta=1e-6)])
    try:
        return odp.release(study, vouched="what only the curator knows")
    except ReleaseRefusedError as error:
        print(error.trial_number, error.fix)
        return None


def report(release: odp.Release) -> str:
    params: dict[str, object] = dict(release.params or {})
    epsilon: float = release.guarantee.epsilon(delta=1e-5)
    low, high = release.guarantee.bounds(1e-5)
    by_method: dict[str, float] = release.guarantee.by_method(1e-5)
    return f"{params} {epsilon} {low} {high} {by_method} {release.statement()}"


def plan(law: odp.TrialCount, many: Callable[[float], odp.TrialCount]) -> float:
    alone = odp.selection_guarantee(odp.gaussian(4.0), law, density_bounds=(0.75, 2.0))
    together: odp.Guarantee = alone.compose(odp.worst_case(odp.pure_dp(0.1), odp.zcdp(0.01)))
    found = odp.calibrate(target_epsilon=2.0, delta=1e-5, run=odp.gaussian, trials=law)
    runs = odp.calibrate(target_epsilon=2.0, delta=1e-5, run=odp.laplace(2.0), trials=many)
    rows = odp.selection_plan(odp.gaussian(4.0)).rows
    prices = [row.price for row in rows if row.price is not None]
    number: int = law.capped(60).quantile(0.95)
    chance: float = law.hit_probability(0.05)
    return together.epsilon(1e-5) + found.value + runs.trials.mean + sum(prices) + number + chance


def main() -> None:
    charged = odp.plan_budget(epsilon=3.0, records=20_000, batch_size=256, epochs=10)
    pilots = odp.BudgetSampler(charged, choose=lambda outputs: outputs[0][0])
    pruner = odp.WithinTrialPruner(optuna.pruners.ThresholdPruner(lower=0.0))
    print(pruner, odp.partition(1000, 10).shape)
    each = odp.RunPlan(
        records=20_000,
        batch_size=256,
        steps=100,
        noise_multiplier=1.0,
        score_noise_multiplier=20.0,
    )
    stated = odp.compose(
        odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.01, steps=100), odp.gaussian(20.0)
    )
    for sampler in (
        pilots,
        odp.DPHyPOSampler(schedule="batch", run=stated, output_attributes=["threshold"]),
        odp.RandTuneSampler(run=each),
    ):
        release = search(sampler)
        if release is not None:
            print(report(release))
    print(plan(odp.Poisson(5.0), odp.Geometric))


if __name__ == "__main__":
    main()
