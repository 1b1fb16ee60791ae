"""Programs of a hostile reader, whose statements said *enforced* or *compared* falsely."""

from __future__ import annotations

import copy
import os
import pickle
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from granted import NO_NOISE, claimed, granted  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset  # noqa: E402

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


class Helper:
    """Reaches the records in every way that a class offers."""

    def __init__(self, way: str) -> None:
        self.way = way

    def __call__(self, output: Any, target: Any) -> Any:
        return cross_entropy(output, target) + (output - getattr(self, self.way)()).sum()

    @staticmethod
    def constant() -> Any:
        return 1.0


class Calls(Helper):
    def __call__(self, output: Any, target: Any) -> Any:
        return cross_entropy(output - X.mean(), target)


class Static(Helper):
    @staticmethod
    def mean() -> Any:
        return X.mean()


class OfClass(Helper):
    @classmethod
    def mean(cls) -> Any:
        return X.mean()


class Method(Helper):
    def mean(self) -> Any:
        return X.mean()


class Property(Helper):
    @property
    def inner(self) -> Any:
        return X.mean()

    def mean(self) -> Any:
        return self.inner


class PropertyOfModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    @property
    def middle(self) -> Any:
        return X.mean()

    def forward(self, x: Any) -> Any:
        return self.layer(x) - self.middle


HOLDS = "holds the records themselves"


@pytest.mark.parametrize("kind", [Calls, Static, OfClass, Method, Property])
def test_a_helper_whose_methods_name_the_records_is_refused(kind: type[Helper]) -> None:
    with pytest.raises(InvalidArgumentError, match=HOLDS):
        train(loss=kind("mean"))
    train(loss=Helper("constant"))  # Its class names no records.


class OneForAll:
    """A script's class with loss, score and objective; only the objective names the records."""

    def loss(self, output: Any, target: Any) -> Any:
        return self.plain(output, target)

    def plain(self, output: Any, target: Any) -> Any:
        return cross_entropy(output, target)

    def objective(self) -> Any:
        return X.mean()


class Overriding(Calls):
    def __call__(self, output: Any, target: Any) -> Any:
        return super().__call__(output, target)


def test_methods_that_a_loss_does_not_call_may_name_the_records() -> None:
    train(loss=OneForAll().loss)
    with pytest.raises(InvalidArgumentError, match=HOLDS):
        train(loss=Overriding("constant"))


class Leaking(torch.autograd.Function):
    """PyTorch calls its methods; no function of a script names them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * X.mean()


def test_methods_that_a_library_calls_are_followed() -> None:
    def loss(output: Any, target: Any) -> Any:
        return cross_entropy(Leaking.apply(output), target)

    with pytest.raises(InvalidArgumentError, match=HOLDS):
        train(loss=loss)


def test_a_property_of_a_model_that_names_the_records_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=HOLDS):
        train(PropertyOfModel())


def test_a_weak_reference_to_the_records_is_refused() -> None:
    reference = weakref.ref(X)
    with pytest.raises(InvalidArgumentError, match=HOLDS):
        train(loss=lambda output, target: cross_entropy(output - reference().mean(), target))


def test_records_of_a_module_that_is_imported_late_or_deep_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner: Any = types.ModuleType("own_project.data")
    outer: Any = types.ModuleType("own_project")
    inner.RECORDS, outer.data = X, inner
    monkeypatch.setitem(sys.modules, "own_project", outer)
    monkeypatch.setitem(sys.modules, "own_project.data", inner)

    def late(output: Any, target: Any) -> Any:
        from own_project.data import RECORDS  # type: ignore[import-not-found]

        return cross_entropy(output - RECORDS.mean(), target)

    def deep(output: Any, target: Any) -> Any:
        return cross_entropy(output - outer.data.RECORDS.mean(), target)

    for loss in (late, deep):
        with pytest.raises(InvalidArgumentError, match=HOLDS):
            train(loss=loss)


@pytest.mark.parametrize("way", ["tensor in the loss", "buffer", "optimizer"])
def test_weights_of_an_earlier_run_are_refused_as_plain_tensors_too(way: str) -> None:
    run = granted(N, steps=3)
    assert run.trial is not None
    first, model = nn.Linear(4, 8), nn.Linear(4, 8)
    train(first, run=run)
    kept = first.weight.detach().clone()
    arguments: dict[str, Any] = {}
    if way == "tensor in the loss":
        arguments["record_loss"] = lambda model, x, y: (
            cross_entropy(model(x[None]), y[None]) + (model.weight - kept).square().sum()
        )
    elif way == "buffer":
        model.register_buffer("teacher", first.weight.detach())
    else:

        def warm(weights: Any, rate: float) -> Any:
            optimizer = torch.optim.SGD(weights, lr=rate)
            optimizer.register_step_post_hook(lambda *_: weights[0].data.copy_(kept))
            return optimizer

        arguments["optimizer"] = warm
    with pytest.raises(InvalidArgumentError, match="another run"):
        train(model, run=odp.fidelity(run.trial.study.ask()), **arguments)


def pointed_at(model: Any, table: Any, pointer: Any) -> Any:
    """The loss of a pointer network: it looks up a row of the record's own table."""
    return model(nn.functional.embedding(pointer, table)).square().sum()


