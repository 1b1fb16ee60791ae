"""Whoever begins a run has won it: an independent ledger of what every objective was given.

Workers pop waiting trials (enqueued, retried, added by hand) as fast as they can. SQLite gives
one trial to several of them: without claims, every fourth of these studies makes a run twice.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import optuna
import pytest
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState, create_trial
from support import add_behind

import optuna_dp as odp

from .checks import check_charged, plan_of, release_of
from .storages import opened
from .workers import BUDGET, PROCEDURES, Job, Ledger, X, noting

KINDS = ("memory", "sqlite", "journal", "postgresql", "grpc", "grpc of sqlite")
# On each kind of storage, and at most so many in one file or database. A study takes about a
# second on a machine that has nothing else to do; before a release, NO_RUN_TWICE_STUDIES=350.
STUDIES = int(os.environ.get("NO_RUN_TWICE_STUDIES", "6"))
BATCH = min(STUDIES, 25)
LAW = odp.Geometric(mean=6)
RUN = odp.gaussian(4.0)
WAITING = {
    "budget": ("enqueued", "enqueued last", "retried", "bare", "plain"),
    "rand_tune": ("bare", "bare from the first", "plain"),
    "dp_hypo_any": ("bare", "plain"),
    "noisy_max": ("bare", "bare from the first", "plain"),
    "propose_test": ("bare", "plain"),
}
CREWS = [(1, 2), (1, 4), (1, 8), (2, 1), (3, 1), (8, 1), (3, 3)]


def queue(study: optuna.Study, waiting: str, ledger: Ledger) -> None:
    """Makes some runs, notes them, and leaves trials in the queue for the workers."""
    first = {"bare from the first": 0, "enqueued": 0, "enqueued last": BUDGET.pilots}
    if first.get(waiting, 1):
        study.optimize(noting(ledger), n_trials=first.get(waiting, 1))
    for i in range({"plain": 0, "enqueued last": 1}.get(waiting, 4)):
        x = i / 8
        if waiting.startswith("enqueued"):
            study.enqueue_trial({"x": x})
        elif waiting == "retried":  # As a callback of one's own would copy the failed trial.
            was = study.trials[0]
            marks = {"failed_trial": 0, "retry_history": [0]}
            add_behind(
                study,
                create_trial(
                    state=TrialState.WAITING,
                    params={"x": x},
                    distributions=X,
                    system_attrs={**was.system_attrs, **marks},
                ),
            )
        else:
            study.add_trial(create_trial(state=TrialState.WAITING))


def check(study: optuna.Study, procedure: str, ledger: Ledger) -> None:
    """No run took place twice, and the release charges for no fewer than took place."""
    calls = Counter(number for number, _ in ledger)
    assert max(calls.values(), default=0) <= 1, f"runs took place twice: {calls}"
    if procedure == "budget":
        check_charged(odp.release(study), [noise for _, noise in ledger if noise is not None])
        assert len(ledger) == BUDGET.pilots + 1
    elif procedure in ("noisy_max", "propose_test"):
        assert len(ledger) == 6
        odp.release(study)
    else:
        plan = plan_of(study)
        assert plan is not None
        assert sorted(calls) == list(range(plan.slots))
        stated = release_of(study).guarantee.epsilon(1e-5)
        assert stated >= odp.selection_guarantee(RUN, LAW).epsilon(1e-5)


def live(seed: int, kind: str, url: str | None, crew: object) -> None:
    """One study: its procedure, its queue and its workers are drawn from the seed."""
    rng = random.Random(f"{kind} {seed}")
    procedure = rng.choice(list(WAITING))
    waiting, ledger = rng.choice(WAITING[procedure]), []
    workers, n_jobs = rng.choice([c for c in CREWS if url is not None or c[0] == 1])
    name = f"{seed}: {procedure}, {waiting}, {workers} processes of {n_jobs}"
    print(name, flush=True)

    def play(storage: optuna.storages.BaseStorage) -> None:
        sampler = PROCEDURES[procedure](LAW)
        study = optuna.create_study(
            storage=storage, study_name=name, direction="maximize", sampler=sampler
        )
        queue(study, waiting, ledger)
        if url is None:
            study.optimize(noting(ledger), n_jobs=n_jobs)
        else:
            ledger.extend(crew.ledger(Job(url, name, procedure, LAW, n_jobs), workers))
        check(study, procedure, ledger)

    if url is None:
        play(InMemoryStorage())
    else:
        with opened(url) as storage:
            play(storage)


# The slow suite has all kinds of storage (below).
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "studies"), [("memory", 6), ("sqlite", 1), ("journal", 1)])
def test_no_run_is_made_twice_and_none_goes_uncharged(kind, studies, url_of, crew) -> None:
    url = None if kind == "memory" else url_of(kind)
    for seed in range(studies):
        live(seed, kind, url, crew)


@pytest.mark.slow
def test_a_worker_that_fails_leaves_no_answer_for_the_next_study(url_of, crew) -> None:
    """Left unread, answers made the studies after a failure seem to have runs twice or never."""
    url = url_of("sqlite")
    with opened(url):  # makes the tables: two workers at once may both try to
        pass
    with pytest.raises(AssertionError, match="KeyError"):
        crew.ledger(Job(url, "no such study", "rand_tune", LAW), 2)
    live(1, "journal", url_of("journal"), crew)
    live(2, "journal", url_of("journal"), crew)


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(-(-STUDIES // BATCH)))
@pytest.mark.parametrize("kind", KINDS)
def test_many_studies_make_no_run_twice(kind, batch, url_of, crew) -> None:
    url = None if kind == "memory" else url_of(kind)
    for seed in range(1000 + batch * BATCH, 1000 + (batch + 1) * BATCH):
        live(seed, kind, url, crew)
