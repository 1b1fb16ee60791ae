"""The planner: what a search would cost under many laws of T, before any data are touched.

One row is one law of T and one way to learn: not at all, or within density bounds (c, C). Each is
judged by every method that applies, beside what other accountings would say and what the search
can hope to find (:mod:`optuna_dp.planning.selection_plan_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from dp_accounting import dp_event

from optuna_dp import validation
from optuna_dp.accounting import events, supported_events
from optuna_dp.accounting.event_json import event_to_json
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.json_records import plain
from optuna_dp.planning import calibration
from optuna_dp.planning.calibration import Unknown
from optuna_dp.planning.selection_plan_rows import PLAIN, Bounds, PlanRow, Question, law_of
from optuna_dp.private_selection.event import POLICIES

LAWS = ("negative-binomial:-0.5", "logarithmic", "geometric", "poisson")
MEANS = (10.0, 30.0, 100.0)
DENSITY_BOUNDS: Bounds = (0.75, 2.0)


@dataclass(frozen=True)
class SelectionPlan:
    """A table to choose a search from.

    Attributes:
        run: Event of one run; None if its noise is solved for.
        delta: Of every epsilon here.
        fraction: What counts as a hit: the best ``fraction`` of the prior.
        policy: "history" or "data".
        neighboring_relation: "add_or_remove_one" or "replace_one".
        target_epsilon: What every row may cost, or None.
        solved_for: What is chosen to meet it, or None.
        rows: One for each law, mean and way to learn. A row does its work when its figures are
            read.
    """

    run: dp_event.DpEvent | None
    delta: float
    fraction: float
    policy: str
    neighboring_relation: str
    target_epsilon: float | None
    solved_for: Unknown | None
    rows: tuple[PlanRow, ...]

    @cached_property
    def one_run(self) -> float | None:
        """Epsilon of one run, alone and published; None if its noise is solved for."""
        if self.run is None:
            return None
        return Guarantee(self.run, self.neighboring_relation).epsilon(self.delta)

    def to_json(self, *, attack: bool = True) -> dict[str, Any]:
        """Returns the plan with all figures of all rows, as plain JSON values.

        Args:
            attack: Whether to look for attacks too, a good part of the work.
        """
        rest = ("delta", "fraction", "policy", "neighboring_relation", "target_epsilon")
        return {
            "format": "optuna-dp plan",
            "version": 1,
            "run": None if self.run is None else event_to_json(self.run),
            **{name: plain(getattr(self, name)) for name in (*rest, "solved_for", "one_run")},
            "rows": [row.to_json(attack=attack) for row in self.rows],
        }


def selection_plan(
    run: dp_event.DpEvent | Callable[[float], dp_event.DpEvent],
    *,
    noise_multiplier: float | None = None,
    delta: float = 1e-5,
    laws: Sequence[str] = LAWS,
    means: Sequence[float] = MEANS,
    adaptive_laws: Sequence[str] = ("geometric",),
    density_bounds: Sequence[Bounds] | None = None,
    cap: int | None = None,
    fraction: float = 0.05,
    policy: str = "history",
    neighboring_relation: str = "add_or_remove_one",
    target_epsilon: float | None = None,
    solve: Unknown | None = None,
    startup_runs: int = 0,
) -> SelectionPlan:
    """Returns what searches would cost and find, or what a target epsilon allows.

    Without ``target_epsilon`` every row is judged as it is. With it, one quantity is solved for in
    every row so that the row costs at most that much: the noise multiplier if ``run`` is a
    function of it (the white-box setting of DP-HyPO), else the mean of T or the ratio C/c.

    The plan is returned at once. A row is judged, or solved for, when its figures are read: a few
    tenths of a second without density bounds, a few seconds with them.

    Guarantees:
        * Every ``epsilon`` is the guarantee's own and is never above ``target_epsilon``; rows that
          cannot reach it are kept, empty, with a note.
        * At least 98 % of ``target_epsilon`` is used, unless what is solved for is at an end of
          its range (:func:`calibrate` names it) or only Rényi accounting says so little.
        * No figure depends on which others were read, or in which order.
        * All arguments are checked, and whether the run is supported, before any work.

    Args:
        run: Event of one run, or a function noise multiplier -> event.
        noise_multiplier: Of ``run``, if that is a function and its noise is not solved for.
        delta: In (0, 1).
        laws: Families of searches that do not learn: "geometric", "logarithmic", "poisson",
            "negative-binomial:SHAPE" or "binomial:N".
        means: E[T] of the rows; not used when the mean is solved for.
        adaptive_laws: Families of searches that learn.
        density_bounds: Pairs (c, C) for those, at every mean; not used when C/c is solved for. By
            default (0.75, 2) at the smallest mean only: such a row takes seconds.
        cap: Largest T, for all laws, or None.
        fraction: What counts as a hit, in (0, 1).
        policy: "history" or "data", see :func:`~optuna_dp.selection_guarantee`.
        neighboring_relation: "add_or_remove_one" or "replace_one".
        target_epsilon: What each row may cost; needed if ``run`` is a function without
            ``noise_multiplier``.
        solve: "noise_multiplier", "mean" or "density_bounds"; the default is the noise if ``run``
            is a function without ``noise_multiplier``, else the mean.
        startup_runs: In rows within density bounds, how many runs are drawn from the prior, as by
            ``DPHyPOSampler(startup_runs=)``; at least 0, and 0 under ``policy="data"``.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
        UnsupportedEventError: If no accountant supports the run.

    Example:
        >>> import optuna_dp as odp
        >>> plan = odp.selection_plan(odp.gaussian(4.0), laws=["geometric"], means=[10])
        >>> round(plan.rows[0].epsilon, 2)
        1.43
    """
    unknown = _unknown_of(run, noise_multiplier, target_epsilon, solve)
    laws, adaptive_laws = _several("laws", laws), _several("adaptive_laws", adaptive_laws)
    means = _several("means", means)
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
    bounds = None
    if density_bounds is not None:
        pairs = _several("density_bounds", density_bounds)
        bounds = [validation.density_bounds(pair) for pair in pairs]
    if target_epsilon is not None:
        target_epsilon = validation.positive("target_epsilon", target_epsilon)
    noise = 1.0 if noise_multiplier is None else float(noise_multiplier)
    make: Callable[[float], Any] = run if _is_function(run) else (lambda _: run)
    event = make(noise)
    if not isinstance(event, dp_event.DpEvent):
        raise InvalidArgumentError("run", run, "it must be an event or a function that makes one")
    supported_events.check_supported(event, neighboring_relation)
    question = Question(
        run=make,
        noise=noise,
        delta=float(delta),
        fraction=float(fraction),
        policy=policy,
        neighboring_relation=neighboring_relation,
        startup_runs=startup_runs,
        cap=cap,
        unknown=unknown,
        target=target_epsilon or 0.0,
    )
    rows = _rows(question, laws, means, adaptive_laws, bounds)
    if not rows:
        empty = "means" if not means and unknown != "mean" else "laws, adaptive_laws"
        raise InvalidArgumentError(empty, (), "nothing would be planned", "Give at least one.")
    return SelectionPlan(
        run=None if unknown == "noise_multiplier" else event,
        delta=question.delta,
        fraction=question.fraction,
        policy=policy,
        neighboring_relation=neighboring_relation,
        target_epsilon=target_epsilon,
        solved_for=unknown,
        rows=rows,
    )


def _rows(
    question: Question,
    laws: Sequence[str],
    means: Sequence[float],
    adaptive_laws: Sequence[str],
    bounds: Sequence[Bounds] | None,
) -> tuple[PlanRow, ...]:
    """Returns a row for every way to search, after a look whether the laws exist."""
    unknown = question.unknown
    known = [] if unknown == "mean" else [validation.positive("means", mean) for mean in means]
    for name in (*laws, *adaptive_laws):
        for mean in known:
            law_of(name, mean, question.cap)
        if unknown == "mean":
            calibration.mean_scale(partial(law_of, name, cap=question.cap))
    if unknown == "density_bounds":
        return tuple(PlanRow(question, law, mean, None) for mean in known for law in adaptive_laws)
    found = []
    shown: Sequence[float | None] = [None] if unknown == "mean" else known
    for given in shown:
        found += [PlanRow(question, law, given, PLAIN) for law in laws]
        pairs = bounds
        if pairs is None:
            pairs = [DENSITY_BOUNDS] if given == min(known, default=None) else []
        learning = [pair for pair in dict.fromkeys(pairs) if pair != PLAIN]
        found += [
            PlanRow(question, law, given, pair) for law in adaptive_laws for pair in learning
        ]
    return tuple(found)


def _is_function(run: Any) -> bool:
    return callable(run) and not isinstance(run, dp_event.DpEvent)


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
                "it is needed to solve for a number",
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
                "an event, or a function with its noise_multiplier"
                if white_box
                else "a function of the noise multiplier, without noise_multiplier"
            ),
            "For example lambda noise: dp_sgd(noise_multiplier=noise, ...).",
        )
    return unknown
