"""The progress line: there while it is of use, gone afterwards, and it never counts."""

from __future__ import annotations

import io
import re
import sys

import pytest
from support import RUN, exactly, objective, study_of

import optuna_dp as odp


class Terminal(io.StringIO):
    def __init__(self, tty: bool) -> None:
        super().__init__()
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


def shown(monkeypatch: pytest.MonkeyPatch, count: int, *, tty: bool) -> str:
    terminal = Terminal(tty)
    monkeypatch.setattr(sys, "stderr", terminal)
    study = study_of(odp.RandTuneSampler(trials=exactly(count)))
    study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN, show_progress=True)])
    return terminal.getvalue()


def test_it_says_what_is_guaranteed_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, 5, tty=True)
    epsilon = odp.selection_guarantee(RUN, exactly(5)).epsilon(1e-5)
    assert f"epsilon {epsilon:.3f}" in text
    # What stays on the screen is what follows the last return of the carriage: blanks.
    assert text.replace("\x1b[A", "").rstrip("\r").split("\r")[-1].strip() == ""


def test_it_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    words = re.sub(r"\d\d:\d\d:\d\d", "", shown(monkeypatch, 13, tty=True))
    assert not re.search(r"\b(13|12|11)\b", words)


def test_nothing_is_written_where_a_file_would_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, 3, tty=False) == ""
