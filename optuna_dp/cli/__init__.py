"""The command line ``optuna-dp``. One command a file; this one puts them together."""

from __future__ import annotations

import typer

from optuna_dp.cli import demo, plan, recover, release

app = typer.Typer(
    name="optuna-dp",
    help="Differentially private hyperparameter tuning with Optuna.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(name="demo")(demo.demo)
app.command(name="plan")(plan.plan)
app.command(name="recover")(recover.recover)
app.command(name="release")(release.release)
app.command(name="statement")(release.statement)
