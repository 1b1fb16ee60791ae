"""The networks that examples/dp_hype trains all at once are those that PyTorch trains alone."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

sys.path.append(str(Path(__file__).parents[2] / "examples" / "dp_hype"))

from fashion_clients import BATCH, RATES, Images, Networks  # noqa: E402

CANDIDATES = ((0.1, 0.25, 0.9), (0.05, 0.0, 0.0), (0.02, 1.0, 0.9))


def records(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images of 28 x 28 whose class can be seen, their patches, and their classes."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, count).astype(np.uint8)
    pixels = rng.integers(0, 60, (count, 28, 28)).astype(np.uint8)
    for image, label in zip(pixels, labels, strict=True):
        image[2 * label : 2 * label + 8, 4:24] += 180
    patches, classes = Images._arranged(pixels, labels)
    return torch.tensor(pixels / 255.0, dtype=torch.float32)[:, None], patches, classes


class Alone(torch.nn.Module):
    """One network, of PyTorch's own layers, with the first weights of all."""

    def __init__(self, networks: Networks) -> None:
        super().__init__()
        first, first_bias, second, second_bias, last, last_bias = (
            p[0] for p in networks.parameters
        )
        self.first = torch.nn.Conv2d(1, 8, 4, 4)
        self.second = torch.nn.Conv2d(8, 16, 3, 2)
        self.last = torch.nn.Linear(144, 10)
        with torch.no_grad():
            self.first.weight.copy_(first.T.reshape(8, 1, 4, 4))
            self.second.weight.copy_(second.T.reshape(16, 3, 3, 8).permute(0, 3, 1, 2))
            self.last.weight.copy_(last.T)
            for layer, bias in (
                (self.first, first_bias), (self.second, second_bias), (self.last, last_bias)
            ):  # fmt: skip
                layer.bias.copy_(bias[0])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.second(torch.relu(self.first(images))))
        return self.last(hidden.permute(0, 2, 3, 1).flatten(1))


@pytest.mark.parametrize("place", range(len(CANDIDATES)))
def test_networks_trained_together_are_those_trained_alone(place: int) -> None:
    images, patches, labels = records(3 * BATCH)
    networks, epochs = Networks(seed=1, candidates=CANDIDATES), 3
    found = networks.logits(
        networks.descend(patches, labels, epochs, np.random.default_rng(2)), patches
    )[place]

    rate, decay, momentum = CANDIDATES[place]
    alone, rng = Alone(networks), np.random.default_rng(2)
    optimizer = torch.optim.SGD(alone.parameters(), lr=rate, momentum=momentum)
    for epoch in range(epochs):
        optimizer.param_groups[0]["lr"] = rate * decay**epoch
        for batch in np.array_split(rng.permutation(len(labels)), 3):
            loss = torch.nn.functional.cross_entropy(alone(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        torch.testing.assert_close(found, alone(images), atol=1e-4, rtol=1e-3)


def test_a_network_that_diverged_is_wrong_everywhere() -> None:
    _, patches, labels = records(40)
    networks = Networks(seed=1, candidates=CANDIDATES[:1])
    broken = [p * float("nan") for p in networks.parameters]
    assert networks.right(broken, patches, torch.zeros_like(labels)).tolist() == [0]


def test_rates_that_are_not_trained_change_no_prediction() -> None:
    _, patches, labels = records(160)
    networks = Networks(seed=1, candidates=tuple((rate, 1.0, 0.9) for rate in RATES))
    trained = networks.descend(patches, labels, 10, np.random.default_rng(0))
    counts = networks.right(trained, patches, labels)
    first = networks.right(networks.parameters, patches, labels)
    assert np.abs(counts[5:].astype(int) - first[5:]).max() <= 1
    assert (counts[1:3] > first[1:3] + 40).all()  # 0.5 with momentum is too large
