"""Each defence of the package, how it is switched off, and the promise that must notice.

A promise is a row of docs/limitations.md, named by its anchor without ``promise-``, or a line of
its table of faults, named by its first words up to a comma. Tests that show one are marked::

    @pytest.mark.promise("noise")

``python tests/defences.py`` switches each defence off, runs the marked tests of its promise in a
fresh process until one fails, and fails itself if all of them pass. Names of defences or promises
may be given. As a plugin it runs all tests of the promise with one defence off::

    PYTHONPATH=tests pytest -n 0 -p defences --without "the noise of a training" tests/training

A test has failed if an assertion did, if an expected error did not come, or if the test's own
lines raised an error. An error from inside the package is none: what stands in a defence's place
may have broken the code.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

ROOT = Path(__file__).parents[1]
# Tests of these need a server, a cluster or a browser.
_MARKS = "not deployment and not engines and not browser"
# Of the tests of one promise, and of all of them.
_SECONDS, _SECONDS_OF_ALL = 600, 1800

# What is in the place of a defence, made of the defence.
Off = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Defence:
    """One defence.

    Attributes:
        name: What it does.
        promise: The promise that it keeps.
        off: By the dotted name of a function, method or constant, what is put in its place.
    """

    name: str
    promise: str
    off: Mapping[str, Off]


# -- what stands in the place of a defence --------------------------------------------------------


def returns(value: Any) -> Off:
    """A function that returns the same whatever it is given: None refuses nothing."""
    return lambda function: lambda *args, **kwargs: value


def argument(place: int) -> Off:
    """A function that returns one of its arguments as it is."""
    return lambda function: lambda *args, **kwargs: args[place]


def instead(replacement: Callable[..., Any]) -> Off:
    """A function of the same arguments."""
    return lambda function: replacement


def around(replacement: Callable[..., Any]) -> Off:
    """A function of the defence and its arguments."""
    return lambda function: functools.partial(replacement, function)


def around_method(replacement: Callable[..., Any]) -> Off:
    """A method: a function of the defence, the object and the arguments."""
    return lambda function: (
        lambda self, *args, **kwargs: replacement(function, self, *args, **kwargs)
    )


refuses_nothing = returns(None)


def draws_again(trial: Any) -> Any:
    from optuna_dp.evidence.drawn_ranges import _OURS

    return _OURS


def takes_any_identifiers(placed: Any, ids: Any, k: int, **key: Any) -> Any:
    return placed(ids if isinstance(ids, int) else [f"row {name}" for name in ids], k, **key)


def places_by_position(ids: Any, k: int, **key: Any) -> Any:
    return np.arange(ids if isinstance(ids, int) else len(list(ids))) % k


def in_double(rows: Any) -> Any:
    return rows.astype("float64") if isinstance(rows, np.ndarray) else rows.double()


def adds_with_rounding(step: Any, part: Any, factors: Any) -> Any:
    return in_double((part * factors[:, None]).sum(0))


def adds_without_a_grid(step: Any, part: Any, factors: Any) -> Any:
    return in_double(part * factors[:, None]).sum(0)


def draws_between_whole_numbers(drawn: Any, count: int, deviation: float, *library: Any) -> Any:
    return drawn(count, deviation * 1e9, *library) * 1e-9


def draws_keys_by_numpy(count: int) -> Any:
    return np.random.randint(0, 2**63 - 1, size=count, dtype=np.int64)


def draws_integers_by_numpy(count: int) -> Any:
    return np.random.randint(0, 2**64 - 1, size=count, dtype=np.uint64)


def draws_as_many_each_time(records: int, rate: float) -> Any:
    return np.sort(np.random.permutation(records)[: round(records * rate)])


@contextmanager
def keeps_the_draws_of_the_script(draws: Any) -> Iterator[None]:
    yield


def looks_up(mode: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return function(*args, **(kwargs or {}))


def settles_for_the_second_reading(settled: Any, reading: Any) -> None:
    reading.first = reading._read()
    settled(reading)


def takes_one_step_less(taken: Any, weights: Any, gradient: Any, steps: int, rule: Any) -> None:
    taken(weights, gradient, max(1, steps - 1), rule)


def reads_a_slot_as_it_is(trial: Any, plan: Any, vouched_trials: Any = ()) -> Any:
    from optuna_dp.study.entries import SLOT
    from optuna_dp.study.trials import SlotEntry

    data = SLOT.of(trial)
    return None if data is None else SlotEntry.from_json(data)


def always_has_a_seed(made: Any, seed: int | None, *path: Any) -> Any:
    return made(7 if seed is None else seed, *path)


def reads_loosely(hint: Any, value: Any) -> Any:
    if hasattr(hint, "from_json"):
        return hint.from_json(value)
    return tuple(value) if isinstance(value, list) else value


def has_one_slot_more(had: Any, strategy: Any, slot: Any, check: Any) -> bool:
    return had(strategy, slot, check) or slot.number == slot.plan.slots


def notes_that_all_runs_asked(noted: Any, trial: Any, entry: Any) -> Any:
    return {} if entry.name == "asked" else noted(trial, entry)


def finishes_all_claims(claims: Any, trial: Any, kind: Any) -> Any:
    return {token: {**claim, "finished": True} for token, claim in claims(trial, kind).items()}


def rounds_to_the_nearest(value: float | None, places: int = 2) -> str:
    return "infinite" if value in (None, np.inf) else f"{value:.{places}f}"


def takes_wider_bounds(enforced: Any, f: Any, masses: Any, bounds: tuple[float, float]) -> Any:
    return enforced(f, masses, (bounds[0] / 1.5, bounds[1] * 1.5))


def chooses_grids_that_are_not_nested(chosen: Any, *question: Any) -> float:
    """Makes each grid finer by up to a quarter, and none a part of another one."""
    interval = chosen(*question)
    return float(interval * (0.75 + 0.25 * (hash(interval) % 7) / 7.0))


# -- the table ------------------------------------------------------------------------------------

# By promise: the name of each defence, and one or several targets, each with what replaces it.
# fmt: off
TABLE: dict[str, list[tuple[Any, ...]]] = {
    "prepared": [
        ("rows are prepared alone and among others",
         "optuna_dp.preparation.row_by_row.try_out", refuses_nothing),
        ("many rows are prepared at once and in halves",
         "optuna_dp.preparation.row_by_row.try_on_many", refuses_nothing),
        ("what a preparation holds from outside is listed",
         "optuna_dp.preparation.row_by_row.held_from_outside", returns([])),
        ("tensors that were given are not said to be prepared",
         "optuna_dp.runs.train._preparation", returns({"word": "by schema"})),
        ("the check reads a source for what is fitted to records",
         "optuna_dp.check.source_hints.hints_in_source", returns([])),
    ],
    "persons": [
        ("of a person no more records than allowed are kept",
         "optuna_dp.preparation.schema.Schema._bounded",
         instead(lambda self, rows, targets: (rows, targets))),
        ("arrays whose records share memory are refused",
         "optuna_dp.training.record_arrays.records_overlap", returns(False)),
        ("a data set that holds a record twice is refused",
         "optuna_dp.training.data_sets.origins", instead(lambda data, _: np.arange(len(data)))),
        ("a person's epsilon is that of all their records",
         "optuna_dp.accounting.groups.group_epsilon",
         instead(lambda guarantee, delta, size: guarantee.epsilon(delta))),
    ],
    "public-numbers": [
        ("records are no inputs of a rehearsal",
         "optuna_dp.training.records.refuse_as_inputs", refuses_nothing),
        ("copies of records are no inputs of a rehearsal",
         "optuna_dp.runs.scored_records.refuse_copied_inputs", refuses_nothing),
        ("ranges that another study has drawn are refused",
         "optuna_dp.runs.train._refuse_foreign_ranges", refuses_nothing),
        ("ranges are drawn once in a study",
         "optuna_dp.evidence.drawn_ranges._drawn_or_ours", instead(draws_again)),
        ("ranges are drawn with noise",
         "optuna_dp.preparation.private_ranges._noisy_histograms",
         around(lambda drawn, values, grids, deviation: drawn(values, grids, 0.0))),
    ],
    "scored-records": [
        ("records to score share no memory with trained ones",
         "optuna_dp.runs.scored_records._has_some_of", returns(False)),
        ("records to score are no copies of trained ones",
         "optuna_dp.runs.scored_records._share_of_copies", returns(0.0)),
        ("numbers of rows are no identifiers",
         "optuna_dp.mechanisms.partitions.partition", around(takes_any_identifiers)),
        ("a record's part does not depend on the others",
         "optuna_dp.mechanisms.partitions.partition", instead(places_by_position)),
    ],
    "gradients": [
        ("what keeps something of earlier records is refused",
         "optuna_dp.training.each_record.EachRecord._refuse_memory", refuses_nothing),
        ("what changes weights or buffers by records is refused",
         "optuna_dp.training.each_record.EachRecord._refuse_what_is_changed", refuses_nothing),
        ("the number and the place of records change no bit",
         "optuna_dp.training.each_record.EachRecord.finds_places", returns(True)),
        ("chunks of records are filled up",
         "optuna_dp.training.chunks.placed", argument(0)),
        ("sums of gradients are exact",
         "optuna_dp.training.exact_step.ExactStep.sum_of_rows", instead(adds_with_rounding)),
        ("gradients are rounded to a grid",
         "optuna_dp.training.exact_step.ExactStep.sum_of_rows", instead(adds_without_a_grid)),
        ("gradients are clipped",
         "optuna_dp.training.exact_step.squared_norms",
         around(lambda norms, rows: norms(rows) * 0.0)),
        ("a device whose sums are not exact is refused",
         "optuna_dp.training.exact_step.ExactStep.is_exact", returns(True)),
        ("a lookup finds nothing of another record",
         "optuna_dp.training.record_functions.OwnTables.__torch_function__", instead(looks_up)),
        ("the records of a step share what Python and numpy draw",
         "optuna_dp.training.generators.Draws.before_computing", refuses_nothing),
        ("a training computes with a copy of the model",
         "optuna_dp.training.own_model._copied", argument(0)),
        ("a loss that names all the records is warned of",
         "optuna_dp.training.references.named_records", returns(None)),
    ],
    "noise": [
        ("the noise of a training",
         "optuna_dp.training.exact_step.rounded_gaussians",
         around(lambda drawn, count, deviation, *rest: drawn(count, 0.0, *rest))),
        ("the noise of a training is whole numbers",
         "optuna_dp.training.exact_step.rounded_gaussians", around(draws_between_whole_numbers)),
        ("the noise of a training follows no seed",
         "optuna_dp.training.exact_step._keys", instead(draws_keys_by_numpy)),
        ("batches follow no seed",
         "optuna_dp.training.sampling._integers", instead(draws_integers_by_numpy)),
        ("each record joins a batch by itself",
         "optuna_dp.training.sampling.poisson_sample", instead(draws_as_many_each_time)),
        ("what a model draws follows no seed",
         "optuna_dp.training.generators.Draws.for_step", instead(keeps_the_draws_of_the_script)),
        ("what a data set draws follows no seed",
         "optuna_dp.training.generators.seed_kept_generators", refuses_nothing),
        ("the noise of a score",
         "optuna_dp.scoring.with_noise", instead(lambda total, scale: int(total))),
        ("the noise of a score follows no seed",
         "optuna_dp.scoring.with_noise",
         instead(lambda total, scale: total + round(scale * np.random.normal()))),
        ("the noise of a choice",
         "optuna_dp.mechanisms.report_noisy_max.noisy_max",
         instead(lambda utilities, epsilon, noise=None: int(np.argmax(utilities.totals)))),
    ],
    "own-loop": [
        ("what an accountant recorded is compared with the plan",
         "optuna_dp.runs.spending.costs_no_more", returns(True)),
        ("an accountant is read again when its trial ends",
         "optuna_dp.runs.run_endings.AccountantReading.finalise",
         around_method(settles_for_the_second_reading)),
        ("an event that an objective wrote is not compared",
         "optuna_dp.runs.spending.is_stated", returns(False)),
        ("two batches that share records are compared",
         "optuna_dp.opacus.mixing_check.MixingCheck.largest_difference", returns(None)),
        ("layers that mix records are refused",
         "optuna_dp.opacus.set_up.mixing_problem", returns(None)),
        ("weights that change hands end a training with Opacus",
         "optuna_dp.opacus.watched_training.WatchedTraining._check_weights_held", refuses_nothing),
        ("a loader that draws in its own way is refused",
         "optuna_dp.opacus.record_source._refuse_samplers", refuses_nothing),
        ("what nothing compared needs the curator's reason",
         "optuna_dp.runs.judgement._not_compared", returns(None)),
    ],
    "other-library": [
        ("privacy warnings of other libraries are shown",
         "optuna_dp.check.run_faults.privacy_warnings", returns(())),
        ("an accountant of diffprivlib is compared with the plan",
         "optuna_dp.runs.spending.costs_no_more", returns(True)),
    ],
    "cost-of-a-run": [
        ("two costs of a run are not the same",
         "optuna_dp.releasing.callbacks._check_same_cost", returns(None)),
        ("the check points at a cost that is searched",
         "optuna_dp.check.source_patterns.searched_cost", returns("")),
    ],
    "noisy-score": [
        ("a run has one score",
         "optuna_dp.runs.trial_notes.refuse_second", refuses_nothing,
         "optuna_dp.runs.trial_notes._identity", instead(lambda trial, kind: object()),
         "optuna_dp.runs.trial_notes.claims", returns({})),
        ("values reported to a pruner are refused",
         "optuna_dp.runs.judgement._reports_only", returns(True)),
        ("numbers in attributes are refused",
         "optuna_dp.runs.judgement._holds_numbers", returns(False)),
        ("scores that look exact are pointed out",
         "optuna_dp.releasing.reminders.looks_exact", returns("")),
    ],
    "all-searches": [
        ("other private studies are pointed out",
         "optuna_dp.releasing.reminders._warn_of_other_studies", refuses_nothing),
        ("of copies that went on only the first is released",
         "optuna_dp.releasing.make_release._went_on_otherwise", returns(False)),
    ],
    "fixed-beforehand": [
        ("ranges that change between runs are refused",
         "optuna_dp.evidence.drawn_runs.check_distributions", refuses_nothing),
    ],
    "independent-runs": [
        ("a model that another run has trained is refused",
         "optuna_dp.runs.independence.refuse_trained", refuses_nothing),
        ("the check finds reads of other trials",
         "optuna_dp.check.run_faults.reads_of_other_trials", returns(())),
    ],
    "failures": [
        ("a record that raises an error counts as zero",
         "optuna_dp.training.chunks.in_chunks",
         instead(lambda compute, chunks: ((chunk.indices, compute(chunk)) for chunk in chunks))),
        ("failures beyond chance are asked about",
         "optuna_dp.samplers.selection.failures.is_unlikely_block", returns(False)),
        ("a failed run is not repeated by Optuna's retries",
         "optuna_dp.study.asking._without_retries", argument(0)),
    ],
    "all-steps": [
        ("a training takes all its steps",
         "optuna_dp.training.learner.take_steps", around(takes_one_step_less)),
        ("fewer steps than planned are warned of",
         "optuna_dp.runs.spending.took_fewer_steps", returns(False)),
        ("the check points at a loop that stops by its score",
         "optuna_dp.check.source_patterns.stop_on_a_condition", returns("")),
    ],
    "nothing-else": [
        ("only attributes that are named are released",
         "optuna_dp.releasing.make_release._attributes",
         instead(lambda winner, record: {} if winner is None else dict(winner.user_attrs))),
        ("nothing is published where a study has been",
         "optuna_dp.releasing.publishing._new",
         instead(lambda storage: optuna.storages.get_storage(storage))),
    ],
    "statement-file": [
        ("verify compares all that it computes again",
         "optuna_dp.releasing.comparison.difference", returns("")),
        ("verify looks whether hyperparameters are in their ranges",
         "optuna_dp.releasing.comparison._is_within", returns(True)),
        ("a statement has the digest of its release",
         "optuna_dp.releasing.statement_data.digest", returns("0" * 64)),
    ],
    "a worker is killed": [
        ("open runs block the release",
         "optuna_dp.evidence.procedure.Procedure.unfinished", returns("")),
        ("a judgement is of the end that was stored",
         "optuna_dp.runs.judgement._digest", returns("")),
    ],
    "two workers get one trial": [
        ("of several workers one begins a trial",
         "optuna_dp.study.claims.next_state",
         instead(lambda token, own_state, other_states: "won")),
        ("a trial that two have begun is refused",
         "optuna_dp.study.claims.claimed_twice", returns(False)),
    ],
    "a worker has another plan": [
        ("a worker with another plan takes no run",
         "optuna_dp.study.shared_plan.check_same_design", refuses_nothing),
        ("the record of a run is compared with the plan",
         "optuna_dp.evidence.slot_entries.slot_entry", instead(reads_a_slot_as_it_is)),
    ],
    "a process is forked": [
        ("each draw has a generator of its own",
         "optuna_dp.study.entropy.generator", around(always_has_a_seed)),
        ("T and the secrets of a slot follow no seed",
         "optuna_dp.study.entropy.bits", around(always_has_a_seed)),
    ],
    "a disk is full": [
        ("a stored value has the type of its field",
         "optuna_dp.core.json_entries._read", instead(reads_loosely)),
        ("a record of another version is refused",
         "optuna_dp.core.json_entries._same", returns(True)),
    ],
    "a study is resumed": [
        ("no run is added beyond T",
         "optuna_dp.samplers.selection.slot_strategy.SelectionStrategy.has_slot",
         around_method(has_one_slot_more),
         "optuna_dp.samplers.selection.slot_strategy.SelectionStrategy.is_beyond",
         instead(lambda self, slot: slot.number > slot.plan.slots)),
    ],
    "a trial was enqueued in a private selection": [
        ("hyperparameters given by hand are refused at once",
         "optuna_dp.study.drawn_slots.refuse_given_by_hand", refuses_nothing),
        ("enqueued runs are refused at release",
         "optuna_dp.evidence.drawn_runs.DrawnRuns.check_origin", refuses_nothing),
    ],
    "another sampler for part of a study": [
        ("what was drawn is compared with what was used",
         "optuna_dp.evidence.drawn_runs._check_draw", refuses_nothing),
        ("the callback checks each run when it has ended",
         "optuna_dp.releasing.callbacks.PrivacyCallback._check", refuses_nothing),
    ],
    "a pruner that compares trials": [
        ("pruners see one trial",
         "optuna_dp.study.pruners.guarded", argument(0)),
        ("a run that another pruner ended is refused",
         "optuna_dp.evidence.drawn_runs._check_pruning", refuses_nothing),
    ],
    "a seed for the draws or for T": [
        ("a seed is warned of",
         "optuna_dp.study.drawn_slots.warn_of_seed", refuses_nothing),
        ("a seeded study is refused at release",
         "optuna_dp.evidence.drawn_runs.DrawnRuns.check_plan", refuses_nothing),
    ],
    "a copy of the study in the same storage": [
        ("a copy of a released study is refused",
         "optuna_dp.releasing.make_release._refuse_a_copy", refuses_nothing),
    ],
    "the study goes on after the release": [
        ("a result that has changed is refused",
         "optuna_dp.releasing.make_release._check_as_before", refuses_nothing),
    ],
    "a training is begun twice in a trial": [
        ("a trial trains once",
         "optuna_dp.runs.trial_notes.refuse_second", refuses_nothing,
         "optuna_dp.runs.trial_notes._identity", instead(lambda trial, kind: object()),
         "optuna_dp.runs.trial_notes.claims", returns({})),
        ("a training that did not come to its end is refused",
         "optuna_dp.runs.trial_notes.claims", around(finishes_all_claims)),
    ],
    "the objective never asked `odp.start_run`": [
        ("a run that never asked what it may spend is refused",
         "optuna_dp.runs.trial_notes.noted", around(notes_that_all_runs_asked)),
    ],
    "bounds": [
        ("an epsilon is shown rounded up",
         "optuna_dp.core.numbers_shown.rounded_up", instead(rounds_to_the_nearest)),
        ("the density of a draw stays within its bounds",
         "optuna_dp.priors.densities.shares.enforce", around(takes_wider_bounds)),
    ],
    "dp-accounting": [
        ("the rounding of Fourier transforms is charged for",
         "optuna_dp.accounting.plds.fft_slack", returns(0.0)),
    ],
    "given-curves": [
        ("an optimistic PLD is refused",
         "optuna_dp.accounting.plds.is_pessimistic", returns(True)),
        ("points that no profile has are refused",
         "optuna_dp.accounting.kinds.profile._check_curve", refuses_nothing),
    ],
    "more-noise": [
        ("grids are nested",
         "optuna_dp.accounting.discretisation.interval_for",
         around(chooses_grids_that_are_not_nested)),
    ],
}
# fmt: on
DEFENCES = {
    name: Defence(name, promise, dict(zip(targets[::2], targets[1::2], strict=True)))
    for promise, entries in TABLE.items()
    for name, *targets in entries
}
assert len(DEFENCES) == sum(map(len, TABLE.values())), "two defences have one name"


# -- switching one off ----------------------------------------------------------------------------


def resolved(target: str) -> tuple[Any, str]:
    """Returns the module or class that holds what a dotted name stands for, and its last part.

    Raises:
        AttributeError: If nothing has this name.
        ImportError: If its module needs an extra.
    """
    parts = target.split(".")
    for end in range(len(parts) - 1, 0, -1):
        if (ROOT / "/".join(parts[:end])).with_suffix(".py").is_file():
            holder: Any = importlib.import_module(".".join(parts[:end]))
            for part in parts[end:-1]:
                holder = getattr(holder, part)
            getattr(holder, parts[-1])
            return holder, parts[-1]
    raise AttributeError(target)


def switch_off(switched: Defence) -> None:
    """Puts something else in the place of a defence, wherever it was imported to, for good."""
    for target, off in switched.off.items():
        holder, name = resolved(target)
        present = vars(holder)[name]
        replacement = off(getattr(present, "__func__", present))
        if isinstance(holder, type):
            setattr(holder, name, replacement)
            continue
        modules = [m for key, m in sys.modules.items() if key.startswith("optuna_dp") and m]
        for module in modules:
            for alias, value in list(vars(module).items()):
                if value is present:
                    setattr(module, alias, replacement)


# -- as a plugin of pytest ------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("defences")
    group.addoption("--without", choices=DEFENCES, help="switch this defence off")
    group.addoption("--promises", help="run the tests of these promises only, as JSON")
    group.addoption("--outcomes", help="a file for how tests ended, as JSON")


class _Plugin:
    """Switches one defence off, and counts how its tests end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.run: set[str] = set()
        self.failed: dict[str, str] = {}
        self.broken: dict[str, str] = {}

    def pytest_sessionstart(self) -> None:
        """After conftest.py, which says how many threads numpy takes."""
        if name := self.config.getoption("--without"):
            switch_off(DEFENCES[name])

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if text := self.config.getoption("--promises"):
            promises = set(json.loads(text))
        elif name := self.config.getoption("--without"):
            promises = {DEFENCES[name].promise}
        else:
            return
        chosen = [item for item in items if promises & assumptions_of(item)]
        self.config.hook.pytest_deselected(items=[i for i in items if i not in chosen])
        items[:] = chosen

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.when == "call":
            self.run.add(item.nodeid)
        if call.excinfo is None or call.excinfo.errisinstance(pytest.skip.Exception):
            if call.excinfo is not None:
                self.run.discard(item.nodeid)
            return
        where = Path(call.excinfo.traceback[-1].path)
        is_failure = call.when == "call" and (
            call.excinfo.errisinstance((AssertionError, pytest.fail.Exception))
            or (where.is_relative_to(ROOT / "tests") and where != Path(__file__))
        )
        ended = self.failed if is_failure else self.broken
        ended[item.nodeid] = call.excinfo.exconly()[:300]
        if is_failure and self.config.getoption("--outcomes"):
            item.session.shouldstop = "noticed"

    def pytest_sessionfinish(self) -> None:
        if file := self.config.getoption("--outcomes"):
            outcomes = {"run": sorted(self.run), "failed": self.failed, "broken": self.broken}
            Path(file).write_text(json.dumps(outcomes), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Plugin(config))


