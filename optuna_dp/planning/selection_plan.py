"""The planner: what a search would cost under many laws of T, before any data are touched.

One row is one law of T and one way to learn: not at all, within density bounds (c, C), or from
pilots before the selection. Each is judged by every method that applies, beside what other
accountings would say and what the search can hope to find
(:mod:`optuna_dp.planning.selection_plan_rows`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from dp_accounting import dp_event

from optuna_dp import validation
from optuna_dp.accounting import events, supported_events
from optuna_dp.accounting.event_json import event_from_json, event_to_json
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.json_records import Record, stored
from optuna_dp.planning import calibration
from optuna_dp.planning.calibration import Unknown
from optuna_dp.planning.selection_plan_rows import (
    PLAIN,
    Bounds,
    Judge,
    PlanRow,
    Search,
    Solver,
    law_of,
)
from optuna_dp.planning.shared_work import shared
from optuna_dp.private_selection.event import POLICIES

LAWS = ("negative-binomial:-0.5", "logarithmic", "geometric", "poisson")
MEANS = (10.0, 30.0, 100.0)
DENSITY_BOUNDS: tuple[Bounds, ...] = ((0.9, 1.25), (0.75, 2.0))
PILOTS: tuple[tuple[int, float], ...] = ((10, 2.0), (10, 4.0), (20, 4.0))


_RUN = stored(
    write=lambda run: None if run is None else event_to_json(run),
    read=lambda record: None if record is None else event_from_json(record),
)


@dataclass(frozen=True)
class SelectionPlan(Record):
    """A table to choose a search from.

    Attributes:
        run: Event of one run; None if its noise was solved for.
        one_run: Epsilon of one run, alone and published; None likewise.
        delta: Of every epsilon here.
        fraction: What counts as a hit: the best ``fraction`` of the prior.
        policy: "history" or "data".
        neighboring_relation: "add_or_remove_one" or "replace_one".
        target_epsilon: What every row may cost, or None.
        solved_for: What was chosen to meet it, or None.
        rows: One for each law, mean and way to learn.
    """

    constants: ClassVar[dict[str, Any]] = {"format": "optuna-dp plan", "version": 1}
    run: dp_event.DpEvent | None = field(metadata=_RUN)
    one_run: float | None
    delta: float
    fraction: float
    policy: str
    neighboring_relation: str
    target_epsilon: float | None
    solved_for: Unknown | None
    rows: tuple[PlanRow, ...]


def selection_plan(
    run: dp_event.DpEvent | Callable[[float], dp_event.DpEvent],
    *,
    noise_multiplier: float | None = None,
    delta: float = 1e-5,
    laws: Sequence[str] = LAWS,
    means: Sequence[float] = MEANS,
    adaptive_laws: Sequence[str] = ("geometric",),
    density_bounds: Sequence[Bounds] = DENSITY_BOUNDS,
    pilots: Sequence[tuple[int, float]] = (),
    cap: int | None = None,
    fraction: float = 0.05,
    policy: str = "history",
    neighboring_relation: str = "add_or_remove_one",
    target_epsilon: float | None = None,
    solve: Unknown | None = None,
    attacks: bool | None = None,
    n_jobs: int = 1,
    on_row: Callable[[int, int, PlanRow], None] | None = None,
    startup_runs: int = 0,
) -> SelectionPlan:
    """Returns what searches would cost and find, or what a target epsilon allows.

    Without ``target_epsilon`` every row is judged as it is. With it, one quantity is solved for in
    every row so that the row costs at most that much: the noise multiplier if ``run`` is a
    function of it (the white-box setting of DP-HyPO), else the mean of T or the ratio C/c. In rows
    of pilots that noise is the selection runs' noise, and the pilots keep their ratio to it.

    Guarantees:
        * Every ``epsilon`` is the guarantee's own and is never above ``target_epsilon``; rows that
          cannot reach it are kept, empty, with a note.
        * All arguments are checked, and the run judged supported, before any work.

    Args:
        run: Event of one run, or a function noise multiplier -> event.
        noise_multiplier: Of ``run``, if that is a function and its noise is not solved for.
        delta: In (0, 1).
        laws: Families of searches that do not learn: "geometric", "logarithmic", "poisson",
            "negative-binomial:SHAPE" or "binomial:N".
        means: E[T] of the rows, pilots not counted; not used when the mean is solved for.
        adaptive_laws: Families of searches that learn.
        density_bounds: Pairs (c, C) for those; not used when C/c is solved for.
        pilots: Pairs (B, r) for those: B pilots at r times the noise of a selection run, then a
            selection from the prior they teach (:class:`~optuna_dp.PilotSampler`). Needs a
            function as ``run``; none by default.
        cap: Largest T, for all laws, or None.
        fraction: What counts as a hit, in (0, 1).
        policy: "history" or "data", see :func:`~optuna_dp.selection_guarantee`.
        neighboring_relation: "add_or_remove_one" or "replace_one".
        target_epsilon: What each row may cost; needed if ``run`` is a function without
            ``noise_multiplier``.
        solve: "noise_multiplier", "mean" or "density_bounds"; the default is the noise if ``run``
            is a function without ``noise_multiplier``, else the mean.
        attacks: Whether to search for attacks, most of the work; by default only without a target.
        n_jobs: How many processes share the rows; -1 for one per core. The rows are the same.
        on_row: Called with (place, number of rows, row) when a row is ready, in whatever order.
        startup_runs: In rows within density bounds, how many runs are drawn from the prior, as by
            ``DPHyPOSampler(startup_runs=)``; at least 0, and 0 under ``policy="data"``.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
        UnsupportedEventError: If no accountant judges the run.

    Example:
        >>> import optuna_dp as odp
        >>> plan = odp.selection_plan(odp.gaussian(4.0), laws=["geometric"], means=[10])
        >>> round(plan.rows[0].epsilon, 2)
        1.43
    """
    unknown = _unknown_of(run, noise_multiplier, target_epsilon, solve)
    laws, adaptive_laws = _several("laws", laws), _several("adaptive_laws", adaptive_laws)
    means, density_bounds = _several("means", means), _several("density_bounds", density_bounds)
    pilots = _several("pilots", pilots)
    if cap is not None:
        validation.whole("cap", cap, 1)
    validation.open_unit("delta", delta)
    validation.open_unit("fraction", fraction)
    events.neighboring_relation(neighboring_relation)
    if validation.whole("startup_runs", startup_runs, 0) > 0 and policy == "data":
        raise InvalidArgumentError(
            "startup_runs", startup_runs, "it must be 0 if the policy may depend on the data"
        )
    if policy not in POLICIES:
        raise InvalidArgumentError("policy", policy, f"it must be one of {', '.join(POLICIES)}")
    bounds = [validation.density_bounds(pair) for pair in density_bounds]
    groups = _pilots(pilots, run, unknown)
    noise = 1.0 if noise_multiplier is None else float(noise_multiplier)
    make: Callable[[float], Any] = run if _is_function(run) else (lambda _: run)
    event = make(noise)
    if not isinstance(event, dp_event.DpEvent):
        raise InvalidArgumentError("run", run, "it must be an event or a function that makes one")
    supported_events.check_supported(event, neighboring_relation)
    if attacks is None:
        attacks = target_epsilon is None
    judge = Judge(make, delta, fraction, policy, neighboring_relation, attacks, startup_runs)
    searches = _searches(unknown, laws, means, adaptive_laws, bounds, groups, cap)
    if not searches:
        empty = "means" if not means and unknown != "mean" else "laws, adaptive_laws"
        raise InvalidArgumentError(empty, (), "nothing would be planned", "Give at least one.")
    if unknown is None:
        work: Any = judge
        # Whatever pilots come before it, a selection's own pair is made once.
        chains = _together(searches, lambda s: (s.law, s.mean, s.density_bounds, s.pilots > 0))
    else:
        work = Solver(
            judge, unknown, noise, cap, validation.positive("target_epsilon", target_epsilon)
        )
        # The solutions of one way to search are near each other, so it is one job.
        chains = _together(sorted(searches, key=_by_law), _way)
    job = partial(_rows, work, noise, cap)
    with closing(shared(job, chains, n_jobs, lambda chain: sum(map(_effort, chain)))) as done:
        rows = _in_order(done, searches, on_row)
    known = unknown != "noise_multiplier"
    # After the rows, so that no process waits for it; they needed its pair as well.
    one_run = Guarantee(event, neighboring_relation).epsilon(delta) if known else None
    return SelectionPlan(
        run=event if known else None,
        one_run=one_run,
        delta=float(delta),
        fraction=float(fraction),
        policy=policy,
        neighboring_relation=neighboring_relation,
        target_epsilon=None if target_epsilon is None else float(target_epsilon),
        solved_for=unknown,
        rows=tuple(rows),
    )


def _rows(
    work: Judge | Solver, noise: float, cap: int | None, chain: list[Search]
) -> Iterator[tuple[Search, PlanRow]]:
    """The rows of one job, one after the other."""
    # One of its own for each job: where it begins must not depend on who did what before.
    solver = copy.deepcopy(work)
    for search in chain:
        if isinstance(solver, Solver):
            yield search, solver.row(search)
        else:
            law = law_of(search.law, float(search.mean or 1.0), cap)
            yield search, solver.row(search, law, noise)


def _together(searches: Iterable[Search], key: Callable[[Search], Any]) -> list[list[Search]]:
    """Returns one list of searches for each key, in their order."""
    found: dict[Any, list[Search]] = {}
    for search in searches:
        found.setdefault(key(search), []).append(search)
    return list(found.values())


def _in_order(
    done: Iterable[tuple[Search, PlanRow]],
    searches: list[Search],
    on_row: Callable[[int, int, PlanRow], None] | None,
) -> list[PlanRow]:
    """Returns the rows in their order, whoever computed them."""
    found: dict[Search, PlanRow] = {}
    for search, row in done:
        found[search] = row
        if on_row is not None:
            on_row(searches.index(search), len(searches), row)
    return [found[search] for search in searches]


def _effort(search: Search) -> float:
    """How long a row takes beside others, roughly: only the order of jobs depends on it."""
    factor = 10.0 if search.density_bounds != PLAIN else 3.0 if search.pilots else 1.0
    return math.sqrt(search.mean or 30.0) * factor


def _way(search: Search) -> tuple[Any, ...]:
    return search.law, search.density_bounds, search.pilots, search.noise_ratio


def _is_function(run: Any) -> bool:
    return callable(run) and not isinstance(run, dp_event.DpEvent)


def _by_law(search: Search) -> tuple[str, float, int, float, float]:
    c = (search.density_bounds or PLAIN)[0]
    return search.law, -c, search.pilots, search.noise_ratio or 0.0, search.mean or 0.0


def _several(name: str, value: Any) -> tuple[Any, ...]:
    """Returns a sequence as a tuple; refuses one thing instead of a list of it."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise InvalidArgumentError(name, value, "it must be a list", f"Give {name}=[...].")
    found = tuple(value)
    if name == "density_bounds" and not all(isinstance(pair, Iterable) for pair in found):
        raise InvalidArgumentError(
            name, value, "it must be a list of pairs (c, C)", "For one pair: [(0.75, 2.0)]."
        )
    return found


