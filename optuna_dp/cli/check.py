"""``optuna-dp check``."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from optuna_dp.cli.common import AsJson, clear_errors, option
from optuna_dp.errors import InvalidArgumentError


def check(
    objective: Annotated[
        str,
        typer.Argument(
            metavar="SCRIPT.py:OBJECTIVE",
            help="A file, and the name in it of the objective given to study.optimize.",
        ),
    ],
    event: Annotated[str | None, option("NAME", "Name in the file of what one run costs.")] = None,
    plan: Annotated[
        str | None, option("NAME", "Name in the file of the plan, for budgets.")
    ] = None,
    data: Annotated[
        str | None,
        option(
            "NAME", "Name in the file of records: the objective takes them as second argument."
        ),
    ] = None,
    public_score: Annotated[
        bool, typer.Option("--public-score", help="Scores are computed on public records.")
    ] = False,
    minimize: Annotated[
        bool, typer.Option("--minimize", help="The study minimizes its score.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run an objective a few times and look for what makes its stated cost untrue.

    The file is imported, so what starts the study belongs under `if __name__ == "__main__":`. No
    budget is spent. Exit code 0: nothing found, which proves nothing; 1: something to mend;
    2: it could not be checked.

    Example: optuna-dp check train.py:objective --event RUN
    """
    with clear_errors(check, objective="OBJECTIVE"):
        path, _, name = objective.rpartition(":")
        if not path or not name:
            raise InvalidArgumentError(
                "OBJECTIVE", objective, "it must be a file and a name, as in script.py:objective"
            )
        module = _imported(path)
        found = _named(module, path, name, "OBJECTIVE")
        from optuna_dp.testing.objective_check import check_objective  # start-up time

        with _standard_output_kept():
            report = check_objective(
                found,
                None if event is None else _named(module, path, event, "--event"),
                plan=None if plan is None else _named(module, path, plan, "--plan"),
                data=None if data is None else _named(module, path, data, "--data"),
                public_score=public_score,
                direction="minimize" if minimize else "maximize",
            )
    typer.echo(report.to_json() if as_json else str(report))
    raise typer.Exit(code=0 if report.ok else 1)


def _imported(path: str) -> Any:
    """Runs a file as a module of its own; what it imports from its folder is found."""
    file = Path(path)
    if not file.is_file() or file.suffix != ".py":
        raise InvalidArgumentError("OBJECTIVE", path, "there is no such Python file")
    name = f"checked_{file.stem}"  # never that of a module which exists
    spec = importlib.util.spec_from_file_location(name, file.resolve())
    assert spec is not None  # for a file that ends in .py there always is one
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.resolve().parent))
    sys.modules[name] = module  # classes of the file can be found by name
    with _standard_output_kept():
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:  # whatever the file does when it is imported
            raise InvalidArgumentError(
                "OBJECTIVE",
                path,
                f"importing it ends with {type(error).__name__}: {error}",
                'Put what starts the study under if __name__ == "__main__".',
            ) from error
    return module


def _standard_output_kept() -> contextlib.redirect_stdout[TextIO]:
    """Sends what the file prints to stderr: only the report is output."""
    return contextlib.redirect_stdout(sys.stderr)


def _named(module: Any, path: str, name: str, flag: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        raise InvalidArgumentError(flag, name, f"{path} defines no such name") from None
