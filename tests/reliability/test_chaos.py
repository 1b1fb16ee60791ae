"""Workers killed at random moments: the study ends, T stays, nothing is repeated for free."""

from __future__ import annotations

import os

import pytest
from support import exactly

import optuna_dp as odp

from .chaos import live_through
from .storages import opened

LAW = odp.Geometric(mean=6)
# On each storage, with and without a budget. A schedule takes 5 to 12 seconds, so CI's two dozen
# take a few minutes; before a release set it to hundreds.
SCHEDULES = int(os.environ.get("CHAOS_SCHEDULES", "4"))


def run_schedules(seeds, kind, url_of, forks, tmp_path, law=LAW, restart=None, sampler=None):
    url = url_of(kind)
    total = {"deaths": 0, "recovered": 0, "restarts": 0, "begun anew": 0}
    for seed in seeds:
        print(f"chaos seed {seed} on {kind}", flush=True)
        with opened(url) as storage:
            diary = tmp_path / f"diary {seed}"
            story = live_through(seed, url, storage, forks, diary, law, restart, sampler)
        print(f"  {story}", flush=True)
        total["deaths"] += story.deaths
        total["recovered"] += story.recovered
        total["restarts"] += story.restarts
        total["begun anew"] += story.begun_anew
    print(f"{len(seeds)} schedules on {kind}: {total}")
    return total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "first"), [("sqlite", 100), ("journal", 200), ("postgresql", 300)]
)
def test_many_schedules_of_deaths(url_of, forks, tmp_path, kind, first) -> None:
    total = run_schedules(range(first, first + SCHEDULES), kind, url_of, forks, tmp_path)
    # Half as many deaths and trials, and a quarter as many studies begun anew, are certain (see
    # live_through).
    assert total["deaths"] >= SCHEDULES // 2
    assert total["recovered"] >= SCHEDULES // 2
    assert total["begun anew"] >= SCHEDULES // 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "first"), [("sqlite", 500), ("journal", 600), ("postgresql", 700)]
)
def test_many_schedules_of_deaths_with_a_budget(url_of, forks, tmp_path, kind, first) -> None:
    total = run_schedules(
        range(first, first + SCHEDULES), kind, url_of, forks, tmp_path, sampler="budget"
    )
    assert total["deaths"] >= SCHEDULES // 2


@pytest.mark.slow
def test_the_database_server_is_restarted_in_between(url_of, forks, postgres, tmp_path) -> None:
    # With eight runs there is a "between": it is restarted once three trials are there.
    total = run_schedules(
        range(400, 402), "postgresql", url_of, forks, tmp_path, exactly(8), postgres.restart
    )
    assert total["restarts"] == 2
