"""``optuna-dp demo``: the main job on real data, and what else its epsilon would have bought."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optuna_dp.cli.common import AsJson, clear_errors, option, table

if TYPE_CHECKING:
    from rich.console import Console

    from optuna_dp.budget.plan import BudgetPlan
    from optuna_dp.releasing.release import Release

REPETITIONS = 10
_MEAN = 10
# What SGD with clipping is usually started with.
_DEFAULTS: dict[str, Any] = {"learning_rate": 0.1, "clipping_norm": 1.0}


def demo(
    epsilon: Annotated[float, option("NUMBER", "What everything together may cost.")] = 3.0,
    as_json: AsJson = False,
) -> None:
    """Tune a private classifier of handwritten digits within an epsilon, and release it.

    Trains softmax regressions with DP-SGD on scikit-learn's digits (offline): noisy pilots, then
    one run. Scores are private. Then compares the accuracy with that of other ways to spend the
    same epsilon.

    Example: optuna-dp demo --epsilon 1
    """
    # Lazy: --help and refusals come at once.
    import optuna
    from rich.console import Console
    from rich.markdown import Markdown

    from optuna_dp import digits

    console = Console(stderr=as_json)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with clear_errors(demo):
        plan = digits.budget(epsilon)
    found = _search(console, plan)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2, sort_keys=True))
        return
    console.print("\n[bold]Released[/bold]")
    for name, value in {"noisy accuracy": found.value, **(found.params or {})}.items():
        console.print(f"  {name}: {'none' if value is None else f'{value:.4g}'}")
    console.print()
    with console.status("The same epsilon spent in other ways ..."):
        rows = [_row(*way) for way in _ways(plan)]
    title = f"Epsilon {epsilon:g} at delta {plan.delta:g}, three ways"
    console.print(table(title, ("way", "noise", "trainings", "accuracy, %"), rows))
    console.print(
        f"Mean of {REPETITIONS} repetitions on {digits.VALIDATION_SIZE} records that nothing else "
        "looked at, with its 95 % interval. Such a table is for public data only.\n",
        style="dim",
    )
    console.print(Markdown(found.statement()))


def _search(console: Console, plan: BudgetPlan) -> Release:
    """Runs the study before the reader's eyes: everything about it is paid for."""
    from optuna_dp import digits  # Lazy: only a demo needs it.

    console.print(
        f"[bold]Digits[/bold]: epsilon {plan.epsilon:g} buys {plan.pilots} noisy pilots, which "
        "may be shown, and one run."
    )

    def show(study: Any, trial: Any) -> None:
        run, done = plan.fidelity(trial.number), trial.number + 1
        if trial.number == 0 or plan.fidelity(trial.number - 1).rung != run.rung:
            console.print(f"Noise {run.noise_multiplier:.2f}:")
        name = f"pilot {done} of {plan.pilots}" if run.is_pilot else "[bold]last run[/bold]"
        score = "no score" if trial.value is None else f"accuracy {trial.value:.3f}"
        shown = ", ".join(f"{key} {value:.3g}" for key, value in trial.params.items())
        console.print(f"  {name}: {score}  [dim]{shown}[/dim]")

    return _tuned(plan, digits.BudgetObjective(), show)


def _tuned(plan: BudgetPlan, objective: Any, *callbacks: Any) -> Release:
    # Lazy: --help and refusals come at once.
    import optuna

    import optuna_dp as odp

    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    study.optimize(objective, callbacks=[odp.PrivacyCallback(), *callbacks])
    return odp.release(study)


def _row(name: str, noise: float, trainings: str, once: Callable[[], Any]) -> list[str]:
    """Trains in one way again and again, and returns its row of the table."""
    from optuna_dp import digits  # Lazy: only a demo needs it.

    data = digits.load()
    accuracies = [
        100 * digits.accuracy(once(), data.valid_x, data.valid_y) for _ in range(REPETITIONS)
    ]
    spread = 1.96 * statistics.stdev(accuracies) / len(accuracies) ** 0.5
    return [name, f"{noise:.2f}", trainings, f"{statistics.fmean(accuracies):.1f} ± {spread:.1f}"]


def _ways(plan: BudgetPlan) -> list[tuple[str, float, str, Callable[[], Any]]]:
    """Returns ways to come to a model at the plan's epsilon: name, noise, trainings, training."""
    # Lazy: --help and refusals come at once.
    import optuna

    import optuna_dp as odp
    from optuna_dp import digits

    data = digits.load()
    records = data.train_x, data.train_y
    steps, score = plan.final.steps, plan.rungs[-1].score_noise_multiplier
    assert score is not None  # The plan pays for scores.

    def training(noise: float) -> Any:
        rate = digits.BATCH / len(data.train_x)
        return odp.dp_sgd(noise_multiplier=noise, sample_rate=rate, steps=steps)

    def scored(noise: float) -> Any:
        return odp.compose(training(noise), odp.scoring.score_event(score))

    def train(noise: float, **params: Any) -> Any:
        return digits.train(*records, steps=steps, noise_multiplier=noise, **params)

    def rand_tune(noise: float) -> Any:
        models = {}

        def objective(trial: Any) -> float:
            rate = trial.suggest_float("learning_rate", 0.01, 10.0, log=True)
            norm = trial.suggest_float("clipping_norm", 0.05, 5.0, log=True)
            model = models[trial.number] = train(noise, learning_rate=rate, clipping_norm=norm)
            size = len(data.train_x)
            return digits.private_accuracy(model, *records, size=size, score_noise=score)

        sampler = odp.RandTuneSampler(trials=odp.Geometric(_MEAN))
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(objective)
        return models[study.best_trial.number]

    def pilots() -> Any:
        objective = digits.BudgetObjective()
        _tuned(plan, objective)
        return objective.weights

    limits: dict[str, Any] = {"target_epsilon": plan.epsilon, "delta": plan.delta}
    alone = odp.calibrate(run=training, trials=odp.Geometric(1), **limits).value
    best = odp.calibrate(run=scored, trials=odp.Geometric(_MEAN), **limits).value
    last, mean = plan.final.noise_multiplier, f"{_MEAN} on average"
    return [
        ("usual defaults, no tuning", alone, "1", lambda: train(alone, **_DEFAULTS)),
        (f"RandTune, mean {_MEAN}", best, mean, lambda: rand_tune(best)),
        ("pilots, then one run", last, f"{plan.pilots} + 1", pilots),
    ]
