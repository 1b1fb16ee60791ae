"""What ``odp.opacus.make_private`` takes, and what it refuses before a run is charged."""

from __future__ import annotations

import logging
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from opacus_support import PLAN, RECORDS, X, Y, begin, cross_entropy, dense, parts, torch, train
from refusals import refuses

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError, PlanError

pytestmark = pytest.mark.filterwarnings("ignore")
data = torch.utils.data
TABLE = data.TensorDataset(X, Y)


def refused(argument: str, given: Any = None, **settings: Any) -> InvalidArgumentError:
    """A set-up is refused for this argument, and nothing is changed by it."""
    begun = begin()
    given = parts() if given is None else given
    had_hooks = hasattr(given["module"], "autograd_grad_sample_hooks")
    with refuses(argument) as refusal:
        odp.opacus.make_private(begun.run, **given, **settings)
    assert begun.claims == []
    assert hasattr(given["module"], "autograd_grad_sample_hooks") == had_hooks
    return refusal.value


def accepted(loss: Any = cross_entropy, **settings: Any) -> Any:
    begun, given = begin(), parts(**settings)
    private, optimizer, batches = odp.opacus.make_private(begun.run, **given)
    train(private, optimizer, batches, loss)
    begun.end()
    assert begun.is_finished
    return given["module"]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("max_grad_norm", "clipping_norm=..."),
        ("noise_multiplier", ""),
        ("target_epsilon", ""),
        ("target_delta", ""),
        ("epochs", ""),
        ("poisson_sampling", ""),
        ("batch_first", "batch_first=True"),
        ("max_physical_batch_size", "physical_batch_size=..."),
        ("something", "clipping_norm=, physical_batch_size="),
    ],
)
def test_familiar_names_are_answered(name: str, remedy: str) -> None:
    fix = refused(name, **{name: 1.0}).fix
    assert remedy in fix
    # The answer to an unheard-of name lists all arguments.
    assert (fix == refused("unheard_of", unheard_of=1.0).fix) == (name == "something")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("clipping_norm", float("inf")),
        ("clipping_norm", 0.0),
        ("physical_batch_size", 0),
        ("physical_batch_size", 2.5),
    ],
)
def test_numbers_that_are_none(argument: str, value: float) -> None:
    refused(argument, **{argument: value})


def subset(*indices: int) -> Any:
    return data.Subset(TABLE, list(indices))


HALVES = data.Subset(TABLE, range(100)), data.Subset(TABLE, range(100, 200))