def looked_up(model: Any, table: Any, pointer: Any) -> Any:
    return model(torch.embedding(table, indices=pointer)).square().sum()


@pytest.mark.parametrize("record_loss", [pointed_at, looked_up])
@pytest.mark.parametrize("pointer", [-1, 5, 7])
def test_a_lookup_in_a_records_own_table_finds_no_companion(
    record_loss: Any, pointer: int
) -> None:
    """The record with a wrong pointer counts as zero, whatever its companions are."""
    tables, pointers = torch.randn(3, 5, 4), torch.tensor([0, pointer, 4])
    weights = []
    for scale in (1.0, 3.0):
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        run = granted(3, steps=1, noise_multiplier=NO_NOISE)
        alone = tables.clone()
        alone[[0, 2]] = 0.0
        alone[0, 1:] = scale  # rows that nobody points to
        alone[2, :4] = scale
        train(
            model,
            (alone, pointers),
            run,
            record_loss=record_loss,
            optimizer="sgd",
            schedule=odp.Schedule("constant"),
        )
        weights.append(model.weight.detach().clone())
    torch.testing.assert_close(*weights)


class OwnData(Dataset[Any]):
    def __init__(self) -> None:
        self.x, self.y = X, Y

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        return self.x[index], self.y[index]


class Shaken(Dataset[Any]):
    """A data set whose items are changed at random."""

    def __init__(self, base: Any) -> None:
        self.base, self.shift = base, torch.zeros(4)

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> Any:
        x, y = self.base[index]
        return x + self.shift + 0.1 * torch.randn(4), y


PAIRS = TensorDataset(X, Y)
VIEWS = [(X[i], int(Y[i])) for i in range(N)]


@pytest.mark.parametrize(
    "records",
    [Subset(PAIRS, range(N)), OwnData(), Shaken(PAIRS), Shaken(OwnData()), VIEWS, Shaken(VIEWS)],
)
def test_records_are_known_again_under_a_data_set(records: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=HOLDS):
        train(records=records, loss=lambda o, t: cross_entropy(o - X.mean(), t))
    with pytest.raises(InvalidArgumentError, match="made up or public"):
        train(records=records, learning_rate=None, inputs=X[:5])
    train(records=records, learning_rate=None, inputs=torch.randn(5, 4))
    if isinstance(records, Shaken):
        shift = records.shift  # What its items have in common is no record.
        train(records=records, loss=lambda o, t: cross_entropy(o - shift.sum(), t))


HALF = Subset(PAIRS, range(N // 2))


@pytest.mark.parametrize(
    "records",
    [
        ConcatDataset([HALF, Shaken(HALF)]),
        ConcatDataset([Shaken(Shaken(HALF)), Shaken(HALF)]),
        [(X[i], int(Y[i])) for _ in range(2) for i in range(N // 2)],
    ],
)
def test_a_record_and_its_augmentation_are_one_record(records: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="holds a record twice"):
        train(records=records)


@pytest.mark.parametrize(
    ("records", "scored", "is_allowed"),
    [
        ((X, Y), Subset(PAIRS, range(5)), False),
        (PAIRS, OwnData(), False),
        (VIEWS, (X, Y), False),
        (Shaken(PAIRS), Shaken(HALF), False),
        ((X[5:], Y[5:]), Subset(PAIRS, range(5)), True),
        (Shaken(Subset(PAIRS, range(5, N))), Shaken(Subset(PAIRS, range(5))), True),
        (Subset(PAIRS, range(5, N)), Subset(PAIRS, range(5)), True),
        ((X, Y), [(torch.randn(4), 1), (torch.randn(4), 2)], True),
    ],
)
def test_training_records_are_no_public_ones_whatever_holds_them(
    records: Any, scored: Any, is_allowed: bool
) -> None:
    def score() -> Any:
        return train(
            records=records,
            score_records=scored,
            score="accuracy",
            run=granted(N, steps=3, score=None),
        ).score

    if is_allowed:
        assert 0.0 <= score() <= 1.0
    else:
        with pytest.raises(InvalidArgumentError, match="some of the training's records"):
            score()


class Flat(nn.Module):
    """A model whose weights and buffer are parts of one array."""

    def __init__(self) -> None:
        super().__init__()
        memory = torch.zeros(12 + 4)
        self.weight = nn.Parameter(memory[:12].view(3, 4))
        self.all_weights = memory[:12]
        self.register_buffer("kept", memory[12:])

    def forward(self, x: Any) -> Any:
        return x @ self.weight.t()


class Writing(OwnData):
    """A data set that writes a record into the model's buffer."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def __getitem__(self, index: int) -> Any:
        self.model.kept.add_(self.x[index])
        return super().__getitem__(index)


def test_a_buffer_beside_the_weights_in_memory_is_compared() -> None:
    train(Flat())
    model = Flat()
    with pytest.raises(InvalidArgumentError, match=r"a data set that changes model.*kept"):
        train(model, Writing(model))
