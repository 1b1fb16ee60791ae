"""Figures of studies: densities, pilots, traces, choices."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from support import RUN, exactly, finished_study, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError, PlanError

pytest.importorskip("plotly")

from optuna_dp import visualization as vis

LAW = odp.Geometric(mean=5)


def trace(figure: Any, name: str) -> Any:
    (found,) = [t for t in figure.data if t.name is not None and t.name.startswith(name)]
    return found


SPACE = {
    "x": FloatDistribution(-1.0, 1.0),
    "rate": FloatDistribution(1e-4, 1.0, log=True),
    "kind": CategoricalDistribution(["a", "b", None]),
}


def peaked(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", -1.0, 1.0)
    trial.suggest_float("rate", 1e-4, 1.0, log=True)
    kind = trial.suggest_categorical("kind", ["a", "b", None])
    return (10.0 if kind == "b" else 0.0) - x**2


def test_no_candidate_leaves_the_band_and_the_density_averages_to_one() -> None:
    # Seeded, so that the nine runs hold some of every kind: of sixty unseeded studies one did not.
    sampler = odp.DPHyPOSampler(SPACE, trials=exactly(9), density_bounds=(0.5, 3.0), seed=0)
    study = study_of(sampler)
    study.optimize(peaked)
    figure = vis.plot_sampling_density(study)
    dots = [t for t in figure.data if t.name == "candidate"]
    assert len(dots) == 3
    for t in dots:
        assert 0.5 <= min(t.y) < 1 < max(t.y) <= 3.0
        assert np.mean(t.y) == pytest.approx(1.0)
    # It looks where the scores were good.
    marginal = [t for t in figure.data if t.name == "mean along the parameter"][
        sorted(SPACE).index("kind")
    ]
    level = dict(zip(marginal.text, marginal.y, strict=True))
    assert level["b"] > level["a"]
    bands = {(s.y0, s.y1) for s in figure.layout.shapes if s.type == "rect"}
    assert bands == {(0.5, 3.0)}


def test_rand_tune_is_flat() -> None:
    study = finished_study(odp.RandTuneSampler({"x": SPACE["x"]}, trials=exactly(3)))
    (dots,) = [t for t in vis.plot_sampling_density(study).data if t.name == "candidate"]
    assert set(dots.y) == {1.0}


def pilot_study(pilots: int = 6, runs: int = 3, **kwargs: Any) -> optuna.Study:
    sampler = odp.PilotSampler(
        SPACE,
        pilots=pilots,
        pilot_run=odp.gaussian(16.0),
        trials=exactly(runs),
        proposer=optuna.samplers.RandomSampler(),
        **kwargs,
    )
    study = study_of(sampler)
    study.optimize(peaked, callbacks=[odp.PrivacyCallback(RUN)])
    return study


@pytest.mark.slow
def test_the_frozen_prior_leaves_the_uniform_share_everywhere() -> None:
    study = pilot_study(uniform_share=0.2, sharpness=2.0)
    figure = vis.plot_sampling_density(study)
    dots = [t for t in figure.data if t.name == "candidate"]
    for t in dots:
        assert min(t.y) >= 0.2
    assert figure.layout.yaxis.type == "log"
    ticks = {t.name: len(t.x) for t in figure.data if "line-ns" in str(t.marker.symbol)}
    assert ticks == {"pilots": 6, "selection runs so far": 3}


def test_the_frozen_priors_ratios_are_those_of_its_draws() -> None:
    """One parameter, two values: the share of draws is the ratio's, within 6 sigma."""
    from optuna_dp.private_selection.densities.frozen_prior import FrozenPrior, FrozenPriorSettings

    from optuna_dp.models.scores import RunOutcome

    space = {"kind": CategoricalDistribution(["a", "b"])}
    pilots = [RunOutcome({"kind": kind}, {"a": 0.0, "b": 1.0}[kind]) for kind in "abab"]
    settings = FrozenPriorSettings(sharpness=0.7, uniform_share=0.3, candidates=16)
    prior = FrozenPrior(settings, pilots, space)
    rng = np.random.default_rng(3)
    points = settings.base.sample(space, 2000, rng)
    ratios = prior.ratios(points, rng)
    draws = 40_000
    share = np.mean(prior.sample(space, draws, rng).columns["kind"] == 1.0)
    (ratio,) = np.unique(ratios[points.columns["kind"] == 1.0])
    assert ratio > 1.1
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.05)
    # The ratio is itself a mean over eight sets, whose spread is below 0.03.
    assert share == pytest.approx(0.5 * ratio, abs=6 * 0.5 / draws**0.5 + 0.03)


@pytest.mark.slow
def test_selection_runs_within_density_bounds_of_the_frozen_prior() -> None:
    study = pilot_study(density_bounds=(0.5, 2.0), uniform_share=0.2)
    for t in vis.plot_sampling_density(study).data:
        if t.name == "candidate":
            assert min(t.y) >= 0.1


