"""What the pages for reviewers quote stands in a statement, in the same words."""

from __future__ import annotations

import re

import optuna
import pytest

import optuna_dp as odp
from documentation.pages import ROOT
from optuna_dp.digits import BudgetObjective

# Quoted from elsewhere: the command, other bodies' words, names of things.
ELSEWHERE = {"invariants"}


def _budget() -> str:
    plan = odp.plan_budget(epsilon=3.0, records=1355, batch_size=1355, epochs=1, pilots=(4, 2))
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    odp.describe(study, dataset="digits", owner="us", purpose="a test", unit="writer", most=3)
    study.optimize(BudgetObjective(), callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    plan = odp.plan_budget(epsilon=3.0, records=1355, batch_size=1355, epochs=1, pilots=2)
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    # Never asks what it may spend.
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1) ** 0.5)
    return release.statement() + odp.release(study, vouched="It is a test.").statement()


def _selection() -> str:
    sampler = odp.RandTuneSampler(trials=odp.Geometric(mean=2), run=odp.gaussian(4.0))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    release = odp.release(study, vouched="a test")
    return release.statement() + release.with_training(odp.gaussian(4.0)).statement()


@pytest.fixture(scope="module")
def statements() -> str:
    return " ".join((_budget() + _selection()).split())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reviewing", "standards"])
def test_every_row_that_a_page_names_is_in_a_statement(name: str, statements: str) -> None:
    page = (ROOT / "docs" / "explanation" / f"{name}.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    quoted = {found for row in rows for found in re.findall(r'"([^"]+)"', row)} - ELSEWHERE
    assert len(quoted) > 12
    assert not {words for words in quoted if words not in statements}
