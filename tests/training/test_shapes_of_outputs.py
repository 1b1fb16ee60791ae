"""The loss of one record, whatever the shapes of the model's output and of the target."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import pytest
from started import NO_NOISE, started

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import optuna_dp as odp  # noqa: E402

FEATURES, RECORDS = 6, 400
squared = nn.functional.mse_loss


class Shaped(nn.Module):
    """A linear model whose output has been given another shape."""

    def __init__(self, shaped: Any) -> None:
        super().__init__()
        self.layer, self.shaped = nn.Linear(FEATURES, 1), shaped

    def forward(self, x: Any) -> Any:
        return self.shaped(self.layer(x))


def records() -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(0)
    x = 2.0 * torch.rand(RECORDS, FEATURES, generator=generator) - 1.0
    return x, 0.8 * x[:, 0] - 0.1


def one_step(model: Any, x: Any, y: Any, loss: Any = squared) -> Any:
    """Returns by how much one step on all records, without noise, changes the first weights."""
    before = model.layer.weight.detach().clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # PyTorch warns of an output that it stretches.
        odp.train(
            started(len(x), noise_multiplier=NO_NOISE),
            model,
            (x, y),
            loss=loss,
            optimizer="sgd",
            learning_rate=1.0,
            clipping_norm=100.0,
            schedule=odp.Schedule("constant"),
            score=None,
        )
    return before - model.layer.weight.detach()


LOSSES = {
    "function": squared,
    "module": nn.MSELoss(),
    "partial": partial(squared, reduction="sum"),
    "own": lambda output, target: (output.reshape(1) - target.reshape(1)).square().mean(),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize(
    "shaped",
    [lambda output: output, lambda output: output.squeeze(-1), lambda output: output.squeeze()],
    ids=["(1, 1)", "(1,)", "()"],
)
def test_one_output_is_compared_with_one_target_whatever_their_axes(
    shaped: Any, column: bool, loss: Any
) -> None:
    x, y = records()
    model = Shaped(shaped)
    with torch.no_grad():
        errors = model.layer(x)[:, 0] - y
    step = one_step(model, x, y[:, None] if column else y, loss)
    assert torch.allclose(step, (2.0 * errors[:, None] * x).mean(0), atol=1e-3)


def test_a_loss_of_ones_own_may_take_an_axis_away_by_itself() -> None:
    x, y = records()
    model = Shaped(lambda output: output)
    with torch.no_grad():
        errors = model.layer(x)[:, 0] - y
    step = one_step(model, x, y, lambda output, target: squared(output.squeeze(1), target))
    assert torch.allclose(step, (2.0 * errors[:, None] * x).mean(0), atol=1e-3)


def test_each_of_several_targets_is_compared_with_its_own_output() -> None:
    """The output of a record is (5, 1) and its target (5,): stretched they would be 25 pairs."""
    x, y = records()
    x, y = x.reshape(-1, 5, FEATURES), y.reshape(-1, 5)
    model = Shaped(lambda output: output)
    with torch.no_grad():
        errors = model.layer(x)[..., 0] - y
    step = one_step(model, x, y)
    assert torch.allclose(step, (2.0 * errors[..., None] * x).mean((0, 1)), atol=1e-3)
