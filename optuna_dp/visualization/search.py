"""Where a study looks, and what it found. For the curator only, all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.search_space import intersection_search_space

from optuna_dp.densities.informed import FixedCandidates
from optuna_dp.densities.policy import Direction, Policy
from optuna_dp.densities.prior import Candidates
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.samplers.dp_hypo import DPHyPOSampler
from optuna_dp.samplers.history import outcomes
from optuna_dp.samplers.plan import Plan
from optuna_dp.samplers.records import ended, score
from optuna_dp.samplers.selection import SelectionSampler
from optuna_dp.visualization import theme
from optuna_dp.visualization.targets import plan_of

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from optuna.trial import FrozenTrial

    from optuna_dp.densities.shares import FloatArray

_CANDIDATES = 1024
_CELLS = 24
_LARGEST_PANELS = 6
_COLUMNS = 3


def plot_sampling_density(
    study: optuna.Study, *, params: Sequence[str] | None = None
) -> go.Figure:
    """Plots the density from which the next run would be drawn, relative to the prior.

    One panel per parameter. A dot is a candidate, at its ratio of density to prior; the line is
    the mean ratio along the parameter, the marginal; the band is [c, C], which no dot can leave;
    ticks at the bottom are the runs so far. Under ``schedule="batch"`` a run sees completed
    batches only; the figure takes all runs that have ended.

    **For the curator only**: it is a function of the scores of all runs.

    Args:
        study: A study of :class:`~optuna_dp.DPHyPOSampler` (load it with its sampler) or
            :class:`~optuna_dp.RandTuneSampler`.
        params: Which parameters to show; by default the first six that are drawn jointly.
    """
    plan = plan_of(study)
    runs = _ended_runs(study, plan)
    policy, space = _policy_of(study, plan, runs)
    shown = _shown(space, params)
    rng = np.random.default_rng()  # for a picture only: nothing of it is ever released
    if isinstance(policy.prior, FixedCandidates):
        candidates = policy.prior.candidates(space)
    else:
        candidates = policy.prior.sample(space, _CANDIDATES, rng)
    direction: Direction = "maximize" if plan.design.direction == "maximize" else "minimize"
    ratios = policy.density(outcomes(runs), candidates, direction).ratios
    weights = _masses(policy, candidates)
    return _panels(shown, candidates, ratios, weights, policy.bounds, runs)


def plot_scores(study: optuna.Study) -> go.Figure:
    """Plots the score of every run; runs without one (failed, pruned, NaN) are marked.

    **For the curator only**: it shows the number of runs and the scores of those that lost.

    Args:
        study: A study of one of optuna-dp's samplers.
    """
    plan = plan_of(study)
    runs = _ended_runs(study, plan)
    scored = [(trial.number, value) for trial in runs if (value := score(trial)) is not None]
    failed = [trial.number for trial in runs if score(trial) is None]
    figure = theme.figure("Scores of the runs", x="run", y="score", curator=True)
    go = theme.graph_objects()
    if scored:
        numbers, values = [n for n, _ in scored], [v for _, v in scored]
        best = (np.maximum if plan.design.direction == "maximize" else np.minimum).accumulate
        figure.add_trace(
            go.Scatter(
                x=numbers,
                y=best(values).tolist(),
                mode="lines",
                line={"shape": "hv", "color": theme.OTHER, "width": 1},
                name="best so far",
            )
        )
        figure.add_trace(
            go.Scatter(
                x=numbers,
                y=values,
                mode="markers",
                marker={"color": theme.GUARANTEE, "size": 8},
                name="score (with its noise)",
            )
        )
    if failed:
        values = [v for _, v in scored] or [0.0, 1.0]
        gap = 0.08 * (max(values) - min(values) or 1.0)
        maximize = plan.design.direction == "maximize"
        lowest = min(values) - gap if maximize else max(values) + gap
        figure.add_trace(
            go.Scatter(
                x=failed,
                y=[lowest] * len(failed),
                mode="markers",
                marker={"color": theme.ATTACK, "size": 9, "symbol": "x"},
                name="no score: the lowest outcome",
            )
        )
    last = max((trial.number for trial in runs), default=0)
    figure.update_xaxes(range=[-0.5, last + 0.5], tickformat="d")
    return figure


def _ended_runs(study: optuna.Study, plan: Plan) -> list[FrozenTrial]:
    trials = study._storage.get_all_trials(study._study_id, deepcopy=False)
    runs = [trial for trial in trials if trial.number < plan.slots and ended(trial)]
    return sorted(runs, key=lambda trial: trial.number)


def _policy_of(
    study: optuna.Study, plan: Plan, runs: Sequence[FrozenTrial]
) -> tuple[Policy, dict[str, BaseDistribution]]:
    """Returns the policy that the study's plan describes, and the space drawn jointly."""
    sampler = study.sampler
    same = (
        isinstance(sampler, SelectionSampler)
        and sampler._design(plan.design.direction).fingerprint == plan.design.fingerprint
    )
    if not same or plan.design.sampler not in ("DPHyPOSampler", "RandTuneSampler"):
        raise InvalidArgumentError(
            "study.sampler",
            type(sampler).__name__,
            f"the density is made by the study's own sampler, {plan.design.sampler}, with the "
            "arguments it was started with",
            "Load the study with it: optuna.load_study(..., sampler=...). Densities of "
            "DPHyPOSampler and RandTuneSampler can be shown.",
        )
    assert isinstance(sampler, SelectionSampler)
    policy = (
        sampler._policy
        if isinstance(sampler, DPHyPOSampler)
        else Policy(bounds=(1.0, 1.0), prior=sampler._prior)
    )
    found = sampler._search_space or intersection_search_space(list(runs))
    return policy, dict(sorted(found.items()))


