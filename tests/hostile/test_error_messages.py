"""Each error of one table is provoked through the public face, and says what is needed.

That is the argument, what was found, what is allowed, and the next step. The refusals of a release
stand in the documentation.
"""

from __future__ import annotations

import inspect
import pickle
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
        assert error.why
        assert error.problem in text
        assert error.allowed in text
    if isinstance(error, errors.ReleaseRefusedError):
        assert error.reason in text
        assert error.fix or "Restore the storage" in text, "a refusal says what to do"
    if isinstance(error, errors.UnsupportedEventError):
        assert type(error.event).__name__ in text
        assert "Describe it" in text


@pytest.mark.parametrize("case", ALL, ids=[case.what for case in ALL])
def test_an_error_keeps_its_kind_and_its_facts_on_the_way_to_another_process(case: Case) -> None:
    error = provoke(case)
    facts = {name: fact for name, fact in vars(error).items() if not callable(fact)}
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), str(error))
    assert {name: repr(fact) for name, fact in vars(copy).items() if name in facts} == {
        name: repr(fact) for name, fact in facts.items()
    }


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
