"""The cells of the search hold every step function, wherever it stops."""

from __future__ import annotations

import numpy as np
import pytest

from optuna_dp import Geometric, Poisson
from optuna_dp.accounting.kinds.approximate import randomized_response
from optuna_dp.private_selection.bounds.history_kernel import HistoryGrid, Values
from optuna_dp.private_selection.bounds.pointwise_bound import _largest
from optuna_dp.private_selection.bounds.pointwise_search import Axis, Cells, search

LAWS = [Geometric(10), Poisson(3)]


def searched(law, cells: int, seed: int) -> Cells:
    """A cover found with values that mean nothing: whatever it is led by, it has to be one."""
    grid = HistoryGrid(randomized_response(1.0), 0.25, 4.0, 4.0)
    rng = np.random.default_rng(seed)

    def evaluate(part: Cells) -> Values:
        rows = part.low.shape[0]
        return Values(rng.random((rows, grid.size)), np.zeros(rows), np.ones(rows))

    return search(grid, Axis(law), np.array([0.4, 0.45, 0.15]), evaluate, cells).cover


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("cells", [1, 2, 50, 700])
def test_every_step_function_lies_in_a_cell(law, cells) -> None:
    cover = searched(law, cells, seed=cells)
    assert cells < 50 or cover.low.shape[0] > cells // 3
    rng = np.random.default_rng(0)
    triples = np.sort(rng.random((2000, 3)) ** rng.choice([0.2, 1.0, 5.0], (2000, 1)), axis=1)
    # Ends, repeated steps and the very edges of cells as well.
    edges = rng.choice(np.concatenate([cover.low.ravel(), cover.high.ravel()]), (500, 3))
    triples = np.concatenate([triples * Axis(law).end, np.sort(edges, axis=1)])
    inside = (cover.low[None] <= triples[:, None]) & (triples[:, None] <= cover.high[None])
    assert np.all(inside.all(axis=2).any(axis=1))


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_quantiles_run_from_nothing_to_all_finite_losses(law) -> None:
    axis = Axis(law)
    s = np.linspace(0.0, axis.end, 1001)
    for finite in (1.0, 0.73):
        u = axis.quantiles(s, finite)
        assert u[0] == 0.0
        assert u[-1] == finite
        assert np.all(np.diff(u) >= 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_out_of_the_fine_grid_is_never_the_largest(seed) -> None:
    rng = np.random.default_rng(seed)
    cells, points = 200, 12
    known = rng.normal(0.0, 1.0, (cells, 1)) - rng.random((cells, points + 1)) * rng.choice(
        [0.1, 1]
    )
    closer = known - rng.choice([0.01, 0.3]) * rng.random(known.shape)
    numbered = np.repeat(np.arange(float(cells))[:, None], 3, axis=1)
    evaluated: list[int] = []

    def evaluate(part: Cells) -> Values:
        rows = part.low[:, 0].astype(int)
        evaluated.extend(rows.tolist())
        return Values(closer[rows, :-1], np.zeros(rows.size), closer[rows, -1])

    found = _largest(known, Cells(numbered, numbered), evaluate)
    most = np.maximum(np.append(found.inner.max(axis=0), found.right.max()), 0.0)
    assert np.array_equal(most, np.maximum(closer.max(axis=0), 0.0))
    assert len(evaluated) == len(set(evaluated)) < cells
