"""Small models of many kinds, and the clipped sum of single gradients by a slow loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

cross_entropy = nn.functional.cross_entropy
CLASSES, TOKENS, LENGTH = 3, 11, 6


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(tokens)).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(4, 5, batch_first=True)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrent(series)[0][:, -1])


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(TOKENS, 5)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.bag(tokens))


class Tied(nn.Module):
    """One matrix embeds tokens and scores them."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 5)
        self.head = nn.Linear(5, TOKENS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(tokens).mean(1))


class ScalarParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.layer = nn.Linear(4, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * self.layer(x)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, CLASSES))


def wide() -> nn.Module:
    """A matrix whose norm is computed in several runs."""
    return nn.Sequential(nn.Linear(4, 700), nn.Tanh(), nn.Linear(700, CLASSES))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(36, CLASSES),
    )  # fmt: skip


def frozen_part() -> nn.Module:
    model = mlp()
    model[0].requires_grad_(False)
    return model


def frozen_batch_norm() -> nn.Module:
    """Sound: frozen and in evaluation mode, BatchNorm is a fixed map."""
    norm = nn.BatchNorm2d(4)
    norm.running_mean.uniform_(-1.0, 1.0)
    norm.requires_grad_(False).eval()
    return nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.Flatten(), nn.Linear(144, CLASSES))


def double_precision() -> nn.Module:
    return mlp().double()


def dropout_of_nothing() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 7), nn.Dropout(0.0), nn.Linear(7, CLASSES))


def _numbers(n: int, *shape: int) -> torch.Tensor:
    return 3.0 * torch.randn(n, *shape)


def _tokens(n: int) -> torch.Tensor:
    return torch.randint(0, TOKENS, (n, LENGTH))


# A model, and inputs of n records.
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor], int]] = {
    "mlp": (mlp, lambda n: _numbers(n, 4), CLASSES),
    "wide": (wide, lambda n: _numbers(n, 4), CLASSES),
    "double precision": (double_precision, lambda n: _numbers(n, 4), CLASSES),
    "convolutions": (convolutions, lambda n: _numbers(n, 1, 8, 8), CLASSES),
    "frozen part": (frozen_part, lambda n: _numbers(n, 4), CLASSES),
    "frozen BatchNorm": (frozen_batch_norm, lambda n: _numbers(n, 1, 8, 8), CLASSES),
    "transformer": (Transformer, _tokens, CLASSES),
    "LSTM": (Recurrent, lambda n: _numbers(n, LENGTH, 4), CLASSES),
    "EmbeddingBag": (Bag, _tokens, CLASSES),
    "tied": (Tied, _tokens, TOKENS),
    "dropout": (dropout_of_nothing, lambda n: _numbers(n, 4), CLASSES),
    "scalar": (ScalarParameter, lambda n: _numbers(n, 4), CLASSES),
}


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def values(model: nn.Module) -> torch.Tensor:
    """All trained numbers of a model as one vector."""
    return torch.cat([p.detach().double().flatten() for p in trained(model)])


def slow_clipped_sum(
    model: nn.Module,
    loss_of_record: Callable[[nn.Module, Any], torch.Tensor],
    records: list[Any],
    clipping_norm: float,
) -> tuple[torch.Tensor, list[float]]:
    """The sum of clipped gradients, one record after another, and the norms before clipping."""
    total, norms = torch.zeros_like(values(model)), []
    for record in records:
        gradients = torch.autograd.grad(
            loss_of_record(model, record).reshape(()), trained(model), allow_unused=True
        )
        flat = torch.cat(
            [
                (torch.zeros_like(p) if g is None else g.to_dense()).double().flatten()
                for p, g in zip(trained(model), gradients, strict=True)
            ]
        )
        norms.append(float(flat.norm()))
        total += flat * min(1.0, clipping_norm / max(norms[-1], 1e-30))
    return total, norms
