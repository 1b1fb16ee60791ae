"""The density of the next run of a DP-HyPO study, as a figure. For the curator only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.search_space import intersection_search_space

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.models.prior import Candidates
from optuna_dp.private_selection.densities.informed import FixedCandidates
from optuna_dp.private_selection.dp_hypo import DPHyPOSampler
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.visible_runs import outcomes
from optuna_dp.visualization import theme
from optuna_dp.visualization.targets import opened, runs_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from optuna_dp.arrays import FloatArray
    from optuna_dp.private_selection.densities.adaptive_density import AdaptiveDensity

_CANDIDATES = 1024
_CELLS = 24
_LARGEST_PANELS = 6
_COLUMNS = 3
_LONGEST_NAME = 28
_MOST_TICKS, _LONGEST_CHOICE = 12, 16
_PANEL, _AROUND = 300, 150  # pixels


def plot_sampling_density(
    study: optuna.Study, *, params: Sequence[str] | None = None
) -> go.Figure:
    """Plots the density from which the next run would be drawn, relative to the prior.

    One panel per parameter. A dot is a candidate, at its ratio of density to prior; the line is
    the mean ratio along the parameter; ticks at the bottom are the runs so far. The band is
    [c, C], which no dot can leave. Under ``schedule="batch"`` a run sees completed batches only;
    the figure takes all runs that have ended.

    **For the curator only**: it is a function of the scores of all runs.

    Args:
        study: A study of :class:`~optuna_dp.DPHyPOSampler`, loaded with its sampler.
        params: Which parameters to show; by default the first six that are drawn jointly.

    Raises:
        InvalidArgumentError: If the study has another sampler, whose runs no density adapts, or
            the sampler was not started with these arguments; or if ``params`` are not drawn
            jointly.
        PlanError: If the study has no plan.
        MissingExtraError: If plotly is not installed.
    """
    plan, runs = opened(study).plan, runs_of(study)
    sampler = _own_sampler(study.sampler, plan)
    density, found = sampler.density, sampler.search_space or intersection_search_space(runs)
    names = _shown(found, params)
    candidates, weights = _candidates(density, dict(sorted(found.items())))
    ratios = density.density(outcomes(runs), candidates, plan.design.direction).ratios
    theme.graph_objects()
    from plotly.subplots import make_subplots  # Lazy: an extra, which may be missing.

    columns = min(len(names), _COLUMNS)
    rows = math.ceil(len(names) / columns)
    gaps = {"horizontal_spacing": 0.05, "vertical_spacing": 0.3 / rows}
    figure = make_subplots(rows, columns, shared_yaxes=True, **gaps)
    low, high = density.bounds
    room = high - low
    for i, name in enumerate(names):
        where = {"row": i // columns + 1, "col": i % columns + 1}
        space, x = candidates.space[name], candidates.columns[name]
        look: dict[str, Any] = {"where": where, "showlegend": i == 0}
        dot = {"size": 4, "hoverinfo": "skip", **look}
        dots = zip(x, ratios, strict=True)
        theme.points(figure, dots, "candidate", theme.rgba(theme.GUARANTEE, 0.3), **dot)
        means = _means(x, ratios, weights)
        mean = figure, means, "mean along the parameter", theme.NAIVE
        if isinstance(space, CategoricalDistribution):
            theme.points(*mean, size=26, symbol="line-ew-open", **look)
        else:
            theme.line(*mean, width=3, **look)
        used = [space.to_internal_repr(t.params[name]) for t in runs if name in t.params]
        ticks = [(value, low - 0.08 * room) for value in used]
        at = {"size": 9, "symbol": "line-ns-open", **look}
        theme.points(figure, ticks, "runs so far", theme.ATTACK, **at)
        figure.add_hrect(y0=low, y1=high, fillcolor=theme.FILL, line_width=0, **where)
        figure.update_xaxes(**_axis(name, space), **where)
    height = _AROUND + _PANEL * rows
    theme.style(figure, "Where the next run is drawn", curator=True, height=height)
    levels = {low: f"c = {low:g}", 1.0: "1", high: f"C = {high:g}"}
    figure.update_yaxes(
        range=[low - 0.15 * room, high + 0.05 * room],
        tickvals=list(levels),
        ticktext=list(levels.values()),
    )
    figure.update_yaxes(title_text="density relative to the prior", col=1)
    return figure


def _own_sampler(sampler: Any, plan: StudyPlan) -> DPHyPOSampler:
    """Returns the sampler if its runs are drawn from a density, and the plan is its own."""
    settings = plan.design.settings
    if isinstance(sampler, DPHyPOSampler) and plan.design.sampler == type(sampler).__name__:
        bounds, prior = settings["density_bounds"], settings["prior"]
        recorded = {**settings["search"], "bounds": bounds, "prior": prior}
        if sampler.density.describe(sampler.search_space or {}) == recorded:
            return sampler
    raise InvalidArgumentError(
        "study.sampler",
        type(sampler).__name__,
        "only runs of DPHyPOSampler are drawn from a density that learns, and it is made by the "
        "study's own sampler, with the arguments it was started with",
        "Load the study with it: optuna.load_study(..., sampler=...).",
    )


def _candidates(
    density: AdaptiveDensity, space: dict[str, BaseDistribution]
) -> tuple[Candidates, FloatArray]:
    """Returns points of the search space and the prior's share of each, shape (N,)."""
    prior = density.prior
    if isinstance(prior, FixedCandidates):
        return prior.candidates(space), prior.masses / prior.masses.sum()
    rng = np.random.default_rng()  # for a picture only: nothing of it is ever released
    return prior.sample(space, _CANDIDATES, rng), np.full(_CANDIDATES, 1.0 / _CANDIDATES)


