"""What the commands share: one clear line on bad input, exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from optuna_dp.errors import InvalidArgumentError, OptunaDPError


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
def clear_errors(flags: Mapping[str, str] | None = None) -> Iterator[None]:
    """Turns the errors a user can cause into one line on stderr and exit code 2.

    Args:
        flags: What the arguments of the library are called on the command line.
    """
    try:
        yield
    except InvalidArgumentError as error:
        name = (flags or {}).get(error.argument, error.argument)
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
