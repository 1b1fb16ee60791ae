"""Handwritten digits of 8 by 8 pixels, which ship with scikit-learn."""

import numpy as np
from networks import BEYOND, Array, random_features, trained
from sklearn import datasets
from task import Task, choices

import optuna_dp as odp


def pictures(x: Array) -> Array:
    return x.reshape(-1, 8, 8)


def flat(*parts: Array) -> Array:
    return np.hstack([part.reshape(len(part), -1) for part in parts]).astype(np.float32)


def pooled(x: Array) -> Array:
    return flat(pictures(x).reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)))


def gradients(x: Array) -> Array:
    image = pictures(x)
    return flat(np.diff(image, axis=1), np.diff(image, axis=2))


def waves(x: Array) -> Array:
    """The lowest frequencies of a cosine transform."""
    k, i = np.arange(5)[:, None], np.arange(8)[None, :]
    basis = np.cos(np.pi * k * (2 * i + 1) / 16) / 2.0
    return flat(np.einsum("nij,ki,lj->nkl", pictures(x) - 0.3, basis, basis))


def profile(x: Array) -> Array:
    return flat(pictures(x).mean(axis=1), pictures(x).mean(axis=2))


def histogram(x: Array) -> Array:
    """How many pixels of nine overlapping squares are dark, and how many are bright."""
    squares = np.lib.stride_tricks.sliding_window_view(pictures(x), (4, 4), axis=(1, 2))
    parts = squares[:, ::2, ::2].reshape(-1, 9, 16)
    return flat((parts < 0.25).mean(axis=2), (parts > 0.75).mean(axis=2))


TRANSFORMS = {
    "raw": flat,
    "pooled": pooled,
    "gradients": gradients,
    "raw and gradients": lambda x: flat(x, gradients(x)),
    "waves": waves,
    "profile": profile,
    "histogram": histogram,
    "cosines": random_features(64, 128, 0.5),
}


def task() -> Task:
    x, y = datasets.load_digits(return_X_y=True)
    x = (x / 16.0).astype(np.float32)
    return Task(
        name="digits",
        x=x,
        y=y,
        space=choices(features=tuple(TRANSFORMS), width=(0, 16, 64)),
        good={"features": "raw", "width": 0},
        poor={"features": "histogram", "width": 16},
        train=trained(TRANSFORMS, lambda: odp.made_up_inputs(*[(0, 1)] * 64), 10),
        records=1348,
        test=449,
        batch=90,
        epsilons=(1.0, 3.0, 8.0),
        beyond=BEYOND,
    )
