"""No epsilon depends on what is shown beside it: attacks, the bounds of others, pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from samplers.budget.budget_support import budget, finished
from support import finished_study

import optuna_dp as odp
from optuna_dp.core import by_name

Show = Callable[[Any], None]
WRONG = {
    "zero": lambda *arguments: 0.0,
    "nonsense": lambda *arguments: "nonsense",
    "no bounds": lambda *arguments: {},
    "free of charge": lambda *arguments: {"koskela": (0.0, ""), "theorem_1": (0.0, "")},
}


def fails(*arguments: Any) -> Any:
    raise ZeroDivisionError


@pytest.fixture
def show_beside(monkeypatch: pytest.MonkeyPatch) -> Show:
    """Puts a function in the place of all that is shown beside a guarantee."""
    load, entries = by_name.load, {*by_name.SHOWN_BESIDE.values()}

    def replace(function: Any) -> None:
        monkeypatch.setattr(
            by_name, "load", lambda entry: function if entry in entries else load(entry)
        )

    return replace


def guarantees() -> dict[str, odp.Guarantee]:
    law, run = odp.Geometric(mean=5), odp.gaussian(2.0)
    one = odp.Guarantee(odp.compose(run, odp.laplace(3.0)))
    adaptive = odp.selection_guarantee(run, law, density_bounds=(0.5, 2.0), policy="data")
    return {
        "one run": one,
        "best of several": odp.selection_guarantee(run, law),
        "adaptive": adaptive,
        "composed": adaptive.compose(one),
        "budget": budget(4, 2).guarantee,
    }


def numbers(guarantee: odp.Guarantee) -> Any:
    return (
        guarantee.epsilon(1e-5),
        guarantee.method(1e-5),
        guarantee.delta(0.5),
        guarantee.mu(),
        list(guarantee.rdp([2.0, 8.0])),
    )


@pytest.mark.slow
def test_nothing_shown_beside_a_guarantee_changes_it(show_beside: Show) -> None:
    """Not even one that claims to be a bound of zero."""
    honest = {name: numbers(guarantee) for name, guarantee in guarantees().items()}
    for function in (*WRONG.values(), fails):
        show_beside(function)
        assert {name: numbers(g) for name, g in guarantees().items()} == honest


@pytest.mark.parametrize("wrong", [*WRONG, "fails"])
def test_nothing_shown_beside_a_release_changes_it(show_beside: Show, wrong: str) -> None:
    for study in (finished_study(), finished()):
        honest = odp.release(study, vouched="a test")
        epsilon = honest.guarantee.epsilon(1e-5)
        show_beside(WRONG.get(wrong, fails))
        assert odp.release(study, vouched="a test") == honest
        assert odp.release(study, vouched="a test").guarantee.epsilon(1e-5) == epsilon


def test_bounds_of_others_are_shown_and_not_used(show_beside: Show) -> None:
    show_beside(WRONG["free of charge"])
    for guarantee in (guarantees()["best of several"], guarantees()["adaptive"]):
        assert guarantee.by_method(1e-5)["koskela"] == 0.0
        assert guarantee.method(1e-5) not in ("koskela", "theorem_1")
        assert set(guarantee.comparisons(1e-5)) == {"koskela", "theorem_1"}
        assert guarantee.epsilon(1e-5) > 0.5
