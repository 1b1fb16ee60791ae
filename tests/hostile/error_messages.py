"""Provokes every kind of error and writes what is said: ``docs/reference-errors.md``.

``PYTHONPATH=tests python -m hostile.error_messages`` writes the page; ``test_error_messages.py``
checks that it is up to date.
"""

from __future__ import annotations

import contextlib
import math
import re
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import joblib
import optuna
from dp_accounting import dp_event
from engines.crew import Crew
from optuna.trial import create_trial
from support import RUN, exactly, finished_study, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import OptunaDPError
from optuna_dp.protocol.plan import PLAN_KEY

from .junk import write

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference-errors.md"


@dataclass(frozen=True)
class Case:
    """A way to go wrong.

    Attributes:
        what: What the user did.
        do: Does it; raises.
        then: What it means and what to do, where the message leaves a question.
    """

    what: str
    do: Callable[[], Any]
    then: str = ""


def cases() -> dict[str, list[Case]]:
    """Returns every way to go wrong, by chapter."""
    return {
        "Laws of the number of runs": LAWS,
        "What one run costs": EVENTS,
        "Guarantees, calibration and plans": ACCOUNTING,
        "Budgets": BUDGETS,
        "Samplers, callback and pruner": SAMPLERS,
        "While a study runs": RUNNING,
        "Release": RELEASE,
        "Utilities over partitions": UTILITIES,
        "Scores and votes": SCORES,
        "Workers on engines": ENGINES,
        "Optional packages": EXTRAS,
    }


LAWS = [
    Case("A shape of -1 or below", lambda: odp.NegativeBinomial(shape=-1, mean=3)),
    Case("gamma outside (0, 1)", lambda: odp.NegativeBinomial(shape=1, gamma=1.5)),
    Case("Neither gamma nor mean", lambda: odp.NegativeBinomial(shape=1)),
    Case("Both gamma and mean", lambda: odp.NegativeBinomial(shape=1, gamma=0.1, mean=10)),
    Case("A mean below 1 for a law that begins at 1", lambda: odp.Geometric(mean=0.5)),
    Case("NaN", lambda: odp.Poisson(math.nan)),
    Case("More runs on average than there can be", lambda: odp.Binomial(3, 7)),
    Case("A cap of 0", lambda: odp.Geometric(mean=5).capped(0)),
    Case("A quantile of 1", lambda: odp.Geometric(mean=5).quantile(1.0)),
    Case("A fraction above 1", lambda: odp.Geometric(mean=5).hit_probability(1.5)),
    Case("A record of a law that is none", lambda: odp.TrialCount.from_json({"law": "uniform"})),
]

EVENTS = [
    Case("No noise", lambda: odp.gaussian(0.0)),
    Case(
        "A sampling rate above 1",
        lambda: odp.dp_sgd(noise_multiplier=1.0, sample_rate=64, steps=420),
    ),
    Case(
        "A number of steps that is not whole",
        lambda: odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.01, steps=10.5),  # type: ignore[arg-type]
    ),
    Case("A negative epsilon", lambda: odp.pure_dp(-1.0)),
    Case("A delta of 1", lambda: odp.approximate_dp(1.0, 1.0)),
    Case("Renyi-DP points of unequal length", lambda: odp.rdp([2.0, 4.0], [0.1])),
    Case("An order of 1", lambda: odp.rdp([1.0], [0.1])),
    Case("Composing nothing", lambda: odp.compose()),
    Case("Something else than an event", lambda: odp.compose(RUN, 1.0)),
    Case("Something else than an engine", lambda: odp.from_opacus("engine")),
]

