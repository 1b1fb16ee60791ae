"""A step is the clipped sum of single gradients, whatever the model: compared with a slow loop."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch_models  # noqa: E402
from started import NO_NOISE, started  # noqa: E402
from torch import nn  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.training.schedules import Schedule  # noqa: E402

RECORDS, NORM = 9, 0.7
PLAIN: dict[str, Any] = {
    "optimizer": "sgd",
    "learning_rate": 1.0,
    "schedule": Schedule("constant"),
    "clipping_norm": NORM,
}


def one_step(model: nn.Module, records: Any, count: int = RECORDS, **arguments: Any) -> Any:
    """The sum of clipped gradients that a step without noise has taken."""
    run = started(count, noise_multiplier=NO_NOISE)
    before = torch_models.values(model)
    trained = odp.train(
        run, copy.deepcopy(model), records, **{"score": None, **PLAIN, **arguments}
    )
    return (before - torch_models.values(trained.model)) * count


def assert_equal(found: Any, expected: Any) -> None:
    # Half a float's precision of the weights, times the number of records, and the margin.
    assert float((found - expected).norm()) < 2e-4 * max(1.0, float(expected.norm()))


@pytest.mark.parametrize("kind", torch_models.MODELS)
@pytest.mark.parametrize("physical_batch_size", [None, 4])
def test_a_step_is_the_clipped_sum_of_single_gradients(
    kind: str, physical_batch_size: int | None
) -> None:
    torch.manual_seed(0)
    make, inputs, classes = torch_models.MODELS[kind]
    model = make()
    if kind != "frozen BatchNorm":
        model.train()
    x, y = inputs(RECORDS), torch.randint(0, classes, (RECORDS,))
    x = x.double() if kind == "double precision" else x
    expected, norms = torch_models.slow_clipped_sum(
        model,
        lambda m, i: torch_models.cross_entropy(m(x[i : i + 1]), y[i : i + 1]),
        list(range(RECORDS)),
        NORM,
    )
    assert min(norms) > 0.0
    assert max(norms) > NORM  # Some are clipped.
    found = one_step(
        model,
        (x, y),
        loss=torch_models.cross_entropy,
        physical_batch_size=physical_batch_size,
    )
    assert_equal(found, expected)


def test_dropout_is_different_for_each_record() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(1, 1, bias=False))
    nn.init.zeros_(model[1].weight)
    x = torch.ones(400, 1)
    # Each record's gradient is 2 or 0: all alike would be 800 or 0. 1e-9 is six deviations.
    found = one_step(
        model,
        (x, x),
        400,
        loss=lambda output, target: (output * target).sum(),
        clipping_norm=10.0,
    )
    assert abs(float(found) - 400.0) < 6.2 * 20.0


@pytest.mark.parametrize("bad", [math.inf, math.nan, 1e30])
def test_a_record_whose_gradient_is_not_finite_counts_as_zero(bad: float) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    x, y = torch.randn(RECORDS, 4), torch.randint(0, 3, (RECORDS,))
    expected, _ = torch_models.slow_clipped_sum(
        model,
        lambda m, i: torch_models.cross_entropy(m(x[i : i + 1]), y[i : i + 1]),
        list(range(1, RECORDS)),
        NORM,
    )
    x[0, 0] = bad
    assert_equal(one_step(model, (x, y), loss=torch_models.cross_entropy), expected)


def test_weights_decay_and_the_schedule_apply_to_the_step() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    x = torch.ones(4, 1)
    run = started(4, noise_multiplier=NO_NOISE, steps=2)
    odp.train(
        run,
        model,
        (x, x),
        loss=lambda output, target: output.sum(),
        optimizer=lambda weights, rate: torch.optim.SGD(weights, lr=rate, weight_decay=0.1),
        learning_rate=0.5,
        schedule=Schedule("linear"),
        score=None,
    )
    first = 1.0 - 0.5 * (1.0 + 0.1)
    assert model.weight.item() == pytest.approx(first - 0.25 * (1.0 + 0.1 * first), abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_last_weights_are_averaged_as_the_schedule_says(share: float, dtype: Any) -> None:
    model = nn.Linear(1, 1, bias=False, dtype=dtype)
    nn.init.zeros_(model.weight)
    x = torch.ones(4, 1, dtype=dtype)
    run = started(4, noise_multiplier=NO_NOISE, steps=4)
    arguments = {**PLAIN, "clipping_norm": 1.0, "schedule": Schedule("constant", share)}
    odp.train(
        run,
        model,
        (x, x),
        loss=lambda output, target: output.sum(),
        **{"score": None, **arguments},
    )
    # After the steps the weight is -1, -2, -3, -4.
    assert model.weight.item() == pytest.approx({0.0: -4.0, 0.5: -3.5, 1.0: -2.5}[share], abs=1e-3)


def test_records_of_several_parts_and_of_names() -> None:
    torch.manual_seed(0)
    x, y, weight = torch.randn(RECORDS, 4), torch.randint(0, 3, (RECORDS,)), torch.rand(RECORDS)
    model = nn.Linear(4, 3)

    def of_parts(m: Any, x: Any, y: Any, weight: Any) -> Any:
        return weight * torch_models.cross_entropy(m(x), y)

    expected, _ = torch_models.slow_clipped_sum(
        model, lambda m, i: of_parts(m, x[i], y[i], weight[i]), list(range(RECORDS)), NORM
    )
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert_equal(one_step(model, (x, y, weight), record_loss=of_parts), expected)
    model.load_state_dict(start)
    named = {"x": x, "y": y, "weight": weight.numpy()}
    assert_equal(one_step(model, named, record_loss=lambda m, r: of_parts(m, **r)), expected)
    model.load_state_dict(start)
    items = [{"x": x[i], "y": y[i], "weight": weight[i]} for i in range(RECORDS)]
    assert_equal(one_step(model, items, record_loss=lambda m, r: of_parts(m, **r)), expected)


@pytest.mark.promise("gradients")
@pytest.mark.filterwarnings("ignore:The loss has class weights")
def test_class_weights_ignored_targets_and_token_means_are_those_of_one_record() -> None:
    """In a mean over a batch a record moves the gradients of others by dozens of norms."""
    torch.manual_seed(0)
    x = torch.randn(RECORDS, 4)
    y = torch.randint(0, 3, (RECORDS,))
    y[0] = 2
    class_weights = torch.tensor([1.0, 1.0, 1000.0])
    model = nn.Linear(4, 3)

    def loss(output: Any, target: Any) -> Any:
        return torch_models.cross_entropy(output, target, weight=class_weights, ignore_index=1)

    def of_record(m: Any, i: int) -> Any:
        if y[i] == 1:  # A record without a target: 0 / 0, which is no number and counts as zero.
            return 0.0 * m(x[i : i + 1]).sum()
        return torch_models.cross_entropy(m(x[i : i + 1]), y[i : i + 1], weight=class_weights)

    expected, _ = torch_models.slow_clipped_sum(model, of_record, list(range(RECORDS)), NORM)
    assert_equal(one_step(model, (x, y), loss=loss), expected)


@pytest.mark.promise("gradients")
def test_autocast_around_a_training_does_not_round_its_sums() -> None:
    torch.manual_seed(0)
    model, n = nn.Linear(400, 50), 400
    x, y = 3.0 * torch.rand(n, 400), torch.zeros(n, dtype=torch.long)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    sums = []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for count in (n, n - 1):
            model.load_state_dict(start)
            records = (x[:count], y[:count])
            sums.append(one_step(model, records, count, loss=torch_models.cross_entropy))
    # A sum in half precision moves by 1.2 norms.
    assert float((sums[0] - sums[1]).norm()) < NORM * 1.01