def _unknown_of(
    run: Any, noise_multiplier: Any, target_epsilon: Any, solve: Any
) -> Unknown | None:
    if solve not in (None, "noise_multiplier", "mean", "density_bounds"):
        raise InvalidArgumentError(
            "solve", solve, "it must be noise_multiplier, mean or density_bounds"
        )
    if noise_multiplier is not None:
        validation.positive("noise_multiplier", noise_multiplier)
        if not _is_function(run):
            raise InvalidArgumentError(
                "noise_multiplier",
                noise_multiplier,
                "the noise of an event is fixed",
                "Leave it out, or give run as a function of the noise multiplier.",
            )
    white_box = _is_function(run) and noise_multiplier is None
    if target_epsilon is None:
        if white_box or solve is not None:
            raise InvalidArgumentError(
                "target_epsilon",
                None,
                "it must be given when something is to be solved for",
                "If run is a function of its noise, give noise_multiplier instead."
                if white_box
                else "",
            )
        return None
    unknown: Unknown = solve or ("noise_multiplier" if white_box else "mean")
    if white_box != (unknown == "noise_multiplier"):
        raise InvalidArgumentError(
            "run",
            run,
            f"to solve for {unknown} it must be "
            + (
                "an event, or have its noise_multiplier given"
                if white_box
                else "a function of the noise multiplier, and that not given"
            ),
            "For the noise: lambda noise: dp_sgd(noise_multiplier=noise, ...).",
        )
    return unknown


