"""The figure of what DP-HyPO draws the next run from: posterior, softmax and projection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import optuna

from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.priors.encoding import internal_or_nan
from optuna_dp.priors.scores import RunOutcome, clean_scores
from optuna_dp.visualization import theme
from optuna_dp.visualization.next_draw import Axis, Judged, NextDraw, averages, judged, next_draw

if TYPE_CHECKING:
    import plotly.graph_objects as go

_TITLE = "Where the next run is drawn from"
_FROM_PRIOR = "The next run is drawn from the prior: the density is 1 everywhere"
_AVERAGED = "Averaged over the other hyperparameters"
_PLACES = {1: 60, 2: 24}  # along each axis, by the number of axes
_ROWS = ((0.7, 1.0), (0.37, 0.62), (0.0, 0.29))  # from bottom to top, as parts of the figure
_COLUMNS = ((0.0, 0.28), (0.36, 0.64), (0.72, 1.0))
_POSTERIOR, _WEIGHTS, _DENSITY = "posterior mean", "softmax weights", "density"
_RELATIVE = ", relative to the prior"
_SPREAD = "one standard deviation"
_POINTED = "%{z} ± %{customdata}<extra></extra>"
_RUNS, _WITHOUT_SCORE = "runs so far", "runs without a score (the lowest outcome)"


def plot_density(study: optuna.Study, params: Sequence[str] | None = None) -> go.Figure:
    """Plots how DP-HyPO makes the density that the next run is drawn from.

    Three parts, one beneath the other for one hyperparameter, maps side by side for two:

    ================  =============================================================================
    posterior         the runs so far, and the score that the surrogate expects, with one standard
                      deviation of it (in a map: when you point at a place)
    softmax weights   what the search would like to draw from, relative to the prior
    density           what it draws from, relative to the prior: the weights brought within the
                      bounds c and C, which the accounting charges for
    ================  =============================================================================

    A weight or a density of 2 means that the next run is twice as likely to be there as under the
    prior. Other hyperparameters are averaged over. While too few runs have ended, the next run is
    drawn from the prior: the figure says so, and density and weights are 1 everywhere. Runs of a
    batch that is not complete are shown, but the density does not know them yet.

    All three are calculated by what the sampler itself draws with, for many sets of candidates.
    The density is the mean of theirs.

    **For the curator only**: it shows all runs.

    Args:
        study: A study with a :class:`~optuna_dp.DPHyPOSampler`.
        params: The names of one or two hyperparameters that are drawn jointly; None is all of
            them, if there are no more than two.

    Raises:
        InvalidArgumentError: If the study has no such sampler or no completed run to know its
            hyperparameters from, or ``params`` are not one or two of them.
        PlanError: If the sampler has other settings than the study's plan.
        MissingExtraError: If plotly is not installed.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> space = {"x": optuna.distributions.FloatDistribution(-1, 1)}
        >>> sampler = odp.DPHyPOSampler(space, trials=odp.Geometric(mean=20))
        >>> study = optuna.create_study(sampler=sampler)
        >>> study.optimize(lambda trial: trial.suggest_float("x", -1, 1) ** 2, n_trials=5)
        >>> figure = odp.visualization.plot_density(study)
    """
    draw = next_draw(study)
    names = _checked(params, list(draw.space))
    found = judged(draw)
    axes = [Axis.of(name, found.candidates, _PLACES[len(names)]) for name in names]
    remarks = [_FROM_PRIOR] if draw.is_from_prior else []
    remarks += [_AVERAGED] if len(draw.space) > len(names) else []
    title = "<br>".join([_TITLE, *map(theme.small, remarks)])
    y = "score" if len(names) == 1 else names[-1]
    figure = theme.figure(title, x=names[0], y=y, curator="it shows all runs")
    figure.update_layout(margin_t=90 + 20 * len(remarks))
    (_rows if len(names) == 1 else _maps)(figure, axes, _parts(found, axes), draw)
    return figure


def _checked(params: object, known: Sequence[str]) -> list[str]:
    """Returns the names of the hyperparameters to be shown; refuses what the study lacks."""
    if params is None and len(known) <= 2:
        return list(known)
    given = [params] if isinstance(params, str) else params
    names = [name for name in known if isinstance(given, Sequence) and name in given]
    if not isinstance(given, Sequence) or len(names) != len(given) or len(names) not in (1, 2):
        raise InvalidArgumentError(
            "params",
            params,
            allowed=f"it must be one or two of the hyperparameters {sorted(known)}",
            fix=f"For example params={list(known[:2])}.",
        )
    return [str(name) for name in given]


class _Parts(NamedTuple):
    mean: FloatArray
    std: FloatArray
    weights: FloatArray
    density: FloatArray


def _parts(found: Judged, axes: Sequence[Axis]) -> _Parts:
    """Returns what is shown at each place, averaged over the other hyperparameters."""
    of_candidates = (found.mean, found.std, found.weights, found.ratios)
    return _Parts(*(averages(found, axes, values) for values in of_candidates))


# One hyperparameter: three rows.


def _rows(figure: go.Figure, axes: Sequence[Axis], parts: _Parts, draw: NextDraw) -> None:
    (axis,) = axes
    places = [axis.shown(float(place)) for place in axis.places]
    figure.update_layout(
        height=640,  # pixels
        legend={"traceorder": "normal"},
        yaxis={"domain": _ROWS[0]},
        yaxis2={**theme.AXIS, "domain": _ROWS[1], "title": _WEIGHTS, "rangemode": "tozero"},
        yaxis3={**theme.AXIS, "domain": _ROWS[2], "title": _DENSITY, "rangemode": "tozero"},
        xaxis={"anchor": "y3", **_scale(axis)},
    )
    # Where the prior has no candidate, there is nothing to be shown.
    shown = np.isfinite(parts.density)
    at = [place for place, is_shown in zip(places, shown, strict=True) if is_shown]
    mean, std, weights, density = (part[shown] for part in parts)
    if draw.known:
        _add_posterior(figure, axis, at, mean, std)
    _add_runs(figure, draw, axes, size=8)
    _add_profile(figure, axis, at, weights, _WEIGHTS + _RELATIVE, theme.NAIVE, "y2")
    _add_profile(figure, axis, at, density, _DENSITY + _RELATIVE, theme.GUARANTEE, "y3")
    for name, bound in zip(("c", "C"), draw.density.bounds, strict=True):
        across = [(at[0], bound), (at[-1], bound)]
        theme.line(figure, across, f"{name} = {bound:g}", theme.ATTACK, dash="dash", yaxis="y3")


def _add_posterior(
    figure: go.Figure, axis: Axis, at: Sequence[object], mean: FloatArray, std: FloatArray
) -> None:
    means = zip(at, mean.tolist(), strict=True)
    if axis.has_names:
        theme.points(
            figure,
            means,
            f"{_POSTERIOR}, {_SPREAD}",
            theme.OTHER,
            size=14,
            symbol="diamond-open",
            error_y={"type": "data", "array": std.tolist()},
        )
        return
    low, high = (zip(at, end.tolist(), strict=True) for end in (mean - std, mean + std))
    theme.line(figure, low, f"less {_SPREAD}", theme.OTHER, width=0, showlegend=False)
    theme.line(figure, high, _SPREAD, theme.OTHER, width=0, fill="tonexty", fillcolor=theme.FILL)
    theme.line(figure, means, _POSTERIOR, theme.OTHER)


def _add_profile(
    figure: go.Figure,
    axis: Axis,
    at: Sequence[object],
    values: FloatArray,
    name: str,
    colour: str,
    row: str,
) -> None:
    """Adds what is relative to the prior: a line, or bars for choices."""
    if axis.has_names:
        marker = {"color": colour}
        bars = theme.graph_objects().Bar(x=at, y=values.tolist(), name=name, marker=marker)
        figure.add_trace(bars.update(yaxis=row))
        return
    few = axis.edges is None  # Single values, which a line alone would hide.
    theme.line(figure, zip(at, values.tolist(), strict=True), name, colour, markers=few, yaxis=row)


# Two hyperparameters: three maps.


def _maps(figure: go.Figure, axes: Sequence[Axis], parts: _Parts, draw: NextDraw) -> None:
    horizontal, vertical = axes
    figure.update_layout(height=500, margin_b=160)
    c, big_c = draw.density.bounds
    density_range = {"zmin": c, "zmax": big_c} if c < big_c else {}
    maps = (
        (_POSTERIOR, parts.mean, {"customdata": parts.std.T.tolist(), "hovertemplate": _POINTED}),
        (_WEIGHTS, parts.weights, {"zmin": 0.0}),
        (f"{_DENSITY}, within c = {c:g} and C = {big_c:g}", parts.density, density_range),
    )
    for number, ((name, values, options), columns) in enumerate(
        zip(maps, _COLUMNS, strict=True), start=1
    ):
        suffix = "" if number == 1 else str(number)
        across = _axis(horizontal, f"y{suffix}") | {"domain": columns}
        upwards = _axis(vertical, f"x{suffix}")
        if number > 1:
            del upwards["title"]
        figure.update_layout({f"xaxis{suffix}": across, f"yaxis{suffix}": upwards})
        middle = sum(columns) / 2
        bar = {"orientation": "h", "x": middle, "y": -0.25, "yanchor": "top", "thickness": 10}
        figure.add_trace(
            theme.graph_objects().Heatmap(
                x=_marks(horizontal),
                y=_marks(vertical),
                z=values.T.tolist(),
                name=name,
                xaxis=f"x{suffix}",
                yaxis=f"y{suffix}",
                colorscale="Viridis",
                colorbar=bar | {"len": columns[1] - columns[0] + 0.04},
                showlegend=False,
                **options,
            )
        )
        place = {"x": middle, "xref": "paper", "y": 1.0, "yref": "paper", "yanchor": "bottom"}
        figure.add_annotation(text=name, showarrow=False, xanchor="center", **place)
    _add_runs(figure, draw, axes, size=6)


def _axis(axis: Axis, anchor: str) -> dict[str, object]:
    """Returns the look of an axis of a map, which ends where the map ends."""
    title = {"text": axis.name, "standoff": 8}
    look = {**theme.AXIS, **_scale(axis), "anchor": anchor, "title": title}
    if axis.edges is None:
        return look
    ends = axis.edges[[0, -1]]
    return look | {"range": (np.log10(ends) if axis.is_log else ends).tolist()}


def _marks(axis: Axis) -> list[object]:
    """Returns where cells of a map begin and end, or what they are of."""
    return [
        axis.shown(float(mark)) for mark in (axis.places if axis.edges is None else axis.edges)
    ]


# Of both.


def _add_runs(figure: go.Figure, draw: NextDraw, axes: Sequence[Axis], size: int) -> None:
    """Adds the runs that have ended, where they have the hyperparameters that are shown."""
    if not draw.runs:
        return
    scores = draw.sign * clean_scores([run.score for run in draw.runs], draw.sign)
    for name, symbol, has_score in ((_RUNS, "circle", True), (_WITHOUT_SCORE, "x", False)):
        at = [
            _place(run, axes, score)
            for run, score in zip(draw.runs, scores.tolist(), strict=True)
            if (run.score is not None) == has_score and all(_has(run, axis) for axis in axes)
        ]
        if at:
            theme.points(figure, at, name, theme.ATTACK, size=size, symbol=symbol)


def _has(run: RunOutcome, axis: Axis) -> bool:
    if axis.name not in run.params:
        return False
    return not math.isnan(internal_or_nan(axis.distribution, run.params[axis.name]))


def _place(run: RunOutcome, axes: Sequence[Axis], score: float) -> tuple[object, object]:
    """Returns where a run is: over its score, or in a map."""
    x, *more = (
        axis.shown(internal_or_nan(axis.distribution, run.params[axis.name])) for axis in axes
    )
    return x, (more[0] if more else score)


def _scale(axis: Axis) -> dict[str, object]:
    if axis.has_names:
        order = [axis.shown(float(place)) for place in axis.places]
        return {"type": "category", "categoryorder": "array", "categoryarray": order}
    if not axis.is_log:
        return {"type": "linear"}
    decades = math.log10(axis.places[-1] / axis.places[0])
    powers = {"dtick": 1, "exponentformat": "power"} if decades > 2 else {}
    return {"type": "log", **powers}
