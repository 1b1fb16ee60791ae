"""Ways to go wrong with samplers, running studies, releases and scores."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.trial import create_trial
from samplers.budget.budget_support import budget
from support import RUN, exactly, finished_study, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import OptunaDPError
from optuna_dp.study.entries import PLAN

from .error_case import Case
from .junk import write

SAMPLERS = [
    Case(
        "Something else than a search space",
        lambda: odp.RandTuneSampler({"x": (0.0, 1.0)}, run=RUN),
    ),
    Case("A number instead of a law", lambda: odp.RandTuneSampler(trials=20, run=RUN)),
    Case("c above 1", lambda: odp.DPHyPOSampler(density_bounds=(1.5, 2.0), run=RUN)),
    Case("An unknown schedule", lambda: odp.DPHyPOSampler(schedule="free", run=RUN)),
    Case("A batch of 0", lambda: odp.DPHyPOSampler(batch_size=0, run=RUN)),
    Case("Not a plan", lambda: odp.BudgetSampler(16)),
    Case("A way to choose that is none", lambda: odp.BudgetSampler(budget(2), choose="worst")),
    Case("A callback without an event", lambda: odp.PrivacyCallback(0.5)),
    Case("A delta of 0 in the callback", lambda: odp.PrivacyCallback(RUN, delta=0.0)),
    Case("Something else than a pruner", lambda: odp.WithinTrialPruner("median")),
    Case(
        "A pruner that compares trials",
        lambda: odp.WithinTrialPruner(optuna.pruners.MedianPruner()),
    ),
]


def _several_objectives() -> None:
    study = optuna.create_study(
        directions=["maximize", "minimize"], sampler=odp.RandTuneSampler(run=RUN)
    )
    study.optimize(lambda trial: (0.0, 0.0))


def _two_workers() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5), run=RUN))
    study.optimize(objective, n_trials=1)
    study.sampler = odp.RandTuneSampler(trials=odp.Geometric(10), run=RUN)
    study.optimize(objective, n_trials=1)


def _two_costs() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5)))
    study.optimize(objective, n_trials=1, callbacks=[odp.PrivacyCallback(RUN)])
    study.optimize(objective, n_trials=1, callbacks=[odp.PrivacyCallback(odp.gaussian(2.0))])


def _dead_storage() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5), run=RUN))

    def die(*_: object, **__: object) -> None:
        raise StorageInternalError("the disk is full")

    study._storage.set_trial_system_attr = die  # type: ignore[method-assign]
    study.optimize(objective)


def _unsolved() -> optuna.Study:
    """A study whose third run cannot be drawn: its distance works for a few candidates only."""

    def distance(f: Any, w: Any, prior: Any) -> Any:
        if w.size > 3:
            raise MemoryError
        return ((f - w) ** 2) @ prior

    projection = odp.ConvexProjection(distance, name="small")
    space = {"x": optuna.distributions.FloatDistribution(-1.0, 1.0)}
    sampler = odp.DPHyPOSampler(
        space, trials=exactly(3), candidates=8, projection=projection, run=RUN
    )
    study = study_of(sampler)
    study.optimize(objective, n_trials=1)
    return study


def _unsolved_and_released() -> None:
    study = _unsolved()
    study.optimize(objective, catch=(OptunaDPError,))
    odp.release(study, vouched="a test")


def _callback_elsewhere() -> None:
    optuna.create_study().optimize(objective, n_trials=1, callbacks=[odp.PrivacyCallback()])


def _enqueued_while_running() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5), run=RUN))
    study.optimize(objective, n_trials=1)
    study.enqueue_trial({"x": 0.3})
    study.optimize(objective, n_trials=1)


def _two_at_once() -> None:
    study = study_of(odp.DPHyPOSampler(trials=exactly(5), candidates=8, run=RUN))
    study.optimize(objective, n_trials=1)
    study.ask()
    study.ask().suggest_float("x", -1.0, 1.0)


def _recover_ended() -> None:
    odp.recover(finished_study(), fail=[0])


RUNNING = [
    Case("Several objectives", _several_objectives),
    Case("A storage that dies", _dead_storage),
    Case("A worker with another sampler", _two_workers),
    Case("A callback with another cost than before", _two_costs),
    Case("The callback in a study of another sampler", _callback_elsewhere),
    Case("A projection that no solver finds", lambda: _unsolved().optimize(objective)),
    Case(
        "An enqueued trial, met by a worker",
        _enqueued_while_running,
        "The trial counts as a run that failed; the study cannot be released.",
    ),
    Case(
        "Asking for two runs that must follow each other",
        _two_at_once,
        "Otherwise the thread would wait for itself for ever.",
    ),
    Case("Telling a trial to have failed that is not open", _recover_ended),
]


def _unfinished() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5), run=RUN))
    study.optimize(objective, n_trials=3)
    odp.release(study, vouched="a test")


def _enqueued() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5), run=RUN))
    study.optimize(objective, n_trials=3)
    study.enqueue_trial({"x": 0.3})
    odp.release(study, vouched="a test")


def _added() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5), run=RUN))
    study.optimize(objective, n_trials=3)
    study.add_trial(create_trial(value=9.0))
    odp.release(study, vouched="a test")


def _copied() -> None:
    study = finished_study(study_name="digits")
    storage = study._storage
    optuna.copy_study(
        from_study_name="digits",
        from_storage=storage,
        to_storage=storage,
        to_study_name="a copy",
    )
    odp.release(study, vouched="a test")
    odp.release(optuna.load_study(study_name="a copy", storage=storage), vouched="a test")


def _failed_together() -> None:
    def breaks(trial: optuna.Trial) -> float:
        if trial.number >= 3:
            raise RuntimeError("the objective is broken")
        return objective(trial)

    odp.release(
        finished_study(odp.RandTuneSampler(trials=exactly(20), run=RUN), breaks), vouched="a test"
    )


def _pruned_across_trials() -> None:
    odp.release(finished_study(function=_pruned), vouched="a test")


def _pruned(trial: optuna.Trial) -> float:
    value = objective(trial)
    trial.study.pruner = optuna.pruners.MedianPruner(n_startup_trials=0)
    trial.report(value, step=0)
    if trial.number == 2:
        raise optuna.TrialPruned
    return value


def _seeded() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        odp.release(
            finished_study(odp.RandTuneSampler(trials=exactly(3), seed=1, run=RUN)),
            vouched="a test",
        )


def _foreign() -> None:
    study = optuna.create_study()
    study.optimize(objective, n_trials=2)
    odp.release(study, vouched="a test")


def _other_worker() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3), run=RUN))
    study.optimize(objective, n_trials=1)
    study.sampler = odp.RandTuneSampler(trials=odp.Geometric(10), run=RUN)
    # A worker that began before the first one had written the plan.
    study.sampler.check_before_asking = lambda _: None  # type: ignore[method-assign]
    with contextlib.suppress(OptunaDPError):
        study.optimize(objective, n_trials=1)
    study.sampler = odp.RandTuneSampler(trials=exactly(3), run=RUN)
    study.optimize(objective)
    odp.release(study, vouched="a test")


def _damaged_plan() -> None:
    study = finished_study()
    record = dict(study.trials[0].system_attrs[PLAN.key])
    write(study, 0, PLAN.key, {**record, "slots": -1})
    odp.release(study, vouched="a test")


def _no_cost() -> None:
    odp.release(finished_study(odp.RandTuneSampler(trials=exactly(3))), vouched="a test")


def _deleted() -> None:
    study = study_of(odp.RandTuneSampler(run=RUN))
    optuna.delete_study(study_name=study.study_name, storage=study._storage)
    study.ask()


RELEASE = [
    Case("A run that no solver could draw", _unsolved_and_released),
    Case("A study that somebody has deleted", _deleted),
    Case("Something else than a study", lambda: odp.release("tuning.db")),
    Case(
        "Something else than a store of artifacts",
        lambda: odp.release(finished_study(), artifact_store=3),
    ),
    Case("Recovering something else than a study", lambda: odp.recover(None)),
    Case("A study without trials", lambda: odp.release(study_of(odp.RandTuneSampler(run=RUN)))),
    Case("A study that has not finished", _unfinished),
    Case("A study of another sampler", _foreign),
    Case("No cost of a run", _no_cost),
    Case("A cost that is only stated", lambda: odp.release(finished_study())),
    Case("An enqueued trial", _enqueued),
    Case("An added trial", _added),
    Case("A copy of a study that has been released", _copied),
    Case("Runs that failed together", _failed_together),
    Case("A pruner that compares trials has pruned", _pruned_across_trials),
    Case("A seed", _seeded, "Whoever needs repeatable tests can have them, but not a release."),
    Case("Workers with different plans", _other_worker),
    Case("A corrupted plan entry", _damaged_plan),
]


def _utilities(values: Any) -> None:
    sampler = odp.NoisyMaxSampler(candidates=[{"x": 0.1}, {"x": 0.2}], n_partitions=3, epsilon=9.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = study_of(sampler)
        trial = study.ask()
        trial.suggest_float("x", 0.0, 1.0)
        odp.report_utilities(trial, values)


UTILITIES = [
    Case("A utility above 1", lambda: _utilities([0.5, 1.5, 0.5])),
    Case("A utility that is no number", lambda: _utilities([0.5, "good", 0.5])),
    Case("Too few utilities", lambda: _utilities([0.5, 0.5])),
    Case("No parts", lambda: odp.partition(100, 0)),
    Case(
        "Candidates that share no hyperparameter",
        lambda: odp.NoisyMaxSampler(
            candidates=[{"x": 1}, {"y": 1}], epsilon=1.0, n_partitions=900
        ),
    ),
    Case(
        "An epsilon of 0",
        lambda: odp.ProposeTestSampler(n_partitions=100, epsilon=0.0),
    ),
]

SCORES = [
    Case(
        "No noise for a score",
        lambda: odp.scoring.private_accuracy([True], size=1, noise_multiplier=0.0),
    ),
    Case(
        "A score of no records",
        lambda: odp.scoring.private_accuracy([], size=0, noise_multiplier=20.0),
    ),
    Case("No votes", lambda: odp.voting.argmax([])),
]