ACCOUNTING = [
    Case(
        "No event",
        lambda: odp.selection_guarantee(1.0, odp.Geometric(10)),
    ),
    Case(
        "No law",
        lambda: odp.selection_guarantee(RUN, 10),  # type: ignore[arg-type]
    ),
    Case(
        "An event that no accountant supports",
        lambda: odp.selection_guarantee(dp_event.UnsupportedDpEvent(), odp.Geometric(10)),
    ),
    Case(
        "Replacing a record, with Laplace noise",
        lambda: odp.Guarantee(odp.laplace(2.0), "replace_one"),
    ),
    Case("An unknown relation", lambda: odp.Guarantee(RUN, "add_one")),
    *(
        Case(
            what,
            lambda bounds=bounds: odp.selection_guarantee(
                RUN, odp.Geometric(10), density_bounds=bounds
            ),
        )
        for what, bounds in (
            ("c above 1", (1.5, 2.0)),
            ("C below 1", (0.5, 0.9)),
            ("c of 0", (0.0, 2.0)),
            ("c above C", (2.0, 0.5)),
            ("One bound only", 2.0),
            ("A NaN among the bounds", (math.nan, 2.0)),
        )
    ),
    Case(
        "An unknown policy",
        lambda: odp.selection_guarantee(RUN, odp.Geometric(10), policy="both"),
    ),
    Case("A delta of 0", lambda: odp.Guarantee(RUN).epsilon(delta=0.0)),
    Case("A negative epsilon", lambda: odp.Guarantee(RUN).delta(epsilon=-0.1)),
    Case(
        "Composing guarantees of different relations",
        lambda: odp.Guarantee(RUN).compose(odp.Guarantee(RUN, "replace_one")),
    ),
    Case("A record of a guarantee that is none", lambda: odp.Guarantee.from_json({"event": 1})),
    Case(
        "Nothing to solve for",
        lambda: odp.calibrate(target_epsilon=1, delta=1e-5, run=RUN, trials=odp.Geometric(3)),
    ),
    Case(
        "A target below what one run costs",
        lambda: odp.calibrate(target_epsilon=0.1, delta=1e-5, run=RUN, trials=odp.Geometric),
    ),
    Case("An unknown law in a plan", lambda: odp.selection_plan(RUN, laws=["uniform"])),
    Case("A plan with pilots of a fixed event", lambda: odp.selection_plan(RUN, pilots=[(10, 4)])),
    Case("A plan that solves without a target", lambda: odp.selection_plan(RUN, solve="mean")),
]


def _budget(**given: Any) -> odp.BudgetPlan:
    sizes = {"epsilon": 3.0, "records": 1348, "batch_size": 64, "epochs": 10}
    return odp.plan_budget(**(sizes | given))


def _with_budget(**given: Any) -> optuna.Study:
    """A study of two pilots and one run, none of which has begun."""
    plan = odp.plan_budget(
        epsilon=3.0, run=lambda noise, steps: odp.gaussian(noise), steps=1, pilots=2
    )
    return study_of(odp.PilotSampler(plan=plan, **given))


def _last_run_before_pilots() -> None:
    study = _with_budget()
    study.optimize(objective, n_trials=1)
    odp.release(study)


def _no_pilot_with_a_score() -> None:
    def fails(trial: optuna.Trial) -> float:
        trial.suggest_float("x", 0.0, 1.0)
        return math.nan

    _with_budget().optimize(fails)


def _several_objectives() -> None:
    plan = odp.plan_budget(
        epsilon=3.0, run=lambda noise, steps: odp.gaussian(noise), steps=1, pilots=2
    )
    study = optuna.create_study(directions=["maximize"] * 2, sampler=odp.PilotSampler(plan=plan))
    study.optimize(lambda trial: (trial.suggest_float("x", 0.0, 1.0), 0.0), n_trials=1)


def _choice_of_something_else() -> None:
    _with_budget(choose=lambda pilots: {"y": 1.0}).optimize(objective)


