"""A record whose gradient depends on others of its batch is refused before any step is taken."""

from __future__ import annotations

import copy
import random
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
    refused_at_the_end,
    torch,
    train,
)

import optuna_dp as odp
from optuna_dp.errors import PlanError

pytestmark = pytest.mark.filterwarnings("ignore")
functional = torch.nn.functional
WORDS = torch.arange(RECORDS * 6).reshape(RECORDS, 6) % 11
PADDED = torch.where(torch.arange(6) < 1 + (torch.arange(RECORDS) % 6)[:, None], WORDS, 0)


# Two batches can be alike by chance, such as in the mean of their class weights: in one training
# of fifty at most. Five in a row are, less than once in a hundred million times.
ATTEMPTS = 5


def refused(
    loss: Any = cross_entropy,
    module: Any = None,
    physical_batch_size: int | None = None,
    **settings: Any,
) -> None:
    """A training of a plain loop is refused, and its weights are as they were."""
    for _ in range(ATTEMPTS):
        begun, given = begin(), parts(module=copy.deepcopy(module), **settings)
        before = {name: value.clone() for name, value in given["module"].state_dict().items()}
        private, optimizer, batches = odp.opacus.make_private(
            begun.run, **given, physical_batch_size=physical_batch_size
        )
        try:
            train(private, optimizer, batches, loss)
        except PlanError as refusal:
            first = refusal
            break
    else:
        pytest.fail("none of the trainings was refused")
    after = given["module"].state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert batches.accountant.history == []
    with refused_at_the_end(begun, first):
        pass


def accepted(loss: Any = cross_entropy, **settings: Any) -> None:
    begun = begin()
    private, optimizer, batches = odp.opacus.make_private(begun.run, **parts(**settings))
    train(private, optimizer, batches, loss)
    begun.end()
    assert begun.is_finished


def class_weights(private: Any, batch: Any) -> Any:
    weight = torch.tensor([1.0, 5.0, 25.0])
    return functional.cross_entropy(private(batch[0]), batch[1], weight=weight)


def some_ignored(private: Any, batch: Any) -> Any:
    return functional.cross_entropy(private(batch[0]), batch[1], ignore_index=2)


def summed(private: Any, batch: Any) -> Any:
    return functional.cross_entropy(private(batch[0]), batch[1], reduction="sum") / 20


def contrastive(private: Any, batch: Any) -> Any:
    out = functional.normalize(private(batch[0]), dim=1)
    return functional.cross_entropy(out @ out.T.detach(), torch.arange(len(out)))


def of_the_neighbour(private: Any, batch: Any) -> Any:
    out = private(batch[0])
    return ((out - out.roll(1, 0).detach()) ** 2).mean()


def centred(private: Any, batch: Any) -> Any:
    return functional.cross_entropy(private(batch[0] - batch[0].mean(0)), batch[1])


@pytest.mark.promise("own-loop")
@pytest.mark.parametrize(
    "loss", [class_weights, some_ignored, summed, contrastive, of_the_neighbour, centred]
)
def test_a_loss_of_several_records_is_refused(loss: Any) -> None:
    refused(loss)


def weights_by_record(private: Any, batch: Any) -> Any:
    weight = torch.tensor([1.0, 5.0, 25.0])[batch[1]]
    return (
        functional.cross_entropy(private(batch[0]), batch[1], reduction="none") * weight
    ).mean()


def test_the_remedy_is_accepted() -> None:
    accepted(weights_by_record)


class Tagger(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, dropout: Any = None) -> None:
        super().__init__()
        self.words, self.out = torch.nn.Embedding(11, 4), torch.nn.Linear(4, 11)
        self.dropout = dropout or torch.nn.Identity()

    def forward(self, words: Any) -> Any:
        return self.out(self.dropout(self.words(words)))


def mean_over_tokens(private: Any, batch: Any) -> Any:
    out = private(batch[0])
    return functional.cross_entropy(out.flatten(0, 1), batch[0].flatten(), ignore_index=0)


def mean_within_records(private: Any, batch: Any) -> Any:
    out, words = private(batch[0]), batch[0]
    each = functional.cross_entropy(out.transpose(1, 2), words, reduction="none")
    kept = (words != 0).float()
    return ((each * kept).sum(1) / kept.sum(1).clamp(min=1.0)).mean()


def test_a_mean_over_all_tokens_is_refused_and_one_within_records_accepted() -> None:
    sentences = torch.utils.data.TensorDataset(PADDED)
    refused(mean_over_tokens, module=Tagger(), dataset=sentences)
    accepted(mean_within_records, module=Tagger(), dataset=sentences)


