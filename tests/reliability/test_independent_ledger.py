"""An independent ledger: what every objective was given, against what the release charges.

Random studies of every procedure do whatever Optuna's public API offers: threads, ask and tell,
enqueued, added and retried trials, failures, pruning, Ctrl-C, trials of other samplers, workers
that die at any call to the storage. Whoever calls an objective writes down that it was called, and
with what noise, before anything else happens. What is released in the end has to charge for it:

* of a budget, the Gaussians that its runs were given, composed;
* of a selection, runs of no more noise than they had, and at least what an attack gets from the
  best of T of them; of random tuning at most dp-accounting's own bound;
* of a choice among utilities, every recorded answer at the epsilon with which it was drawn,
  composed by dp-accounting.

Each of them is computed here, by scipy or dp-accounting, without the library's accounting.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import random
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import dp_accounting
import numpy as np
import optuna
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import common, privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.trial import Trial, TrialState, create_trial
from scipy.optimize import brentq
from scipy.stats import norm
from support import add_behind, tell

import optuna_dp as odp
from optuna_dp.errors import OptunaDPError, ReleaseRefusedError, UnfinishedStudyError
from optuna_dp.mechanisms import doubling, report_noisy_max
from optuna_dp.samplers.choice.choice import recorded_choices
from optuna_dp.study.entries import SLOT

from .checks import check_charged, plan_of
from .storages import opened
from .workers import BUDGET, PROCEDURES, X, started_by

# So many studies in all; before a release, LEDGER_STUDIES=1000.
STUDIES = int(os.environ.get("LEDGER_STUDIES", "24"))
# Of ten studies so many on each: a file is slower than memory.
SHARES = {"memory": 5, "sqlite": 1, "journal": 2, "postgresql": 1, "grpc of sqlite": 1}
MEAN, DELTA = 5, 1e-5
LAW = odp.Geometric(mean=MEAN)
NOISES = (2.0, 4.0, 8.0)  # Of a selection's runs.
DENSITIES = (0.75, 2.0)  # Of DP-HyPO's settings.


class Dead(BaseException):
    """A worker is dead: not an exception that Optuna or optuna-dp may take for anything else."""


class Fate(threading.local):
    """How many calls to the storage the worker in this thread will live to make."""

    left = math.inf


FATE = Fate()


def let_workers_die(storage: BaseStorage) -> BaseStorage:
    """Lets calls to a storage be moments of death, before or after they are made."""

    def mortal(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if FATE.left <= 0:
                raise Dead
            FATE.left -= 1
            found = call(*args, **kwargs)
            if FATE.left == 0.5:  # It has died, and its call has arrived.
                FATE.left = 0
                raise Dead
            return found

        return run

    for name in (
        *("create_new_trial", "get_trial", "get_all_trials", "set_trial_param"),
        *("set_trial_state_values", "set_trial_system_attr", "set_study_system_attr"),
    ):
        setattr(storage, name, mortal(getattr(storage, name)))
    return storage


class World:
    """One study, its workers, and the ledger that it knows nothing of."""

    PROCEDURES: tuple[str, ...] = tuple(sorted(PROCEDURES))

    def __init__(self, seed: int, kind: str, open_another: Callable[[], BaseStorage]) -> None:
        self.rng = random.Random(f"{seed} on {kind}")
        self.procedure = self.rng.choice(self.PROCEDURES)
        self.open_another = open_another
        self.name = f"{seed}: {self.procedure} on {kind}"
        self.noise = self.rng.choice(NOISES)
        self.ledger: list[tuple[int, float | None]] = []
        self.drawn: list[float] = []  # With which epsilon a private choice was drawn, each time.
        self.foreign = False  # Whether a trial is in the study that may spoil a selection.
        self.study = optuna.create_study(
            study_name=self.name,
            storage=open_another(),
            direction="maximize",
            sampler=PROCEDURES[self.procedure](LAW, odp.gaussian(self.noise)),
        )

    def worker(self, sampler: Any = None) -> optuna.Study:
        """The study as another process loads it."""
        made = (
            PROCEDURES[self.procedure](LAW, odp.gaussian(self.noise))
            if sampler is None
            else sampler
        )
        return optuna.load_study(study_name=self.name, storage=self.open_another(), sampler=made)

    def objective(self, rng: random.Random, well: bool = False) -> Callable[[Trial], float]:
        utilities = self.procedure in ("noisy_max", "propose_test")

        def objective(trial: Trial) -> float:
            theirs = isinstance(trial.study.sampler, optuna.samplers.RandomSampler)
            if self.procedure != "budget" and not theirs:  # Called is what counts.
                self.ledger.append((trial.number, None if utilities else self.noise))
            started = started_by(trial)
            if started is not None:
                self.ledger.append((trial.number, started))
            x = trial.suggest_float("x", -1.0, 1.0)
            value = 1.0 - (x - 0.3) ** 2 / 2
            how = 1.0 if well or utilities else rng.random()
            if how < 0.08:
                raise RuntimeError
            if how < 0.12:
                raise KeyboardInterrupt
            if how < 0.16:
                raise optuna.TrialPruned
            return math.nan if how < 0.2 else float(tell(trial, value))

        return objective

    def optimize(self, study: optuna.Study, well: bool = False, **options: Any) -> None:
        rng = random.Random(self.rng.getrandbits(32))
        # What Optuna says of a trial whose worker is dead is no matter here.
        theirs = (KeyboardInterrupt, RuntimeError, ValueError, UnboundLocalError)
        with contextlib.suppress(OptunaDPError, Dead, *theirs):
            study.optimize(self.objective(rng, well), **options)

    # What may happen.

    def some_runs(self) -> None:
        self.optimize(self.worker(), n_trials=self.rng.randint(1, 3), catch=(RuntimeError,))

    def threads(self) -> None:
        self.optimize(self.study, n_trials=4, n_jobs=self.rng.randint(2, 4))

    def workers(self) -> None:
        """Several at once, of which some die."""
        crew = []
        for _ in range(self.rng.randint(2, 3)):
            study, trials = self.worker(), self.rng.randint(1, 3)
            left = self.rng.choice([math.inf, self.rng.randint(1, 40) - 0.5 * (trials == 1)])
            crew.append(threading.Thread(target=self._live, args=(study, trials, left)))
        for thread in crew:
            thread.start()
        while crew:
            crew[0].join(0.05)
            crew = [thread for thread in crew if thread.is_alive()]
            self.bury(crew)

    def _live(self, study: optuna.Study, trials: int, left: float) -> None:
        FATE.left = left
        self.optimize(study, n_trials=trials, catch=(RuntimeError,))

    def bury(self, alive: list[threading.Thread] | None = None) -> None:
        """Marks open trials as failed: their workers are dead, or wait for ever for the dead."""
        before = {trial.number for trial in odp.recover(self.study)}
        for thread in alive or []:
            thread.join(0.3)
            if not thread.is_alive():
                return
        with contextlib.suppress(OptunaDPError):
            odp.recover(self.study, fail=sorted(before))

    def dies(self) -> None:
        study, FATE.left = self.worker(), self.rng.randint(1, 40) - self.rng.choice([0, 0.5])
        try:
            self.optimize(study, n_trials=2)
        finally:
            FATE.left = math.inf
        self.bury()

    def asks_and_tells(self) -> None:
        with contextlib.suppress(OptunaDPError):
            trial = self.study.ask()
            try:
                # Who calls an objective by hand finds here that a trial is beyond the last run.
                trial.suggest_float("x", -1.0, 1.0)
                value = self.objective(self.rng, well=True)(trial)
            except optuna.TrialPruned:
                self.study.tell(trial, state=TrialState.PRUNED)
                return
            if self.rng.random() < 0.8:
                self.study.tell(trial, value)
            else:
                self.study.tell(trial, state=TrialState.FAIL)

    def enqueues(self) -> None:
        self.foreign |= self.procedure != "budget"
        for _ in range(self.rng.randint(1, 3)):
            self.study.enqueue_trial({"x": self.rng.uniform(-1, 1)})

    def adds_waiting(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self.study.add_trial(create_trial(state=TrialState.WAITING))

    def adds_finished(self) -> None:
        self.foreign = True
        self.study.add_trial(create_trial(params={"x": 0.5}, distributions=X, value=0.9))

    def retries(self) -> None:
        """As Optuna's callback, and as one of a user's own that copies all that a trial holds."""
        failed = [t for t in self.study.trials if t.state == TrialState.FAIL]
        if not failed:
            return
        if self.rng.random() < 0.5:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                RETRY(max_retry=3)(self.study, failed[0])
            return
        self.foreign |= self.procedure != "budget"
        marks = {"failed_trial": failed[0].number, "retry_history": [failed[0].number]}
        add_behind(
            self.study,
            create_trial(
                state=TrialState.WAITING,
                params=failed[0].params,
                distributions=failed[0].distributions,
                system_attrs={**failed[0].system_attrs, **marks},
            ),
        )

    def another_sampler(self) -> None:
        self.foreign = True
        self.optimize(self.worker(optuna.samplers.RandomSampler()), n_trials=2)

    def continues_by_hand(self) -> None:
        """Asks what trials may spend that have ended: as runs, or without having been any."""
        for trial in self.study.trials[-2:]:
            if not trial.state.is_finished():
                continue
            with contextlib.suppress(OptunaDPError, optuna.TrialPruned):
                started = started_by(Trial(self.study, trial._trial_id))
                if started is not None and SLOT.key not in trial.system_attrs:
                    self.ledger.append((trial.number, started))

    def looks(self) -> None:
        with contextlib.suppress(OptunaDPError):
            self.release()

    OFTEN = (some_runs, threads, workers, dies, asks_and_tells)
    RARELY = (enqueues, adds_waiting, retries, adds_finished, another_sampler)
    RARELY_TOO = (continues_by_hand, looks)

    def live(self) -> None:
        print(self.name, flush=True)
        for _ in range(self.rng.randint(2, 7)):
            draw = self.rng.random()
            actions = self.OFTEN if draw < 0.7 else self.RARELY_TOO if draw < 0.8 else self.RARELY
            self.rng.choice(actions)(self)  # type: ignore[operator]
            self.bury()  # Or whoever is next would wait for the dead.

    def release(self) -> odp.Release:
        no_event = self.procedure in ("budget", "noisy_max", "propose_test")
        options = {} if no_event else {"failures": "chance", "vouched": "a test"}
        return odp.release(self.study, **options)  # type: ignore[arg-type]

    def end(self) -> str:
        """Brings the study to its release, or to a refusal that may be; compares the ledger."""
        for _ in range(40):
            self.bury()
            self.optimize(self.worker(), well=True)
            try:
                found = self.release()
            except UnfinishedStudyError:
                if self.procedure == "budget" and plan_of(self.study) is not None:
                    self.study.enqueue_trial({"x": 0.5})  # No pilot may have a score.
                continue
            except ReleaseRefusedError as error:
                if "confirm that" in str(error):
                    odp.recover(self.study, fail=[error.trial_number or 0])
                    continue
                self.check_refused(str(error))
                return "refused"
            self.check(found)
            return "released"
        raise AssertionError(f"{self.name}: not finished")

    def check_refused(self, text: str) -> None:
        # A candidate that was lost blocks the choice.
        # If the worker of trial 0 died before it wrote the plan, no run has begun.
        known = "it has no utility" in text or ("It has no plan" in text and not self.ledger)
        assert self.foreign or known, f"{self.name}: {text}"
        calls = Counter(number for number, _ in self.ledger)
        assert max(calls.values(), default=0) <= 1, f"{self.name}: twice: {calls}"

    def check(self, found: odp.Release) -> None:
        """The release charges for no less than was given."""
        calls = Counter(number for number, _ in self.ledger)
        assert max(calls.values(), default=0) <= 1, f"{self.name}: runs took place twice: {calls}"
        plan = plan_of(self.study)
        assert plan is not None
        if self.procedure == "budget":
            started = [noise for _, noise in self.ledger if noise is not None]
            check_charged(found, started)
            counts = Counter(started)
            for rung, size in zip(BUDGET.rungs, BUDGET.rung_sizes, strict=True):
                assert counts.pop(rung.noise_multiplier, 0) <= size
            assert counts.pop(BUDGET.final.noise_multiplier, 0) <= 1 + BUDGET.spare_runs
            assert not counts
            return
        slots = {t.number for t in self.study.trials[: plan.slots]}
        assert set(calls) <= slots, f"{self.name}: runs beyond the last: {calls}"
        charged = found.guarantee.epsilon(DELTA)
        if self.procedure in ("noisy_max", "propose_test"):
            # An answer that was drawn and never recorded has been seen by nobody.
            answers = len(recorded_choices(self.study.trials, plan)[0].answers)
            assert len(self.drawn) >= answers, f"{self.name}: an answer that nobody drew"
            spent = composed(max(self.drawn, default=0.0), answers)
            assert charged >= spent * (1 - 1e-3), f"{self.name}: {charged} for {spent}"
            return
        noise = min((noise for _, noise in self.ledger if noise is not None), default=math.inf)
        spent = best_of_t(noise)
        assert charged >= spent * (1 - 1e-9), f"{self.name}: {charged} for {spent}"
        event: Any = found.guarantee.event
        most = event.run.noise_multiplier
        assert most <= noise, f"{self.name}: runs of noise {most} charged for {noise}"
        if self.procedure == "rand_tune":
            assert charged <= upstream(self.noise), self.name
        else:  # No attack here learns from the history: the densities that it may have are seen.
            sees = "data" if self.procedure == "dp_hypo_any" else "history"
            assert event.density_bounds == DENSITIES
            assert event.policy == sees
            assert charged >= best_of_t(noise) * 1.02, self.name


# What it costs, by nothing of the library's.


@functools.cache
def best_of_t(noise: float) -> float:
    """An epsilon that the best of T Gaussians has at least.

    Outputs that speak against the record most are ranked first, above those that speak for it: it
    is likelier with the record that none of the former hides the latter. Where to cut is tried.
    """
    if math.isinf(noise):
        return 0.0
    against = np.linspace(-8.0, 3.0, 221)[:, None]
    speaks_for = np.linspace(0.0, 8.0, 321)[None, :] + 1.0 / noise

    def wins(mean: float) -> Any:
        """How likely the best speaks for the record: by the law's generating function."""
        none_against = norm.sf(against - mean)
        neither = none_against - norm.sf(speaks_for - mean)
        return law(none_against) - law(np.maximum(neither, 0.0))

    def law(each: Any) -> Any:
        return each / MEAN / (1.0 - (1.0 - 1.0 / MEAN) * each)

    with_record, without = wins(1.0 / noise), wins(0.0)

    def excess(epsilon: float) -> float:
        return float((with_record - math.exp(epsilon) * without).max()) - DELTA

    return float(brentq(excess, 0.0, 20.0))


