"""Every kind of error is provoked, says what it should, and stands in the documentation."""

from __future__ import annotations

import inspect
import re
import warnings
from typing import Any

import pytest

from optuna_dp import errors

from .error_messages import PAGE, Case, cases, page, provoke

ALL = [case for some in cases().values() for case in some]
# The argument, its value, what is allowed.
NAMED = re.compile(r"^[\w\[\]., ]+=.+ is not allowed: .+\.$", re.DOTALL)


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("case", ALL, ids=[case.what for case in ALL])
def test_the_message_names_what_is_wrong_and_ends(case: Case) -> None:
    error = provoke(case)
    text = str(error)
    assert text.endswith((".", ")", '"')), text
    assert "  " not in text
    assert "None None" not in text
    assert not re.search(r"0x[0-9a-f]{6,}", text), "an address tells nobody anything"
    if isinstance(error, errors.InvalidArgumentError):
        assert NAMED.match(text), text
        assert isinstance(error, ValueError)
        assert error.argument in text
        assert error.allowed in text
    if isinstance(error, errors.ReleaseRefusedError):
        assert error.reason in text
        assert error.fix or "Restore the storage" in text, "a refusal says what to do"
    if isinstance(error, errors.UnsupportedEventError):
        assert type(error.event).__name__ in text
        assert "Describe it" in text


def test_every_error_class_is_among_them() -> None:
    met = {type(provoke(case)) for case in ALL}
    ours = {
        value
        for _, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, errors.OptunaDPError) and value is not errors.OptunaDPError
    }
    assert met == ours


def test_the_page_is_what_is_said() -> None:
    """If this fails: ``PYTHONPATH=tests python -m hostile.error_messages``."""
    assert PAGE.read_text(encoding="utf-8") == page()
