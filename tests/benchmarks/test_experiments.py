import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "dp_hypo"))

import fashion_e2
import figures
import landscapes
import simulate
from experiments import geometric_mean

FOLDER = Path(landscapes.__file__).parent


def test_runs_trained_together_learn_as_single_ones_do() -> None:
    task = landscapes.load("digits")
    rates, norms = np.array([1.0, 1e-4], np.float32), np.array([1.0, 1.0], np.float32)
    weights = landscapes.train(task, rates, norms, 0.5, np.random.default_rng(0))
    accuracy = np.mean(np.argmax(task.valid_x @ weights, axis=2) == task.valid_y, axis=1)
    assert accuracy[0] > 0.85
    assert accuracy[0] > accuracy[1]


def test_all_landscapes_are_stored() -> None:
    stored = landscapes.read()
    for name in ("digits", "breast_cancer"):
        for noise in landscapes.NOISE_MULTIPLIERS:
            assert stored[landscapes.key(name, noise)].shape == (landscapes.SEEDS, 320)


def test_a_landscape_at_its_own_grid_is_its_table() -> None:
    landscape = simulate.measured("digits", 1.0)
    mean, spread = landscape.at(landscape.grid)
    np.testing.assert_allclose(mean, landscape.mean.ravel(), atol=1e-12)
    np.testing.assert_allclose(spread, landscape.spread.ravel(), atol=1e-12)


@pytest.mark.parametrize("noise", fashion_e2.RUNS)
def test_the_landscape_of_setting_e2_passes_near_its_runs(noise: float) -> None:
    rate, norm, right = np.array(fashion_e2.read()[f"noise {noise:g}"]).T
    assert len(right) == fashion_e2.RUNS[noise]
    low, high = fashion_e2.LOG_RATES[[0, -1]]
    assert ((np.log10(rate) > low) & (np.log10(rate) < high)).all()
    landscape = simulate.fashion_e2(noise)
    assert landscape.mean.shape == (50, 50)
    places = np.stack([(np.log10(rate) - low) / (high - low), (norm - 2.0) / 98.0], axis=1)
    mean, spread = landscape.at(places)
    error = np.sqrt(np.mean((mean - right / 10_000) ** 2))
    assert error < 0.06  # accuracies are between 0.05 and 0.7
    assert spread.mean() < 0.1


def test_best_so_far() -> None:
    scores = np.array([[1.0, 0.0, 3.0, 2.0]])
    found = simulate.best_so_far(scores, np.array([[10.0, 20.0, 30.0, 40.0]]))
    assert found.tolist() == [[10.0, 10.0, 30.0, 30.0]]


@pytest.mark.slow
def test_an_adaptive_search_finds_more_than_a_uniform_one() -> None:
    landscape = simulate.like_figure_3()
    adaptive = simulate.AdaptiveDensity(bounds=(0.1, 20.0), candidates=64)
    rng = np.random.default_rng(1)
    runs = [simulate.adaptive(landscape, adaptive, 15, 15, rng) for _ in range(12)]
    curves = simulate.best_so_far(*(np.array(part) for part in zip(*runs, strict=True)))
    assert curves[:, -1].mean() > simulate.uniform(landscape, 15, 1000, rng)[:, -1].mean() + 0.001


def test_geometric_weights_add_up() -> None:
    assert geometric_mean(np.ones((3, 50)), 0.01) == pytest.approx(1.0)


def test_the_tables_are_drawn_from_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    figures.tables(FOLDER / "results")
    printed = capsys.readouterr().out
    page = (FOLDER / "README.md").read_text()
    for number in ("0.9287 ± 0.0015", "0.00732 ± 0.00003", "0.898 ± 0.000", "0.865 ± 0.005"):
        assert number in printed
        assert number.split(" ")[0] in page