class Stream(data.IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Any:
        return iter(TABLE)


@pytest.mark.promise("own-loop")
@pytest.mark.parametrize(
    "loader",
    [
        TABLE,
        data.DataLoader(Stream()),
        data.DataLoader(TABLE, sampler=data.SubsetRandomSampler(range(150))),
        data.DataLoader(TABLE, sampler=data.WeightedRandomSampler([1.0] * 200, 200)),
        data.DataLoader(TABLE, sampler=data.RandomSampler(TABLE, True)),
        data.DataLoader(TABLE, batch_sampler=[[1, 2]] * 9),
        data.DataLoader(TABLE, batch_size=None),
        data.DataLoader(data.ConcatDataset([TABLE] * 2)),
        data.DataLoader(data.ConcatDataset([data.TensorDataset(X, Y)] * 2)),
        data.DataLoader(data.ConcatDataset([data.TensorDataset(X, Y), data.TensorDataset(X, Y)])),
        data.DataLoader(data.ConcatDataset([*HALVES, subset(150)])),
        data.DataLoader(subset(*range(150), *range(50))),
        data.DataLoader(subset(*range(200), -1)),
        data.DataLoader(subset()),
    ],
)
def test_loaders_that_are_refused(loader: Any) -> None:
    refused("data_loader", parts() | {"data_loader": loader})


@pytest.mark.promise("own-loop")
@pytest.mark.parametrize(
    "records", [data.Subset(TABLE, range(99)), data.TensorDataset(torch.randn(401, 5))]
)
def test_another_number_of_records_than_planned_is_refused(records: Any) -> None:
    refused("data_loader", parts() | {"data_loader": data.DataLoader(records)})


@pytest.mark.parametrize(
    "loader",
    [
        data.DataLoader(TABLE, batch_size=16, shuffle=True, drop_last=True),
        data.DataLoader(data.ConcatDataset(HALVES)),
        data.DataLoader(data.Subset(TABLE, range(199)), generator=torch.Generator()),
    ],
)
def test_loaders_that_are_taken(loader: Any, caplog: Any) -> None:
    begun = begin()
    private, optimizer, batches = odp.opacus.make_private(
        begun.run, **parts() | {"data_loader": loader}
    )
    train(private, optimizer, batches)
    assert len(batches.dataset) == len(loader.dataset)
    assert batches.batch_size == PLAN.final.batch_size
    assert not caplog.records


def test_a_number_of_records_that_is_a_little_off_is_a_warning(caplog: Any) -> None:
    with caplog.at_level(logging.WARNING, logger="optuna_dp"):
        odp.opacus.make_private(begin().run, **parts(dataset=data.Subset(TABLE, range(170))))
    assert "200" in caplog.text


def trained_before() -> Any:
    given = parts()
    odp.opacus.make_private(begin().run, **given)
    return given


def by_opacus() -> Any:
    import opacus

    given = parts()
    module, optimizer, loader = opacus.PrivacyEngine().make_private(
        **given, noise_multiplier=1.0, max_grad_norm=1.0
    )
    return {"module": module, "optimizer": optimizer, "data_loader": loader}


def of_a_copy() -> Any:
    return parts() | {"module": dense()}


def without_a_layer() -> Any:
    module = torch.nn.Sequential(dense(5, 5), dense())
    return parts(module) | {"optimizer": torch.optim.SGD(module[1].parameters(), lr=0.1)}


def with_optimizer(kind: Any) -> Any:
    given = parts()
    return given | {"optimizer": kind(given["module"].parameters(), lr=0.1)}


def bag() -> Any:
    return parts(torch.nn.EmbeddingBag(11, 3))


def in_eval_mode() -> Any:
    return parts(dense().eval())


def batch_normalisation(**changes: Any) -> Any:
    return parts(torch.nn.Sequential(torch.nn.BatchNorm1d(5, **changes), dense()))


def frozen_normalisation(kind: Any = torch.nn.BatchNorm1d) -> Any:
    layer = kind(5).requires_grad_(False)
    return parts(torch.nn.Sequential(layer, dense()))


def tracking_instance_norm() -> Any:
    layer = torch.nn.InstanceNorm1d(5, track_running_stats=True)
    return parts(torch.nn.Sequential(layer, torch.nn.Flatten(), dense(5)))


def not_made_yet() -> Any:
    module = torch.nn.LazyLinear(3)
    return {**parts(), "module": module, "optimizer": torch.optim.SGD(module.parameters(), lr=0.1)}


@pytest.mark.parametrize(
    ("make", "argument", "named"),
    [
        (trained_before, "module", "PrivacyEngine"),
        (by_opacus, "module", "PrivacyEngine"),
        (of_a_copy, "optimizer", "module.parameters()"),
        (without_a_layer, "optimizer", "'0.weight'"),
        (lambda: with_optimizer(torch.optim.LBFGS), "optimizer", "LBFGS"),
        (lambda: with_optimizer(torch.optim.SparseAdam), "optimizer", "SparseAdam"),
        (bag, "module", "torch.nn.Embedding"),
        (in_eval_mode, "module", "module.train()"),
        (batch_normalisation, "module", "GroupNorm"),
        (lambda: batch_normalisation(affine=False), "module", "GroupNorm"),
        (
            lambda: batch_normalisation(affine=False, track_running_stats=False),
            "module",
            "GroupNorm",
        ),
        (frozen_normalisation, "module", "eval()"),
        (tracking_instance_norm, "module", "track_running_stats=False"),
        (lambda: parts(torch.nn.LSTM(5, 3, batch_first=True)), "module", "DPLSTM"),
        (not_made_yet, "module", "LazyLinear"),
        (lambda: parts() | {"module": len}, "module", "torch.nn.Module"),
        (lambda: parts() | {"optimizer": 0.1}, "optimizer", "torch.optim.Optimizer"),
    ],
)
def test_modules_and_optimizers_that_are_refused(make: Any, argument: str, named: str) -> None:
    assert named in str(refused(argument, make()))


# The second one mixes no records, so nothing else sees that it keeps statistics of them.
FROZEN = {
    "by the batch": lambda: [torch.nn.BatchNorm1d(5)],
    "by the record": lambda: [
        torch.nn.Unflatten(1, (1, 5)),
        torch.nn.InstanceNorm1d(1, track_running_stats=True),
        torch.nn.Flatten(),
    ],
}


@pytest.mark.promise("own-loop")
@pytest.mark.parametrize("kind", FROZEN)
def test_frozen_normalisation_in_eval_mode_is_taken_and_train_mode_is_seen(kind: str) -> None:
    def module() -> Any:
        layers = torch.nn.Sequential(*FROZEN[kind]()).requires_grad_(False).eval()
        return torch.nn.Sequential(layers, dense())

    accepted(module=module())
    begun = begin()
    private, optimizer, batches = odp.opacus.make_private(begun.run, **parts(module()))
    private.train()  # as most loops do
    with pytest.raises(PlanError):
        train(private, optimizer, batches)
    with pytest.raises(PlanError):
        begun.end()


def test_a_layer_without_a_part_in_the_loss_is_named() -> None:
    module = torch.nn.ModuleDict({"used": dense(), "unused": dense()})
    begun = begin()
    private, optimizer, batches = odp.opacus.make_private(begun.run, **parts(module))
    with pytest.raises(PlanError, match=r"unused\.weight"):
        train(private, optimizer, batches, lambda _, batch: cross_entropy(module["used"], batch))


# Batches that hardly any record joins. Most are empty.
RARE = odp.plan_budget(epsilon=3.0, records=RECORDS, batch_size=0.3, epochs=0.06, pilots=0)
Record = namedtuple("Record", ["x", "y", "name"])
RECORDS_OF_ALL_KINDS = {
    "tuples": TABLE,
    "dicts": [{"x": x, "y": y, "meta": {"name": "a"}} for x, y in zip(X, Y, strict=True)],
    "namedtuples": [Record(x, y, "a") for x, y in zip(X, Y, strict=True)],
}


@pytest.mark.parametrize("kind", RECORDS_OF_ALL_KINDS)
@pytest.mark.parametrize("physical_batch_size", [None, 2])
def test_no_batch_is_empty(kind: str, physical_batch_size: int | None) -> None:
    begun = begin(RARE)
    private, optimizer, batches = odp.opacus.make_private(
        begun.run,
        **parts(dataset=RECORDS_OF_ALL_KINDS[kind]),
        physical_batch_size=physical_batch_size,
    )
    sizes = []

    def loss(private: Any, batch: Any) -> Any:
        x, y = (batch["x"], batch["y"]) if isinstance(batch, dict) else batch[:2]
        sizes.append(len(x))
        return cross_entropy(private, (x, y))

    train(private, optimizer, batches, loss)
    begun.end()
    assert min(sizes) == 1
    assert begun.recorded_steps == RARE.final.steps


def test_workers_load_the_batches() -> None:
    accepted(num_workers=2)


def test_batches_are_poisson_samples() -> None:
    plan = odp.plan_budget(epsilon=3.0, records=RECORDS, batch_size=20, epochs=30, pilots=0)
    begun = begin(plan)
    indices = data.TensorDataset(X, Y, torch.arange(RECORDS))
    private, optimizer, batches = odp.opacus.make_private(begun.run, **parts(dataset=indices))
    joined, sizes = np.zeros(RECORDS), []
    for number, batch in enumerate(batches):
        cross_entropy(private, batch).backward()
        optimizer.step()
        if number >= 2:  # the first two hold records besides those that were drawn
            joined[batch[2]] += 1
            sizes.append(len(batch[2]))
    # Binomial(200, 0.1): mean 20, deviation 4.24. Each bound fails once in ten million runs.
    assert abs(np.mean(sizes) - 20) < 5.5 * 4.25 / np.sqrt(len(sizes))
    assert 0.77 < np.std(sizes) / 4.24 < 1.24
    assert abs(joined - len(sizes) * 0.1).max() < 6.5 * np.sqrt(len(sizes) * 0.09)


def test_physical_batches_are_small_and_their_number_is_public() -> None:
    numbers = set()
    for _ in range(2):
        begun = begin()
        private, optimizer, batches = odp.opacus.make_private(
            begun.run, **parts(), physical_batch_size=12
        )
        sizes = []
        for batch in batches:
            cross_entropy(private, batch).backward()
            optimizer.step()
            sizes.append(len(batch[0]))
        assert max(sizes[2:]) <= 12
        assert max(sizes[:2]) <= 12 + 10
        numbers.add((len(sizes), len(batches)))
        begun.end()
        assert begun.recorded_steps == PLAN.final.steps
    assert len(numbers) == 1
