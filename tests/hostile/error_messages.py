"""Provokes every kind of error and writes what is said: ``docs/reference-errors.md``.

Errors other than refusals of a release say what to change in the call, and stand on no page.
``PYTHONPATH=tests python -m hostile.error_messages`` writes the page; ``test_error_messages.py``
checks that it is up to date.
"""

from __future__ import annotations

import re
import textwrap
import warnings
from pathlib import Path

import optuna

from optuna_dp.errors import OptunaDPError, ReleaseRefusedError, UnfinishedStudyError

from .error_case import Case
from .errors_of_budgets import BUDGETS
from .errors_of_engines import ENGINES, EXTRAS
from .errors_of_numbers import ACCOUNTING, EVENTS, LAWS
from .errors_of_studies import RELEASE, RUNNING, SAMPLERS, SCORES, UTILITIES

# Others are raised by the call that is wrong, and say what to change in it.
_LISTED = (ReleaseRefusedError, UnfinishedStudyError)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference-errors.md"


def cases() -> dict[str, list[Case]]:
    """Returns every way to go wrong, by chapter."""
    return {
        "Laws of the number of runs": LAWS,
        "What one run costs": EVENTS,
        "Guarantees, calibration and plans": ACCOUNTING,
        "Budgets": BUDGETS,
        "Samplers, callback and pruner": SAMPLERS,
        "While a study runs": RUNNING,
        "Release": RELEASE,
        "Utilities over partitions": UTILITIES,
        "Scores and votes": SCORES,
        "Workers on engines": ENGINES,
        "Optional packages": EXTRAS,
    }


def provoke(case: Case) -> OptunaDPError:
    """Returns the error that a case meets.

    Raises:
        AssertionError: If it meets none, or one that is not ours.
    """
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        case.do()
    except OptunaDPError as error:
        return error
    except Exception as error:
        raise AssertionError(f"{case.what}: {type(error).__name__}: {error}") from error
    finally:
        optuna.logging.set_verbosity(level)
    raise AssertionError(f"{case.what}: nothing was refused")


def page() -> str:
    """Returns the page."""
    lines = [
        "# Errors",
        "",
        "Every error is an `optuna_dp.errors.OptunaDPError` that says what to do. A refusal",
        "changes nothing: the study stays as it was. Below, what `release` refuses; made by",
        "doing it (`PYTHONPATH=tests python -m hostile.error_messages`).",
    ]
    for chapter, some in cases().items():
        met = [(case, provoke(case)) for case in some]
        refused = [(c, error) for c, error in met if isinstance(error, _LISTED)]
        lines += ["", f"## {chapter}"] * bool(refused)
        for case, error in refused:
            lines += ["", f"**{case.what}.** `{type(error).__name__}`", "", "```text"]
            # What dp-accounting says depends on its version.
            text = re.sub(r"(dp-accounting says): .*( Describe)", r"\1 ...\2", str(error))
            lines += [*_wrapped(text), "```"]
            if case.then:
                lines += ["", case.then]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, width: int = 96) -> list[str]:
    return [
        line
        for given in text.splitlines()
        for line in textwrap.wrap(given, width, break_long_words=False, break_on_hyphens=False)
    ]


def main() -> None:
    """Writes the page."""
    warnings.simplefilter("ignore")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
