"""What a step adds to the weights: clipped sums, each record once, and the plan's noise."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from opacus_support import (
    RECORDS,
    X,
    Y,
    begin,
    cross_entropy,
    dense,
    loader_of,
    parts,
    torch,
    train,
)

import optuna_dp as odp

pytestmark = pytest.mark.filterwarnings("ignore")
# Every record joins every step, so a step without noise is known beforehand.
ALL = odp.plan_budget(epsilon=3.0, records=RECORDS, batch_size=RECORDS, epochs=3, pilots=0)
NORM = 0.7


def clipped_mean(module: Any, x: Any, y: Any) -> list[Any]:
    """The mean of clipped gradients, one record at a time."""
    totals = [torch.zeros_like(p) for p in module.parameters()]
    for i in range(len(x)):
        loss = cross_entropy(module, (x[i : i + 1], y[i : i + 1]))
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        norm = torch.sqrt(sum((g**2).sum() for g in gradients))
        for total, gradient in zip(totals, gradients, strict=True):
            if torch.isfinite(norm):
                total += gradient * min(1.0, NORM / max(float(norm), 1e-30))
    return [total / RECORDS for total in totals]


@pytest.mark.parametrize("physical_batch_size", [None, 64])
def test_steps_without_noise_are_those_of_clipped_sums(physical_batch_size: int | None) -> None:
    x = X.clone()
    x[3, 0] = float("inf")  # counts as zero
    x[4] *= 1e30
    module, begun = dense(), begin(ALL)
    expected = dense()
    expected.load_state_dict(module.state_dict())
    data = torch.utils.data.TensorDataset(x, Y)
    private, optimizer, batches = odp.opacus.make_private(
        begun.run,
        **parts(module, data, rate=1.0),
        clipping_norm=NORM,
        physical_batch_size=physical_batch_size,
    )
    optimizer.noise_multiplier = 0.0
    weights = []
    for batch in batches:
        cross_entropy(private, batch).backward()
        optimizer.step()
        weights.append(module.weight.detach().clone())
    # The gradients of the first two steps are those at the first weights, if a step is one batch.
    steps = [2, 1] if physical_batch_size is None else [1, 1, 1]
    for times in steps:
        gradients = clipped_mean(expected, x, Y)
        with torch.no_grad():
            for parameter, gradient in zip(expected.parameters(), gradients, strict=True):
                parameter -= times * gradient
    for name, value in module.state_dict().items():
        assert torch.allclose(value, expected.state_dict()[name], atol=1e-5)
    assert torch.isfinite(module.weight).all()
    if physical_batch_size is not None:
        # Weights move at the last piece of a step only.
        pieces = len(batches) // ALL.final.steps
        changes = [not torch.equal(a, b) for a, b in itertools.pairwise(weights)]
        assert [i + 1 for i, change in enumerate(changes) if change] == [
            pieces * step - 1 for step in range(1, ALL.final.steps + 1)
        ]


def moved(kind: Any = torch.float32) -> Any:
    """What noise alone does to the weights: no record has a gradient."""
    torch.manual_seed(0)
    np.random.seed(0)
    begun = begin()
    module = torch.nn.Linear(5, 40, bias=False).to(kind)
    x = torch.zeros(RECORDS, 5, dtype=kind)
    before = module.weight.detach().clone()
    private, optimizer, batches = odp.opacus.make_private(
        begun.run,
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
        data_loader=loader_of(torch.utils.data.TensorDataset(x, Y)),
        clipping_norm=0.5,
    )
    train(private, optimizer, batches)
    return ((module.weight.detach() - before) * 20 / 0.5).double().numpy().ravel(), begun.run


@pytest.mark.promise("noise")
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_the_noise_is_the_planned_one_and_no_seed_repeats_it(kind: Any) -> None:
    first, run = moved(kind)
    second, _ = moved(kind)
    assert not np.allclose(first, second)
    both = np.concatenate([first, second])
    # Of 400 sums the spread is off by 20 % once in ten million times.
    assert np.std(both) == pytest.approx(run.noise_multiplier * np.sqrt(run.steps), rel=0.2)
    assert abs(np.mean(both)) < 5.5 * np.std(both) / np.sqrt(len(both))


def test_a_closure_and_a_schedule_are_those_of_torch() -> None:
    begun, given = begin(), parts(rate=1.0)
    private, optimizer, batches = odp.opacus.make_private(begun.run, **given)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=len(batches) + 1)
    losses = []
    for batch in batches:

        def closure(batch: Any = batch) -> Any:
            optimizer.zero_grad()
            loss = cross_entropy(private, batch)
            loss.backward()
            return loss

        losses.append(float(optimizer.step(closure)))
        schedule.step()
    begun.end()
    assert len(losses) == begun.run.steps == begun.recorded_steps
    assert optimizer.param_groups[0]["lr"] < 1e-3


def test_autocast_around_a_step_does_not_round_its_sum() -> None:
    torch.manual_seed(0)
    n, module, begun = 1000, dense(400, 50), begin(ALL)
    x, y = 3.0 * torch.rand(n, 400), torch.zeros(n).long()
    data = torch.utils.data.TensorDataset(x[:RECORDS], y[:RECORDS])
    private, optimizer, _ = odp.opacus.make_private(
        begun.run, **parts(module, data, rate=1.0), clipping_norm=NORM
    )
    sums = []
    for count in (n, n - 1):
        for parameter in private.parameters():
            parameter.grad_sample = None
        cross_entropy(private, (x[:count], y[:count])).backward()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            exact_step = optimizer.exact_step()
            sums.append(torch.cat(optimizer.clipped_sums(exact_step)))
    # A sum in half precision moves by 1.9 norms.
    assert float((sums[0] - sums[1]).norm()) <= exact_step.units
