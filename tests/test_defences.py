"""A defence that is switched off is noticed; ``.ci/whole defences`` switches off all of them."""

from __future__ import annotations

import defences
import pytest


@pytest.mark.parametrize("name", defences.DEFENCES)
def test_what_is_switched_off_exists_and_its_promise_has_tests(name: str) -> None:
    entry = defences.DEFENCES[name]
    assert defences.marked_files().get(entry.promise)
    for target in entry.off:
        try:
            holder, attribute = defences.resolved(target)
        except ModuleNotFoundError as error:
            if error.name in ("torch", "opacus"):  # An extra that is not installed.
                continue
            raise
        assert attribute in vars(holder), target


def test_a_defence_that_is_switched_off_is_noticed() -> None:
    name = "other private studies are pointed out"
    ended = defences.outcome({defences.DEFENCES[name].promise}, name)
    assert defences.is_noticed(ended), ended
    assert len(ended.failed) == 1


def test_what_cannot_be_collected_or_is_broken_is_not_noticed() -> None:
    ended = defences.Outcome(2, [], {}, {}, 1.0, "Interrupted: 1 error during collection")
    assert not defences.is_noticed(ended)
    ended = defences.Outcome(1, ["test_x"], {}, {"test_x": "TypeError"}, 1.0, "1 failed")
    assert not defences.is_noticed(ended)
