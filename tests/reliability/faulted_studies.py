"""Many small studies, each with faults drawn at random, and counts of what came of them.

A command. It prints the counts, and ends with 1 if one of the last four is not zero::

    PYTHONPATH=tests python -m reliability.faulted_studies --studies 500 --seed 0

Every study is on a storage of its own: SQLite, a journal, or SQLite behind Optuna's gRPC proxy.
Workers come one after the other, or two at once. A worker may be killed before or after any call
to its storage, be told by the storage that it is gone, find the disk full, lose or copy the file,
or see its clock jump by months. Then runs of dead workers are marked, a worker without faults ends
the study, and it is released.

What is counted at the end: runs that were made twice; studies that can neither be released nor
begun anew; texts that name the number of runs; errors that are not this package's own, except when
a worker opens a storage by Optuna's ``load_study``. A fault that is drawn for a step beyond a
worker's last does not happen.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.trial import TrialState
from support import tell

import optuna_dp as odp
from optuna_dp.errors import OptunaDPError, UnfinishedStudyError
from optuna_dp.protocol.torn_journals import mend_journal, torn_lines

from .checks import check_exactly_t, plan_of, release_of
from .storages import open_storage, opened, serve_grpc
from .workers import BUDGET, SAMPLERS, Diary, Fate, granted_to, make_mortal

PLACES = ("sqlite", "journal", "sqlite", "journal", "grpc")
FAULTS = ("none", "kill", "gone", "full disk", "deletion", "clock jump", "copy")
# Neither its mean nor its name is a whole number, so that no text has to name one.
LAW = odp.Poisson(mean=4.5)
RUN = odp.gaussian(4.0)
_SQLITE = "sqlite:///"
_PATIENCE = 1.0  # seconds that workers with faults have, before they are killed
_WORKERS_AT_MOST = 12  # without a fault; a budget may fail several times to choose


@dataclass
class Counts:
    """What came of so many studies."""

    studies: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    made_twice: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.made_twice or self.lost or self.leaks or self.raw)


@dataclass
class Fault(Fate):
    """Something that happens to a worker at its n-th step."""

    kind: str = "none"
    file: Path = Path()

    def tick(self, before: bool) -> None:
        if before:
            self.seen += 1
        if self.seen != self.step or before != self.before:
            return
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "gone":
            cause = sqlalchemy.exc.OperationalError("UPDATE", {}, Exception("gone away"))
            raise optuna.exceptions.StorageInternalError("An exception is raised") from cause
        elif self.kind == "deletion":
            self.file.unlink(missing_ok=True)
        elif self.kind == "copy":
            shutil.copy(self.file, self.file.with_suffix(".copy"))
        elif self.kind == "clock jump":
            jump_by(self.step * (-1) ** self.step)


def jump_by(months: int) -> None:
    """Lets every later look at the clock, Optuna's too, be off by so many months."""
    offset = datetime.timedelta(days=30 * months)
    now = time.time
    time.time = lambda: now() + offset.total_seconds()

    class Jumped(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.datetime.fromtimestamp(time.time(), tz)

    for name, module in list(sys.modules.items()):
        if name.startswith("optuna") and getattr(module, "datetime", None) is datetime.datetime:
            module.datetime = Jumped  # type: ignore[attr-defined]


def fill_disk(file: Path, free_bytes: int) -> None:
    """Lets files of this process grow by so many bytes, and a database by so many pages."""
    limits = (file.stat().st_size + free_bytes, resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    def limit(connection: Any, _: Any) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + free_bytes // 4096}")

    sqlalchemy.event.listen(sqlalchemy.engine.Engine, "connect", limit)


def worker(url: str, name: str, sampler: str, fault: Fault, diary: Path, free_bytes: int) -> None:
    """Works at a study until it ends or a fault ends the worker. Never returns."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(os.open(f"{diary}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    notes = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(text: str) -> None:
        os.write(notes, f"{os.getpid()} {text}\n".encode())

    try:
        if fault.kind == "full disk":
            # Notes are on the same disk: what is written there must stay possible.
            fill_disk(fault.file, free_bytes)
        storage = open_storage(url)
        make_mortal(storage, fault, lambda text: None)
        study = optuna.load_study(study_name=name, storage=storage, sampler=SAMPLERS[sampler](LAW))

        def objective(trial: optuna.Trial) -> float:
            granted = granted_to(trial)
            if granted is not None:
                note(f"granted {granted}")
            x = trial.suggest_float("x", -1.0, 1.0)
            note(f"began {trial.number}")
            score: float = tell(trial, -((x - 0.3) ** 2))
            return score

        study.optimize(objective)
    except BaseException as error:  # All others are what is looked for.
        is_ours = isinstance(error, OptunaDPError)
        where = [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:3]
        text = f"{type(error).__name__}: {error} in {where}"
        # Optuna's own load_study is called by the user, before anything of this package.
        of_optuna = where[:1] in (["load_study"], ["open_storage"])
        kind = "ours" if is_ours else "of Optuna" if of_optuna else "raw"
        note(f"raised {kind} {text}".replace("\n", " "))
    os._exit(0)


def forked(call: Callable[..., None], *arguments: Any) -> int:
    """Calls something in a process of its own, which ends with the call; returns its number."""
    pid = os.fork()
    if not pid:
        try:
            call(*arguments)
        finally:
            os._exit(1)
    return pid


@contextmanager
def place(kind: str, folder: Path) -> Iterator[tuple[str, str, Path]]:
    """URLs of a new storage, for workers and for the operator, and its file."""
    if kind == "journal":
        yield f"journal:{folder}/s.log", f"journal:{folder}/s.log", folder / "s.log"
        return
    url, file = f"{_SQLITE}{folder}/s.db", folder / "s.db"
    if kind == "sqlite":
        yield url, url, file
        return
    server = forked(serve_grpc, url, f"{folder}/socket")
    deadline = time.monotonic() + 60
    while not Path(f"{folder}/socket").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield f"grpc:{folder}/socket", url, file
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)


def live_through(seed: int, counts: Counts) -> None:
    """Runs the study of a seed through its faults and adds what came of it."""
    rng = random.Random(seed)
    kind, sampler = rng.choice(PLACES), rng.choice(sorted(SAMPLERS))
    label = f"seed {seed}, {sampler} on {kind}"
    with tempfile.TemporaryDirectory(prefix="odp-faults-") as name, ExitStack() as stack:
        folder = Path(name)
        diary = folder / "diary"
        at_worker, at_operator, file = stack.enter_context(place(kind, folder))
        with opened(at_operator) as storage:
            optuna.create_study(storage=storage, study_name="s", direction="maximize")
        faults = []
        for _ in range(rng.randint(1, 3)):
            pair = [rng.choice(FAULTS) for _ in range(rng.choice((1, 1, 2)))]
            # A full disk or a deleted file of a server is the server's, not the worker's.
            pair = [f if kind != "grpc" or f in ("none", "kill", "gone") else "kill" for f in pair]
            step, before = rng.randint(1, rng.choice((8, 30, 80))), rng.random() < 0.5
            free_bytes = rng.randint(0, 12_000)
            pids = [
                forked(
                    worker,
                    at_worker,
                    "s",
                    sampler,
                    Fault(step + 7 * i, before, kind=fault, file=file),
                    diary,
                    free_bytes,
                )
                for i, fault in enumerate(pair)
            ]
            await_ends(pids, _PATIENCE)
            faults += pair
            if "deletion" in pair:
                break
            mark_the_dead(at_operator, file)
        counts.studies += 1
        counts.faults.update(faults)
        label += f" ({', '.join(faults)})"
        slots = None
        if "deletion" in faults:
            outcome = "file deleted"
        else:
            try:
                outcome, slots = ended(at_worker, at_operator, file, sampler, diary)
            except Exception as error:
                outcome = "lost"
                where = traceback.extract_tb(error.__traceback__)[-1]
                counts.lost.append(f"{label}: {type(error).__name__}: {error} at {where.line}")
        counts.outcomes[outcome] += 1
        notes = Diary.read(diary)
        twice = [number for number, times in Counter(notes.began).items() if times > 1]
        if twice:
            counts.made_twice.append(f"{label}: {twice}")
        errors = Path(f"{diary}.err").read_text() if Path(f"{diary}.err").exists() else ""
        raw = [text for text in notes.raised if text.startswith("raw")]
        raw += [line for line in errors.splitlines() if line.startswith("Traceback")]
        counts.raw += [f"{label}: {text}" for text in raw]
        if slots is not None:
            texts = [text.replace(str(folder), "") for text in [*notes.raised, errors]]
            named = re.compile(rf"(?<![\d.]){slots}(?![\d.])")
            counts.leaks += [f"{label}, T={slots}: {t}" for t in texts if named.search(t)]


def await_ends(pids: list[int], seconds: float) -> None:
    """Waits for processes; kills those that still run then, for they wait for a dead one."""
    deadline, running = time.monotonic() + seconds, list(pids)
    while running:
        if time.monotonic() > deadline:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
        running = [pid for pid in running if os.waitpid(pid, os.WNOHANG)[0] == 0]
        time.sleep(0.005)


def mark_the_dead(url: str, file: Path) -> None:
    """Mends a torn journal and marks all open runs as failed, when no worker is alive."""
    if url.startswith("journal:") and torn_lines(file.read_bytes()):
        mend_journal(file)
    with opened(url) as storage:
        study = optuna.load_study(study_name="s", storage=storage)
        odp.recover(study, fail=[trial.number for trial in odp.recover(study)])


def ended(
    at_worker: str, at_operator: str, file: Path, sampler: str, diary: Path
) -> tuple[str, int | None]:
    """Ends a study as an operator does; returns what it came to, and the secret number of runs."""
    for _ in range(_WORKERS_AT_MOST):
        mark_the_dead(at_operator, file)
        with opened(at_operator) as storage:
            study = optuna.load_study(study_name="s", storage=storage)
            trials = study.get_trials(deepcopy=False)
            if plan_of(study) is None and trials and trials[0].state == TrialState.FAIL:
                assert not Diary.read(diary).began, "a run began without a plan"
                return "begun anew", None
            try:
                # Without a plan nothing has begun, so there is nothing to release yet.
                release = release_of(study, RUN) if plan_of(study) is not None else None
            except UnfinishedStudyError:
                release = None
                if sampler == "budget" and all(t.value is None for t in trials[: BUDGET.pilots]):
                    study.enqueue_trial({"x": 0.3})  # As the error tells a person to.
            if release is not None:
                slots = check_exactly_t(study, Diary.read(diary).began, crashes=True)
                return "released", None if sampler == "budget" else slots
        pid = forked(worker, at_worker, "s", sampler, Fault(None, file=file), diary, 0)
        await_ends([pid], 60.0)
    raise AssertionError(f"not finished by {_WORKERS_AT_MOST} workers: {Diary.read(diary).raised}")


def run(studies: int, seed: int) -> Counts:
    """Runs so many studies, with the seeds from ``seed`` on."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    counts = Counts()
    for number in range(seed, seed + studies):
        live_through(number, counts)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts = run(options.studies, options.seed)
    print(f"{counts.studies} studies; faults drawn {dict(counts.faults)}")
    print(f"outcomes {dict(counts.outcomes)}")
    for name in ("made_twice", "lost", "leaks", "raw"):
        found = getattr(counts, name)
        print(f"{name}: {len(found)}")
        for text in found[:20]:
            print(f"  {text[:600]}")
    sys.exit(not counts.is_clean)


if __name__ == "__main__":
    main()
