"""Records that are the same ones, whatever holds them, and runs that are the same run."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from refusals import refuses

torch = pytest.importorskip("torch")

from started import started  # noqa: E402
from support import logged  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset  # noqa: E402

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
    return odp.train(run or started(N, steps=3), model, records, **{"score": None, **arguments})


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))])
@pytest.mark.parametrize("original_first", [True, False])
def test_a_copy_of_a_run_trains_no_second_time(
    copied: Callable[[Any], Any], original_first: bool
) -> None:
    run = started(N, steps=3)
    runs = [run, copied(run)]
    first, second = runs if original_first else runs[::-1]
    train(run=first)
    with pytest.raises(PlanError):
        train(run=second)


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
    with pytest.warns(UserWarning, match="names"):
        train(records=records, loss=lambda o, t: cross_entropy(o - X.mean(), t))
    with pytest.raises(InvalidArgumentError) as refusal:
        train(records=records, learning_rate=None, inputs=X[:5])
    assert refusal.value.argument == "inputs"
    train(records=records, learning_rate=None, inputs=torch.randn(5, 4))
    if isinstance(records, Shaken):
        shift = records.shift  # What its items have in common is no record.
        train(records=records, loss=lambda o, t: cross_entropy(o - shift.sum(), t))


HALF = Subset(PAIRS, range(N // 2))


@pytest.mark.promise("persons")
@pytest.mark.parametrize(
    "records",
    [
        ConcatDataset([HALF, Shaken(HALF)]),
        ConcatDataset([Shaken(Shaken(HALF)), Shaken(HALF)]),
        [(X[i], int(Y[i])) for _ in range(2) for i in range(N // 2)],
    ],
)
def test_a_record_and_its_augmentation_are_one_record(records: Any) -> None:
    with refuses("records"):
        train(records=records)


@pytest.mark.promise("scored-records")
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
            run=started(N, steps=3, score=None),
        ).score

    if is_allowed:
        assert 0.0 <= score() <= 1.0
    else:
        with refuses("score_records"):
            score()


@pytest.mark.parametrize("copied", [0, 20, 40])
def test_the_log_says_that_records_to_score_are_trained_on(copied: int) -> None:
    """All of them are refused. Some may be other persons with the same row, so nothing else is."""
    x, y = torch.randn(80, 4), torch.arange(80) % 3
    rows = slice(40 - copied, 80 - copied)
    trained, scored = (x[:40], y[:40]), (x[rows].clone(), y[rows].clone())
    run = started(40, score="disjoint")
    with logged() as lines:
        if copied == 40:
            with refuses("score_records"):
                train(records=trained, run=run, score_records=scored, score_size=40)
        else:
            train(records=trained, run=run, score="accuracy", score_records=scored, score_size=40)
    assert any("records to score" in line for line in lines) == (copied == 20)


@pytest.mark.promise("public-numbers")
@pytest.mark.parametrize("hold", [lambda x, y: (x, y), TensorDataset])
def test_copies_of_records_are_no_inputs_of_a_rehearsal(hold: Any) -> None:
    x, y = torch.randn(60, 4), torch.arange(60) % 3
    batch = x[torch.randperm(60)[:32]]
    with refuses("inputs"):
        train(records=hold(x, y), run=started(60), learning_rate=None, inputs=batch)
    public = torch.cat([x[:3], torch.randn(29, 4)])  # As where some persons are in both.
    train(records=hold(x, y), run=started(60), learning_rate=None, inputs=public)