@functools.cache
def upstream(noise: float) -> float:
    """dp-accounting's epsilon of the same selection (Papernot and Steinke's Renyi bound)."""
    accountant = RdpAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    run = dp_event.GaussianDpEvent(noise)
    accountant.compose(dp_event.RepeatAndSelectDpEvent(run, mean=MEAN, shape=1.0))
    return float(accountant.get_epsilon(DELTA))


@functools.cache
def composed(epsilon: float, answers: int) -> float:
    """What so many answers cost that are epsilon-DP each."""
    if answers == 0:
        return 0.0
    one = privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(epsilon, 0.0)
    )
    return float(one.self_compose(answers).get_epsilon_for_delta(DELTA))


@contextlib.contextmanager
def noting_private_choices(world: World) -> Iterator[None]:
    """Notes each draw of a private choice, with the epsilon that its noise gives."""

    def noted(draw: Callable[..., Any], place: int) -> Callable[..., Any]:
        def draws(utilities: Any, *args: Any) -> Any:
            moved = utilities.unit / utilities.n_partitions  # By one partition.
            world.drawn.append(args[place] * moved / utilities.sensitivity)
            return draw(utilities, *args)

        return draws

    with (
        mock.patch.object(report_noisy_max, "noisy_max", noted(report_noisy_max.noisy_max, 0)),
        mock.patch.object(doubling, "above_threshold", noted(doubling.above_threshold, 1)),
    ):
        yield


