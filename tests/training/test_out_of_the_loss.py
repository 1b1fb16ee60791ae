"""What reaches a training from beside the loss: hooks, modes, data sets, schedules, forks."""

from __future__ import annotations

import os
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from granted import granted  # noqa: E402
from torch import nn  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_pre_hook  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.data import Dataset  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.errors import InvalidArgumentError, PlanError  # noqa: E402

N = 8
X, Y = torch.randn(N, 4), torch.randint(0, 3, (N,))


def train(model: nn.Module, records: Any = (X, Y), steps: int = 3, **arguments: Any) -> Any:
    arguments = {
        "loss": nn.functional.cross_entropy,
        "learning_rate": 0.1,
        **arguments,
    }
    return odp.train(granted(N, steps=steps), model, records, **arguments)


def test_a_hook_of_all_modules_that_keeps_outputs_is_refused() -> None:
    kept: list[Any] = []
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, inputs, output: kept.append(output)
    )
    try:
        with pytest.raises(InvalidArgumentError, match="would hold records"):
            train(nn.Linear(4, 3))
    finally:
        hook.remove()


def test_a_hook_of_all_optimizers_that_holds_the_records_is_refused() -> None:
    def nudge(optimizer: Any, arguments: Any, keywords: Any) -> None:
        optimizer.param_groups[0]["lr"] *= float(X.abs().mean())

    hook = register_optimizer_step_pre_hook(nudge)
    try:
        with pytest.raises(InvalidArgumentError, match="holds the records themselves"):
            train(nn.Linear(4, 3), optimizer="sgd")
    finally:
        hook.remove()


class Seeing(TorchFunctionMode):
    def __torch_function__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(*args, **(kwargs or {}))


class SeeingBelow(TorchDispatchMode):
    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Seeing, SeeingBelow])
def test_a_mode_that_sees_every_operation_is_refused(mode: Any) -> None:
    model = nn.Linear(4, 3)
    with pytest.raises(InvalidArgumentError, match="outside of it"), mode():
        train(model)
    with torch.device("cpu"):  # PyTorch's own mode.
        train(model)


def test_a_loss_that_reaches_behind_one_record_is_refused() -> None:
    def loss(output: Any, target: Any) -> Any:
        everybody = torch._C._functorch.get_unwrapped(output)
        return nn.functional.cross_entropy(output, target) + 0.0 * everybody.sum()

    with pytest.raises(InvalidArgumentError, match="reaches behind"):
        train(nn.Linear(4, 3), loss=loss)


class Nudging(Dataset):
    """Writes its records into the model when they are read."""

    def __init__(self, model: nn.Linear) -> None:
        self.model, self.read = model, 0

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        self.read += 1
        if self.read > 4 * N:  # Not while it is tried out.
            self.model.weight.data += X[index].mean()
        return X[index], Y[index]


def test_a_data_set_that_writes_into_the_weights_ends_the_training() -> None:
    model = nn.Linear(4, 3)
    with pytest.raises(PlanError, match="changed the trained weights between two steps"):
        train(model, Nudging(model), steps=20)


def test_a_schedule_of_a_scripts_own_class_is_refused() -> None:
    class ByRecords(odp.Schedule):
        def factor(self, step: int, steps: int) -> float:
            return float(X[step].mean())

    with pytest.raises(InvalidArgumentError, match="it must be an optuna_dp"):
        train(nn.Linear(4, 3), schedule=ByRecords("constant"))


class Forking(torch.optim.SGD):
    """Forks at its second step, the first one that is part of the training."""

    steps, child = 0, 0

    def step(self, closure: Any = None) -> None:
        super().step()
        Forking.steps += 1
        if Forking.steps == 2:
            Forking.child = os.fork()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_noise_is_not_drawn_twice_by_a_fork_of_a_training() -> None:
    refused = 7
    try:
        train(
            nn.Linear(4, 3),
            optimizer=lambda weights, rate: Forking(weights, lr=rate),
            secure_noise=False,
        )
    except PlanError as error:
        os._exit(refused if "forked" in str(error) else 1)
    if Forking.child == 0:
        os._exit(1)  # The child must not come to the end.
    _, status = os.waitpid(Forking.child, 0)
    assert os.waitstatus_to_exitcode(status) == refused
