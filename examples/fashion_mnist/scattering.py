"""Scattering coefficients of images: public features, made of Morlet wavelets.

Two orders of wavelet moduli, averaged over four by four pixels (Bruna and Mallat,
arXiv:1203.1513), with 8 angles and 2 scales: 81 maps of 7 by 7 for an image of 28 by 28. They are
those of kymatio 0.3's ``Scattering2D(J=2, shape=(28, 28))``, to single precision; kymatio needs
scipy below 1.15. Each image is transformed by itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

SCALES, ANGLES = 2, 8
# A Morlet wavelet's width and frequency at the finest scale, and how much longer it is than wide.
_WIDTH, _FREQUENCY = 0.8, 0.75 * math.pi
_EPSILON = 1e-5


class Scattering:
    """Scattering of square images.

    Args:
        size: Pixels of a side.
    """

    def __init__(self, size: int = 28) -> None:
        step = 2**SCALES
        length = ((size + step) // step + 1) * step
        self._padding = (length - size) // 2
        self._wavelets = [
            [_at_resolutions(_morlet(length, scale, angle), scale + 1) for angle in range(ANGLES)]
            for scale in range(SCALES)
        ]
        window = _gabor(length, _WIDTH * 2 ** (SCALES - 1), 0.0, 0.0, 1.0)
        self._window = _at_resolutions(window, SCALES + 1)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Returns coefficients, (n, 81, size / 4, size / 4), of images (n, size, size)."""
        sides = (self._padding,) * 4
        padded = torch.nn.functional.pad(images[:, None], sides, mode="reflect")[:, 0]
        spectrum = torch.fft.fft2(padded)
        first, second = [], []
        for scale in range(SCALES):
            moduli = self._moduli(spectrum[:, None], scale, 0)
            spectra = torch.fft.fft2(moduli)
            first.append(self._averages(spectra, scale))
            for coarser in range(scale + 1, SCALES):
                again = self._moduli(spectra[:, :, None], coarser, scale)
                averages = self._averages(torch.fft.fft2(again), coarser)
                second.append(averages.flatten(1, 2))
        mean = self._averages(spectrum, 0)[:, None]
        return torch.cat([mean, *first, *second], dim=1)

    def _moduli(self, spectra: torch.Tensor, scale: int, resolution: int) -> torch.Tensor:
        filters = torch.stack([angle[resolution] for angle in self._wavelets[scale]])
        coarse = _coarser(spectra * filters, 2 ** (scale - resolution))
        return torch.fft.ifft2(coarse).abs()

    def _averages(self, spectra: torch.Tensor, resolution: int) -> torch.Tensor:
        coarse = _coarser(spectra * self._window[resolution], 2 ** (SCALES - resolution))
        return torch.fft.ifft2(coarse).real[..., 1:-1, 1:-1]


def normalised(coefficients: torch.Tensor, groups: int = 27) -> torch.Tensor:
    """Returns features of mean 0 and mean square 1 in each group of maps of an image, flat.

    The mean and the spread are those of the image itself, so a record depends on no other one.
    """
    parts = coefficients.reshape(len(coefficients), groups, -1)
    centered = parts - parts.mean(-1, keepdim=True)
    spread = (centered.square().mean(-1, keepdim=True) + _EPSILON).sqrt()
    return (centered / spread).flatten(1)


def maps(images: Any, at_a_time: int = 250) -> np.ndarray:
    """Returns the coefficients of images (n, size, size) with pixels in [0, 1], as half floats."""
    transform = Scattering(images.shape[-1])
    chunks = torch.as_tensor(images).split(at_a_time)
    return np.concatenate([transform(chunk).numpy().astype(np.float16) for chunk in chunks])