class ByFunction(torch.nn.Module):  # type: ignore[misc]
    """Dropout that is no layer, so that it cannot be switched off."""

    def forward(self, x: Any) -> Any:
        return functional.dropout(x, 0.5, self.training)


@pytest.mark.parametrize("dropout", [torch.nn.Dropout(0.5), ByFunction()])
def test_dropout_hides_nothing_and_is_no_reason_to_refuse(dropout: Any) -> None:
    sentences = torch.utils.data.TensorDataset(PADDED)
    refused(mean_over_tokens, module=Tagger(dropout), dataset=sentences)
    accepted(mean_within_records, module=Tagger(dropout), dataset=sentences)


def test_dropout_is_on_again_after_the_check() -> None:
    module = Tagger(torch.nn.Dropout(0.5))
    begun = begin()
    private, optimizer, batches = odp.opacus.make_private(
        begun.run, **parts(module=module, dataset=torch.utils.data.TensorDataset(PADDED))
    )
    rates = []
    for batch in batches:
        rates.append(module.dropout.p)
        mean_within_records(private, batch).backward()
        optimizer.step()
        assert module.dropout.p == 0.5
    assert rates == [0.0, 0.0, *[0.5] * (len(batches) - 2)]


def test_a_look_at_the_first_batch_does_not_change_the_randomness_of_the_check() -> None:
    begun = begin()
    sentences = torch.utils.data.TensorDataset(PADDED)
    private, optimizer, batches = odp.opacus.make_private(
        begun.run, **parts(module=Tagger(ByFunction()), dataset=sentences)
    )
    next(iter(batches))
    torch.randn(7)
    train(private, optimizer, batches, mean_within_records)
    begun.end()
    assert begun.is_finished


class Augmented(torch.utils.data.Dataset):  # type: ignore[misc]
    """Changes a record each time it is read."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> Any:
        return X[index] + 0.1 * torch.randn(5) * random.random() * np.random.rand(), Y[index]


def test_augmentation_record_by_record_is_accepted() -> None:
    accepted(dataset=Augmented())


def noise_in_the_loop(private: Any, batch: Any) -> Any:
    return cross_entropy(private, (batch[0] + 0.1 * torch.randn_like(batch[0]), batch[1]))


def noisy_and_weighted(private: Any, batch: Any) -> Any:
    return class_weights(private, (batch[0] + 0.1 * torch.randn_like(batch[0]), batch[1]))


def test_randomness_in_the_loop_is_accepted_and_hides_no_mixing() -> None:
    accepted(noise_in_the_loop)
    refused(noisy_and_weighted)


class Mixing(torch.nn.Module):  # type: ignore[misc]
    """Attention among the records of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = dense(5, 5), dense()

    def forward(self, x: Any) -> Any:
        out = self.first(x)
        return self.last(torch.softmax(out @ out.T, 1) @ out)


@pytest.mark.promise("own-loop")
def test_a_layer_that_mixes_records_is_refused() -> None:
    refused(module=Mixing())


class Windows(torch.nn.Module):  # type: ignore[misc]
    """Moves parts of a record into the axis of the records."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = dense(1, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x.reshape(-1, 1)).reshape(len(x), 5, 3).mean(1)


class TimeFirst(Windows):
    def forward(self, x: Any) -> Any:
        return self.layer(x.T[..., None]).mean(0)


@pytest.mark.parametrize("module", [Windows(), TimeFirst()])
def test_other_things_than_records_in_the_first_axis_are_refused(module: Any) -> None:
    refused(module=module)


def test_a_record_that_is_left_out_is_refused() -> None:
    refused(lambda private, batch: cross_entropy(private, (batch[0][1:], batch[1][1:])))


def by_length(items: list[Any]) -> Any:
    items = sorted(items, key=lambda item: float(item[0].sum()))
    return torch.stack([x for x, _ in items]), torch.stack([y for _, y in items])


def test_a_collate_function_that_sorts_records_is_refused() -> None:
    refused(collate_fn=by_length)


def test_batches_of_ones_own_are_refused() -> None:
    own = iter(loader_of(batch_size=28))
    refused(lambda private, batch: cross_entropy(private, next(own)))


class Bias(torch.nn.Module):  # type: ignore[misc]
    """Positions that are the same for all records."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.positions = dense(), torch.nn.Embedding(1, 5)

    def forward(self, x: Any) -> Any:
        return self.layer(x + self.positions(torch.zeros(1, dtype=torch.long)))


def test_an_input_shared_by_all_records_is_refused() -> None:
    refused(module=Bias())


@pytest.mark.parametrize("size", [1, 4, 16])
def test_physical_batches_are_checked_too(size: int) -> None:
    refused(class_weights, physical_batch_size=size)