def assumptions_of(item: pytest.Item) -> set[str]:
    """Returns the promises that a test is marked with."""
    return {key for mark in item.iter_markers("promise") for key in mark.args}


# -- as a program ---------------------------------------------------------------------------------


@functools.cache
def marked_files() -> dict[str, set[Path]]:
    """Returns by promise the files in which a test is marked with it."""
    files: dict[str, set[Path]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.promise":
                for key in map(ast.literal_eval, node.args):
                    files.setdefault(key, set()).add(file)
    return files


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How the tests of a promise ended."""

    code: int
    run: list[str]
    failed: dict[str, str]
    broken: dict[str, str]
    seconds: float
    output: str


def outcome(promises: set[str], without: str | None = None) -> Outcome:
    """Runs the tests of some promises in a fresh process, with one defence off or none."""
    files = marked_files()
    paths = sorted({str(file) for promise in promises for file in files.get(promise, ())})
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = Path(folder) / "outcomes"
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
        command += ["-p", "defences", "--promises", json.dumps(sorted(promises))]
        command += ["--outcomes", str(outcomes), "-m", _MARKS, "--no-header", "--tb=line"]
        command += ["--basetemp", str(Path(folder) / "files")]
        command += ["--without", without] * (without is not None)
        places = [str(ROOT / "tests"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
        try:
            ended = subprocess.run(
                command + paths, cwd=ROOT, env=environment, capture_output=True, text=True,
                timeout=_SECONDS if without else _SECONDS_OF_ALL, check=False,
            )  # fmt: skip
            code, output = ended.returncode, ended.stdout + ended.stderr
        except subprocess.TimeoutExpired:
            code, output = -1, "out of time"
        found = {"run": [], "failed": {}, "broken": {}}
        if outcomes.is_file():
            found = json.loads(outcomes.read_text("utf-8"))
    return Outcome(code, **found, seconds=time.monotonic() - began, output=output)


def is_noticed(ended: Outcome) -> bool:
    """Returns whether a test failed; code 2 is of pytest that was stopped after it."""
    return ended.code in (1, 2) and bool(ended.failed)


def main() -> int:
    """Switches each defence off; returns 1 if one is not noticed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", help="names of defences, or of promises")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    options = parser.parse_args()
    chosen = [
        entry
        for entry in DEFENCES.values()
        if not options.names or {entry.name, entry.promise} & set(options.names)
    ]
    print(f"{'defence':58} {'promise':40} {'tests':>5} {'failed':>6} {'s':>4}  first failure")
    unnoticed = 0

    def line(name: str, promise: str, ended: Outcome, is_right: bool) -> int:
        tests = [test.split("::")[-1].removeprefix("test_") for test in ended.failed]
        print(
            f"{name:58} {promise[:40]:40} {len(ended.run):5} {len(ended.failed):6} "
            f"{ended.seconds:4.0f}  {tests[0] if tests else ''}{'' if is_right else '  <-'}",
            flush=True,
        )
        for test, why in {**ended.failed, **ended.broken}.items() if not is_right else ():
            print(f"    {test}: {why}")
        if not is_right and not ended.run:
            print(ended.output[-2000:])
        return int(not is_right)

    with ThreadPoolExecutor(options.jobs) as pool:
        whole = None if options.names else pool.submit(outcome, {e.promise for e in chosen})
        each = [pool.submit(outcome, {entry.promise}, entry.name) for entry in chosen]
        if whole is not None:
            ended = whole.result()
            unnoticed += line("(none is off)", "(all)", ended, ended.code == 0)
        for entry, future in zip(chosen, each, strict=True):
            ended = future.result()
            unnoticed += line(entry.name, entry.promise, ended, is_noticed(ended))
    print(f"{len(chosen)} defences, {unnoticed} not noticed")
    return min(unnoticed, 1)


if __name__ == "__main__":
    sys.exit(main())
