"""What a person sees in a figure, and who may see it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from refusals import refuses
from support import RUN, exactly, finished_study, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import PlanError, ReleaseRefusedError
from optuna_dp.releasing.callbacks import renyi_in_words

pytest.importorskip("plotly")

from optuna_dp import visualization as vis

LAW = odp.Geometric(mean=5)
SEARCH = odp.selection_guarantee(RUN, LAW)
BUDGET = odp.plan_budget(epsilon=3.0, records=1355, batch_size=64, epochs=10, pilots=(4, 2))


def trace(figure: Any, name: str) -> Any:
    (found,) = [t for t in figure.data if t.name is not None and t.name.startswith(name)]
    return found


def shown(figure: Any) -> dict[str, list[tuple[float, float]]]:
    """What stands in the legend, with its points."""
    return {
        t.name: list(zip(t.x, t.y, strict=True)) for t in figure.data if t.showlegend is not False
    }


def private_study(sampler: Any, **kwargs: Any) -> optuna.Study:
    study = study_of(sampler, **kwargs)
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    return study


def budget_study(**kwargs: Any) -> optuna.Study:
    study = study_of(odp.BudgetSampler(BUDGET))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()], **kwargs)
    return study


def propose_test_study(**kwargs: Any) -> optuna.Study:
    sampler = odp.ProposeTestSampler(
        candidates=[{"x": 0.2}, {"x": 0.5}, {"x": 0.9}],
        n_partitions=3000,
        epsilon=1.0,
        granularity=0.1,
        resolve=0.2,
    )
    study = study_of(sampler)
    study.optimize(lambda trial: 0.9 - (trial.suggest_float("x", 0, 1) - 0.5) ** 2, **kwargs)
    return study


# The guarantee against Renyi's order.


def test_the_divergences_are_the_guarantees_and_their_best_order_is_marked() -> None:
    figure = vis.plot_renyi_divergence(SEARCH, delta=1e-6)
    curve, marked = trace(figure, "all of it"), trace(figure, "marked")
    assert list(curve.y) == SEARCH.rdp(curve.x).tolist()
    one_run = trace(figure, "one run")
    assert list(one_run.y) == odp.Guarantee(RUN).rdp(one_run.x).tolist()
    assert f"at order {marked.x[0]:g}" in renyi_in_words(SEARCH, 1e-6)
    assert marked.y[0] == dict(zip(curve.x, curve.y, strict=True))[marked.x[0]]


def test_a_guarantee_without_a_renyi_curve_has_no_such_figure() -> None:
    with refuses("target") as caught:
        vis.plot_renyi_divergence(odp.Guarantee(odp.approximate_dp(1.0, 1e-6)))
    assert "plot_privacy_profile" in caught.value.fix


# True against false positives of an attack.


def test_no_attack_is_above_the_trade_off_and_none_beneath_a_guess() -> None:
    figure = vis.plot_trade_off(SEARCH, false_positive_rate=0.1)
    curve, attack = trace(figure, "no attack can do better"), trace(figure, "strongest")
    assert all(
        x <= y == SEARCH.true_positive_rate(x) for x, y in zip(curve.x, curve.y, strict=True)
    )
    for x, y in zip(attack.x, attack.y, strict=True):
        assert x <= y <= SEARCH.true_positive_rate(x)
    marked = trace(figure, "marked")
    assert (marked.x[0], marked.y[0]) == (0.1, SEARCH.true_positive_rate(0.1))
    with refuses("false_positive_rate"):
        vis.plot_trade_off(SEARCH, false_positive_rate=1.0)


# The guarantee against delta.


def test_the_profile_is_the_guarantees_and_the_attack_is_beneath_it() -> None:
    figure = vis.plot_privacy_profile(SEARCH, delta=1e-6)
    curve, floor = trace(figure, "all of it"), trace(figure, "strongest")
    for delta, epsilon in list(zip(curve.x, curve.y, strict=True))[::10]:
        assert SEARCH.delta(epsilon) == delta
    for delta, epsilon in zip(floor.x, floor.y, strict=True):
        assert 0 < epsilon <= SEARCH.epsilon(delta)
    assert list(curve.x) == sorted(curve.x)
    marked = trace(figure, "marked")
    assert (marked.x[0], marked.y[0]) == (1e-6, SEARCH.epsilon(1e-6))


def test_the_number_in_words_is_rounded_up() -> None:
    marked = trace(vis.plot_privacy_profile(SEARCH, attack=False), "marked")
    words = float(marked.text[0].split()[1])
    assert 0 <= words - SEARCH.epsilon(1e-5) < 0.01


def test_parts_are_below_the_whole() -> None:
    final = odp.release(propose_test_study()).with_training(RUN)
    for target, parts in (
        (SEARCH, {"one run by itself"}),
        (BUDGET, {"one pilot of rung 1", "one pilot of rung 2", "the last run by itself"}),
        (odp.release(propose_test_study()), {"one iteration by itself"}),
        (final, {"the search by itself", "the final training"}),
    ):
        lines = shown(vis.plot_privacy_profile(target, attack=False))
        whole = lines.pop("all of it: guaranteed")
        assert lines.keys() == parts
        for line in lines.values():
            assert max(y for _, y in line) < max(y for _, y in whole)


@pytest.mark.parametrize(
    "event", [odp.pure_dp(1.0), odp.approximate_dp(1.0, 1e-3), odp.zcdp(0.1), odp.laplace(2.0)]
)
def test_events_of_all_kinds_have_a_finite_profile(event: Any) -> None:
    figure = vis.plot_privacy_profile(odp.Guarantee(event))
    assert all(math.isfinite(y) for t in figure.data for y in t.y)
    assert json.loads(figure.to_json())["data"]


def test_a_release_and_a_study_show_their_own_guarantee() -> None:
    study = private_study(odp.RandTuneSampler(trials=LAW, run=RUN))
    expected = shown(vis.plot_privacy_profile(SEARCH, attack=False))
    for target in (study, odp.release(study, vouched="a test")):
        assert shown(vis.plot_privacy_profile(target, attack=False)) == expected


# The cost of the first k runs.


def test_publishing_runs_is_composition() -> None:
    figure = vis.plot_epsilon_by_trials(SEARCH)
    naive, level = trace(figure, "publishing"), trace(figure, "the release")
    by_count = dict(zip(naive.x, naive.y, strict=True))
    # Four Gaussians of noise 4 are one of noise 2.
    assert by_count[4] == pytest.approx(odp.Guarantee(odp.gaussian(2.0)).epsilon(1e-5), rel=1e-3)
    assert by_count[1] == pytest.approx(odp.Guarantee(RUN).epsilon(1e-5), rel=1e-3)
    assert set(level.y) == {SEARCH.epsilon(1e-5)}
    assert max(naive.x) >= LAW.quantile(0.95)


def test_a_budget_rises_to_its_total_with_the_last_run() -> None:
    lines = shown(vis.plot_epsilon_by_trials(BUDGET))
    rising = dict(lines.pop("publishing that many runs"))
    assert set(rising) == set(range(1, 8))
    for pilot, count in ((BUDGET.rungs[0], 1), (BUDGET.rungs[0], 4)):
        alone = odp.Guarantee(odp.compose(*[pilot.event] * count)).epsilon(BUDGET.delta)
        assert rising[count] == pytest.approx(alone, rel=1e-6)
    assert list(rising.values()) == sorted(rising.values())
    total = BUDGET.guarantee.epsilon(BUDGET.delta)
    assert rising[7] == pytest.approx(total, rel=1e-6)
    (level,) = lines.values()
    assert {y for _, y in level} == {total}


def test_a_study_with_a_budget_marks_how_far_it_is_for_everybody() -> None:
    figure = vis.plot_epsilon_by_trials(budget_study(n_trials=5))
    rising = dict(shown(figure)["publishing that many runs"])
    assert shown(figure)["runs so far: 5"] == [(5, rising[5])]
    assert "curator" not in figure.to_json()


def test_iterations_rise_to_what_all_of_them_cost() -> None:
    study = propose_test_study()
    release = odp.release(study)
    lines = shown(vis.plot_epsilon_by_trials(release))
    rising = dict(lines["publishing that many iterations"])
    assert max(rising) == 19  # of granules of 0.1: 2 * 10 - 1
    assert rising[1] == pytest.approx(1.0, abs=1e-4)
    assert rising[19] == pytest.approx(release.guarantee.epsilon(1e-5), rel=1e-3)
    marked = vis.plot_epsilon_by_trials(study)
    assert "iterations so far" in marked.to_json()
    assert "For the curator only" in marked.layout.title.text


def test_a_final_training_is_left_out_of_the_count() -> None:
    study = private_study(odp.RandTuneSampler(trials=LAW, run=RUN))
    whole = odp.release(study, vouched="a test").with_training(odp.gaussian(4.0))
    level = trace(vis.plot_epsilon_by_trials(whole), "the release")
    assert set(level.y) == {SEARCH.epsilon(1e-5)}


def test_what_is_not_composed_of_runs_is_refused() -> None:
    for target in (odp.Guarantee(RUN), 3.0):
        with refuses("target"):
            vis.plot_epsilon_by_trials(target)  # type: ignore[arg-type]


def test_renyi_divergences_of_published_runs_cross_that_of_the_release() -> None:
    """As a sum over runs would show them: k orders of a Gaussian, order / (2 noise^2) each."""
    figure = vis.plot_renyi_by_trials(SEARCH, order=2.0)
    rising, level = trace(figure, "publishing"), trace(figure, "the release")
    assert rising.y == pytest.approx([count * 2.0 / (2 * 4.0**2) for count in rising.x], rel=1e-9)
    assert max(rising.x) == LAW.quantile(0.95)
    (divergence,) = SEARCH.rdp([2.0])
    assert set(level.y) == {divergence}
    crossing = trace(figure, "as much as publishing")
    assert crossing.x[0] == pytest.approx(divergence / (2.0 / (2 * 4.0**2)), rel=1e-9)
    assert 0 <= float(crossing.name.split()[4]) - crossing.x[0] < 0.1


def test_renyi_divergences_of_a_budget_rise_to_its_own() -> None:
    lines = shown(vis.plot_renyi_by_trials(BUDGET, order=8.0))
    rising, level = lines.values()
    assert [count for count, _ in rising] == list(range(1, 8))
    assert rising[-1][1] == pytest.approx(level[0][1], rel=1e-9)
    assert level[0][1] == BUDGET.guarantee.rdp([8.0])[0]


def test_what_has_no_renyi_divergence_is_shown_by_its_epsilons() -> None:
    search = odp.selection_guarantee(odp.approximate_dp(1.0, 1e-6), LAW)
    with refuses("target") as caught:
        vis.plot_renyi_by_trials(search)
    assert "plot_epsilon_by_trials" in caught.value.fix
    with refuses("orders"):
        vis.plot_renyi_by_trials(SEARCH, order=1.0)


# Who may see it.


def test_public_figures_are_the_same_whatever_happened() -> None:
    """Two studies of one design, with other scores and another T."""
    pages = []
    for scores in (1, -1):
        counts = set()
        while len(counts) < 2:
            study = study_of(odp.RandTuneSampler(trials=LAW, run=RUN))
            study.optimize(
                lambda trial, sign=scores: sign * objective(trial),
                callbacks=[odp.PrivacyCallback()],
            )
            if len(study.trials) in counts:
                continue
            counts.add(len(study.trials))
            release = odp.release(study, vouched="a test")
            figures = (
                vis.plot_privacy_profile(study, attack=False),
                vis.plot_privacy_profile(release, attack=False),
                vis.plot_epsilon_by_trials(release),
                vis.plot_renyi_by_trials(study),
                vis.plot_renyi_by_trials(release),
            )
            pages.append("".join(figure.to_json() for figure in figures))
    assert len(pages) == 4
    assert len(set(pages)) == 1
    assert "curator" not in pages[0]


def test_figures_of_runs_say_that_they_are_for_the_curator() -> None:
    study = private_study(odp.DPHyPOSampler(trials=exactly(3), run=RUN))
    title = vis.plot_epsilon_by_trials(study).layout.title.text
    assert "For the curator only" in title


def test_docstrings_say_who_may_see_the_figure() -> None:
    for name in vis.__all__:
        doc = getattr(vis, name).__doc__
        assert "**Public" in doc or "**For the curator only**" in doc, name


# The planner's table.


@pytest.mark.slow
def test_a_plan_shows_every_row_beside_naive_composition() -> None:
    plan = odp.selection_plan(RUN, laws=["geometric"], density_bounds=[(0.9, 1.25)], means=[3, 9])
    lines = shown(vis.plot_plan(plan))
    assert lines.pop("geometric") == [
        (row.mean, row.epsilon) for row in plan.rows if not row.adaptive
    ]
    assert lines.pop("geometric, adaptive within [0.9, 1.25]") == [
        (row.mean, row.epsilon) for row in plan.rows if row.adaptive
    ]
    ((_, naive),) = lines.items()
    assert naive == [(row.mean, row.naive) for row in plan.rows if not row.adaptive]


def test_a_plan_that_was_solved_shows_what_was_solved_for() -> None:
    laws: dict[str, Any] = {"laws": ["geometric", "poisson"], "density_bounds": []}
    plan = odp.selection_plan(odp.gaussian, target_epsilon=1.5, means=[3], **laws)
    lines = shown(vis.plot_plan(plan))
    assert lines == {row.law: [(row.mean, row.noise_multiplier)] for row in plan.rows}
    with refuses("plan"):
        vis.plot_plan([])  # type: ignore[arg-type]


def test_a_search_without_a_finite_cost_is_left_out() -> None:
    plan = odp.selection_plan(
        odp.approximate_dp(1.0, 1e-3),
        laws=["geometric"],
        density_bounds=[],
        means=[50],
    )
    assert all(math.isinf(row.epsilon) for row in plan.rows)
    assert shown(vis.plot_plan(plan)) == {}


# Votes.


def test_the_noisy_votes_with_the_winner_first() -> None:
    from optuna_dp.federated.query import search_to_json
    from optuna_dp.releasing.release import Release
    from optuna_dp.study.plan import Design
    from optuna_dp.voting import VotePlan

    plan = VotePlan.calibrated(clients=9, candidates=3, votes=1, epsilon=2.0, delta=1e-5)
    space = {"rate": FloatDistribution(1e-4, 1.0, log=True)}
    candidates = tuple({"rate": rate} for rate in (0.001, 0.01, 0.1))
    settings = {"plan": plan.to_json(), "search": search_to_json(space, candidates)}
    release = Release(
        params=candidates[2],
        value=7.0,
        guarantee=plan.guarantee(),
        attributes={"noisy_votes": [-1, 4, 7]},
        distributions=dict(space),
        design=Design("vote", "FederatedVote", "maximize", False, settings),
    )
    (bars,) = vis.plot_votes(release).data
    assert list(bars.x) == [7, 4, -1]
    assert list(bars.y) == ["rate=0.1", "rate=0.01", "rate=0.001"]
    assert bars.error_x.value == pytest.approx(math.sqrt(plan.variance))
    with refuses("release"):
        vis.plot_votes(odp.release(finished_study(), vouched="a test"))


# What is missing.


def test_a_study_of_another_sampler_and_one_without_a_cost_are_refused() -> None:
    study = optuna.create_study()
    study.optimize(objective, n_trials=1)
    with pytest.raises(PlanError):
        vis.plot_privacy_profile(study)
    with pytest.raises(ReleaseRefusedError, match="run="):
        vis.plot_privacy_profile(finished_study(odp.RandTuneSampler(trials=exactly(3))))
    with refuses("target"):
        vis.plot_privacy_profile(3.0)


def test_without_plotly_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['plotly'] = None; sys.modules['plotly.graph_objects'] = None\n"
        "import optuna_dp as odp\n"
        "odp.visualization.plot_privacy_profile(odp.Guarantee(odp.gaussian(4.0)), attack=False)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "optuna-dp[visualization]" in done.stderr