def _pilots(pilots: Any, run: Any, unknown: Unknown | None) -> list[tuple[int, float]]:
    """Returns (B, r) of the rows of pilots, checked."""
    found = []
    for given in pilots:
        try:
            count, ratio = given
            pair = validation.whole("B", count, 1), validation.positive("r", ratio)
        except (TypeError, ValueError):
            raise InvalidArgumentError(
                "pilots",
                given,
                "it must be a pair (B, r): a whole number of pilots, at least 1, and their noise "
                "over that of a selection run, positive",
                "For example (10, 4.0).",
            ) from None
        found.append(pair)
    if found and not _is_function(run):
        raise InvalidArgumentError(
            "pilots",
            pilots,
            "their noise is a multiple of the run's, which an event does not tell",
            "Give run as a function, such as lambda noise: dp_sgd(noise_multiplier=noise, ...), "
            "and noise_multiplier.",
        )
    if found and unknown == "density_bounds":
        raise InvalidArgumentError(
            "pilots", pilots, "rows of pilots have no density bounds to solve for", "Leave it out."
        )
    return list(dict.fromkeys(found))


def _searches(
    unknown: Unknown | None,
    laws: Sequence[str],
    means: Sequence[float],
    adaptive_laws: Sequence[str],
    bounds: Sequence[Bounds],
    pilots: Sequence[tuple[int, float]],
    cap: int | None,
) -> list[Search]:
    """Returns every row's way to search, None for what is solved for."""
    checked = [] if unknown == "mean" else [validation.positive("means", m) for m in means]
    for name in (*laws, *adaptive_laws):
        for mean in checked:
            law_of(name, mean, cap)
        if unknown == "mean":
            calibration.mean_scale(partial(law_of, name, cap=cap))
    adaptive = [pair for pair in dict.fromkeys(bounds) if pair != PLAIN]
    if unknown == "density_bounds":
        return [Search(law, mean, None) for law in adaptive_laws for mean in checked]
    found: list[Search] = []
    shown: list[float | None] = [None] if unknown == "mean" else [*checked]
    for given in shown:
        found += [Search(law, given) for law in laws]
        found += [Search(law, given, pair) for law in adaptive_laws for pair in adaptive]
        found += [
            Search(law, given, PLAIN, count, ratio)
            for law in adaptive_laws
            for count, ratio in pilots
        ]
    return found
