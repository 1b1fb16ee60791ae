"""The scattering features of examples/fashion_mnist are kymatio's."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

sys.path.append(str(Path(__file__).parents[2] / "examples" / "fashion_mnist"))

import scattering  # noqa: E402

# Of kymatio 0.3.0, Scattering2D(J=2, shape=(28, 28)), times 10,000: the mean of each map, and the
# map of number 5 row by row.
# fmt: off
MEANS = (
    5298, 345, 444, 475, 414, 276, 143, 120, 211, 436, 589, 855, 792, 335, 135, 134, 283,
    24, 23, 27, 22, 19, 19, 21, 22, 37, 36, 35, 26, 23, 30, 35, 37, 36, 37, 43, 31, 21, 23,
    29, 34, 19, 22, 37, 29, 21, 16, 15, 17, 14, 15, 33, 27, 17, 16, 15, 14, 16, 19, 22, 19,
    15, 17, 18, 16, 15, 15, 14, 13, 14, 15, 14, 15, 13, 12, 15, 14, 13, 13, 12, 12,
)
FIFTH_MAP = (
    239, 240, 403, 537, 518, 402, 295, 299, 251, 289, 326, 379, 414, 450, 259, 211, 201,
    254, 338, 387, 390, 297, 196, 182, 213, 286, 262, 202, 275, 222, 199, 203, 239, 195,
    262, 278, 219, 212, 207, 213, 198, 239, 269, 217, 221, 205, 215, 228, 274,
)
# fmt: on


def image() -> torch.Tensor:
    i, j = np.mgrid[:28, :28]
    pixels = (np.sin(0.7 * i + 0.2 * j) + np.cos(0.05 * i * j) + 2.0) / 4.0
    return torch.tensor(pixels, dtype=torch.float32)[None]


def test_they_are_those_of_kymatio() -> None:
    maps = 1e4 * scattering.Scattering()(image())[0].double().numpy()
    assert maps.shape == (81, 7, 7)
    np.testing.assert_allclose(maps.mean((1, 2)), MEANS, atol=0.6)
    np.testing.assert_allclose(maps[5].ravel(), FIFTH_MAP, atol=0.6)


@pytest.mark.slow
def test_features_of_an_image_depend_on_no_other() -> None:
    pair = torch.cat([image(), torch.rand(1, 28, 28)])
    whitening = scattering.PhotographWhitening()

    def features(images: torch.Tensor) -> torch.Tensor:
        return whitening(scattering.normalised(scattering.Scattering()(images)))

    together, alone = features(pair)[:1], features(pair[:1])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)
