"""Gradients of embeddings by the rows that a record looks up: those of the whole table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch_models  # noqa: E402
from started import NO_NOISE, started  # noqa: E402
from torch import nn  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.training import each_record, exact_step  # noqa: E402
from optuna_dp.training.exact_step import ExactStep  # noqa: E402
from optuna_dp.training.record_functions import loss_of_pair  # noqa: E402
from optuna_dp.training.records import read_records  # noqa: E402
from optuna_dp.training.torch_learner import TorchLearner  # noqa: E402

cross_entropy = nn.functional.cross_entropy
N, TOKENS, LENGTH, WIDTH = 21, 40, 6, 5
TEXTS = torch.randint(0, TOKENS, (N, LENGTH), generator=torch.Generator().manual_seed(0))
TEXTS[:, 2] = TEXTS[:, 0]  # Each text has a token twice, and some have the padding.
TEXTS[::3, 4:] = 0
LABELS = torch.arange(N) % 3


class Words(nn.Module):
    """The mean of a text's embeddings, with its places, and a class."""

    def __init__(self, places: bool = False, **options: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(TOKENS, WIDTH, **options)
        self.places = nn.Embedding(5 * LENGTH, WIDTH) if places else None
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, tokens: Any) -> Any:
        found = self.words(tokens)
        if self.places is not None:
            found = (found + self.places(torch.arange(LENGTH))).tanh()
        return self.head(found.mean(1))


class TwoLookups(Words):
    """One table for the first tokens and the last ones, in two calls."""

    def forward(self, tokens: Any) -> Any:
        first, last = self.words(tokens[:, :2]), self.words(tokens[:, 2:])
        return self.head((first.mean(1) * last.mean(1)).sin())


class Tied(Words):
    """The table scores tokens as well."""

    def forward(self, tokens: Any) -> Any:
        return self.words(tokens).mean(1) @ self.words.weight.T


class Bag(nn.Module):
    def __init__(self, mode: str, **options: Any) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(TOKENS, WIDTH, mode=mode, **options)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.bag(tokens).sin())


class OnlyTable(nn.Embedding):
    def __init__(self) -> None:
        super().__init__(TOKENS, 3)

    def forward(self, tokens: Any) -> Any:
        return super().forward(tokens).mean(1)


# By rows: which parameters, by their number.
BY_ROWS: dict[str, tuple[Callable[[], nn.Module], list[int]]] = {
    "words": (Words, [0]),
    "padding": (lambda: Words(padding_idx=0), [0]),
    "words and places": (lambda: Words(places=True), [0, 1]),
    "two lookups": (TwoLookups, [0]),
    "only a table": (OnlyTable, [0]),
    "double precision": (lambda: Words().double(), [0]),
    "mean of a bag": (lambda: Bag("mean"), [0]),
    "sum of a bag": (lambda: Bag("sum"), [0]),
    "maximum of a bag": (lambda: Bag("max"), []),
    "bag with padding": (lambda: Bag("mean", padding_idx=0), []),
    "tied": (Tied, []),
    "frequencies": (lambda: Words(scale_grad_by_freq=True), []),
}


def learner_of(model: nn.Module, texts: Any = TEXTS) -> Any:
    learner = TorchLearner(
        model, loss=loss_of_pair(cross_entropy), loss_argument="loss", score=None,
        score_argument="score", chunk_size=8, device=None,
    )  # fmt: skip
    learner.try_out(read_records((texts, LABELS)), None)
    return learner


def whole_sum(learner: Any, indices: Any, norm: float = 0.3) -> Any:
    step = ExactStep(norm, 1.0, learner.weights)
    return torch.cat(learner.clipped_sum(read_records((TEXTS, LABELS)), indices, step))


