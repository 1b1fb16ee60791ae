"""Figures of guarantees and plans, which are public."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import optuna
import pytest
from support import RUN, exactly, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError

pytest.importorskip("plotly")

from optuna_dp import visualization as vis

LAW = odp.Geometric(mean=5)


SEARCH = odp.selection_guarantee(RUN, LAW)


def trace(figure: Any, name: str) -> Any:
    (found,) = [t for t in figure.data if t.name is not None and t.name.startswith(name)]
    return found


def private_study(sampler: Any, **kwargs: Any) -> optuna.Study:
    study = study_of(sampler, **kwargs)
    study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])
    return study


def test_the_profile_is_the_guarantees_and_the_attack_is_beneath_it() -> None:
    figure = vis.plot_privacy_profile(SEARCH, delta=1e-6)
    curve, floor = trace(figure, "the release"), trace(figure, "strongest")
    for delta, epsilon in list(zip(curve.x, curve.y, strict=True))[::20]:
        assert SEARCH.delta(epsilon) == delta
    for delta, epsilon in zip(floor.x, floor.y, strict=True):
        assert 0 < epsilon <= SEARCH.epsilon(delta)
    assert list(curve.x) == sorted(curve.x)
    (marked,) = [t for t in figure.data if t.mode == "markers+text"]
    assert (marked.x[0], marked.y[0]) == (1e-6, SEARCH.epsilon(1e-6))


def test_the_number_in_words_is_rounded_up() -> None:
    figure = vis.plot_privacy_profile(SEARCH, attack=False)
    (marked,) = [t for t in figure.data if t.mode == "markers+text"]
    shown = float(marked.text[0].split()[1])
    assert 0 <= shown - SEARCH.epsilon(1e-5) < 0.01


def test_one_run_is_below_the_search() -> None:
    figure = vis.plot_privacy_profile(SEARCH, attack=False)
    assert min(trace(figure, "the release").y) > min(trace(figure, "one run").y)


@pytest.mark.parametrize(
    "event", [odp.pure_dp(1.0), odp.approximate_dp(1.0, 1e-3), odp.zcdp(0.1), odp.laplace(2.0)]
)
def test_profiles_of_all_kinds(event: Any) -> None:
    figure = vis.plot_privacy_profile(odp.Guarantee(event))
    assert all(math.isfinite(y) for t in figure.data for y in t.y)
    json.loads(figure.to_json())


def test_a_release_and_a_study_show_their_own_guarantee() -> None:
    study = private_study(odp.RandTuneSampler(trials=LAW))
    release = odp.release(study)
    expected = trace(vis.plot_privacy_profile(SEARCH, attack=False), "the release")
    for target in (study, release):
        found = trace(vis.plot_privacy_profile(target, attack=False), "the release")
        assert (list(found.x), list(found.y)) == (list(expected.x), list(expected.y))


def test_publishing_every_run_is_composition() -> None:
    figure = vis.plot_epsilon_by_trials(SEARCH)
    naive, level = trace(figure, "publishing"), trace(figure, "the release")
    by_count = dict(zip(naive.x, naive.y, strict=True))
    # Four Gaussians of noise 4 are one of noise 2.
    assert by_count[4] == pytest.approx(odp.Guarantee(odp.gaussian(2.0)).epsilon(1e-5), rel=1e-3)
    assert by_count[1] == pytest.approx(odp.Guarantee(RUN).epsilon(1e-5), rel=1e-3)
    assert set(level.y) == {SEARCH.epsilon(1e-5)}
    assert max(naive.x) >= LAW.quantile(0.95)


def test_an_event_without_runs_has_no_figure_by_runs() -> None:
    with pytest.raises(InvalidArgumentError, match="selection"):
        vis.plot_epsilon_by_trials(odp.Guarantee(RUN))


def test_public_figures_are_the_same_whatever_happened() -> None:
    """Two studies of one design, with other scores and another T."""
    shown = []
    for count in (2, 7):
        sampler = odp.RandTuneSampler(trials=LAW)
        sampler._draw_slots = lambda bits, count=count: count  # type: ignore[method-assign]
        study = private_study(sampler)
        assert len(study.trials) == count
        release = odp.release(study)
        figures = [
            vis.plot_privacy_profile(study, attack=False),
            vis.plot_privacy_profile(release, attack=False),
            vis.plot_epsilon_by_trials(release),
        ]
        shown.append([figure.to_json() for figure in figures])
    assert shown[0] == shown[1]
    assert "curator" not in "".join(shown[0])


def test_figures_of_runs_say_whom_they_are_for() -> None:
    study = private_study(odp.RandTuneSampler(trials=exactly(3)))
    for plot in (vis.plot_epsilon_by_trials, vis.plot_scores, vis.plot_sampling_density):
        assert "For the curator only" in plot(study).layout.title.text


def test_docstrings_say_who_may_see_the_figure() -> None:
    for name in vis.__all__:
        doc = getattr(vis, name).__doc__
        assert "**Public" in doc or "**For the curator only**" in doc, name


def test_a_plan_shows_every_row_with_its_attack() -> None:
    plan = odp.selection_plan(RUN, laws=["geometric"], adaptive_laws=[], means=[3, 9])
    figure = vis.plot_plan(plan)
    line = trace(figure, "geometric")
    assert list(line.y) == [row.epsilon for row in plan.rows]
    floor = np.array(line.y) - np.array(line.error_y.arrayminus)
    assert floor == pytest.approx([row.attack for row in plan.rows])
    assert list(trace(figure, "publishing").y) == [row.naive for row in plan.rows]


def test_a_plan_with_pilots_has_a_line_for_them() -> None:
    plan = odp.selection_plan(
        odp.gaussian,
        noise_multiplier=4.0,
        laws=["geometric"],
        means=[3, 9],
        density_bounds=[],
        pilots=[(5, 4.0)],
        attacks=False,
    )
    line = trace(vis.plot_plan(plan), "geometric, after 5 pilots at 4x noise")
    assert list(line.x) == [3, 9]
    assert list(line.y) == [row.epsilon for row in plan.rows if row.pilots]


def test_a_plan_that_was_solved_shows_what_was_solved_for() -> None:
    plan = odp.selection_plan(
        RUN, laws=["geometric", "poisson"], adaptive_laws=[], target_epsilon=1.5, solve="mean"
    )
    (bars,) = vis.plot_plan(plan).data
    assert list(bars.y) == [row.mean for row in plan.rows if row.trials is not None]
    with pytest.raises(InvalidArgumentError, match="selection_plan"):
        vis.plot_plan([])  # type: ignore[arg-type]


def test_at_one_mean_the_price_of_learning_is_stacked_on_the_selection() -> None:
    plan = odp.selection_plan(
        odp.gaussian,
        noise_multiplier=4.0,
        laws=["geometric"],
        means=[5],
        density_bounds=[(0.9, 1.25)],
        pilots=[(5, 4.0)],
    )
    figure = vis.plot_plan(plan)
    base, price = trace(figure, "the selection by itself"), trace(figure, "added by density")
    names = [
        "geometric",
        "geometric, adaptive within [0.9, 1.25]",
        "geometric, after 5 pilots at 4x noise",
    ]
    assert list(base.y) == names
    assert list(price.y) == names[1:]
    assert list(price.x) == [row.price for row in plan.rows[1:]]
    assert base.x[0] == plan.rows[0].epsilon
    whole = [row.epsilon for row in plan.rows[1:]]
    assert np.add(base.x[1:], price.x) == pytest.approx(whole, rel=1e-12)
    assert list(trace(figure, "strongest known").x) == [row.attack for row in plan.rows]
    assert list(trace(figure, "publishing").x) == [plan.rows[0].naive]


def test_a_search_without_a_finite_cost_has_no_bar() -> None:
    plan = odp.selection_plan(
        odp.approximate_dp(1.0, 1e-3), laws=["geometric"], means=[50], attacks=False
    )
    assert all(np.isinf(row.epsilon) for row in plan.rows)
    (bars,) = [t for t in vis.plot_plan(plan).data if "by itself" in t.name]
    assert list(bars.x) == []