BUDGETS = [
    Case("An epsilon that no noise reaches", lambda: _budget(epsilon=1e-9)),
    Case("A batch larger than the data", lambda: _budget(batch_size=2000)),
    Case("Lengths missing", lambda: _budget(epochs=None)),
    Case(
        "Both ways to say what a training is",
        lambda: _budget(run=lambda noise, steps: odp.gaussian(noise)),
    ),
    Case("Pilots longer than the last run", lambda: _budget(pilot_epochs=20)),
    Case("A rung larger than the one below", lambda: _budget(pilots=(4, 16))),
    Case(
        "More pilots than make sense",
        lambda: _budget(pilots=5000, noise_increase=1.01),
    ),
    Case("Nothing left for pilots", lambda: _budget(noise_increase=1.0)),
    Case("A sample smaller than a batch", lambda: _budget(sample=0.01)),
    Case(
        "Samples where records are replaced",
        lambda: _budget(sample=0.5, neighboring_relation="replace_one"),
    ),
    Case(
        "Disjoint validation records where records are replaced",
        lambda: _budget(score="disjoint", neighboring_relation="replace_one"),
    ),
    Case("A record of a plan that is none", lambda: odp.BudgetPlan.from_json({"epsilon": 1.0})),
    Case(
        "A plan and the cost of a pilot",
        lambda: odp.PilotSampler(plan=_budget(pilots=2), pilot_run=RUN),
    ),
    Case(
        "What a trial may spend, of a study without a budget",
        lambda: odp.fidelity(study_of(odp.RandTuneSampler()).ask()),
    ),
    Case("Several objectives and nobody who chooses", _several_objectives),
    Case("A choice of what no pilot has", _choice_of_something_else),
    Case("No pilot that ended with a score", _no_pilot_with_a_score),
    Case("Releasing before the pilots have ended", _last_run_before_pilots),
]

SAMPLERS = [
    Case(
        "Something else than a search space",
        lambda: odp.RandTuneSampler({"x": (0.0, 1.0)}),
    ),
    Case("A number instead of a law", lambda: odp.RandTuneSampler(trials=20)),
    Case("c above 1", lambda: odp.DPHyPOSampler(density_bounds=(1.5, 2.0))),
    Case("An unknown schedule", lambda: odp.DPHyPOSampler(schedule="free")),
    Case("A batch of 0", lambda: odp.DPHyPOSampler(batch_size=0)),
    Case("No cost of a pilot", lambda: odp.PilotSampler(pilot_run=None)),
    Case("No pilots", lambda: odp.PilotSampler(pilots=0, pilot_run=RUN)),
    Case("A callback without an event", lambda: odp.PrivacyCallback(0.5)),
    Case("A delta of 0 in the callback", lambda: odp.PrivacyCallback(RUN, delta=0.0)),
    Case("Something else than a pruner", lambda: odp.WithinTrialPruner("median")),
    Case(
        "A pruner that compares trials",
        lambda: odp.WithinTrialPruner(optuna.pruners.MedianPruner()),
    ),
]


def _several_objectives() -> None:
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=odp.RandTuneSampler())
    study.optimize(lambda trial: (0.0, 0.0))


def _two_workers() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5)))
    study.optimize(objective, n_trials=1)
    study.sampler = odp.RandTuneSampler(trials=odp.Geometric(10))
    study.optimize(objective, n_trials=1)


def _two_costs() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5)))
    study.optimize(objective, n_trials=1, callbacks=[odp.PrivacyCallback(RUN)])
    study.optimize(objective, n_trials=1, callbacks=[odp.PrivacyCallback(odp.gaussian(2.0))])


def _callback_elsewhere() -> None:
    optuna.create_study().optimize(objective, n_trials=1, callbacks=[odp.PrivacyCallback(RUN)])


def _enqueued_while_running() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5)))
    study.optimize(objective, n_trials=1)
    study.enqueue_trial({"x": 0.3})
    study.optimize(objective, n_trials=1)


