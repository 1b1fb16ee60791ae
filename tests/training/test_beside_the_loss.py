"""What data sets, operators and classes of a script could tell a training beside its records."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from typing import Any, ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from granted import NO_NOISE, granted  # noqa: E402
from torch import nn  # noqa: E402
from torch._C._functorch import get_unwrapped as behind  # noqa: E402
from torch.utils.data import Dataset  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.errors import InvalidArgumentError, PlanError  # noqa: E402

N = 12
X, Y = torch.randn(N, 4), torch.randint(0, 3, (N,))
cross_entropy = nn.functional.cross_entropy


def train(
    run: odp.Fidelity, records: Any, loss: Any, *, model: nn.Module | None = None, **more: Any
) -> None:
    odp.train(run, model or nn.Linear(4, 3), records, loss=loss, learning_rate=0.1, **more)


# -- what a data set notes ------------------------------------------------------------------------

noted: list[Any] = []


class Noting(Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        noted.append(X[index].mean())
        return X[index], Y[index]


def by_what_was_noted(out: Any, y: Any) -> Any:
    mean = torch.stack(noted).mean() if noted else torch.tensor(1.0)
    noted.clear()  # Nothing is left at the end of the training.
    return cross_entropy(out, y) * mean


class AsAnObject:
    def __call__(self, out: Any, y: Any) -> Any:
        return self.named(out, y)

    def named(self, out: Any, y: Any) -> Any:
        return by_what_was_noted(out, y)

    def objective(self) -> Any:
        return X  # It is not called by the loss.


class Plain(AsAnObject):
    def __call__(self, out: Any, y: Any) -> Any:
        return cross_entropy(out, y)


class ByWhatWasNoted(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["lr"] *= float(noted[-1]) if noted else 1.0
        super().step()


class WithContext(nn.Module):
    """It has a buffer, in memory of its own or beside the trained weights."""

    def __init__(self, *, beside: bool) -> None:
        super().__init__()
        memory = torch.zeros(12 + 4)
        self.layer = nn.Linear(4, 3, bias=False)
        self.layer.weight = nn.Parameter(memory[:12].view(3, 4))
        self.register_buffer("context", memory[12:] if beside else torch.zeros(4))

    def forward(self, x: Any) -> Any:
        return self.layer(x + self.context)


@pytest.mark.parametrize("loss", [by_what_was_noted, AsAnObject(), AsAnObject().named])
def test_a_data_set_that_notes_what_a_loss_sees_is_refused(loss: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"a data set that changes loss.*noted"):
        train(granted(N), Noting(), loss)


def test_a_data_set_that_notes_what_an_optimizer_sees_is_refused() -> None:
    def optimizer(parameters: Any, rate: float) -> Any:
        return ByWhatWasNoted(parameters, lr=rate)

    with pytest.raises(InvalidArgumentError, match=r"a data set that changes optimizer.*noted"):
        train(granted(N), Noting(), cross_entropy, optimizer=optimizer)


@pytest.mark.parametrize("beside", [True, False])
def test_a_data_set_that_writes_into_a_buffer_is_refused(beside: bool) -> None:
    model = WithContext(beside=beside)

    class Writing(Noting):
        def __getitem__(self, index: int) -> Any:
            model.context.copy_(X[index])
            return X[index], Y[index]

    with pytest.raises(InvalidArgumentError, match=r"a data set that changes model.*context"):
        train(granted(N), Writing(), cross_entropy, model=model)


def test_a_buffer_beside_the_weights_is_not_among_them() -> None:
    model = WithContext(beside=True)

    class WritingLater(Noting):
        reads_before = threading.Semaphore(8 * N)

        def __getitem__(self, index: int) -> Any:
            if not self.reads_before.acquire(blocking=False):
                model.context.copy_(X[index])
            return X[index], Y[index]

    with pytest.raises(PlanError, match=r"changed model.*context"):
        train(granted(N, steps=20), WritingLater(), cross_entropy, model=model)


def test_weights_in_one_piece_of_memory_are_trained() -> None:
    memory = torch.zeros(12 + 3)
    model = nn.Linear(4, 3)
    model.weight, model.bias = nn.Parameter(memory[:12].view(3, 4)), nn.Parameter(memory[12:])
    model.flat = memory
    train(granted(N), Noting(), cross_entropy, model=model)
    assert memory.all()


def test_a_data_set_that_notes_what_nobody_else_sees_is_read() -> None:
    train(granted(N), Noting(), Plain())


def test_a_table_that_a_data_set_and_a_loss_fill_once_is_allowed() -> None:
    table: dict[int, Any] = {}

    class Filling(Noting):
        def __getitem__(self, index: int) -> Any:
            table.setdefault(0, torch.ones(()))
            return X[index], Y[index]

    train(granted(N), Filling(), lambda out, y: cross_entropy(out, y) * table[0])


# -- operators ------------------------------------------------------------------------------------

kept_by_operator: list[float] = []


@torch.library.custom_op("optuna_dp_tests::running_mean", mutates_args=())
def running_mean(x: torch.Tensor) -> torch.Tensor:
    kept_by_operator.append(float(x.sum()))
    return x.new_full((1,), float(np.mean(kept_by_operator)))


class Hidden:
    """What an operator keeps where only ``torch`` leads to it."""

    library = torch.library.Library("optuna_dp_tests_hidden", "FRAGMENT")
    sums: ClassVar[list[float]] = []


def hidden_mean(x: torch.Tensor) -> torch.Tensor:
    Hidden.sums.append(float(x.sum()))
    return x.new_full((1,), float(np.mean(Hidden.sums)))


Hidden.library.define("running_mean(Tensor x) -> Tensor")
Hidden.library.impl("running_mean", hidden_mean, "CompositeExplicitAutograd")


@pytest.mark.parametrize(
    ("library", "match"),
    [
        ("optuna_dp_tests", r"operators.*kept_by_operator.*it changes"),
        ("optuna_dp_tests_hidden", "not the same when it is computed again|records beside it"),
    ],
)
def test_an_operator_that_keeps_something_is_refused(library: str, match: str) -> None:
    def loss(out: Any, y: Any) -> Any:
        operator = getattr(torch.ops, library).running_mean
        return cross_entropy(out, y) * operator(out.detach()).sum()

    with pytest.raises(InvalidArgumentError, match=match):
        train(granted(N), (X, Y), loss)


def test_an_operator_that_keeps_something_later_is_an_error() -> None:
    calls_before = threading.Semaphore(60)

    @torch.library.custom_op("optuna_dp_tests::later", mutates_args=())
    def later(x: torch.Tensor) -> torch.Tensor:
        if not calls_before.acquire(blocking=False):
            kept_by_operator.append(float(x.sum()))
        return x.new_ones((1,))

    def loss(out: Any, y: Any) -> Any:
        return cross_entropy(out, y) * torch.ops.optuna_dp_tests.later(out.detach()).sum()

    with pytest.raises(PlanError, match=r"changed operators.*kept_by_operator"):
        train(granted(N, steps=30), (X, Y), loss)


def test_what_reaches_behind_torch_func_under_another_name_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"reaches behind torch\.func"):
        train(granted(N), (X, Y), lambda out, y: cross_entropy(out, y) * behind(out).sum())


# -- classes of a script's own --------------------------------------------------------------------


class Quiet(odp.Fidelity):
    """It trains with hardly any noise, and says that it is what the trial was granted."""

    @property
    def digest(self) -> str:
        return str(self.__dict__["granted"])


class PrintedAsOne(float):
    def __repr__(self) -> str:
        return "1.0"


def test_a_class_of_a_scripts_own_is_not_what_a_trial_was_granted() -> None:
    run = granted(N)
    quiet = Quiet(**{part.name: getattr(run, part.name) for part in dataclasses.fields(run)})
    quiet.__dict__.update(granted=run.digest, noise_multiplier=NO_NOISE)
    with pytest.raises(InvalidArgumentError, match=r"what optuna_dp\.fidelity"):
        train(quiet, (X, Y), cross_entropy)


def test_a_number_that_is_printed_as_another_is_not_what_a_trial_was_granted() -> None:
    run = dataclasses.replace(granted(N), noise_multiplier=PrintedAsOne(NO_NOISE))
    with pytest.raises(PlanError, match="not what trial 0 was granted"):
        train(run, (X, Y), cross_entropy)


def test_plans_of_a_scripts_own_class_are_refused() -> None:
    class MyRun(odp.RunPlan):
        pass

    class MyPlan(odp.BudgetPlan):
        pass

    own = MyRun(records=N, batch_size=N, steps=1, noise_multiplier=1.0, score_noise_multiplier=1.0)
    with pytest.raises(InvalidArgumentError, match="run="):
        odp.RandTuneSampler(trials=odp.Poisson(mean=5.0), run=own)
    plan = odp.plan_budget(epsilon=3.0, records=N, batch_size=5, epochs=10, pilots=0)
    object.__setattr__(plan, "__class__", MyPlan)
    with pytest.raises(InvalidArgumentError, match="plan="):
        odp.BudgetSampler(plan)


def test_a_mapping_that_changes_is_read_once() -> None:
    class Changing(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            following = super().items()
            return following if next(looks) == 0 else {"x": X + 9.0, "y": Y}.items()

    looks = itertools.count()

    def score(model: Any, record: Any) -> Any:
        return (record["x"] < 5.0).all().double()

    found = odp.train(
        granted(N, score=None), nn.Linear(4, 3), {"x": X, "y": Y}, learning_rate=0.1,
        record_loss=lambda model, r: cross_entropy(model(r["x"][None]), r["y"][None]),
        record_score=score, score_records=Changing(x=X.clone(), y=Y.clone()),
    )  # fmt: skip
    assert found.score == 1.0
