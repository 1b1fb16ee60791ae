"""What a person sees of the density that DP-HyPO draws the next run from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from refusals import refuses
from scipy import stats
from support import exactly

import optuna_dp as odp
from optuna_dp.errors import PlanError
from optuna_dp.priors.densities.informed import FixedCandidates
from optuna_dp.study.entries import DRAW

pytest.importorskip("plotly")

from optuna_dp.visualization import plot_density

# T is 30, and no study here makes as many runs.
LAW = exactly(30)
RATE = FloatDistribution(1e-4, 1.0, log=True)
HIDDEN = IntDistribution(8, 256, log=True)
KIND = CategoricalDistribution(["relu", "tanh", None])
SPACE: dict[str, BaseDistribution] = {"rate": RATE}
BOUNDS = (0.75, 2.0)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def score(trial: optuna.Trial) -> float:
    """High at a rate of 0.01, 64 units and relu; of those that the study has."""
    space, total = trial.study.sampler.strategy.search_space, 0.0  # type: ignore[attr-defined]
    if "rate" in space:
        total -= (math.log10(trial.suggest_float("rate", 1e-4, 1.0, log=True)) + 2) ** 2 / 4
    if "hidden" in space:
        total -= (math.log2(trial.suggest_int("hidden", 8, 256, log=True)) - 6) ** 2 / 20
    if "kind" in space:
        total += trial.suggest_categorical("kind", ["relu", "tanh", None]) == "relu"
    return total


def study_with(
    space: dict[str, BaseDistribution] = SPACE, runs: int = 12, **options: Any
) -> optuna.Study:
    sampler = odp.DPHyPOSampler(space, trials=LAW, seed=3, **options)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(score, n_trials=runs)
    return study


def trace(figure: Any, name: str) -> Any:
    (found,) = [t for t in figure.data if t.name.startswith(name)]
    return found


def values(figure: Any, name: str) -> np.ndarray:
    shown = trace(figure, name)
    return np.array(shown.z if shown.type == "heatmap" else shown.y, dtype=float)


@pytest.mark.parametrize(
    ("space", "options", "params"),
    [
        (SPACE, {}, None),
        (SPACE, {"projection": "l2", "candidates": 64}, None),
        (SPACE, {"schedule": "any"}, "rate"),
        ({"kind": KIND}, {}, None),
        ({"rate": RATE, "hidden": HIDDEN}, {}, ["hidden", "rate"]),
        ({"rate": RATE, "hidden": HIDDEN, "kind": KIND}, {}, ["kind", "rate"]),
    ],
)
def test_the_density_is_within_the_bounds_and_its_mean_is_one(
    space: dict[str, BaseDistribution], options: Any, params: Any
) -> None:
    """Places are as likely as each other under these priors, but for whole numbers: nearly."""
    figure = plot_density(study_with(space, **options), params)
    density, weights = values(figure, "density"), values(figure, "softmax weights")
    assert BOUNDS[0] <= density.min() < 0.9
    assert 1.2 < density.max() <= BOUNDS[1]
    assert density.mean() == pytest.approx(1.0, abs=0.03)
    assert weights.mean() == pytest.approx(1.0, abs=0.1)
    assert weights.max() > density.max()
    title = figure.layout.title.text
    assert "For the curator only: it shows all runs" in title
    assert ("Averaged over" in title) == (len(space) == 3)


def test_good_places_are_drawn_more_often_whichever_way_scores_go() -> None:
    for direction in ("maximize", "minimize"):
        sampler = odp.DPHyPOSampler(SPACE, trials=LAW, seed=3)
        study = optuna.create_study(direction=direction, sampler=sampler)
        sign = 1 if direction == "maximize" else -1
        study.optimize(lambda trial, s=sign: 5 + s * score(trial), n_trials=12)  # type: ignore[misc]
        figure = plot_density(study)
        shown = trace(figure, "density")
        density = dict(zip(shown.x, shown.y, strict=True))
        best = min(density, key=lambda rate: abs(math.log10(rate) + 2))
        assert density[best] > 1.5
        assert density[min(density)] == pytest.approx(BOUNDS[0], abs=0.01)
        runs, mean = trace(figure, "runs so far"), trace(figure, "posterior mean")
        assert sorted(runs.y) == sorted(trial.value for trial in study.trials)
        expected = np.interp(np.log(runs.x), np.log(mean.x), mean.y)
        assert np.abs(expected - runs.y).max() < 0.3  # Of scores that differ by 1.
        assert [trace(figure, f"{name} = ").y[0] for name in ("c", "C")] == list(BOUNDS)


def test_a_run_is_drawn_where_the_figure_said() -> None:
    study = study_with(runs=6)
    for _ in range(6):
        shown = trace(plot_density(study), "density")
        study.optimize(score, n_trials=1)
        ratio = DRAW.of(study.trials[-1])["density_ratio"]
        # The density is steep: between the places on both sides it may be anything between.
        right = int(np.searchsorted(shown.x, study.trials[-1].params["rate"]))
        near = shown.y[max(right - 2, 0) : right + 2]
        assert min(near) - 0.05 <= ratio <= max(near) + 0.05


def test_it_is_the_density_of_the_draw_not_of_one_set_of_candidates() -> None:
    """With few candidates a draw is nearer to the prior than the projection among many is."""
    study = study_with({"kind": KIND}, candidates=2)
    shown = trace(plot_density(study), "density")
    density = study.sampler.strategy.adaptive.density  # type: ignore[attr-defined]
    history = plot_history(study)
    drawn = [
        str(density.propose(history, {"kind": KIND}, np.random.default_rng(i)).params["kind"])
        for i in range(1000)
    ]
    counts = [drawn.count(kind) for kind in shown.x]
    expected = np.array(shown.y) / np.sum(shown.y) * len(drawn)
    assert stats.chisquare(counts, expected).pvalue > 1e-3
    assert max(shown.y) < max(trace(plot_density(study_with({"kind": KIND})), "density").y) - 0.05


def plot_history(study: optuna.Study) -> list[Any]:
    from optuna_dp.samplers.selection.bounded_draws import outcome_of

    return [outcome_of(trial) for trial in study.trials]


@pytest.mark.parametrize(
    ("runs", "options"),
    [(0, {}), (3, {"startup_runs": 4}), (3, {"batch_size": 4}), (12, {"density_bounds": (1, 1)})],
)
def test_the_density_is_flat_while_the_next_run_is_drawn_from_the_prior(
    runs: int, options: Any
) -> None:
    figure = plot_density(study_with(runs=runs, **options))
    assert set(values(figure, "density")) == {1.0}
    assert set(values(figure, "softmax weights")) == {1.0}
    assert "drawn from the prior" in figure.layout.title.text
    assert "drawn from the prior" not in plot_density(study_with()).layout.title.text


def test_an_open_batch_is_shown_but_the_density_does_not_know_it() -> None:
    study = study_with(runs=4, batch_size=4)
    before = plot_density(study)
    study.optimize(score, n_trials=2)
    after = plot_density(study)
    assert values(after, "density").tolist() == values(before, "density").tolist()
    assert len(trace(after, "runs so far").x) == 6
    study.optimize(score, n_trials=2)
    complete = plot_density(study)
    assert values(complete, "density").tolist() != values(before, "density").tolist()


def test_a_run_without_a_score_is_shown_as_the_lowest_outcome() -> None:
    def fails_once(trial: optuna.Trial) -> float:
        value = score(trial)
        if trial.number == 3:
            raise RuntimeError
        return value

    study = study_with(runs=0)
    study.optimize(fails_once, n_trials=8, catch=RuntimeError)
    figure = plot_density(study)
    (lowest,) = trace(figure, "runs without a score").y
    assert lowest == pytest.approx(min(trace(figure, "runs so far").y))


def test_a_list_of_candidates_is_shown_with_its_own_weights() -> None:
    points = [{"rate": rate} for rate in (0.001, 0.01, 0.1)]
    prior = FixedCandidates(points, [1.0, 2.0, 1.0])
    figure = plot_density(study_with(prior=prior))
    shown = trace(figure, "density")
    assert list(shown.x) == [0.001, 0.01, 0.1]
    assert np.dot([0.25, 0.5, 0.25], shown.y) == pytest.approx(1.0, abs=1e-12)
    assert shown.y[1] > 1.2


def test_without_a_search_space_the_runs_say_it() -> None:
    study = optuna.create_study(sampler=odp.DPHyPOSampler(trials=LAW, seed=3))
    with refuses("study"):
        plot_density(study)
    study.optimize(lambda trial: trial.suggest_float("x", -1, 1) ** 2, n_trials=8)
    assert values(plot_density(study), "density").max() > 1.2


def test_a_study_of_another_sampler_is_refused() -> None:
    study = optuna.create_study(sampler=odp.RandTuneSampler(trials=LAW))
    study.optimize(lambda trial: trial.suggest_float("x", -1, 1), n_trials=2)
    with refuses("study.sampler"):
        plot_density(study)
    with refuses("study"):
        plot_density(3.0)  # type: ignore[arg-type]
    original = study_with()
    study = optuna.load_study(
        study_name=original.study_name,
        storage=original._storage,
        sampler=odp.DPHyPOSampler(SPACE, trials=LAW, seed=3, beta=1.0),
    )
    with pytest.raises(PlanError):
        plot_density(study)


@pytest.mark.parametrize("params", [["width"], [], ["rate", "rate"], 3, None, [["rate"]]])
def test_what_is_not_one_or_two_of_its_hyperparameters_is_refused(params: Any) -> None:
    study = study_with({"rate": RATE, "hidden": HIDDEN, "kind": KIND}, runs=2)
    with refuses("params") as caught:
        plot_density(study, params)
    assert "'hidden', 'kind', 'rate'" in str(caught.value)
