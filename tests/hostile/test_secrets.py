"""T and the slots' records stay where only the curator looks."""

from __future__ import annotations

import json
import re
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState, create_trial
from samplers.budget.budget_support import budget
from support import RUN, logged, study_of

import optuna_dp as odp
from optuna_dp.errors import OptunaDPError
from optuna_dp.evidence.reading import read_evidence
from optuna_dp.releasing.callbacks import OPTUNA_LOG
from optuna_dp.study.entries import BEYOND, CLAIMS, SLOT
from optuna_dp.study.trials import SlotEntry, read_plan
from optuna_dp.study.waiting import Waiting

SECRET = 41
X = {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}


LAW = odp.NegativeBinomial(shape=1.0, gamma=0.25)


@pytest.fixture(autouse=True)
def _drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the law draws is known to this file only."""
    monkeypatch.setattr(odp.TrialCount, "sample", lambda law, uniform_bits=None: SECRET)


PLAN = budget(2)
SAMPLERS: dict[str, Callable[[], Any]] = {
    "rand_tune": lambda: odp.RandTuneSampler(X, trials=LAW, run=RUN),
    "dp_hypo": lambda: odp.DPHyPOSampler(X, trials=LAW, candidates=4, schedule="any", run=RUN),
}


def tells(text: str, slots: int) -> bool:
    """Whether T or the number of slots stands in a text as a number of its own."""
    return any(re.search(rf"(?<![\w.-]){n}(?![\w.%-])", text) for n in {SECRET, slots})


@pytest.mark.promise("nothing-else")
@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_t_is_nowhere_that_somebody_else_looks(name: str) -> None:
    sampler = SAMPLERS[name]()
    study = study_of(sampler)
    with logged() as lines, logged(OPTUNA_LOG) as log_of_optuna:
        study.optimize(
            lambda trial: trial.suggest_float("x", 0, 1), callbacks=[odp.PrivacyCallback()]
        )
        found = odp.release(study, vouched="a test")
    plan = read_plan(study)
    assert plan is not None
    slots = plan.slots
    assert slots == SECRET
    assert any(tells(line, slots) for line in lines if line.startswith("DEBUG"))
    shown = {
        "logs": [
            *(line for line in lines if not line.startswith("DEBUG")),
            *log_of_optuna,
            repr(odp.PrivacyCallback().guarantee(study)),
        ],
        "attributes": [repr(study.user_attrs), *(repr(t.user_attrs) for t in study.trials)],
        "statement": [found.statement(), json.dumps(found.to_json())],
        "reprs": [repr(x) for x in (sampler, study, plan, found, read_evidence(study), LAW)],
        "names": [study.study_name],
    }
    for where, texts in shown.items():
        for text in texts:
            assert not tells(text, slots), (where, text)
    record = SlotEntry.from_json(study.trials[0].system_attrs[SLOT.key])
    assert str(record.tie_break) not in repr(record)
    assert plan.nonce not in "".join(text for texts in shown.values() for text in texts)


def refusals(study: optuna.Study) -> list[str]:
    """What a worker, a callback and a release say while a study is wrong."""
    said = []
    for call in (
        lambda: odp.release(study),
        lambda: odp.recover(study, fail=[10**6]),
        lambda: study.optimize(lambda trial: 0.0, n_trials=1),
    ):
        try:
            call()
        except (OptunaDPError, optuna.TrialPruned) as error:
            said.append(str(error))
    return said


def test_exceptions_do_not_tell_t() -> None:
    study = study_of(SAMPLERS["rand_tune"]())
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    study.sampler = odp.RandTuneSampler(X, trials=odp.Geometric(mean=3), run=RUN)
    said = refusals(study)
    study.sampler = odp.DPHyPOSampler(X, trials=LAW, run=RUN)
    said += refusals(study)
    other = study_of(odp.RandTuneSampler(trials=LAW, seed=3, run=RUN))
    other.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    said += refusals(other)
    assert len(said) >= 6
    assert not [text for text in said if tells(text, SECRET)]


def in_full(error: BaseException) -> str:
    """The text of an error as a traceback shows it, with those that it came from."""
    return "".join(traceback.format_exception_only(error)) + (
        in_full(error.__cause__ or error.__context__)  # type: ignore[arg-type]
        if error.__cause__ or (error.__context__ and not error.__suppress_context__)
        else ""
    )


def told_while_it_starts(study: optuna.Study) -> None:
    """Marks each trial as failed when its worker has just been given it."""
    storage, write = study._storage, study._storage.set_trial_system_attr

    def told(trial_id: int, key: str, value: Any) -> None:
        if key == BEYOND.key:
            storage.set_trial_state_values(trial_id, TrialState.FAIL)
        write(trial_id, key, value)

    storage.set_trial_system_attr = told  # type: ignore[method-assign]
    try:
        study.optimize(well)
    finally:
        storage.set_trial_system_attr = write  # type: ignore[method-assign]


def well(trial: optuna.Trial) -> float:
    return trial.suggest_float("x", 0.0, 1.0)


def enqueued(study: optuna.Study) -> None:
    study.enqueue_trial({"x": 0.5})
    study.optimize(well)


def copied(study: optuna.Study) -> None:
    last = study.trials[-1]
    study.add_trial(
        create_trial(
            state=TrialState.WAITING,
            params={"x": 0.5},
            distributions=X,
            system_attrs={**study.trials[0].system_attrs, "failed_trial": last.number},
        )
    )
    study.optimize(well)


def anothers(study: optuna.Study) -> None:
    study.add_trial(create_trial(state=TrialState.WAITING))
    trial = study.trials[-1]
    study._storage.set_trial_system_attr(
        trial._trial_id, f"{CLAIMS.prefix}{trial.number}:other", "won"
    )
    optuna.Trial(study, trial._trial_id)


def of_another_sampler(study: optuna.Study) -> None:
    study.sampler = optuna.samplers.RandomSampler()
    study.optimize(well, n_trials=2, callbacks=[odp.PrivacyCallback()])
    odp.start_run(study.ask())


def described_late(study: optuna.Study) -> None:
    odp.release(study)
    odp.describe(study, dataset="late")


AFTER_THE_END: list[Callable[[optuna.Study], Any]] = [
    lambda study: study.optimize(well),
    lambda study: study.optimize(well, n_jobs=3),
    lambda study: study.ask().suggest_float("x", 0.0, 1.0),
    lambda study: study.ask().suggest_float("y", 0.0, 1.0),
    lambda study: odp.start_run(study.ask()),
    enqueued,
    copied,
    anothers,
    told_while_it_starts,
    of_another_sampler,
    described_late,
    lambda study: study.optimize(well, callbacks=[odp.PrivacyCallback(odp.gaussian(9.0))]),
    lambda study: odp.recover(study, fail=[3]),
    lambda study: (study.ask(), odp.recover(study, fail=[10**6])),
    lambda study: odp.release(study),
    lambda study: odp.release(study, delta=2.0),
    lambda study: odp.release(study, failures="lost"),
    lambda study: odp.publish(odp.release(study), study._storage, "public"),
    lambda study: odp.report_utilities(study.ask(), [0.5]),
]


@pytest.mark.parametrize("what", range(len(AFTER_THE_END)))
def test_no_exception_warning_or_log_after_the_end_tells_t(what: int) -> None:
    """Nor the numbers of later trials, which are T and a few more."""
    study = study_of(SAMPLERS["rand_tune"]())
    study.optimize(well)
    said: list[str] = []
    with logged() as lines, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            AFTER_THE_END[what](study)
        except (OptunaDPError, optuna.TrialPruned) as error:
            said.append(in_full(error))
    said += [line for line in lines if not line.startswith("DEBUG")]
    said += [str(one.message) for one in warned]
    for number in range(SECRET - 1, SECRET + 9):
        assert not [text for text in said if re.search(rf"(?<![\w.-]){number}(?![\w.%-])", text)]


def numbers_that_tell(slots: int, done: int) -> set[int]:
    """T, how many runs have ended, how many have not, and the largest open number."""
    return {slots, done, slots - done, done + 1}


@pytest.mark.parametrize("done", [17, 29])
@pytest.mark.parametrize("name", ["rand_tune", "dp_hypo"])
def test_no_message_tells_t_by_subtraction(name: str, done: int) -> None:
    """A release, a callback, a wait and a worker in the middle of a study, at every level above
    DEBUG. ``recover``, the curator's tool, lists open trials."""
    sampler = SAMPLERS[name]()
    study = study_of(sampler)
    callback = odp.PrivacyCallback()
    said: list[str] = []
    with logged() as lines:
        study.optimize(
            lambda trial: trial.suggest_float("x", 0, 1), n_trials=done, callbacks=[callback]
        )
        study.ask(), study.ask()
        for call in (
            lambda: odp.release(study),
            lambda: odp.release(study, failures="chance"),
            lambda: study.optimize(lambda trial: 0.0, n_trials=0, callbacks=[callback]),
        ):
            try:
                call()
            except OptunaDPError as error:
                said.append(str(error))
        waiting = Waiting(study, "for runs of earlier batches", below=done + 2)
        waiting.pause(31.0)
    assert len(said) == 2
    said += [line for line in lines if not line.startswith("DEBUG")]
    assert any("has waited" in line for line in said)
    for text in said:
        for number in numbers_that_tell(SECRET, done):
            assert not re.search(rf"(?<![\w.-]){number}(?![\w.%-])", text), (number, text)
