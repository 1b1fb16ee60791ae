"""No record sees another in a step, and no seed of a script decides what a record gets."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import os
import random
import signal
import threading
from typing import Any

import numpy as np
import pytest
from refusals import refuses

torch = pytest.importorskip("torch")

from started import NO_NOISE, claimed, started  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import Dataset  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.study.entries import TRAININGS  # noqa: E402

N = 12
X, Y = torch.randn(N, 4), torch.randint(0, 3, (N,))
cross_entropy = nn.functional.cross_entropy


def train(run: odp.Run, model: nn.Module | None = None, **arguments: Any) -> nn.Module:
    model = nn.Linear(4, 3) if model is None else model
    arguments.setdefault("loss", cross_entropy)
    records = arguments.pop("records", (X, Y))
    odp.train(run, model, records, learning_rate=0.1, **{"score": None, **arguments})
    return model


def refused(argument: str, **arguments: Any) -> None:
    run = started(N)
    with refuses(argument):
        train(run, **arguments)
    assert claimed(run, TRAININGS) == []


# -- draws of a record ----------------------------------------------------------------------------


def test_dropout_is_trained_with() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    before = [weight.clone() for weight in model.parameters()]
    train(started(N), model)
    assert not torch.equal(before[0], next(model.parameters()))


class LayerLeftOut(nn.Module):
    """It leaves a layer out for half of the records: there are few outcomes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        left_out = torch.rand(()) < 0.5
        return self.last(torch.where(left_out, x, x + 9.0 * self.layer(x)))


def test_a_layer_that_is_left_out_by_chance_is_no_seed() -> None:
    for _ in range(8):
        train(started(N), LayerLeftOut())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_model_of_any_precision_trains(dtype: Any) -> None:
    layers = nn.Linear(4, 64), nn.LayerNorm(64), nn.Dropout(0.3), nn.Linear(64, 3)
    train(started(N), nn.Sequential(*layers).to(dtype), records=(X.to(dtype), Y))


# -- threads --------------------------------------------------------------------------------------


def in_threads(*works: Any) -> list[Any]:
    """What some functions return that run at the same time; their errors are raised."""
    with concurrent.futures.ThreadPoolExecutor(len(works)) as pool:
        return [future.result() for future in [pool.submit(work) for work in works]]


def test_trainings_of_several_threads_do_not_refuse_one_another() -> None:
    def work() -> None:
        for _ in range(6):
            torch.manual_seed(0)  # As objectives do.
            model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
            train(started(N, steps=5), model, physical_batch_size=2)

    in_threads(*[work] * 3)