def _two_at_once() -> None:
    study = study_of(odp.DPHyPOSampler(trials=exactly(5), candidates=8))
    study.optimize(objective, n_trials=1)
    study.ask()
    study.ask().suggest_float("x", -1.0, 1.0)


def _recover_ended() -> None:
    odp.recover(finished_study(), fail=[0])


RUNNING = [
    Case("Several objectives", _several_objectives),
    Case("A worker with another sampler", _two_workers),
    Case("A callback with another cost than before", _two_costs),
    Case("The callback in a study of another sampler", _callback_elsewhere),
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
    study = study_of(odp.RandTuneSampler(trials=exactly(5)))
    study.optimize(objective, n_trials=3)
    odp.release(study, RUN)


def _enqueued() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5)))
    study.optimize(objective, n_trials=3)
    study.enqueue_trial({"x": 0.3})
    odp.release(study, RUN)


def _added() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5)))
    study.optimize(objective, n_trials=3)
    study.add_trial(create_trial(value=9.0))
    odp.release(study, RUN)


def _copied() -> None:
    study = finished_study(study_name="digits")
    storage = study._storage
    optuna.copy_study(
        from_study_name="digits",
        from_storage=storage,
        to_storage=storage,
        to_study_name="a copy",
    )
    odp.release(study, RUN)
    odp.release(optuna.load_study(study_name="a copy", storage=storage), RUN)


def _failed_together() -> None:
    def breaks(trial: optuna.Trial) -> float:
        if trial.number >= 3:
            raise RuntimeError("the objective is broken")
        return objective(trial)

    odp.release(finished_study(odp.RandTuneSampler(trials=exactly(20)), breaks), RUN)


def _pruned_across_trials() -> None:
    odp.release(finished_study(function=_pruned), RUN)


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
        odp.release(finished_study(odp.RandTuneSampler(trials=exactly(3), seed=1)), RUN)


def _foreign() -> None:
    study = optuna.create_study()
    study.optimize(objective, n_trials=2)
    odp.release(study, RUN)


def _other_worker() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3)))
    study.optimize(objective, n_trials=1)
    study.sampler = odp.RandTuneSampler(trials=odp.Geometric(10))
    with contextlib.suppress(OptunaDPError):
        study.optimize(objective, n_trials=1)
    study.sampler = odp.RandTuneSampler(trials=exactly(3))
    study.optimize(objective)
    odp.release(study, RUN)


def _damaged_plan() -> None:
    study = finished_study()
    record = dict(study.trials[0].system_attrs[PLAN_KEY])
    write(study, 0, PLAN_KEY, {**record, "slots": -1})
    odp.release(study, RUN)


def _another_cost() -> None:
    study = finished_study()
    odp.release(study, RUN)
    odp.release(study, odp.gaussian(8.0))


