"""Programs of a hostile reader, whose statements said *enforced* or *compared* falsely."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from granted import granted  # noqa: E402
from torch import nn  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.errors import InvalidArgumentError, PlanError  # noqa: E402

N = 16
X, Y = torch.randn(N, 4), torch.arange(N) % 3
cross_entropy = nn.functional.cross_entropy


def train(model: Any = None, records: Any = (X, Y), run: Any = None, **arguments: Any) -> Any:
    arguments = {"learning_rate": 0.1, **arguments}
    if "record_loss" not in arguments:
        arguments.setdefault("loss", cross_entropy)
    model = nn.Linear(4, 3) if model is None else model
    return odp.train(run or granted(N, steps=3), model, records, **arguments)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))])
@pytest.mark.parametrize("original_first", [True, False])
def test_a_copy_of_a_run_trains_no_second_time(
    copied: Callable[[Any], Any], original_first: bool
) -> None:
    run = granted(N, steps=3)
    runs = [run, copied(run)]
    first, second = runs if original_first else runs[::-1]
    train(run=first)
    with pytest.raises(PlanError, match="has begun its training already"):
        train(run=second)


class Watched(np.ndarray):
    """An array whose class sees all that is computed with it."""


@pytest.mark.parametrize(
    "changed", [lambda w: w.astype(np.float16), lambda w: w.view(Watched), lambda w: w[:2]]
)
def test_weights_that_are_no_plain_doubles_are_refused(changed: Callable[[Any], Any]) -> None:
    model = odp.SoftmaxRegression(4, 3)
    model.weights = changed(model.weights)
    with pytest.raises(InvalidArgumentError, match="numpy array of float64"):
        odp.train(granted(N, steps=3), model, (X.numpy(), Y.numpy()), learning_rate=0.1)
