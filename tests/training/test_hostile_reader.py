"""Programs of a hostile reader, whose statements said *enforced* or *compared* falsely."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from granted import claimed, granted  # noqa: E402
from torch import nn  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.errors import InvalidArgumentError, PlanError  # noqa: E402
from optuna_dp.training.gradient_norms import clipping_factors, squared_norms  # noqa: E402
from optuna_dp.training.trial_notes import SCORE  # noqa: E402

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_tiny_clipping_norm_bounds_what_a_record_counts_for(dtype: Any) -> None:
    gradients = torch.full((1, 100), 1e-24, dtype=dtype)
    factor = clipping_factors(squared_norms(gradients), 1e-26)
    assert float(factor) * 1e-23 <= 1.00001e-26
    with pytest.raises(InvalidArgumentError, match="at least 1e-100"):
        train(clipping_norm=1e-200)


class Forking(torch.optim.SGD):
    """An optimizer whose last step says that it is in another process."""

    after: Callable[[], None]
    left = 3 + 1  # with the one that is tried out

    def step(self, closure: Any = None) -> None:
        super().step()
        Forking.left -= 1
        if not Forking.left:
            Forking.after()


def test_a_fork_after_the_last_step_has_no_second_score(monkeypatch: pytest.MonkeyPatch) -> None:
    run = granted(N, steps=3)
    parent = os.getpid()
    monkeypatch.setattr(Forking, "left", 3 + 1)
    # As a forked child sees it. A fork of this process would run the tests twice.
    monkeypatch.setattr(
        Forking, "after", lambda: monkeypatch.setattr(os, "getpid", lambda: parent + 1), False
    )
    with pytest.raises(PlanError, match="was forked"):
        train(
            run=run,
            score="accuracy",
            optimizer=lambda weights, rate: Forking(weights, lr=rate),
        )
    assert not any(claim.get("value") for claim in claimed(run, SCORE))
