"""Random studies that mix what Optuna's public API offers.

Every release has exactly the promised law, every refusal has a way out that is then taken, and
nothing of one study is in another.
"""

from __future__ import annotations

import contextlib
import gc
import pickle
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import Trial, TrialState, create_trial
from samplers.budget.budget_support import budget
from scipy import stats
from support import ask, tell
from support import release as released_by

import optuna_dp as odp
from optuna_dp.errors import OptunaDPError, PlanError, ReleaseRefusedError, UnfinishedStudyError
from optuna_dp.evidence.reading import read_evidence
from optuna_dp.samplers.budget.settings import PROCEDURE as BUDGET
from optuna_dp.study.entries import SLOT
from optuna_dp.study.plan import StudyPlan
from optuna_dp.study.trials import read_plan

RUN = odp.pure_dp(0.1)  # Quickly accounted for.
LAW = odp.Geometric(mean=4)
PLAN = budget(3)
X = {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}
SAMPLERS: dict[str, Callable[[], Any]] = {
    "rand_tune": lambda: odp.RandTuneSampler(trials=LAW, run=RUN),
    "rand_tune of a space": lambda: odp.RandTuneSampler(X, trials=LAW, run=RUN),
    "dp_hypo": lambda: odp.DPHyPOSampler(X, trials=LAW, candidates=4, schedule="any", run=RUN),
    "budget": lambda: odp.BudgetSampler(
        PLAN, search_space=X, proposer=optuna.samplers.RandomSampler()
    ),
}
# One of ten studies adapts: they are slower and no different here.
KINDS = ["rand_tune"] * 10 + ["rand_tune of a space"] * 6 + ["dp_hypo"] + ["budget"] * 3


def well(trial: Trial) -> float:
    ask(trial)
    score: float = tell(trial, trial.suggest_float("x", 0.0, 1.0))
    return score


@dataclass
class Life:
    """One study and what has been done to it from outside.

    Attributes:
        study: The study.
        foreign: Numbers of trials that no sampler of ours has drawn.
        copy_of: The study that this one was copied from.
    """

    study: optuna.Study
    foreign: set[int] = field(default_factory=set)
    copy_of: Life | None = None

    @property
    def plan(self) -> StudyPlan | None:
        return read_plan(self.study)

    @property
    def spoilt(self) -> bool:
        """Whether it cannot be released: a run in one of its slots is another sampler's.

        In a budget such trials are no runs, and only the one that has to hold the plan matters.
        """
        plan = self.plan
        return 0 in self.foreign or (
            plan is not None
            and plan.design.procedure != BUDGET
            and min(self.foreign, default=10**9) < plan.slots
        )