# Its name since Optuna 4.9, and before.
_NAMES = ("RetryHeartbeatStaleTrialCallback", "RetryFailedTrialCallback")
RETRY = next(found for name in _NAMES if (found := getattr(optuna.storages, name, None)))


@contextlib.contextmanager
def storages(kind: str, url: str | None) -> Iterator[Callable[[], BaseStorage]]:
    """Gives each worker a storage of its own; in memory all share one."""
    with contextlib.ExitStack() as stack:
        shared = let_workers_die(InMemoryStorage())

        def another() -> BaseStorage:
            if url is None:
                return shared
            return let_workers_die(stack.enter_context(opened(url)))

        yield another


def play(kind: str, seeds: range, url: str | None) -> Counter[str]:
    ends: Counter[str] = Counter()
    for seed in seeds:
        with storages(kind, url) as another:
            world = World(seed, kind, another)
            with noting_private_choices(world):
                world.live()
                ends[world.end()] += 1
            ends["objectives"] += len(world.ledger)
            ends[world.procedure] += 1
    return ends


@pytest.mark.parametrize("procedure", ["rand_tune", "dp_hypo_any"])
def test_the_ledger_sees_runs_that_are_charged_for_with_too_much_noise(procedure: str) -> None:
    """By 3 %. For random tuning the attack is within half a per cent of what is charged."""
    with mock.patch.object(World, "PROCEDURES", (procedure,)):
        world = finished_world()
        world.ledger = [(number, 0.97 * world.noise) for number, _ in world.ledger]
        with pytest.raises(AssertionError, match="for"):
            world.check(world.release())


@pytest.mark.parametrize("procedure", ["noisy_max", "propose_test"])
def test_the_ledger_sees_answers_that_are_charged_for_with_too_much_noise(procedure: str) -> None:
    with mock.patch.object(World, "PROCEDURES", (procedure,)):
        world = finished_world()
        world.drawn = [1.1 * drawn for drawn in world.drawn]
        with pytest.raises(AssertionError, match="for"):
            world.check(world.release())


def finished_world() -> World:
    with storages("memory", None) as another:
        world = World(0, "memory", another)
        with noting_private_choices(world):
            assert world.end() == "released"
    return world


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind in ("memory", "sqlite") else [pytest.mark.slow])
        for kind in SHARES
    ],
)
def test_what_objectives_were_granted_is_charged(kind: str, url_of: Any) -> None:
    count = max(1, STUDIES * SHARES[kind] // sum(SHARES.values()))
    ends = play(kind, range(count), None if kind == "memory" else url_of(kind))
    print(kind, dict(ends))
    assert ends["released"] + ends["refused"] == count
    assert ends["released"] >= count // 3
