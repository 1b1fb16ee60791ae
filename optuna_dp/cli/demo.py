"""``optuna-dp demo``: the main job on real data, and what else its epsilon would have bought."""

from __future__ import annotations

import contextlib
import json
import logging
import statistics
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optuna_dp.cli.common import AsJson, clear_errors, option, table

if TYPE_CHECKING:
    from dp_accounting import dp_event
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from rich.console import Console

    from optuna_dp.core.arrays import FloatArray
    from optuna_dp.digits import BudgetObjective
    from optuna_dp.releasing.release import Release
    from optuna_dp.samplers.budget.plan import BudgetPlan

REPETITIONS = 10
_MEAN = 10
_PILOTS = 4
# What SGD with clipping is usually started with.
_DEFAULTS: dict[str, Any] = {"learning_rate": 0.1, "clipping_norm": 1.0}


def demo(
    epsilon: Annotated[float, option("NUMBER", "Epsilon of the whole study.")] = 3.0,
    as_json: AsJson = False,
) -> None:
    """Train a private classifier of handwritten digits within an epsilon, and release it.

    Trains a softmax regression with DP-SGD on scikit-learn's digits (offline). Batch size, steps
    and learning rate are computed from public numbers, so one run is enough. Then compares its
    accuracy with other methods at the same epsilon.

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
    _show(console, plan)
    _check(console, plan)
    release = _studied(plan, digits.BudgetObjective())
    if as_json:
        typer.echo(json.dumps(release.to_json(), indent=2, sort_keys=True))
        return
    value = "none" if release.value is None else f"{release.value:.4g}"
    console.print(f"\n[bold]Released[/bold]: a model with noisy accuracy {value}.\n")
    with console.status("The same epsilon spent in other ways ..."), _without_advice():
        rows = [_row(*way) for way in _ways(plan)]
    title = f"Epsilon {epsilon:g} at delta {plan.delta:g}, {len(rows)} ways"
    heads = ("way", "batch", "noise", "trainings", "accuracy, %")
    console.print(table(title, heads, rows))
    console.print(
        f"Mean of {REPETITIONS} repetitions on {digits.VALIDATION_SIZE} records used for nothing "
        "else, with its 95 % interval. Print such a table for public data only.\n",
        style="dim",
    )
    console.print(Markdown(release.statement()))


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Silences what samplers say of a release: nothing is released in a comparison."""
    logger = logging.getLogger("optuna_dp")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _show(console: Console, plan: BudgetPlan) -> None:
    """What the plan is, and where its numbers are from."""
    from optuna_dp.planning.guidance import PLAN_HEADS, plan_rows  # Lazy: start-up time.

    run = plan.final
    console.print(
        f"[bold]Digits[/bold], epsilon {plan.epsilon:g} at delta {plan.delta:g}. All choices "
        "follow from public numbers, so the whole epsilon goes to one run, without pilots.\n"
    )
    console.print(table("The plan", PLAN_HEADS, plan_rows(plan)))
    console.print(
        f"From public numbers: batches of {run.batch_size:g} and {run.steps} steps by accounting, "
        f"for the computing given; a learning rate that is rehearsed on made-up "
        "pixels; clipping norm 1.\n"
    )


def _check(console: Console, plan: BudgetPlan) -> None:
    """Looks for what would make the stated cost untrue, before anything is spent."""
    # Lazy: --help and refusals come at once.
    import optuna_dp as odp
    from optuna_dp import digits

    with console.status("Checking the objective ..."):
        report = odp.check_objective(digits.BudgetObjective(), plan=plan)
    console.print("[bold]Checked before anything is spent[/bold] (optuna-dp check):")
    console.print(f"{report}", highlight=False)


def _studied(
    plan: BudgetPlan,
    objective: BudgetObjective,
    search_space: dict[str, BaseDistribution] | None = None,
    proposer: BaseSampler | None = None,
) -> Release:
    # Lazy: --help and refusals come at once.
    import optuna

    import optuna_dp as odp

    sampler = odp.BudgetSampler(plan, search_space=search_space, proposer=proposer)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    return odp.release(study)


