"""``optuna-dp demo``: the main job on real data."""

from __future__ import annotations

import json
import logging
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from optuna_dp.cli.common import clear_errors

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial
    from rich.console import Console

    from optuna_dp.accounting.guarantee import Guarantee
    from optuna_dp.releasing.release import Release

DELTA = 1e-5


class Method(str, Enum):
    """How the demo searches."""

    dp_hypo = "dp-hypo"
    rand_tune = "rand-tune"


def demo(
    method: Annotated[
        Method,
        typer.Option(
            metavar="METHOD", help="dp-hypo (adaptive search) or rand-tune (independent draws)."
        ),
    ] = Method.dp_hypo,
    mean: Annotated[
        float,
        typer.Option(metavar="NUMBER", help="Mean of the secret number of runs, at least 1."),
    ] = 10.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the release as JSON for a program to read.")
    ] = False,
) -> None:
    """Tune a private classifier of handwritten digits and release the best.

    Trains softmax regressions with DP-SGD on scikit-learn's digits (offline), scores them
    privately, stops at a secret number of runs, and releases one of them with its guarantee.
    """
    # Start-up time: --help and refusals come at once.
    from rich.console import Console

    console = Console(stderr=as_json)
    with clear_errors({"mean": "--mean"}):
        found, evidence = _search(console, method, mean)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2, sort_keys=True))
        return
    _report(console, found, evidence)


def _search(console: Console, method: Method, mean: float) -> tuple[Release, Study]:
    # Start-up time: --help and refusals come at once.
    import optuna

    import optuna_dp as odp
    from optuna_dp import digits

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.getLogger("optuna_dp").setLevel(logging.WARNING)
    trials = odp.Geometric(mean)
    data = digits.load()
    console.print(
        f"[bold]Digits[/bold]: {len(data.train_x)} training and {len(data.valid_x)} validation "
        "records. Each run trains with DP-SGD and returns a noisy accuracy."
    )
    run = digits.cost_of_one_run()
    sampler = (
        odp.DPHyPOSampler(trials=trials)
        if method is Method.dp_hypo
        else odp.RandTuneSampler(trials=trials)
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)

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
    from optuna_dp.callbacks import PROGRESS_KEY

    one_run = odp.Guarantee(digits.cost_of_one_run())
    so_far = study._storage.get_study_system_attrs(study._study_id)[PROGRESS_KEY]["so far"]
    table = Table(title=f"Epsilon at delta = {DELTA:g}", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    table.add_row("one run", f"{one_run.epsilon(DELTA):.2f}", "what is often reported: too low")
    table.add_row(
        "publishing every run",
        f"{so_far['epsilon_by_naive_composition']:.2f}",
        "naive composition; tells T, so for the curator only",
    )
    _add_methods(table, found.guarantee)
    table.add_row(
        "[bold]this release[/bold]",
        f"[bold]{found.guarantee.epsilon(DELTA):.2f}[/bold]",
        "guaranteed for the whole search",
    )
    console.print()
    console.print("[bold]Released[/bold]")
    if found.params is None or found.value is None:
        console.print("  nothing: no run succeeded")
    else:
        console.print(f"  noisy accuracy: {found.value:.3f}")
        for name, value in found.params.items():
            console.print(
                f"  {name}: {value:.4g}" if isinstance(value, float) else f"  {name}: {value}"
            )
    console.print()
    console.print(table)
    console.print()
    console.print(Markdown(found.statement()))


def _add_methods(table: object, guarantee: Guarantee) -> None:
    # Start-up time: --help and refusals come at once.
    from rich.table import Table

    assert isinstance(table, Table)
    rdp = guarantee.by_method(DELTA).get("rdp", float("inf"))
    if rdp < float("inf"):
        table.add_row("this search by Rényi accounting", f"{rdp:.2f}", "valid, but loose")
