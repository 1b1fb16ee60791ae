"""The cells of the search hold every step function, wherever it stops."""

from __future__ import annotations

import numpy as np
import pytest

from optuna_dp import Geometric, Poisson
from optuna_dp.accounting.kinds.approximate import randomized_response
from optuna_dp.selection.bounds.pointwise_grid import LossGrid, Values
from optuna_dp.selection.bounds.pointwise_kernel import CellKernels
from optuna_dp.selection.bounds.pointwise_search import Axis, Cells, search

BOUNDS = (0.75, 2.0)
LAWS = [Geometric(10), Poisson(3)]


def searched(law, cells: int, seed: int) -> Cells:
    """A cover found with values that mean nothing: whatever it is led by, it has to be one."""
    grid = LossGrid(randomized_response(1.0), 0.25, 4.0, 4.0)
    rng = np.random.default_rng(seed)

    def evaluate(part: Cells) -> Values:
        rows = part.low.shape[0]
        return Values(rng.random((rows, grid.size)), np.zeros(rows), np.ones(rows))

    def goes_on(evaluated: int) -> bool:
        return evaluated < cells

    return search(Axis(law), CellKernels(grid, BOUNDS), evaluate, goes_on)[0]


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("cells", [1, 2, 50, 700])
def test_every_step_function_lies_in_a_cell(law, cells) -> None:
    cover = searched(law, cells, seed=cells)
    assert cells < 50 or cover.low.shape[0] > cells // 3
    rng = np.random.default_rng(0)
    triples = np.sort(rng.random((2000, 3)) ** rng.choice([0.2, 1.0, 5.0], (2000, 1)), axis=1)
    # Ends, repeated steps and the very edges of cells as well.
    edges = rng.choice(np.concatenate([cover.low[:, :3], cover.high[:, :3]]).ravel(), (500, 3))
    axis = Axis(law)
    triples = np.concatenate([triples * axis.end, np.sort(edges, axis=1)])
    # The coordinate of p, the integral of k0.
    a = CellKernels(LossGrid(randomized_response(1.0), 0.25, 4.0, 4.0), BOUNDS).a
    p = axis.quantiles(triples, 1.0) @ a
    s = np.linspace(0.0, axis.end, 20001)
    triples = np.column_stack([triples, np.interp(p, axis.quantiles(s, 1.0), s)])
    inside = (cover.low[None] <= triples[:, None] + 1e-3) & (
        triples[:, None] - 1e-3 <= cover.high[None]
    )
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
