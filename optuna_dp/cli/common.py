"""What the commands share: one clear line on bad input, exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperGroup
from typer.models import OptionInfo

from optuna_dp.errors import InvalidArgumentError, OptunaDPError


def option(metavar: str, help_text: str) -> Any:
    """Returns an option that shows what it takes, and says what it is for."""
    return typer.Option(metavar=metavar, help=help_text)


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


class Relation(str, Enum):
    """What neighbouring data sets differ in."""

    add_or_remove_one = "add-or-remove-one"
    replace_one = "replace-one"


TheRelation = Annotated[
    Relation,
    option("RELATION", "What neighbouring data sets differ in: add-or-remove-one or replace-one."),
]


class OneLineErrors(TyperGroup):
    """Prints what the parser of the command line refuses as one line on stderr, exit code 2."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs the command line; see the base class."""
        given = (args, prog_name, complete_var, False, windows_expand_args)
        if not standalone_mode:
            return super().main(*given, **extra)
        try:
            code = super().main(*given, **extra)
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


@contextmanager
def clear_errors(command: Callable[..., None], **flags: str) -> Iterator[None]:
    """Turns the errors a user can cause into one line on stderr and exit code 2.

    An argument of the library has the flag of the command's option of the same name, unless
    ``flags`` says what it is called on the command line.
    """
    hints = get_type_hints(command, include_extras=True)
    options = {
        name: f"--{name.replace('_', '-')}"
        for name, hint in hints.items()
        if any(isinstance(one, OptionInfo) for one in getattr(hint, "__metadata__", ()))
    }
    try:
        yield
    except InvalidArgumentError as error:
        name = (options | flags).get(error.argument, error.argument)
        if error.value is None:
            _print_error(f"{name} is missing: {error.allowed}. {error.fix}".strip())
        else:
            _print_error(str(InvalidArgumentError(name, error.value, error.allowed, error.fix)))
        raise typer.Exit(code=2) from error
    except OptunaDPError as error:
        _print_error(str(error))
        raise typer.Exit(code=2) from error


def _print_error(message: str) -> None:
    print(f"optuna-dp: {message}", file=sys.stderr)
