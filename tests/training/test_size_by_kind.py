"""The size that a rehearsal aims at: that of attention and recurrence, or that of all others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from refusals import refuses
from started import started

torch = pytest.importorskip("torch")

import torch_models  # noqa: E402
from torch import nn  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.runs.rehearsal import SEQUENCE_SIZE, SIZE  # noqa: E402

RECORDS = 200
PLAN: dict[str, Any] = {"noise_multiplier": 2.0, "batch_size": 64.0, "steps": 20}
cross_entropy = nn.functional.cross_entropy
NUMBERS, SERIES, IDS = (
    torch.rand(16, 8),
    torch.rand(16, 5, 8),
    torch.as_tensor(odp.made_up_tokens(11, 6, rows=16)),
)


class WideAndDeep(nn.Module):
    """A weight for each value of a column beside a network over its embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.embedding = nn.Embedding(11, 3), nn.Embedding(11, 4)
        self.deep = nn.Sequential(nn.Linear(24, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, ids: Any) -> Any:
        return self.wide(ids).sum(1) + self.deep(self.embedding(ids).flatten(1))


class Loop(nn.Module):
    """A recurrence that is written out: a cell, or two linear layers."""

    def __init__(self, cell: Callable[[int, int], nn.Module] | None) -> None:
        super().__init__()
        self.cell = None if cell is None else cell(8, 8)
        self.of_input, self.of_state = nn.Linear(8, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, series: Any) -> Any:
        state = torch.zeros(len(series), 8)
        for x in series.unbind(1):
            if self.cell is None:
                state = torch.tanh(self.of_input(x) + self.of_state(state))
            else:
                state = self.cell(x, state)
        return self.head(state)


class Layer(nn.Module):
    """A recurrent layer of PyTorch."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.states, self.head = kind(8, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, series: Any) -> Any:
        return self.head(self.states(series)[0].mean(1))


class WrittenOut(nn.Module):
    """Attention over tokens by the operations of PyTorch."""

    def __init__(self, how: str = "product") -> None:
        super().__init__()
        self.words, self.mixed, self.head = nn.Embedding(11, 8), nn.Linear(8, 24), nn.Linear(8, 3)
        self.how = how

    def forward(self, ids: Any) -> Any:
        q, k, v = self.mixed(self.words(ids)).chunk(3, -1)
        if self.how == "kernel":
            return self.head(nn.functional.scaled_dot_product_attention(q, k, v).mean(1))
        if self.how == "einsum":
            scores = torch.einsum("btd,bsd->bts", q, k)
            return self.head(torch.einsum("bts,bsd->btd", scores.softmax(-1), v).mean(1))
        scores = (q @ k.mT).masked_fill(torch.ones(6, 6).triu(1).bool(), -1e9)
        shares = nn.functional.dropout(scores.softmax(-1), 0.1, self.training)
        return self.head((shares @ v).mean(1))


class Experts(nn.Module):
    """Some networks, and a softmax of linear scores that says how much each counts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts, self.head = nn.Linear(8, 4), nn.Linear(8, 32), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        shares, values = self.gate(x).softmax(-1), self.experts(x).reshape(-1, 4, 8)
        return self.head(torch.einsum("be,bed->bd", shares, values))


class Shared(nn.Module):
    """A norm and an activation with weights that are used twice, and two towers of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.act, self.tower = nn.LayerNorm(4), nn.PReLU(4), nn.Linear(4, 4)
        self.middle, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        both = self.tower(x[:, :4]) * self.tower(x[:, 4:])
        return self.head(self.act(self.norm(self.middle(self.act(self.norm(both))))))


class Adapted(nn.Module):
    """A frozen layer with a trained difference of rank 2 (LoRA)."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 24, bias=False)

    def forward(self, x: Any) -> Any:
        return self.layer(x) + self.up(self.down(x))


def lora() -> nn.Module:
    model = WrittenOut().requires_grad_(False)
    model.mixed = Adapted(model.mixed)
    return model


def on_frozen_transformer(*head: nn.Module) -> nn.Module:
    model = torch_models.Transformer().requires_grad_(False)
    model.head = nn.Sequential(*head).requires_grad_(True)
    return model


def found(model: nn.Module, inputs: Any, **arguments: Any) -> odp.Rehearsal:
    return odp.rehearse_module(started(RECORDS, **PLAN), model, inputs, **arguments)


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (torch_models.Transformer, IDS),
        (lambda: WrittenOut("product"), IDS),
        (lambda: WrittenOut("einsum"), IDS),
        (lambda: WrittenOut("kernel"), IDS),
        (lora, IDS),
        (lambda: Layer(nn.LSTM), SERIES),
        (lambda: Layer(nn.GRU), SERIES),
        (lambda: Layer(nn.RNN), SERIES),
        (lambda: Loop(nn.GRUCell), SERIES),
        (lambda: Loop(None), SERIES),
    ],
    ids=["encoder", "product", "einsum", "kernel", "LoRA", "LSTM", "GRU", "RNN", "cells", "loop"],
)  # fmt: skip
def test_a_smaller_size_is_for_recurrence_and_for_attention_over_tokens(
    make: Any, inputs: Any
) -> None:
    rehearsal = found(make(), inputs)
    assert rehearsal.aim == SEQUENCE_SIZE
    assert rehearsal.size == pytest.approx(SEQUENCE_SIZE, rel=0.06)
    assert rehearsal.reason.startswith("trained weights act")


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (torch_models.mlp, torch.rand(16, 4)),
        (torch_models.convolutions, torch.rand(16, 1, 8, 8)),
        (WideAndDeep, IDS),
        (torch_models.Bag, IDS),
        (torch_models.Tied, IDS),
        (Experts, NUMBERS),
        (Shared, NUMBERS),
        (lambda: nn.Linear(8, 3), NUMBERS),
        (lambda: on_frozen_transformer(nn.Linear(8, 3)), IDS),
        (lambda: on_frozen_transformer(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)), IDS),
        (lambda: Loop(None), SERIES[:, :1]),
        (lambda: nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True), SERIES),
    ],
    ids=["dense", "convolutions", "wide and deep", "bag", "tied", "experts", "shared", "linear",
         "last layer", "last layers", "one step", "attention over numbers"],
)  # fmt: skip
def test_all_other_models_have_the_larger_size(make: Any, inputs: Any) -> None:
    rehearsal = found(make(), inputs)
    assert rehearsal.aim == SIZE
    assert rehearsal.size == pytest.approx(SIZE, rel=0.06)
    assert rehearsal.reason.startswith("no trained weight")


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_attention_of_hugging_face_is_seen(implementation: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, attn_implementation=implementation,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    assert found(model, {"input_ids": IDS}).aim == SEQUENCE_SIZE
    model.bert.requires_grad_(False)
    assert found(model, {"input_ids": IDS}).aim == SIZE


def test_attention_of_a_compiled_module_is_seen() -> None:
    if not hasattr(torch.compiler, "set_stance"):
        pytest.skip("PyTorch 2.6 is the first that runs compiled modules as they were written")
    assert found(torch.compile(WrittenOut(), backend="eager"), IDS).aim == SEQUENCE_SIZE


def test_those_who_know_better_say_the_size() -> None:
    model, x, y = nn.Linear(8, 3), torch.rand(RECORDS, 8), torch.zeros(RECORDS, dtype=torch.long)
    by_itself = found(model, NUMBERS, size=0.4, optimizer="sgd")
    assert (by_itself.aim, by_itself.reason) == (0.4, "size was given")

    def train(**arguments: Any) -> odp.Trained:
        return odp.train(
            started(RECORDS, **PLAN), model, (x, y), loss=cross_entropy, inputs=NUMBERS,
            score=None,
            **arguments,
        )  # fmt: skip

    assert train(rehearsal_size=0.4).rehearsal == by_itself
    with refuses("rehearsal_size"):
        train(rehearsal_size=0.4, learning_rate=0.1)
    for wrong in (0.0, -1.0, math.inf, "large"):
        with refuses("rehearsal_size"):
            train(rehearsal_size=wrong)


def test_a_softmax_regression_has_the_larger_size() -> None:
    x, y = np.zeros((RECORDS, 8)), np.zeros(RECORDS, dtype=int)
    trained = odp.train(started(RECORDS, **PLAN), odp.SoftmaxRegression(8, 3), (x, y), score=None)
    assert trained.rehearsal is not None
    assert trained.rehearsal.aim == SIZE