class World:
    """Studies that share a sampler, in one or two storages, and what is done to them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.kind = self.rng.choice(KINDS)
        self.sampler = SAMPLERS[self.kind]()
        self.callback = odp.PrivacyCallback()
        self.lives: list[Life] = []
        storages = [optuna.storages.InMemoryStorage() for _ in range(self.rng.randint(1, 2))]
        for _ in range(self.rng.randint(1, 3)):
            study = optuna.create_study(
                direction="maximize", sampler=self.sampler, storage=self.rng.choice(storages)
            )
            self.lives.append(Life(study))

    def optimize(self, life: Life, objective: Callable[[Trial], float], **kwargs: Any) -> None:
        self.forget_the_dead(life)
        with contextlib.suppress(PlanError, ReleaseRefusedError, KeyboardInterrupt):
            life.study.optimize(objective, callbacks=[self.callback], **kwargs)

    def forget_the_dead(self, life: Life) -> None:
        """Whoever left a run open is dead; those who wait would wait for ever."""
        still_open = [t.number for t in odp.recover(life.study)]
        odp.recover(life.study, fail=still_open)

    # What may happen.

    def some_runs(self, life: Life) -> None:
        self.optimize(life, well, n_trials=self.rng.randint(1, 3))

    def all_runs(self, life: Life) -> None:
        self.optimize(life, well)

    def no_time(self, life: Life) -> None:
        self.optimize(life, well, timeout=0.0)

    def two_jobs(self, life: Life) -> None:
        if not life.foreign:
            self.optimize(life, well, n_trials=4, n_jobs=2)

    def failures(self, life: Life) -> None:
        def fails(trial: Trial) -> float:
            value = well(trial)
            if self.rng.random() < 0.5:
                raise RuntimeError
            return float("nan") if self.rng.random() < 0.3 else value

        self.optimize(life, fails, n_trials=2, catch=(RuntimeError,))

    def prunes(self, life: Life) -> None:
        def pruned(trial: Trial) -> float:
            value = well(trial)
            trial.report(value, step=1)
            trial.should_prune()  # Optuna's own pruner, which is silenced.
            raise optuna.TrialPruned if value < -1.0 else KeyboardInterrupt

        self.optimize(life, pruned, n_trials=1)

    def interrupts(self, life: Life) -> None:
        def interrupted(trial: Trial) -> float:
            well(trial)
            raise KeyboardInterrupt

        self.optimize(life, interrupted, n_trials=2)

    def asks_and_tells(self, life: Life) -> None:
        self.forget_the_dead(life)
        with contextlib.suppress(PlanError):
            trial = life.study.ask()
            try:
                value = well(trial)
            except optuna.TrialPruned:
                life.study.tell(trial, state=TrialState.PRUNED)
                return
            if self.rng.random() < 0.7:
                life.study.tell(trial, value)
            elif self.rng.random() < 0.5:
                life.study.tell(trial.number, state=TrialState.FAIL)

    def dies_before_it_begins(self, life: Life) -> None:
        if life.plan is None:
            return
        life.study._storage.create_new_trial(life.study._study_id)
        number = len(life.study.get_trials(deepcopy=False)) - 1
        choice = self.rng.random()
        if choice < 0.4:
            life.study.tell(number, state=TrialState.FAIL)
        elif choice < 0.7:  # By a study without the sampler; repaired at the end.
            self.loaded(life, None).tell(number, state=TrialState.FAIL)

    def enqueues(self, life: Life) -> None:
        if self.kind != "budget":  # There it is a pilot like others.
            life.foreign.add(len(life.study.get_trials(deepcopy=False)))
        life.study.enqueue_trial({"x": 0.5})

    def adds(self, life: Life) -> None:
        life.foreign.add(len(life.study.get_trials(deepcopy=False)))
        life.study.add_trial(create_trial(params={"x": 0.5}, distributions=X, value=9.0))

    def runs_without_the_sampler(self, life: Life) -> None:
        waiting = [
            t for t in life.study.get_trials(deepcopy=False) if t.state == TrialState.WAITING
        ]
        number = waiting[0].number if waiting else len(life.study.get_trials(deepcopy=False))
        life.foreign.add(number)
        self.loaded(life, None).optimize(lambda trial: 9.0 + well(trial), n_trials=1)

    def loaded(self, life: Life, sampler: Any) -> optuna.Study:
        return optuna.load_study(
            study_name=life.study.study_name, storage=life.study._storage, sampler=sampler
        )

    def reloads(self, life: Life) -> None:
        how = self.rng.choice(["same", "pickled", "fresh"])
        if how == "pickled":
            self.sampler = pickle.loads(pickle.dumps(self.sampler))
        sampler = SAMPLERS[self.kind]() if how == "fresh" else self.sampler
        life.study = self.loaded(life, sampler)

    def copies(self, life: Life) -> None:
        name = f"copy {self.rng.random()}"
        storage = life.study._storage
        optuna.copy_study(
            from_study_name=life.study.study_name,
            from_storage=storage,
            to_storage=storage,
            to_study_name=name,
        )
        copy = optuna.load_study(study_name=name, storage=storage, sampler=self.sampler)
        self.lives.append(Life(copy, set(life.foreign), life))

    def deletes(self, life: Life) -> None:
        if len(self.lives) > 1:
            self.lives.remove(life)
            for other in self.lives:
                other.copy_of = None if other.copy_of is life else other.copy_of
            optuna.delete_study(study_name=life.study.study_name, storage=life.study._storage)

    def releases(self, life: Life) -> None:
        with contextlib.suppress(OptunaDPError):
            released_by(life.study)

    OFTEN = (some_runs, some_runs, all_runs, no_time, two_jobs, failures, asks_and_tells)
    RARELY = (
        *(prunes, interrupts, dies_before_it_begins, enqueues, adds, runs_without_the_sampler),
        *(reloads, reloads, copies, deletes, releases),
    )

    def live(self) -> None:
        for _ in range(self.rng.randint(2, 9)):
            actions: Any = self.OFTEN if self.rng.random() < 0.6 else self.RARELY
            self.rng.choice(actions)(self, self.rng.choice(self.lives))


def release_or_take_the_way_out(world: World, life: Life) -> str:
    """Brings a study to its end; returns how it went."""
    study = life.study = world.loaded(life, world.sampler)
    for _ in range(60):
        # Enqueued trials end a worker each; then the rest of the runs are made.
        world.optimize(life, well)
        try:
            found = released_by(study)
            break
        except UnfinishedStudyError:
            if world.kind == "budget":  # No pilot may have a score; then a person has to choose.
                study.enqueue_trial({"x": 0.5})
            continue
        except ReleaseRefusedError as error:
            text = str(error)
            if "confirm that" in text:
                odp.recover(study, fail=[error.trial_number or 0])
                continue
            if "in a row failed" in text:
                found = released_by(study, failures="chance")
                check_release(life, found)
                return "chance"
            copied = re.search(r"It (?:is a copy of|and) the study '(.+?)'", text)
            if copied:
                assert any(other.copy_of is not None for other in world.lives)
                original = copied[1]
                same = optuna.load_study(study_name=original, storage=study._storage)
                theirs = [other for other in world.lives if other.study.study_name == original]
                if not any(other.spoilt for other in theirs):
                    released_by(same, failures="chance")
                return "copy"
            assert life.spoilt, text
            fresh = Life(optuna.create_study(direction="maximize", sampler=world.sampler))
            world.optimize(fresh, well)
            check_release(fresh, released_by(fresh.study))
            return "new study"
    else:
        raise AssertionError("not finished")
    assert not life.spoilt
    check_release(life, found)
    return "released"


def check_release(life: Life, found: odp.Release) -> None:
    """Exactly T runs, each drawn by the study's own plan, and the best of them."""
    evidence = read_evidence(life.study)
    plan = evidence.plan
    if plan.design.procedure == BUDGET:
        check_release_of_a_budget(life, found)
        return
    trials = life.study.get_trials(deepcopy=False)
    assert [run.trial.number for run in evidence.runs] == list(range(plan.slots))
    for trial in trials:
        if trial.number >= plan.slots and trial.number not in life.foreign:
            assert not trial.params, "a run beyond the last"
        record = trial.system_attrs.get(SLOT.key)
        assert record is None or record["nonce"] == plan.nonce
    scores = [
        run.trial.value
        for run in evidence.runs
        if run.trial.state == TrialState.COMPLETE and run.trial.value is not None
    ]
    assert found.value == (max(scores) if scores else None)
    assert found.guarantee.epsilon(1e-5) >= odp.selection_guarantee(RUN, LAW).epsilon(1e-5)


