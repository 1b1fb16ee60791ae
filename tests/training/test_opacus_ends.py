"""What a training with Opacus did is judged when its trial ends, however its loop was left."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from opacus_support import (
    PLAN,
    Begun,
    begin,
    cross_entropy,
    parts,
    refused_at_the_end,
    torch,
    train,
)

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError, PlanError

pytestmark = pytest.mark.filterwarnings("ignore")


def started(**settings: Any) -> tuple[Begun, Any, Any, Any, Any]:
    begun, given = begin(), parts(**settings)
    private, optimizer, batches = odp.opacus.make_private(begun.run, **given)
    return begun, private, optimizer, batches, given


def step(private: Any, optimizer: Any, batch: Any) -> None:
    optimizer.zero_grad()
    cross_entropy(private, batch).backward()
    optimizer.step()


def test_a_whole_training_is_recorded_and_finished() -> None:
    begun, private, optimizer, batches, _ = started()
    assert not begun.is_finished
    assert train(private, optimizer, batches) == len(batches) == begun.run.steps
    begun.end()
    assert begun.is_finished
    assert begun.recorded_steps == begun.run.steps


def broken_off(private: Any, optimizer: Any, batches: Any) -> None:
    for number, batch in enumerate(batches):
        step(private, optimizer, batch)
        if number == 3:
            break


def sliced(private: Any, optimizer: Any, batches: Any) -> None:
    for batch in itertools.islice(batches, 4):
        step(private, optimizer, batch)


def zipped(private: Any, optimizer: Any, batches: Any) -> None:
    for _, batch in zip(range(4), batches, strict=False):
        step(private, optimizer, batch)


def zipped_the_other_way(private: Any, optimizer: Any, batches: Any) -> None:
    for batch, _ in zip(batches, range(4), strict=False):
        step(private, optimizer, batch)


def in_two_passes(private: Any, optimizer: Any, batches: Any) -> None:
    for _ in range(2):
        for batch in itertools.islice(batches, 2):
            step(private, optimizer, batch)


@pytest.mark.parametrize("loop", [broken_off, sliced, zipped, zipped_the_other_way, in_two_passes])
def test_a_loop_that_is_left_is_recorded_with_its_steps(loop: Any) -> None:
    begun, private, optimizer, batches, _ = started()
    loop(private, optimizer, batches)
    begun.end()
    assert begun.is_finished
    assert begun.recorded_steps == 4


def test_a_look_at_a_batch_costs_nothing() -> None:
    begun, private, optimizer, batches, _ = started()
    first = next(iter(batches))
    again = next(iter(batches))
    assert torch.equal(first[0], again[0])
    assert train(private, optimizer, batches) == begun.run.steps
    begun.end()
    assert begun.recorded_steps == begun.run.steps


@pytest.mark.promise("own-loop")
def test_a_second_pass_is_refused_and_so_is_a_step_without_a_batch() -> None:
    begun, private, optimizer, batches, _ = started()
    train(private, optimizer, batches)
    with pytest.raises(PlanError):
        train(private, optimizer, batches)
    optimizer.zero_grad()
    private(torch.ones(4, 5)).sum().backward()
    with pytest.raises(PlanError):
        optimizer.step()
    begun.end()
    assert begun.recorded_steps == begun.run.steps


def test_a_second_training_in_a_trial_is_refused_before_its_first_step() -> None:
    begun, *_ = started()
    with pytest.raises(PlanError):
        odp.opacus.make_private(begun.run, **parts())


def test_numbers_of_a_plan_cannot_train() -> None:
    with pytest.raises(PlanError):
        odp.opacus.make_private(PLAN.final, **parts())


def test_a_training_without_a_step_is_refused_at_the_end() -> None:
    begun, private, _, _batches, given = started()
    with refused_at_the_end(begun):
        # The optimizer that was handed in, on a loader of one's own.
        for batch in itertools.islice(given["data_loader"], 3):
            step(private, given["optimizer"], batch)


def test_one_batch_alone_is_no_step() -> None:
    begun, private, optimizer, batches, _ = started()
    with refused_at_the_end(begun):
        step(private, optimizer, next(iter(batches)))


def test_the_optimizer_that_was_handed_in_may_not_step() -> None:
    _, private, _, batches, given = started()
    with pytest.raises(PlanError):
        train(private, given["optimizer"], batches)


def test_moving_a_model_and_loading_its_own_weights_changes_nothing() -> None:
    begun, private, optimizer, batches, given = started()
    train(private, optimizer, batches)
    module = given["module"]
    module.load_state_dict({k: v.clone() for k, v in module.state_dict().items()})
    module.eval().cpu()
    begun.end()
    assert begun.is_finished


def skipping(private: Any, optimizer: Any, batches: Any) -> None:
    for number, batch in enumerate(batches):
        if number == 2:
            continue
        step(private, optimizer, batch)


def adding_up(private: Any, optimizer: Any, batches: Any) -> None:
    for number, batch in enumerate(batches):
        cross_entropy(private, batch).backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def signalling(private: Any, optimizer: Any, batches: Any) -> None:
    for number, batch in enumerate(batches):
        optimizer.signal_skip_step(number % 4 < 3)
        step(private, optimizer, batch)


def managing_memory(private: Any, optimizer: Any, batches: Any) -> None:
    from opacus.utils.batch_memory_manager import BatchMemoryManager

    with BatchMemoryManager(
        data_loader=batches, max_physical_batch_size=8, optimizer=optimizer
    ) as pieces:
        train(private, optimizer, pieces)


def backward_twice(private: Any, optimizer: Any, batches: Any) -> None:
    for batch in batches:
        for _ in range(2):
            cross_entropy(private, batch).backward()
        optimizer.step()


@pytest.mark.parametrize(
    "loop", [skipping, adding_up, signalling, managing_memory, backward_twice]
)
def test_one_batch_has_one_step(loop: Any) -> None:
    _, private, optimizer, batches, _ = started()
    with pytest.raises(PlanError, match="physical_batch_size"):
        loop(private, optimizer, batches)


def test_nothing_has_to_be_cleared() -> None:
    begun, private, optimizer, batches, _ = started()
    for batch in batches:
        cross_entropy(private, batch).backward()
        optimizer.step()
    begun.end()
    assert begun.is_finished


def test_the_accountant_may_be_handed_in_and_another_one_may_not() -> None:
    begun, private, optimizer, batches, _ = started()
    train(private, optimizer, batches)
    begun.run.spent(batches.accountant)
    with pytest.raises(PlanError, match="make_private"):
        begun.run.spent(odp.dp_sgd(noise_multiplier=9.0, sample_rate=0.01, steps=1))
    begun.end()
    assert begun.is_finished


def test_one_module_for_all_trials_is_refused_before_the_run_is_charged() -> None:
    first, private, optimizer, batches, given = started()
    train(private, optimizer, batches)
    first.end()
    second = begin()
    with pytest.raises(InvalidArgumentError) as refusal:
        odp.opacus.make_private(second.run, **given)
    assert refusal.value.argument == "module"
    assert second.claims == []
    # The trial is as free as it was.
    odp.opacus.make_private(second.run, **parts())


@pytest.mark.promise("own-loop")
@pytest.mark.parametrize(
    "change",
    [
        lambda module: module.requires_grad_(False),
        lambda module: setattr(module, "weight", torch.nn.Parameter(torch.ones(3, 5))),
    ],
)
def test_weights_that_are_frozen_or_replaced_meanwhile_are_refused(change: Any) -> None:
    begun, private, optimizer, batches, given = started()
    train(private, optimizer, batches)
    with refused_at_the_end(begun):
        change(given["module"])


def test_a_refusal_that_is_caught_is_a_refusal_still() -> None:
    begun, private, optimizer, batches, given = started()
    passes = iter(batches)
    for _ in range(3):
        step(private, optimizer, next(passes))
    batch = next(passes)
    given["module"].weight.requires_grad_(False)
    for _ in range(2):
        with pytest.raises(PlanError) as caught:
            step(private, optimizer, batch)
    with refused_at_the_end(begun, caught.value):
        pass
    assert begun.recorded_steps == 3


def test_no_step_after_the_end_of_the_trial() -> None:
    begun, private, optimizer, batches, _ = started()
    for batch in itertools.islice(batches, 3):
        step(private, optimizer, batch)
    begun.end()
    with pytest.raises(PlanError):
        step(private, optimizer, next(iter(batches)))


def test_after_a_refused_step_a_right_one_is_refused_too() -> None:
    begun, private, optimizer, batches, _ = started()
    x, y = next(iter(batches))
    cross_entropy(private, (x[1:], y[1:])).backward()
    with pytest.raises(PlanError) as first:
        optimizer.step()
    with pytest.raises(PlanError) as second:
        step(private, optimizer, (x, y))
    assert str(second.value) == str(first.value)
    with refused_at_the_end(begun, first.value):
        pass


def test_a_layer_that_is_unfrozen_meanwhile_is_refused() -> None:
    """Gradual unfreezing: an optimizer of the loop's own would move it without noise."""
    model = torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    model[0].requires_grad_(False)
    begun, private, optimizer, batches, _ = started(module=model)
    passes = iter(batches)
    for _ in range(3):
        step(private, optimizer, next(passes))
    model[0].requires_grad_(True)
    with pytest.raises(PlanError) as caught:
        next(passes)
    with refused_at_the_end(begun, caught.value):
        pass
