"""``optuna-dp check``."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer

from optuna_dp.cli.common import AsJson, clear_errors, option
from optuna_dp.errors import InvalidArgumentError

if TYPE_CHECKING:
    from optuna_dp.check.objective_report import Finding

_MOST_THREADS = 4
# What may define a name that stands nowhere in the file.
_DEFINES_UNNAMED = ("import *", "globals()", "exec(", "setattr(")


def check(
    objective: Annotated[
        str,
        typer.Argument(
            metavar="SCRIPT.py:OBJECTIVE",
            help="A Python file, and the name of the objective in it.",
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- ARGUMENTS",
            hidden=True,
            help="What the file finds in sys.argv, after its name.",
        ),
    ] = None,
    plan: Annotated[
        str | None, option("NAME", "Name of the budget plan or RunPlan in the file.")
    ] = None,
    event: Annotated[
        str | None, option("NAME", "Without a plan: name of the event of one run in the file.")
    ] = None,
    public_score: Annotated[
        bool, typer.Option("--public-score", help="Scores are computed on public records.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Hints count as faults: exit code 1.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look for mistakes that make an objective's privacy cost untrue: two runs, and the source.

    The file is imported: put the code that starts the study under `if __name__ == "__main__":`.
    Otherwise the import stops there, and the report says so. No budget is spent, but scores
    are printed and the objective's files are written: use made-up data, in an empty folder. Exit
    code 0: no fault found, which is no proof; 1: faults found, or hints with --strict; 2: it could
    not be checked.

    Half of the cores, and four at most, compute: short runs are slower on more. OMP_NUM_THREADS
    and torch.set_num_threads change that.

    The file finds its own name in sys.argv, and what stands after two dashes, as in
    optuna-dp check train.py:objective --plan plan -- --data made_up.csv

    Example: optuna-dp check train.py:objective --plan plan
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(clear_errors(check, objective="OBJECTIVE"))
        stack.enter_context(_few_threads())
        path, _, name = objective.rpartition(":")
        if not path or not name:
            raise InvalidArgumentError(
                "OBJECTIVE",
                objective,
                allowed="it must be a file and a name, as in script.py:objective",
            )
        _check_arguments(path, {"OBJECTIVE": name, "--plan": plan, "--event": event})
        stack.enter_context(_own_arguments(path, arguments or []))
        # Start-up time.
        from optuna_dp.check.watched_columns import watching_encodings

        odd_columns: dict[str, Finding] = {}
        with watching_encodings(odd_columns):
            module, starts_a_study = _imported(path)
        checked_objective = _named(module, path, name, "OBJECTIVE")
        # Start-up time: the checks need scipy and more.
        from optuna_dp.check.objective_check import check_objective
        from optuna_dp.check.run_faults import no_main_guard
        from optuna_dp.check.source_hints import hints_in_source

        with _standard_output_kept():
            report = check_objective(
                checked_objective,
                None if event is None else _named(module, path, event, "--event"),
                plan=None if plan is None else _named(module, path, plan, "--plan"),
                public_score=public_score,
                progress=_progress(),
            )
    # Hints at the whole file, in place of those at the objective's own lines.
    hints = hints_in_source(Path(path).read_text())
    kinds = {hint.name for hint in hints}
    findings = [f for f in report.findings if f.certain or f.name not in kinds]
    seen = {finding.about for finding in findings}
    findings += [finding for about, finding in odd_columns.items() if about not in seen]
    findings += [no_main_guard()] if starts_a_study else []
    report = dataclasses.replace(report, findings=(*findings, *hints))
    typer.echo(report.to_json() if as_json else str(report))
    raise typer.Exit(code=1 if report.fails(strict=strict) else 0)


def _check_arguments(path: str, names: dict[str, str | None]) -> None:
    """Refuses arguments that cannot be right, before the file is imported: that may take long.

    Args:
        path: The file.
        names: What is looked for in it, by the argument that says so; None for nothing.
    """
    if names["--plan"] is not None and names["--event"] is not None:
        raise InvalidArgumentError(
            "--event", names["--event"], problem="a plan has events of its own; give one of both"
        )
    file = Path(path)
    if not file.is_file() or file.suffix != ".py":
        raise InvalidArgumentError("OBJECTIVE", path, problem="there is no such Python file")
    source = file.read_text(encoding="utf-8", errors="replace")
    if any(words in source for words in _DEFINES_UNNAMED):
        return
    for argument, name in names.items():
        if name is not None and name not in source:
            raise _no_such_name(path, name, argument)


@contextlib.contextmanager
def _own_arguments(path: str, arguments: list[str]) -> Iterator[None]:
    """Puts a script's own arguments in place of this command's."""
    argv = sys.argv
    sys.argv = [path, *arguments]
    try:
        yield
    finally:
        sys.argv = argv


@contextlib.contextmanager
def _few_threads() -> Iterator[None]:
    """Limits the threads of numerical libraries that are loaded meanwhile, unless a user did.

    Threads that wait for each other in many short steps take longer than one does: on two cores
    a check of small networks took 28 to 47 s on one thread, and 50 to 190 s on two.
    """
    if "OMP_NUM_THREADS" in os.environ:
        yield
        return
    os.environ["OMP_NUM_THREADS"] = str(min(_MOST_THREADS, max(1, (os.cpu_count() or 1) // 2)))
    try:
        yield
    finally:
        del os.environ["OMP_NUM_THREADS"]


def _progress() -> Callable[[str], None]:
    """Returns what says on stderr which run begins, and after how many seconds."""
    start = time.monotonic()
    return lambda words: typer.echo(f"{time.monotonic() - start:6.1f} s: {words}", err=True)


class _StudyStarted(BaseException):
    """Not an Exception, so that a script which catches those stops as well."""


@contextlib.contextmanager
def _no_study_starts() -> Iterator[None]:
    """Stops whatever begins a trial."""
    from optuna.study import Study  # start-up time

    def stop(*arguments: object, **settings: object) -> NoReturn:
        raise _StudyStarted

    original_methods = {name: vars(Study)[name] for name in ("optimize", "ask")}
    Study.optimize, Study.ask = stop, stop  # type: ignore[method-assign]
    try:
        yield
    finally:
        for name, method in original_methods.items():
            setattr(Study, name, method)


def _imported(path: str) -> tuple[ModuleType, bool]:
    """Runs a file as a module of its own; what it imports from its folder is found.

    Returns:
        The module, and whether the file would have started a study.
    """
    file = Path(path)
    name = f"checked_{file.stem}"  # never that of a module which exists
    spec = importlib.util.spec_from_file_location(name, file.resolve())
    assert spec is not None  # for a file that ends in .py there always is one
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.resolve().parent))
    sys.modules[name] = module  # classes of the file can be found by name
    starts_a_study = False
    with _standard_output_kept(), _no_study_starts():
        try:
            spec.loader.exec_module(module)
        except _StudyStarted:
            starts_a_study = True  # what it defines before that is there
        except (Exception, SystemExit) as error:  # whatever the file does when it is imported
            raise InvalidArgumentError(
                "OBJECTIVE",
                path,
                problem=f"importing it ends with {type(error).__name__}: {error}",
                fix='Put the code that starts the study under if __name__ == "__main__". If the '
                "file reads sys.argv, give what it expects after two dashes: optuna-dp check "
                f"{path}:OBJECTIVE -- ARGUMENTS.",
            ) from error
    return module, starts_a_study


def _standard_output_kept() -> contextlib.redirect_stdout[TextIO]:
    """Sends what the file prints to stderr: only the report is output."""
    return contextlib.redirect_stdout(sys.stderr)


def _named(module: ModuleType, path: str, name: str, flag: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        raise _no_such_name(path, name, flag) from None


def _no_such_name(path: str, name: str, flag: str) -> InvalidArgumentError:
    return InvalidArgumentError(flag, name, problem=f"{path} does not define this name")