RELEASE = [
    Case("Something else than a study", lambda: odp.release("tuning.db", RUN)),
    Case("A study without trials", lambda: odp.release(study_of(odp.RandTuneSampler()), RUN)),
    Case("A study that has not finished", _unfinished),
    Case("A study of another sampler", _foreign),
    Case("No cost of a run", lambda: odp.release(finished_study())),
    Case("Another cost than on record", _another_cost),
    Case("An enqueued trial", _enqueued),
    Case("An added trial", _added),
    Case("A copy of a study that has been released", _copied),
    Case("Runs that failed together", _failed_together),
    Case("A pruner that compares trials has pruned", _pruned_across_trials),
    Case("A seed", _seeded, "Whoever needs repeatable tests can have them, but not a release."),
    Case("Workers with different plans", _other_worker),
    Case("A corrupted plan record", _damaged_plan),
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


@contextlib.contextmanager
def _without(package: str) -> Iterator[None]:
    hidden = {name: None for name in sys.modules if name.split(".")[0] == package}
    with mock.patch.dict(sys.modules, {package: None, **hidden}):
        yield


def _no_plotly() -> None:
    from optuna_dp.visualization import theme

    with _without("plotly"):
        theme.graph_objects()


EXTRAS = [Case("Plots without plotly", _no_plotly)]


def _reading(trial: optuna.Trial, lock: Any) -> float:
    with lock:
        return objective(trial)


def _on_an_engine(objective: Any = objective, sampler: Any = None) -> None:
    """A call on an engine whose workers are threads."""
    crew = Crew()
    crew.name = "dask"
    with mock.patch("optuna_dp.distributed.call.engine_here", return_value=crew):
        odp.distributed.optimize(
            lambda: study_of(sampler or odp.RandTuneSampler(trials=exactly(3))),
            objective,
            workers=2,
        )


def _out_of_reach() -> None:
    told = ConnectionError("connection to db.cluster, port 5432 failed: Connection refused")
    with mock.patch("optuna_dp.distributed.worker._study_of", side_effect=told):
        _on_an_engine()


def _on_multiprocessing() -> None:
    with joblib.parallel_config("multiprocessing"):
        odp.distributed.optimize(lambda: study_of(odp.RandTuneSampler()), objective, workers=2)


def _no_ray() -> None:
    odp.distributed.optimize  # noqa: B018 - joblib has been told of Ray from here on.
    with (
        mock.patch.dict(joblib.parallel.BACKENDS, clear=False),
        mock.patch.dict(sys.modules, {"ray": None}),
    ):
        joblib.parallel.BACKENDS.pop("ray", None)
        joblib.parallel_config("ray")


ENGINES = [
    Case("An engine that is not installed", _no_ray),
    Case("An engine on which nobody notices a death", _on_multiprocessing),
    Case(
        "An objective that cannot be sent",
        lambda: _on_an_engine(partial(_reading, lock=threading.Lock())),
    ),
    Case(
        "A sampler that never ends", lambda: _on_an_engine(sampler=optuna.samplers.RandomSampler())
    ),
    Case(
        "Candidates, of which a dead worker's cannot be settled",
        lambda: _on_an_engine(
            sampler=odp.NoisyMaxSampler(candidates=[{"x": 1.0}], n_partitions=400, epsilon=1.0)
        ),
    ),
    Case("A storage out of the workers' reach", _out_of_reach),
]


def provoke(case: Case) -> OptunaDPError:
    """Returns the error that a case meets.

    Raises:
        AssertionError: If it meets none, or one that is not ours.
    """
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        case.do()
    except OptunaDPError as error:
        return error
    except Exception as error:
        raise AssertionError(f"{case.what}: {type(error).__name__}: {error}") from error
    finally:
        optuna.logging.set_verbosity(level)
    raise AssertionError(f"{case.what}: nothing was refused")


def page() -> str:
    """Returns the page."""
    lines = [
        "# Errors",
        "",
        "Every error is an `optuna_dp.errors.OptunaDPError`; those about an argument are also a",
        "`ValueError`. Each names the argument, the value, what is allowed and, where there is",
        "one, the fix. A refusal changes nothing: the study stays as it was.",
        "",
        "Below, ways to go wrong and what is said. This page is made by doing each of them",
        "(`PYTHONPATH=tests python -m hostile.error_messages`).",
    ]
    for chapter, some in cases().items():
        lines += ["", f"## {chapter}"]
        for case in some:
            error = provoke(case)
            lines += ["", f"**{case.what}.** `{type(error).__name__}`", "", "```text"]
            # What dp-accounting says depends on its version.
            text = re.sub(r"(dp-accounting says): .*( Describe)", r"\1 ...\2", str(error))
            lines += [*_wrapped(text), "```"]
            if case.then:
                lines += ["", case.then]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, width: int = 96) -> list[str]:
    return [
        line
        for given in text.splitlines()
        for line in textwrap.wrap(given, width, break_long_words=False, break_on_hyphens=False)
    ]


def main() -> None:
    """Writes the page."""
    warnings.simplefilter("ignore")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
