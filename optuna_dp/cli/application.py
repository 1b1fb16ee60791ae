"""The program ``optuna-dp``."""

from __future__ import annotations

from typing import Annotated

import typer

import optuna_dp
from optuna_dp.cli import budget, check, demo, plan, studies, votes
from optuna_dp.cli.common import Command, Commands

app = typer.Typer(
    name="optuna-dp",
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut long words at 80 columns
)
_COMMANDS = (
    (budget.budget, "Plan", "Plan pilots and a last run for an epsilon; write a script."),
    (plan.plan, "Plan", "Compare private selections of a secret number of runs."),
    (demo.demo, "Run", "Train a private classifier of digits, and compare."),
    (studies.recover, "Run", "List open trials; mark those of dead workers as failed."),
    (studies.release, "Release", "Release the result of a finished study."),
    (studies.verify, "Check", "Compute the numbers of a release again."),
    (check.check, "Check", "Run an objective and look for faults in its privacy."),
    (votes.vote, "Plan", "Plan a vote among clients: which lead shows through the noise."),
)
for function, group, summary in _COMMANDS:
    app.command(cls=Command, rich_help_panel=group, short_help=summary)(function)


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
