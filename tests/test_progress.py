"""The progress line: there while it is of use, gone afterwards; it keeps secret numbers."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest
from support import RUN, exactly, objective, study_of

import optuna_dp as odp
from optuna_dp.numbers_shown import rounded_up


class Terminal(io.StringIO):
    def __init__(self, tty: bool) -> None:
        super().__init__()
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


def shown(monkeypatch: pytest.MonkeyPatch, sampler: Any, run: Any = RUN, *, tty: bool) -> str:
    terminal = Terminal(tty)
    monkeypatch.setattr(sys, "stderr", terminal)
    callback = odp.PrivacyCallback(run, show_progress=True)
    study_of(sampler).optimize(objective, callbacks=[callback])
    return terminal.getvalue()


@pytest.mark.slow
def test_it_says_what_is_guaranteed_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, odp.RandTuneSampler(trials=exactly(5)), tty=True)
    epsilon = odp.selection_guarantee(RUN, exactly(5)).epsilon(1e-5)
    assert f"epsilon {rounded_up(epsilon, 3)}" in text
    # What stays on the screen is what follows the last return of the carriage: blanks.
    assert text.replace("\x1b[A", "").rstrip("\r").split("\r")[-1].strip() == ""


@pytest.mark.slow
def test_a_secret_number_of_runs_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, odp.RandTuneSampler(trials=exactly(13)), tty=True)
    words = re.sub(r"\d\d:\d\d:\d\d", "", text)
    assert not re.search(r"\b(13|12|11)\b", words)


def test_pilots_are_counted_and_no_line_is_wider_than_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = odp.plan_budget(epsilon=3.0, records=1355, batch_size=64, epochs=10, pilots=(3, 1))
    text = shown(monkeypatch, odp.BudgetSampler(plan), None, tty=True)
    lines = [line.strip() for line in text.replace("\x1b[A", "").split("\r") if line.strip()]
    ended = [line.partition(" ended")[0] for line in lines]
    assert list(dict.fromkeys(ended)) == [
        *(f"Pilot {i} of 4" for i in range(1, 5)),
        "The last run",
    ]
    assert max(map(len, lines)) <= 79
    epsilon = plan.guarantee.epsilon(plan.delta)
    assert all(f"epsilon {rounded_up(epsilon, 3)} at delta 1e-05." in line for line in lines)


def test_nothing_is_written_where_a_file_would_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, odp.RandTuneSampler(trials=exactly(3)), tty=False) == ""
