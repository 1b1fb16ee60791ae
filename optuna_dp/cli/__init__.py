"""The command line ``optuna-dp``."""

from __future__ import annotations

from typing import Annotated

import typer

import optuna_dp
from optuna_dp.cli import budget, check, demo, plan, studies
from optuna_dp.cli.common import Command, Commands

app = typer.Typer(
    name="optuna-dp",
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut long words at 80 columns
)
for command, group, summary in (
    (demo.demo, "Before a study", "Tune a classifier of digits within an epsilon."),
    (budget.budget, "Before a study", "Plan a tuning for an epsilon; a script to start from."),
    (plan.plan, "Before a study", "Compare what private selection costs and finds."),
    (check.check, "Before a study", "Look for what makes an objective's cost untrue."),
    (studies.recover, "With a study", "List open trials; fail those of dead workers."),
    (studies.release, "With a study", "Release the result of a finished study."),
    (studies.verify, "With a release", "Check the numbers of a release."),
):
    app.command(cls=Command, rich_help_panel=group, short_help=summary)(command)


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