def _row(
    name: str, batch: float, noise: float, trainings: str, training: Callable[[], FloatArray]
) -> list[str]:
    """Trains in one way again and again, and returns its row of the table."""
    from optuna_dp import digits  # Lazy: only a demo needs it.

    data = digits.load()
    accuracies = [
        100 * digits.accuracy(training(), data.valid_x, data.valid_y) for _ in range(REPETITIONS)
    ]
    spread = 1.96 * statistics.stdev(accuracies) / len(accuracies) ** 0.5
    interval = f"{statistics.fmean(accuracies):.1f} ± {spread:.1f}"
    return [name, f"{batch:g}", f"{noise:.2f}", trainings, interval]


def _ways(plan: BudgetPlan) -> list[tuple[str, float, float, str, Callable[[], FloatArray]]]:
    """Returns ways to come to a model at an epsilon: name, batch, noise, trainings, training."""
    # Lazy: --help and refusals come at once.
    import optuna
    from optuna.distributions import FloatDistribution

    import optuna_dp as odp
    from optuna_dp import digits

    data, run = digits.load(), plan.final
    records, size = (data.train_x, data.train_y), len(data.train_x)
    batch, steps, score = run.batch_size, run.steps, run.score_noise_multiplier
    assert batch is not None  # The plan was made for DP-SGD, and pays for a score.
    assert score is not None
    plan_of_one_run = odp.plan_budget(
        epsilon=plan.epsilon,
        delta=plan.delta,
        records=size,
        batch_size=digits.BATCH,
        epochs=digits.BUDGET_EPOCHS,
        pilots=0,
    )
    budget_with_pilots = digits.budget(plan.epsilon, pilots=_PILOTS)
    space: dict[str, BaseDistribution] = {
        "noise_per_weight": FloatDistribution(0.03, 3.0, log=True)
    }
    guess = odp.around({"noise_per_weight": 0.3})

    def defaults() -> FloatArray:
        noise, length = plan_of_one_run.final.noise_multiplier, plan_of_one_run.final.steps
        return digits.train(*records, steps=length, noise_multiplier=noise, **_DEFAULTS)

    def planned(
        budget: BudgetPlan,
        search_space: dict[str, BaseDistribution] | None = None,
        proposer: BaseSampler | None = None,
    ) -> FloatArray:
        objective = digits.BudgetObjective()
        _studied(budget, objective, search_space, proposer)
        assert objective.weights is not None
        return objective.weights

    def event(noise: float) -> dp_event.DpEvent:
        training = odp.dp_sgd(noise_multiplier=noise, sample_rate=batch / size, steps=steps)
        return odp.compose(training, odp.scoring.score_event(score))

    def rand_tune(noise: float) -> FloatArray:
        models = {}

        def objective(trial: optuna.Trial) -> float:
            rate = odp.learning_rate(
                noise_multiplier=noise,
                steps=steps,
                batch_size=batch,
                noise_per_weight=trial.suggest_float("noise_per_weight", 0.03, 3.0, log=True),
            )
            model = models[trial.number] = digits.train(
                *records,
                learning_rate=rate,
                clipping_norm=1.0,
                steps=steps,
                noise_multiplier=noise,
                batch=batch,
            )
            return digits.private_accuracy(model, *records, size=size, score_noise=score)

        sampler = odp.RandTuneSampler(space, trials=odp.Geometric(_MEAN), prior=guess)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(objective)
        return models[study.best_trial.number]

    best = odp.calibrate(
        run=event, trials=odp.Geometric(_MEAN), target_epsilon=plan.epsilon, delta=plan.delta
    ).value
    small, noise = plan_of_one_run.final.noise_multiplier, run.noise_multiplier
    mean_runs, pilots = f"{_MEAN} on average", f"{_PILOTS} + 1"
    return [
        ("usual rate, 0.1", digits.BATCH, small, "1", defaults),
        ("rate that follows", digits.BATCH, small, "1", lambda: planned(plan_of_one_run)),
        ("and batch: this plan", batch, noise, "1", lambda: planned(plan)),
        (
            "pilots, then one run",
            batch,
            budget_with_pilots.final.noise_multiplier,
            pilots,
            lambda: planned(budget_with_pilots, space, guess),
        ),
        (f"RandTune, mean {_MEAN}", batch, best, mean_runs, lambda: rand_tune(best)),
    ]