def _means(
    values: FloatArray, ratios: FloatArray, weights: FloatArray
) -> list[tuple[float, float]]:
    """Returns the mean ratio along one parameter: per value if there are few, else per cell.

    Cells hold equal shares of the candidates, so that each level is a mean of as many.
    """
    distinct = np.unique(values)
    if len(distinct) <= _CELLS:
        cells = [np.flatnonzero(values == value) for value in distinct]
    else:
        cells = np.array_split(np.argsort(values, kind="stable"), _CELLS)
    return [
        (float(np.median(values[cell])), float(np.average(ratios[cell], weights=weights[cell])))
        for cell in cells
    ]


def _axis(name: str, space: Any) -> dict[str, Any]:
    """Returns the horizontal axis of a parameter: its whole range, on its own scale."""
    title = {"text": _clipped(name, _LONGEST_NAME), "standoff": 6}
    if isinstance(space, CategoricalDistribution):
        choices = [_clipped(str(choice), _LONGEST_CHOICE) for choice in space.choices]
        step = math.ceil(len(choices) / _MOST_TICKS)
        ticks = {"tickvals": list(range(0, len(choices), step)), "ticktext": choices[::step]}
        return {"title": title, "range": [-0.6, len(choices) - 0.4], **ticks}
    low, high = (math.log10(end) if space.log else end for end in (space.low, space.high))
    room = 0.03 * ((high - low) or 1.0)
    scale: dict[str, Any] = {"nticks": 6}
    if space.log:
        scale = {"type": "log", "exponentformat": "power"}
        if high - low >= 2:
            scale["dtick"] = max(1, round((high - low) / 6))
    return {"title": title, "range": [low - room, high + room], **scale}


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _shown(space: dict[str, BaseDistribution], params: Sequence[str] | None) -> list[str]:
    names = sorted(space)[:_LARGEST_PANELS] if params is None else list(params)
    if not names or not space.keys() >= set(names):
        raise InvalidArgumentError(
            "params",
            params,
            f"parameters that are drawn jointly so far: {', '.join(space) or 'none'}",
            "Give the sampler a search_space to have one from the first run.",
        )
    return names
