"""One random schedule of deaths: workers killed, slots recovered, storage restarted."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

import optuna_dp as odp
from optuna_dp.errors import ReleaseRefusedError, UnfinishedStudyError
from optuna_dp.evidence.reading import read_evidence

from .checks import check_charged, check_exactly_t, plan_of, release_of
from .storages import session_name, sessions
from .workers import BUDGET, SAMPLERS, Diary, Fate, Job, live_and_die

# Seconds. A schedule takes a few; where many processes wait for a core, each worker takes many to
# start. Below the 900 after which pytest gives up, so that a failure says what was going on.
_PATIENCE = 780.0


@dataclass
class Story:
    """What happened."""

    slots: int
    deaths: int
    recovered: int
    restarts: int
    begun_anew: int


def nothing_to_choose_by(study: optuna.Study) -> bool:
    """Whether all pilots of a study with a budget have ended, and none with a score."""
    trials = study.get_trials(deepcopy=False)
    pilots = trials[: BUDGET.pilots]
    ended = len(pilots) == BUDGET.pilots and all(t.state.is_finished() for t in pilots)
    asked = any(t.state == TrialState.WAITING for t in trials)
    return ended and not asked and all(t.value is None for t in pilots)


def live_through(
    seed: int,
    url: str,
    storage: optuna.storages.BaseStorage,
    forks: Any,
    diary: Path,
    law: odp.TrialCount,
    restart: Callable[[], None] | None = None,
    sampler: str | None = None,
) -> Story:
    """Runs a study through the schedule of ``seed`` and checks what comes out.

    Half of the deaths come from within, right before or after a random call to the storage; half
    from outside, at a random moment. Under every other seed a first worker is alone and dies for
    certain, with trial 0 in its hands: before the plan is written or during the run. A trial is
    recovered when its worker is dead and the database is done with it, as an operator should. A
    study whose trial 0 ended without a plan is begun anew, and no run of it has begun.
    """
    rng = random.Random(seed)
    name = f"chaos {seed}"
    drawn = rng.choice(sorted(SAMPLERS))
    sampler = drawn if sampler is None else sampler
    study = optuna.create_study(storage=storage, study_name=name, direction="maximize")
    job = Job(url, name, sampler, law)
    deaths_left = rng.randint(2, 6)
    restart_left = 1 if restart is not None else 0
    crew_size, deaths, recovered, restarts, anew = rng.randint(2, 4), 0, 0, 0, 0
    workers: list[tuple[Any, float | None]] = []
    hired: set[int] = set()
    plan = None
    deadline = time.monotonic() + _PATIENCE

    def hire(at: str | None = None) -> None:
        nonlocal deaths_left
        fate, killed_at = Fate(None, at=at), None
        if at is None and deaths_left > 0:
            deaths_left -= 1
            if rng.random() < 0.5:
                # Early steps are where the plan and the slots are made.
                last = rng.choice([8, 16, 40])
                fate = Fate(rng.randint(1, last), before=rng.random() < 0.5)
            else:
                killed_at = time.monotonic() + rng.uniform(0.0, 0.4)
        args = (job, fate, str(diary), rng.choice([0.0, 0.01, 0.05]), rng.getrandbits(32))
        process = forks.Process(target=live_and_die, args=args, daemon=True)
        process.start()
        hired.add(process.pid)
        workers.append((process, killed_at))

    def recover_the_dead() -> int:
        # In this order: whoever took one of these trials has written so, or that it is about to.
        still_open = odp.recover(study)
        ids = {t.number: t._trial_id for t in study.get_trials(deepcopy=False)}
        written = Diary.read(diary)
        alive = {process.pid for process, _ in workers if process.is_alive()}
        at_the_database = sessions(storage)
        present = {pid for pid in hired if pid in alive or session_name(pid) in at_the_database}
        lost = set()
        for trial in still_open:
            owner = written.takers.get(ids[trial.number])
            if not present & (written.taking if owner is None else {owner}):
                lost.add(trial.number)
        # Its worker may have ended it, and itself, since the trials were listed.
        dead = sorted(lost & {trial.number for trial in odp.recover(study)})
        if dead:
            odp.recover(study, fail=dead)
        return len(dead)

    try:
        if seed % 2 == 0:
            hire(at="created" if seed % 4 == 0 else "began")
            workers[0][0].join(_PATIENCE)
        for _ in range(crew_size):
            hire()
        while time.monotonic() < deadline:
            time.sleep(0.02)
            for entry in list(workers):
                process, killed_at = entry
                if killed_at is not None and time.monotonic() > killed_at:
                    process.kill()  # Does nothing if it has ended, whoever has its number now.
                if not process.is_alive():
                    process.join()
                    workers.remove(entry)
                    deaths += process.exitcode == -signal.SIGKILL
            if restart is not None and restart_left and len(study.get_trials(deepcopy=False)) > 2:
                restart_left, restarts = 0, restarts + 1
                restart()
            if rng.random() < 0.5:  # An operator does not look all the time.
                recovered += recover_the_dead()
            seen = plan_of(study)
            if plan is not None:
                assert seen == plan, "the plan changed"
            plan = seen
            if workers:
                continue
            recovered += recover_the_dead()
            try:
                read_evidence(study)
            except UnfinishedStudyError:
                if sampler == "budget" and nothing_to_choose_by(study):
                    study.enqueue_trial({"x": 0.3})  # As the error tells a person to.
                for _ in range(crew_size):
                    hire()
            except ReleaseRefusedError:
                if plan is not None:
                    raise
                if study.get_trials(deepcopy=False)[0].state.is_finished():
                    assert not Diary.read(diary).began
                    anew += 1
                    name = f"chaos {seed}, begun anew {anew} times"
                    study = optuna.create_study(
                        storage=storage, study_name=name, direction="maximize"
                    )
                    job = replace(job, study=name)
                hire()
            else:
                break
        else:
            raise AssertionError(f"not finished in time: {Diary.read(diary)}")
    finally:
        for process, _ in workers:
            process.kill()
            process.join()
    slots = check_exactly_t(study, Diary.read(diary).began, crashes=True)
    assert plan is not None
    # Workers are killed by chance here, whatever the order in which their runs failed.
    release = release_of(study)
    trials = study.get_trials(deepcopy=False)
    if sampler == "budget":
        check_charged(release, Diary.read(diary).started)
        first = BUDGET.pilots
    else:
        assert plan.slots == slots
        first = 0
    completed = [t.value for t in trials[first:] if t.value is not None]
    assert release.value == (max(completed) if completed else None)
    return Story(slots, deaths, recovered, restarts, anew)