def check_release_of_a_budget(life: Life, found: odp.Release) -> None:
    """The runs that began, no more than are charged for, and nothing of other trials."""
    trials = life.study.get_trials(deepcopy=False)
    runs = [t for t in trials if SLOT.key in t.system_attrs]
    assert life.foreign.isdisjoint(t.number for t in runs)
    for trial in trials:
        if trial not in runs and trial.number not in life.foreign:
            assert not trial.values, "a run that never began"
    pilots = [t for t in runs if t.number < PLAN.pilots]
    (last,) = [t for t in runs if t.number >= PLAN.pilots]
    assert [p["params"] for p in found.pilots] == [t.params for t in pilots]
    assert found.value == (last.value if last.state == TrialState.COMPLETE else None)
    assert found.guarantee == PLAN.guarantee


def play(seeds: range) -> Counter[str]:
    ends: Counter[str] = Counter()
    counts: list[int] = []
    drawn: list[float] = []
    for seed in seeds:
        world = World(seed)
        world.live()
        for life in world.lives:
            ends[release_or_take_the_way_out(world, life)] += 1
        seen: dict[float, int] = {}
        for life in world.lives:
            plan = life.plan
            if plan is None or life.copy_of is not None or world.kind == "budget":
                continue  # What runs again on a higher rung, or last, is drawn once.
            counts.append(plan.slots)
            mine = {
                t.params["x"]
                for t in life.study.get_trials(deepcopy=False)
                if t.number not in life.foreign and "x" in t.params
            }
            assert seen.keys().isdisjoint(mine), "something of one study is in another"
            seen.update(dict.fromkeys(mine, 1))
            if world.kind != "dp_hypo":
                drawn += mine
        if seed % 20 == 0:
            gc.collect()
    assert len(drawn) == len(set(drawn)), "something of one world is in another"
    check_laws(counts, drawn)
    return ends


def check_laws(counts: list[int], drawn: list[float]) -> None:
    """T and the draws are what was promised; a sound law fails this once in a million times."""
    assert stats.kstest(drawn, "uniform").pvalue > 1e-7
    u = np.asarray(counts)
    for k in (1, 2, 4, 8):
        expected = float(LAW.pmf(np.arange(1, k + 1)).sum())
        assert stats.binomtest(int((u <= k).sum()), len(u), expected).pvalue > 1e-7, k


@pytest.mark.slow
def test_random_studies() -> None:
    ends = play(range(12))
    assert ends["released"] > 5


@pytest.mark.slow
def test_hundreds_of_random_studies() -> None:
    ends = play(range(1000, 1350))
    assert sum(ends.values()) >= 500
    assert min(ends[way] for way in ("released", "new study", "copy")) > 15
