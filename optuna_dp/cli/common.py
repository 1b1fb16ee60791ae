"""Parts of all commands: options, help in groups, one clear line on bad input, exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo

from optuna_dp.errors import InvalidArgumentError, OptunaDPError

if TYPE_CHECKING:
    from rich.table import Table


def option(metavar: str, help_text: str, group: str | None = None) -> OptionInfo:
    """Returns an option that shows what it takes, and says what it is for."""
    info: OptionInfo = typer.Option(metavar=metavar, help=help_text, rich_help_panel=group)
    return info


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


Relation = Annotated[
    Literal["add-or-remove-one", "replace-one"],
    option("RELATION", "Neighbouring data sets: add-or-remove-one or replace-one."),
]


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Returns a table whose first column holds words and whose others hold numbers.

    Args:
        title: Stands above it.
        heads: The heads of the columns.
        rows: The cells of each row; an empty row separates those before and after it.
    """
    # Lazy: start-up time.
    from rich import box
    from rich.table import Table

    rich_table = Table(
        heads[0],
        title=title or None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for head in heads[1:]:
        rich_table.add_column(head, justify="right")
    for row in rows:
        rich_table.add_row(*row)
    return rich_table


class Command(TyperCommand):
    """Lists its options by their groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the options of ``--help``; see the base class."""
        rows = []
        for parameter in self.get_params(ctx):
            group = "Arguments" if parameter.param_type_name == "argument" else "Options"
            record = parameter.get_help_record(ctx)
            if record is not None:  # Of a hidden one.
                rows.append((getattr(parameter, "rich_help_panel", None) or group, record))
        _write_groups(formatter, rows)


class Commands(TyperGroup):
    """Lists its commands by their groups; says in one line on stderr what the parser refuses."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands of ``--help``; see the base class."""
        commands: list[tuple[str, Any]] = [(n, self.get_command(ctx, n)) for n in self.commands]
        rows = [(c.rich_help_panel, (name, c.get_short_help_str(70))) for name, c in commands]
        _write_groups(formatter, rows)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> object:
        """Runs the command line; see the base class."""
        arguments = (args, prog_name, complete_var, False, windows_expand_args)
        if not standalone_mode:
            return super().main(*arguments, **extra)
        try:
            code = super().main(*arguments, **extra)
        except Exception as error:
            # Click's exceptions, which recent versions of Typer bring themselves.
            message = getattr(error, "format_message", None)
            if message is None:
                raise
            context = getattr(error, "ctx", None)
            path = "optuna-dp" if context is None else context.command_path
            _print_error(f"{' '.join(message().split())} (See {path} --help.)")
            code = 2
        sys.exit(code)


def _write_groups(formatter: Any, rows: Iterable[tuple[str, object]]) -> None:
    groups: dict[str, list[object]] = {}
    for group, row in sorted(rows, key=lambda row: row[0] == "Options"):  # those come last
        groups.setdefault(group, []).append(row)
    for heading, entries in groups.items():
        with formatter.section(heading):
            formatter.write_dl(entries)


@contextmanager
def clear_errors(command: Callable[..., None], **flags: str) -> Iterator[None]:
    """Turns the errors a user can cause into one line on stderr and exit code 2.

    An argument of the library has the flag of the command's option of the same name, unless
    ``flags`` says what it is called on the command line.
    """
    # Lazy: start-up time.
    from optuna_dp.study.storage_errors import clear_storage_errors

    hints = get_type_hints(command, include_extras=True)
    options = {
        name: f"--{name.replace('_', '-')}"
        for name, hint in hints.items()
        if any(isinstance(marker, OptionInfo) for marker in getattr(hint, "__metadata__", ()))
    }
    try:
        with clear_storage_errors():
            yield
    except OptunaDPError as error:
        message = str(error)
        if isinstance(error, InvalidArgumentError):
            name = (options | flags).get(error.argument, error.argument)
            message = str(error.about(name))
            if error.value is None:
                message = f"{name} is missing: {error.why}. {error.fix}".strip()
        _print_error(message)
        raise typer.Exit(code=2) from error


def _print_error(message: str) -> None:
    print(f"optuna-dp: {message}", file=sys.stderr)
