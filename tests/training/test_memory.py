"""How many records are computed at a time, and what is held for them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from started import claimed, started  # noqa: E402
from torch import nn  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.study.entries import TRAININGS  # noqa: E402
from optuna_dp.training import torch_learner  # noqa: E402
from optuna_dp.training.each_record import EachRecord  # noqa: E402
from optuna_dp.training.records import read_records  # noqa: E402

N = 100
X, Y = torch.randn(N, 4), torch.randint(0, 3, (N,))
cross_entropy = nn.functional.cross_entropy
SHORT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB."),
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
]


def train(run: odp.Run, **arguments: Any) -> None:
    arguments = {"learning_rate": 0.1, "score": None, **arguments}
    odp.train(run, nn.Linear(4, 3), (X, Y), loss=cross_entropy, **arguments)


@pytest.fixture(params=SHORT_OF_MEMORY, ids=lambda error: type(error).__name__)
def room_for_24(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory that holds the gradients of 24 records."""
    finds_places = EachRecord.finds_places

    def of_few(self: EachRecord) -> bool:
        if self.chunk_size > 24:
            raise request.param
        return finds_places(self)

    monkeypatch.setattr(EachRecord, "finds_places", of_few)


@pytest.mark.usefixtures("room_for_24")
def test_fewer_records_are_computed_at_a_time_where_memory_is_short() -> None:
    run = started(N)
    train(run, score="accuracy")
    (training,) = claimed(run, TRAININGS)
    assert training["physical_batch"] == 24  # After 136, 72 and 40.


@pytest.mark.usefixtures("room_for_24")
def test_a_given_number_of_records_is_not_changed_and_nothing_is_spent() -> None:
    run = started(N)
    with pytest.raises((RuntimeError, MemoryError)):
        train(run, physical_batch_size=32)
    assert claimed(run, TRAININGS) == []
    train(run, physical_batch_size=20)
    (training,) = claimed(run, TRAININGS)
    assert training["physical_batch"] == 24


def test_a_quarter_of_what_is_free_on_a_gpu_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (6 * 2**30, 80 * 2**30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3 * 2**30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 2**30)
    gpu = torch.device("cuda")
    of_2_gigabytes = torch_learner._records_at_a_time(2**21, gpu)
    assert of_2_gigabytes == 2**31 // (4 * 2**21)
    assert torch_learner._records_at_a_time(10, gpu) == 512
    assert torch_learner._records_at_a_time(2**31, gpu) == 1


def test_frozen_weights_have_no_gradients_and_are_not_copied() -> None:
    model = nn.Sequential(nn.Linear(4, 50), nn.ReLU(), nn.Linear(50, 3))
    model[0].requires_grad_(False)
    places = set()

    def loss(copy: nn.Module, x: Any, y: Any) -> Any:
        places.add(copy[0].weight.data_ptr())
        return cross_entropy(copy(x[None]), y[None])

    learner = torch_learner.TorchLearner(
        model, loss=loss, loss_argument="record_loss", score=None, score_argument="score",
        chunk_size=16, device=None,
    )  # fmt: skip
    records = read_records((X, Y))
    learner.try_out(records, None)
    rows = learner._losses.of((X[:16], Y[:16]), torch.arange(16).numpy()).rows
    assert [tuple(part.shape) for part in rows] == [(16, 150), (16, 3)]
    assert places == {model[0].weight.data_ptr()}