class PhotographWhitening:
    """Shrinks the directions in which features of photographs vary most.

    A few directions hold most of such features' squares, so that clipping leaves little of the
    others. The directions are principal components of patches of two public photographs that come
    with scikit-learn. No private image is looked at.

    Args:
        groups: As for :func:`normalised`.
        components: How many directions are shrunk.
        floor: The variance of this one is what the others are shrunk towards.
    """

    def __init__(self, groups: int = 27, components: int = 100, floor: int = 60) -> None:
        coefficients = torch.tensor(maps(patches()).astype(np.float32))
        rows = normalised(coefficients, groups)
        rows -= rows.mean(0)
        variances, turned = torch.linalg.eigh(rows @ rows.T / len(rows))
        largest = variances.flip(0)[:components]
        scales = (len(rows) * largest).sqrt()
        self._directions = rows.T @ turned.flip(1)[:, :components] / scales
        self._shares = 1.0 - (largest[floor] / (largest + largest[floor])).sqrt()

    def __call__(self, features: torch.Tensor) -> torch.Tensor:
        """Returns features (n, columns) with these directions shrunk, each row by itself."""
        return features - (features @ self._directions * self._shares) @ self._directions.T


def patches(of_each: int = 1000, size: int = 28) -> np.ndarray:
    """Grey patches of the photographs, shrunk by one to four, (2 of_each, size, size)."""
    from sklearn.datasets import load_sample_images

    rng, found = np.random.default_rng(0), []
    for photograph in load_sample_images().images:
        grey = photograph.mean(2) / 255.0
        for _ in range(of_each):
            shrunk = int(rng.integers(1, 5))
            side = size * shrunk
            down, across = (int(rng.integers(0, length - side)) for length in grey.shape)
            patch = grey[down : down + side, across : across + side]
            found.append(patch.reshape(size, shrunk, size, shrunk).mean((1, 3)))
    return np.array(found, dtype=np.float32)


def _gabor(length: int, width: float, angle: float, frequency: float, slant: float) -> Any:
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shape = turn @ np.diag([1.0, slant**2]) @ turn.T / (2.0 * width**2)
    total = np.zeros((length, length), dtype=complex)
    for down in range(-2, 3):  # The filter is periodic.
        for across in range(-2, 3):
            x, y = np.mgrid[
                down * length : (down + 1) * length, across * length : (across + 1) * length
            ]
            square = shape[0, 0] * x * x + 2.0 * shape[0, 1] * x * y + shape[1, 1] * y * y
            wave = frequency * (x * np.cos(angle) + y * np.sin(angle))
            total += np.exp(-square + 1j * wave)
    return total / (2.0 * np.pi * width**2 / slant)


def _morlet(length: int, scale: int, number: int) -> Any:
    angle = (ANGLES - ANGLES // 2 - 1 - number) * math.pi / ANGLES
    width, frequency, slant = _WIDTH * 2**scale, _FREQUENCY / 2**scale, 4.0 / ANGLES
    wave = _gabor(length, width, angle, frequency, slant)
    window = _gabor(length, width, angle, 0.0, slant)
    return wave - wave.sum() / window.sum() * window


def _at_resolutions(kernel: Any, count: int) -> list[torch.Tensor]:
    """Returns the spectrum of a filter for images of falling resolution."""
    spectrum = np.fft.fft2(kernel).real
    found = []
    for resolution in range(count):
        length, factor = len(spectrum), 2**resolution
        kept = np.ones(length, dtype=bool)
        if resolution:
            start = length // 2 ** (resolution + 1)
            kept[start : start + length - length // factor] = False
        low = spectrum * kept[:, None] * kept[None]
        part = length // factor
        found.append(
            torch.tensor(low.reshape(factor, part, factor, part).sum((0, 2)), dtype=torch.float32)
        )
    return found


def _coarser(spectra: torch.Tensor, factor: int) -> torch.Tensor:
    if factor == 1:
        return spectra
    part = spectra.shape[-1] // factor
    parts = spectra.reshape(*spectra.shape[:-2], factor, part, factor, part)
    return parts.mean((-4, -2))