@pytest.mark.promise("gradients")
@pytest.mark.parametrize("kind", BY_ROWS)
def test_a_step_is_the_clipped_sum_of_whole_gradients(kind: str) -> None:
    torch.manual_seed(0)
    make, by_rows = BY_ROWS[kind]
    model = make()
    losses = learner_of(model)._losses
    assert sorted(losses.of((TEXTS[:8], LABELS[:8]), np.arange(8)).looked_up) == by_rows
    expected, norms = torch_models.slow_clipped_sum(
        model, lambda m, i: cross_entropy(m(TEXTS[i][None]), LABELS[i][None]), list(range(N)), 0.3
    )
    assert max(norms) > 0.3
    before = torch_models.values(model)
    odp.train(
        started(N, noise_multiplier=NO_NOISE), model, (TEXTS, LABELS), loss=cross_entropy,
        score=None,
        optimizer="sgd", learning_rate=1.0, schedule=odp.Schedule("constant"), clipping_norm=0.3,
    )  # fmt: skip
    moved = (before - torch_models.values(model)) * N
    assert torch.allclose(moved.double(), expected.double(), atol=2e-4 * N)


@pytest.mark.promise("gradients")
@pytest.mark.parametrize("kind", [kind for kind, (_, rows) in BY_ROWS.items() if rows])
def test_by_rows_and_whole_gradients_give_the_same_whole_numbers(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to one unit, where norms were added in other runs."""
    torch.manual_seed(0)
    model = BY_ROWS[kind][0]()
    learner_by_rows = learner_of(model)
    monkeypatch.setattr(each_record, "tables_of", lambda *arguments: {})
    learner = learner_of(model)
    for i in range(N):
        by_rows, whole = (whole_sum(each, np.array([i])) for each in (learner_by_rows, learner))
        assert float((by_rows - whole).abs().max()) <= 1.0
        assert torch.equal(by_rows == 0, whole == 0)
        assert float(by_rows.norm()) <= 2**18


@pytest.mark.promise("gradients")
@pytest.mark.parametrize("kind", [kind for kind, (_, rows) in BY_ROWS.items() if rows])
def test_one_record_more_moves_the_sum_by_its_own_row_alone(kind: str) -> None:
    torch.manual_seed(0)
    learner = learner_of(BY_ROWS[kind][0]())
    every = whole_sum(learner, np.arange(N))
    assert torch.equal(every, whole_sum(learner, np.arange(N)[::-1].copy()))
    for left_out in (0, 3, N - 1):
        others = np.delete(np.arange(N), left_out)
        alone = whole_sum(learner, np.array([left_out]))
        assert torch.equal(every, whole_sum(learner, others) + alone)


def test_a_record_with_a_token_beyond_the_table_counts_as_nothing() -> None:
    learner, texts = learner_of(Words()), TEXTS.clone()
    texts[5, 1] = TOKENS
    step = ExactStep(0.3, 1.0, learner.weights)
    total = learner.clipped_sum(read_records((texts, LABELS)), np.arange(N), step)
    others = np.delete(np.arange(N), 5)
    assert torch.equal(torch.cat(total), whole_sum(learner, others))


def test_rows_of_a_table_are_added_without_error() -> None:
    rng = np.random.default_rng(0)
    step = ExactStep(1.0, 1.0, 40)
    indices = np.stack([rng.permutation(10)[:3] for _ in range(200)])
    values = 10.0 ** rng.uniform(-4, 2, (200, 1)) * rng.normal(size=(200, 3 * 4))
    whole = np.zeros((200, 10, 4))
    for i in range(200):
        whole[i, indices[i]] = values[i].reshape(3, 4)
    by_rows = torch.zeros(40, dtype=torch.float64)
    step.add([by_rows], [torch.tensor(values)], None, {0: torch.tensor(indices)})
    (expected,) = step.sum_of([torch.tensor(whole.reshape(200, 40))])
    # Norms in double precision hardly depend on the runs, so the whole numbers are the same.
    assert torch.equal(by_rows, expected)
    assert exact_step.squared_norms(torch.tensor(values)).max() > 1.0
