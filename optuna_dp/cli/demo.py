"""``optuna-dp demo``: the main job on real data."""

from __future__ import annotations

import json
import logging
import statistics
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from optuna_dp.cli.common import clear_errors, option
from optuna_dp.errors import InvalidArgumentError

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial
    from rich.console import Console

    from optuna_dp.releasing.release import Release

DELTA = 1e-5


class Method(str, Enum):
    """How the demo searches."""

    budget = "budget"
    dp_hypo = "dp-hypo"
    rand_tune = "rand-tune"


def demo(
    method: Annotated[
        Method,
        option(
            "METHOD",
            "budget (pilots in the open, then one run), rand-tune (best of secretly many "
            "random runs) or dp-hypo (the same, and learns).",
        ),
    ] = Method.budget,
    epsilon: Annotated[
        float | None, option("NUMBER", "With budget: what all may cost. Default 3.")
    ] = None,
    mean: Annotated[
        float | None,
        option(
            "NUMBER", "With the others: mean of the secret number of runs, at least 1. Default 10."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the release as JSON for a program to read.")
    ] = False,
) -> None:
    """Tune a private classifier of handwritten digits and release the best.

    Trains softmax regressions with DP-SGD on scikit-learn's digits (offline), scores them
    privately, and releases one of them with the guarantee of the whole search.

    Example: optuna-dp demo --epsilon 1
    """
    from rich.console import Console  # start-up time

    console = Console(stderr=as_json)
    with clear_errors(demo):
        given, other = ("--mean", mean) if method is Method.budget else ("--epsilon", epsilon)
        if other is not None:
            raise InvalidArgumentError(
                given, other, f"it does not go with --method {method.value}"
            )
        _quiet()
        if method is Method.budget:
            _budget(console, 3.0 if epsilon is None else epsilon, as_json)
            return
        found, evidence = _search(console, method, 10.0 if mean is None else mean)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2, sort_keys=True))
        return
    _report(console, found, evidence)


def _quiet() -> None:
    import optuna  # start-up time: --help and refusals come at once

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.getLogger("optuna_dp").setLevel(logging.WARNING)


def _budget(console: Console, epsilon: float, as_json: bool) -> None:
    # Start-up time: --help and refusals come at once.
    from rich.markdown import Markdown
    from rich.table import Table

    from optuna_dp import digits
    from optuna_dp.cli import demo_budget

    found, plan = demo_budget.search(console, epsilon)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2, sort_keys=True))
        return
    console.print()
    _print_released(console, found)
    with console.status("The same epsilon spent in other ways ..."):
        ways = demo_budget.compare(plan, demo_budget.REPETITIONS)
    title = f"Epsilon {epsilon:g} at delta {DELTA:g}, four ways"
    table = Table("way", title=title, title_justify="left")
    for name in ("noise", "trainings", "accuracy, %"):
        table.add_column(name, justify="right")
    for way in ways:
        mean = 100 * statistics.fmean(way.accuracies)
        spread = 196 * statistics.stdev(way.accuracies) / len(way.accuracies) ** 0.5
        cells = (f"{way.noise_multiplier:.2f}", way.trainings, f"{mean:.1f} ± {spread:.1f}")
        table.add_row(way.name, *cells, style="bold" if way is ways[-1] else None)
    console.print()
    console.print(table)
    console.print(
        f"Mean of {demo_budget.REPETITIONS} repetitions on {digits.VALIDATION_SIZE} records that "
        "nothing else looked at, with its 95 % interval; such a table is for public data only.",
        style="dim",
    )
    console.print()
    console.print(Markdown(found.statement()))


def _search(console: Console, method: Method, mean: float) -> tuple[Release, Study]:
    # Start-up time: --help and refusals come at once.
    import optuna

    import optuna_dp as odp
    from optuna_dp import digits

    data = digits.load()
    console.print(
        f"[bold]Digits[/bold]: {len(data.train_x)} training and {len(data.valid_x)} validation "
        "records. Each run trains with DP-SGD and returns a noisy accuracy."
    )
    run = digits.cost_of_one_run()
    kind = odp.DPHyPOSampler if method is Method.dp_hypo else odp.RandTuneSampler
    study = optuna.create_study(direction="maximize", sampler=kind(trials=odp.Geometric(mean)))

    def show(study: Study, trial: FrozenTrial) -> None:
        shown = ", ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in trial.params.items()
        )
        score = "no score" if trial.value is None else f"noisy accuracy {trial.value:.3f}"
        console.print(f"  [dim]curator only[/dim]  {score}  [dim]{shown}[/dim]")

    with console.status("Searching; the number of runs is secret ..."):
        study.optimize(digits.objective, callbacks=[odp.PrivacyCallback(run, delta=DELTA), show])
    with console.status("Accounting ..."):
        return odp.release(study), study


def _report(console: Console, found: Release, study: Study) -> None:
    # Start-up time: --help and refusals come at once.
    from rich.markdown import Markdown
    from rich.table import Table

    import optuna_dp as odp
    from optuna_dp import digits
    from optuna_dp.releasing.callbacks import PROGRESS_KEY

    one_run = odp.Guarantee(digits.cost_of_one_run())
    books = study._storage.get_study_system_attrs(study._study_id)[PROGRESS_KEY]
    table = Table(title=f"Epsilon at delta = {DELTA:g}", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    table.add_row("one run", f"{one_run.epsilon(DELTA):.2f}", "what is often reported: too low")
    table.add_row(
        "publishing every run",
        f"{books['every run']['epsilon_by_naive_composition']:.2f}",
        "naive composition; tells T, so for the curator only",
    )
    rdp = found.guarantee.by_method(DELTA).get("rdp", float("inf"))
    if rdp < float("inf"):
        table.add_row("this search by Rényi accounting", f"{rdp:.2f}", "valid, but loose")
    table.add_row(
        "[bold]this release[/bold]",
        f"[bold]{found.guarantee.epsilon(DELTA):.2f}[/bold]",
        "guaranteed for the whole search",
    )
    console.print()
    _print_released(console, found)
    console.print()
    console.print(table)
    console.print()
    console.print(Markdown(found.statement()))


def _print_released(console: Console, found: Release) -> None:
    console.print("[bold]Released[/bold]")
    if found.params is None or found.value is None:
        console.print("  nothing: no run succeeded")
        return
    console.print(f"  noisy accuracy: {found.value:.3f}")
    for name, value in found.params.items():
        shown = f"{value:.4g}" if isinstance(value, float) else value
        console.print(f"  {name}: {shown}")
