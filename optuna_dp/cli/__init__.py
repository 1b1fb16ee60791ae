"""The command line ``optuna-dp``. One command a file; this one puts them together."""

from __future__ import annotations

from typing import Annotated

import typer

import optuna_dp
from optuna_dp.cli import budget, check, demo, plan, recover, release, verify
from optuna_dp.cli.common import OneLineErrors

app = typer.Typer(
    name="optuna-dp",
    cls=OneLineErrors,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut long words at 80 columns
)
for command, summary in (
    (budget.budget, "Plan a tuning for an epsilon; a script to start from."),
    (check.check, "Look for what makes an objective's cost untrue."),
    (demo.demo, "Tune a classifier of digits, release the best."),
    (plan.plan, "Compare what searches cost and find."),
    (recover.recover, "List open trials; fail those of dead workers."),
    (release.release, "Release the best run of a finished study."),
    (release.statement, "Print the privacy statement of a study."),
    (verify.verify, "Check the numbers of a release."),
):
    app.command(short_help=summary)(command)


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
) -> None:
    """Differentially private hyperparameter tuning with Optuna."""
    if version:
        typer.echo(f"optuna-dp {optuna_dp.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