def test_the_density_of_pilots_is_shown_once_all_have_ended() -> None:
    study = study_of(
        odp.PilotSampler(SPACE, pilots=3, pilot_run=odp.gaussian(16.0), trials=exactly(1))
    )
    study.optimize(peaked, n_trials=2)
    with pytest.raises(InvalidArgumentError, match="2 of 3 pilots"):
        vis.plot_sampling_density(study)


def test_pilots_are_shown_apart_from_the_runs_that_can_win() -> None:
    study = pilot_study(release_pilots=True)
    figure = vis.plot_scores(study)
    scores = [trial.value for trial in study.trials]
    assert list(trace(figure, "score of a pilot").y) == scores[:6]
    assert list(trace(figure, "score (").y) == scores[6:]
    assert max(trace(figure, "best").y) == max(scores[6:])
    release = odp.release(study)
    public = vis.plot_scores(release)
    assert list(trace(public, "score of a pilot").y) == scores[:6]
    assert set(trace(public, "score of the choice").y) == {release.value}
    assert "curator" not in public.to_json()
    with pytest.raises(InvalidArgumentError, match="no pilots"):
        vis.plot_scores(odp.release(finished_study(), RUN))


def test_pilots_and_selection_against_publishing_all_of_them() -> None:
    from optuna_dp.accounting.pilots import pilots_guarantee

    both = pilots_guarantee(odp.gaussian(16.0), 4, RUN, LAW)
    figure = vis.plot_epsilon_by_trials(both)
    naive = trace(figure, "publishing")
    by_count = dict(zip(naive.x, naive.y, strict=True))
    pilots = odp.Guarantee(odp.gaussian(8.0)).epsilon(1e-5)  # four of noise 16
    assert by_count[4] == pytest.approx(pilots, rel=1e-3)
    assert trace(figure, "the 4 pilots alone").y[0] == pytest.approx(pilots, rel=1e-3)
    last = max(naive.x)
    # 1 / sigma^2 adds up.
    noise = (4 / 16**2 + (last - 4) / 4**2) ** -0.5
    assert by_count[last] == pytest.approx(odp.Guarantee(odp.gaussian(noise)).epsilon(1e-5), 2e-3)
    assert set(trace(figure, "the release").y) == {both.epsilon(1e-5)}
    profile = vis.plot_privacy_profile(both, attack=False)
    for part in ("the 4 pilots", "the selection", "one selection run"):
        assert max(trace(profile, part).y) < max(trace(profile, "the release").y)


CANDIDATES = [{"x": 0.2}, {"x": 0.5}, {"x": 0.9}]


def chosen_study(sampler: Any) -> optuna.Study:
    study = study_of(sampler)
    study.optimize(lambda trial: 0.9 - (trial.suggest_float("x", 0, 1) - 0.5) ** 2)
    return study


def noisy_max_study() -> optuna.Study:
    sampler = odp.NoisyMaxSampler(candidates=CANDIDATES, n_partitions=1000, epsilon=2.0)
    return chosen_study(sampler)


def propose_test_study(**kwargs: Any) -> optuna.Study:
    return chosen_study(
        odp.ProposeTestSampler(
            n_partitions=3000, epsilon=1.0, granularity=0.1, resolve=0.2, **kwargs
        )
    )


def test_the_iterations_of_a_propose_test_study_are_counted() -> None:
    study = propose_test_study(candidates=CANDIDATES)
    release = odp.release(study)
    figure = vis.plot_epsilon_by_trials(release)
    added = trace(figure, "that many iterations, epsilons")
    composed = trace(figure, "that many iterations, composed")
    epsilon = release.guarantee.epsilon(1e-5)
    assert max(added.x) == 19
    assert list(added.y) == list(added.x)  # 1 each
    assert max(composed.y) == pytest.approx(epsilon, rel=1e-3)
    assert set(trace(figure, "the choice").y) == {epsilon}
    assert "so far" not in figure.to_json()
    assert "iterations so far" in vis.plot_epsilon_by_trials(study).to_json()


def test_publishing_every_utility_costs_half_of_the_choices_epsilon_each() -> None:
    figure = vis.plot_epsilon_by_trials(odp.release(noisy_max_study()))
    naive = trace(figure, "publishing")
    assert list(naive.x) == [1, 2, 3]
    assert naive.y[0] == pytest.approx(1.0, abs=1e-4)
    assert naive.y[1] <= 2.0 < naive.y[2] <= 3.0
    assert trace(figure, "the choice").y[0] == pytest.approx(2.0, abs=1e-4)


def test_the_chosen_candidate_is_marked() -> None:
    for study in (noisy_max_study(), propose_test_study(candidates=CANDIDATES)):
        figure = vis.plot_scores(study)
        assert list(trace(figure, "mean utility").x) == [0, 1, 2]
        assert study.trials[trace(figure, "chosen").x[0]].params == odp.release(study).params
        with pytest.raises(InvalidArgumentError, match="sampler"):
            vis.plot_sampling_density(study)