def _shown(space: dict[str, BaseDistribution], params: Sequence[str] | None) -> list[str]:
    names = list(space)[:_LARGEST_PANELS] if params is None else list(params)
    unknown = [name for name in names if name not in space]
    if unknown or not names:
        raise InvalidArgumentError(
            "params",
            params,
            f"parameters that are drawn jointly so far: {', '.join(space) or 'none'}",
            "Give the sampler a search_space to have one from the first run.",
        )
    return names


def _masses(policy: Policy, candidates: Candidates) -> FloatArray:
    if isinstance(policy.prior, FixedCandidates):
        masses: FloatArray = policy.prior.masses / policy.prior.masses.sum()
        return masses
    return np.full(len(candidates), 1.0 / len(candidates))


def _panels(
    params: Sequence[str],
    candidates: Candidates,
    ratios: FloatArray,
    weights: FloatArray,
    bounds: tuple[float, float],
    runs: Sequence[FrozenTrial],
) -> go.Figure:
    go = theme.graph_objects()
    from plotly.subplots import make_subplots

    columns = min(len(params), _COLUMNS)
    rows = -(-len(params) // columns)
    figure = make_subplots(rows, columns, shared_yaxes=True, horizontal_spacing=0.04)
    c, big_c = bounds
    for i, name in enumerate(params):
        row, col = divmod(i, columns)
        where: dict[str, Any] = {"row": row + 1, "col": col + 1}
        space = candidates.space[name]
        values = candidates.columns[name]
        choices = [str(v) for v in getattr(space, "choices", ())]
        categorical = bool(choices)
        x = [choices[int(v)] for v in values] if categorical else values.tolist()
        figure.add_trace(
            go.Scatter(
                x=x,
                y=ratios.tolist(),
                mode="markers",
                marker={"color": theme.rgba(theme.GUARANTEE, 0.3), "size": 4},
                name="candidate",
                showlegend=i == 0,
                hoverinfo="skip",
            ),
            **where,
        )
        edges, levels = _marginal(values, ratios, weights, categorical)
        figure.add_trace(
            go.Scatter(
                x=[choices[int(v)] for v in edges] if categorical else edges,
                y=levels,
                mode="markers" if categorical else "lines",
                line={"color": theme.NAIVE, "width": 3},
                marker={"color": theme.NAIVE, "size": 26, "symbol": "line-ew-open"},
                name="mean along the parameter",
                showlegend=i == 0,
            ),
            **where,
        )
        used = [trial.params[name] for trial in runs if name in trial.params]
        figure.add_trace(
            go.Scatter(
                x=[str(v) for v in used] if categorical else used,
                y=[c - 0.08 * ((big_c - c) or 1.0)] * len(used),
                mode="markers",
                marker={"color": theme.ATTACK, "symbol": "line-ns-open", "size": 9},
                name="runs so far",
                showlegend=i == 0,
            ),
            **where,
        )
        band: dict[str, Any] = {"fillcolor": theme.FILL, "line_width": 0, "layer": "below"}
        figure.add_hrect(y0=c, y1=big_c, **band, **where)
        figure.add_hline(y=1.0, line={"color": theme.OTHER, "width": 1, "dash": "dash"}, **where)
        for level in {c, big_c}:
            figure.add_hline(y=level, line={"color": theme.GUARANTEE, "width": 1}, **where)
        log = bool(getattr(space, "log", False))
        figure.update_xaxes(title_text=name, type="log" if log else None, zeroline=False, **where)
        if log:
            figure.update_xaxes(exponentformat="power", dtick=1, **where)
        if categorical:
            figure.update_xaxes(categoryorder="array", categoryarray=choices, **where)
    base = theme.figure("Where the next run is drawn", x="", y="", curator=True)
    layout = base.layout.to_plotly_json()
    for axis in ("xaxis", "yaxis"):
        layout.pop(axis)
    figure.update_layout(**layout, height=120 + 300 * rows)
    ticks = {1.0: "1"} if c == big_c else {c: f"c = {c:g}", 1.0: "1", big_c: f"C = {big_c:g}"}
    figure.update_yaxes(zeroline=False, tickvals=list(ticks), ticktext=list(ticks.values()))
    figure.update_yaxes(title_text="density relative to the prior", col=1)
    return figure


def _marginal(
    values: FloatArray, ratios: FloatArray, weights: FloatArray, categorical: bool
) -> tuple[list[float], list[float]]:
    """The mean ratio along one parameter: per value if there are few, else per cell.

    Cells hold equal shares of the candidates, so that each level is a mean of as many.
    """
    distinct = np.unique(values)
    if categorical or len(distinct) <= _CELLS:
        groups = [values == value for value in distinct]
        at = [float(value) for value in distinct]
    else:
        order = np.array_split(np.argsort(values, kind="stable"), _CELLS)
        groups = [np.isin(np.arange(len(values)), cell) for cell in order]
        at = [float(np.median(values[cell])) for cell in order]
    levels = [float(np.average(ratios[g], weights=weights[g])) for g in groups]
    return at, levels