@pytest.mark.slow
def test_what_python_draws_is_the_same_for_a_step_while_another_thread_trains() -> None:
    def loss(out: Any, y: Any) -> Any:
        return cross_entropy(out, y) * (0.5 + random.random())

    def work() -> list[Any]:
        return [step_of(loss, physical_batch_size=1) for _ in range(10)]

    alone = step_of(cross_entropy)
    for step in itertools.chain(*in_threads(work, work, work)):
        factors = step / alone
        assert torch.allclose(factors, factors[0, 0], rtol=1e-2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_was_forked_while_a_thread_computed_can_train() -> None:
    computing, forked = threading.Event(), threading.Event()

    def loss(out: Any, y: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            computing.set()
            assert forked.wait(60)
        return cross_entropy(out, y)

    thread = threading.Thread(target=lambda: train(started(N, score=None), loss=loss))
    thread.start()
    assert computing.wait(60)
    child = os.fork()
    if not child:
        signal.alarm(60)  # It ends the child if it waits for a thread that it does not have.
        with contextlib.suppress(BaseException):
            train(started(N))
            os._exit(0)
        os._exit(1)
    try:
        assert os.waitpid(child, 0)[1] == 0
    finally:
        forked.set()
        thread.join()


# -- seeds ----------------------------------------------------------------------------------------


def by_a_draw(out: Any, y: Any) -> Any:
    return out.sum() * torch.rand(())


def by_a_seeded_draw(out: Any, y: Any) -> Any:
    torch.manual_seed(0)
    return by_a_draw(out, y)


def seeding(out: Any, y: Any) -> Any:
    torch.manual_seed(0)
    return cross_entropy(out, y)


@pytest.mark.promise("noise")
@pytest.mark.parametrize("loss", [by_a_seeded_draw, seeding])
def test_a_loss_that_sets_a_seed_is_refused(loss: Any) -> None:
    refused("loss", loss=loss)


def step_of(loss: Any, **arguments: Any) -> Any:
    """What one step without noise makes of weights of zero, by SGD at rate one."""
    model = nn.Linear(4, 3, bias=False)
    nn.init.zeros_(model.weight)
    run = started(N, noise_multiplier=NO_NOISE)
    schedule = odp.Schedule("constant")
    arguments = {"records": (X, Y), **arguments}
    records = arguments.pop("records")
    odp.train(
        run, model, records, loss=loss, learning_rate=1.0, optimizer="sgd", schedule=schedule,
        clipping_norm=30.0, **{"score": None, **arguments},
    )  # fmt: skip
    return model.weight.detach().clone()


@pytest.mark.promise("noise")
def test_no_seed_of_a_script_repeats_what_records_draw() -> None:
    steps = []
    for _ in range(2):
        torch.manual_seed(0)
        steps.append(step_of(by_a_draw))
    assert not torch.allclose(*steps, atol=1e-4)  # The noise is far smaller.


def of_torch() -> float:
    return float(torch.rand(()))


class Keeping:
    """A generator of its own, as data sets keep one in a transform."""

    def __init__(self, generator: Any, draw: Any) -> None:
        self.generator, self.draw = generator, draw

    def __call__(self) -> float:
        return float(self.draw(self.generator))


KEPT = {
    "numpy": lambda: Keeping(np.random.default_rng(0), lambda g: g.random()),
    "numpy, old": lambda: Keeping(np.random.RandomState(0), lambda g: g.random()),
    "python": lambda: Keeping(random.Random(0), lambda g: g.random()),
    "torch": lambda: Keeping(
        torch.Generator().manual_seed(0), lambda g: torch.rand((), generator=g)
    ),
}


@pytest.mark.promise("noise")
@pytest.mark.parametrize(
    "make",
    [*(lambda draw=draw: draw for draw in (random.random, np.random.random, of_torch)),
     *KEPT.values()],
    ids=["random", "numpy.random", "torch.rand", *(f"kept: {name}" for name in KEPT)],
)  # fmt: skip
def test_no_seed_of_a_script_repeats_what_a_data_set_draws(make: Any) -> None:
    class Augmented(Dataset):  # type: ignore[misc]
        def __init__(self) -> None:
            self.transforms = [make()]

        def __len__(self) -> int:
            return N

        def __getitem__(self, index: int) -> Any:
            return X[index] * (0.5 + self.transforms[0]()), Y[index]

    steps = []
    for _ in range(2):
        random.seed(0), np.random.seed(0), torch.manual_seed(0)
        steps.append(step_of(cross_entropy, records=Augmented()))
    assert not torch.allclose(*steps, atol=1e-4)  # The noise is far smaller.


@pytest.mark.promise("gradients")
@pytest.mark.parametrize("draw", [lambda: random.random(), lambda: np.random.random()])
def test_what_python_and_numpy_draw_is_the_same_for_all_records_of_a_step(draw: Any) -> None:
    """Otherwise a record that joins would move others into a chunk with another draw."""
    step = step_of(lambda out, y: cross_entropy(out, y) * (0.5 + draw()), physical_batch_size=1)
    factors = step / step_of(cross_entropy)
    assert torch.allclose(factors, factors[0, 0], rtol=1e-2)
    assert not torch.allclose(factors, torch.tensor(1.0), rtol=1e-6)


def test_what_is_drawn_after_a_training_does_not_tell_how_many_records_were_drawn() -> None:
    following = set()
    for share in (0.2, 1.0):
        run = started(N, batch_size=share * N, steps=5, score=None)
        random.seed(0), np.random.seed(0), torch.manual_seed(0)
        train(
            run, nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)),
            physical_batch_size=1,
        )  # fmt: skip
        following.add((random.random(), np.random.random(), torch.rand(()).item()))
    assert len(following) == 1