def test_the_trace_of_a_study() -> None:
    from optuna_dp.utilities.choice import read_trace

    fixed = propose_test_study(candidates=CANDIDATES)
    space = {"x": FloatDistribution(0, 1)}
    proposed = propose_test_study(
        search_space=space, proposer=optuna.samplers.RandomSampler(), batch_size=2
    )
    for study in (fixed, proposed):
        figure = vis.plot_doubling_trace(study)
        steps = read_trace(study)
        assert list(trace(figure, "accumulated").y) == [step.utility for step in steps]
        assert "For the curator only" in figure.layout.title.text
        best = trace(figure, "best mean utility")
        assert list(best.x) == [step.iteration for step in steps]
        assert all(0 < value <= 0.9 for value in best.y)
    assert set(trace(vis.plot_doubling_trace(fixed), "best mean utility").y) == {0.9}
    with pytest.raises(InvalidArgumentError, match="doubling loop"):
        vis.plot_doubling_trace(noisy_max_study())
    unasked = study_of(fixed.sampler)
    unasked.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    with pytest.raises(InvalidArgumentError, match="no answer"):
        vis.plot_doubling_trace(unasked)


def test_a_final_training_is_a_part_of_the_whole() -> None:
    whole = odp.release(noisy_max_study()).with_training(odp.gaussian(4.0))
    profile = vis.plot_privacy_profile(whole, attack=False)
    assert trace(profile, "the choice by itself").y[0] == pytest.approx(2.0, abs=1e-3)
    assert max(trace(profile, "the final training").y) < max(trace(profile, "the release").y)
    # Counted without it.
    level = trace(vis.plot_epsilon_by_trials(whole), "the choice").y[0]
    assert level == pytest.approx(2.0, abs=1e-3)


def test_the_density_needs_the_studys_own_sampler() -> None:
    study = finished_study(odp.DPHyPOSampler(trials=exactly(2)))
    study.sampler = odp.DPHyPOSampler(trials=exactly(2), beta=7.0)
    with pytest.raises(InvalidArgumentError, match="sampler"):
        vis.plot_sampling_density(study)
    study = finished_study(odp.DPHyPOSampler(trials=exactly(2)))
    with pytest.raises(InvalidArgumentError, match="params"):
        vis.plot_sampling_density(study, params=["nonsense"])


def test_runs_without_a_score_are_marked_below_the_others() -> None:
    def sometimes(trial: optuna.Trial) -> float:
        if trial.number == 1:
            raise RuntimeError
        return [3.0, 0.0, math.nan, 5.0][trial.number]

    study = finished_study(odp.RandTuneSampler(trials=exactly(4)), sometimes)
    figure = vis.plot_scores(study)
    assert list(trace(figure, "score").x) == [0, 3]
    failed = trace(figure, "no score")
    assert list(failed.x) == [1, 2]
    assert max(failed.y) < 3.0
    assert list(trace(figure, "best").y) == [3.0, 5.0]


def test_a_study_of_another_sampler_and_one_without_a_cost() -> None:
    study = optuna.create_study()
    study.optimize(objective, n_trials=1)
    with pytest.raises(PlanError, match="no plan"):
        vis.plot_scores(study)
    with pytest.raises(PlanError, match="PrivacyCallback"):
        vis.plot_privacy_profile(finished_study())
    with pytest.raises(InvalidArgumentError, match="target="):
        vis.plot_privacy_profile(3.0)


def test_the_doubling_loop() -> None:
    from optuna_dp.utilities import DoublingPlan, Utilities, propose_test

    scores = np.full((3, 100), [[0.2], [0.5], [0.8]])
    result = propose_test(Utilities.from_scores(scores), DoublingPlan(epsilon=5.0))
    figure = vis.plot_doubling_trace(result)
    assert list(trace(figure, "accumulated").y) == [step.utility for step in result.trace]
    kept, lost = (
        trace(figure, "proposed, reached by a"),
        trace(figure, "proposed, reached by none"),
    )
    assert len(kept.x) + len(lost.x) == len(result.trace)
    assert figure.to_json() == vis.plot_doubling_trace(result.trace).to_json()
    with pytest.raises(InvalidArgumentError, match="LoopResult"):
        vis.plot_doubling_trace([1, 2])  # type: ignore[list-item]


def test_votes_other_than_a_vote_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="vote"):
        vis.plot_votes(odp.release(finished_study(), RUN))


def test_without_plotly_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['plotly'] = None; sys.modules['plotly.graph_objects'] = None\n"
        "import optuna_dp as odp\n"
        "odp.visualization.plot_privacy_profile(odp.Guarantee(odp.gaussian(4.0)), attack=False)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "optuna-dp[visualization]" in done.stderr


def test_the_noisy_votes_with_the_winner_first() -> None:
    from optuna_dp.federated.query import search_to_json
    from optuna_dp.protocol.plan import Design
    from optuna_dp.releasing.release import Release
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
