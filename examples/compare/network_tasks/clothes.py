"""Fashion-MNIST: ten kinds of clothes, images of 28 by 28 pixels; networks of convolutions.

Needs Debian's package ``dataset-fashion-mnist``; see ``idx_files.py``.
"""

import numpy as np
from by_train import Architecture, trained_by_train
from idx_files import load, scaled
from optuna.distributions import CategoricalDistribution
from task import Array, Params, Task
from torch import nn

import optuna_dp as odp

RECORDS, TESTS, SIDE = 6000, 2000, 28
WIDTHS = (0, 32)
MAPS = ("joined", "raw", "pooled", "gradients", "cosines")


def made_up() -> Array:
    return odp.made_up_images(1, SIDE, SIDE)


def convolutions(channels: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, channels, 5, stride=2, padding=2),
        nn.GroupNorm(4, channels),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1),
        nn.GroupNorm(4, 2 * channels),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Linear(18 * channels, 10),
    )


def dense(columns: int, width: int, classes: int = 10) -> nn.Module:
    if width:
        return nn.Sequential(nn.Linear(columns, width), nn.ReLU(), nn.Linear(width, classes))
    layer = nn.Linear(columns, classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def architecture(params: Params) -> Architecture:
    if params["features"] == "convolutions":
        return Architecture(lambda: convolutions(params["channels"]), made_up)
    found = odp.public_maps(made_up())[params["features"]]

    def inputs(x: Array) -> Array:
        return np.asarray(found(x)).reshape(len(x), -1).astype(np.float32)

    columns = inputs(made_up()[:2]).shape[1]
    return Architecture(lambda: dense(columns, params["width"]), lambda: inputs(made_up()), inputs)


def task() -> Task:
    images = load()
    x = scaled(images.train_images[:12_000])[:, None]
    return Task(
        name="clothes",
        x=x,
        y=images.train_labels[:12_000].astype(np.int64),
        space={
            "features": CategoricalDistribution((*MAPS, "convolutions")),
            "width": CategoricalDistribution(WIDTHS),
            "channels": CategoricalDistribution((8, 16)),
        },
        only_if={
            "width": lambda params: params["features"] != "convolutions",
            "channels": lambda params: params["features"] == "convolutions",
        },
        good={"features": "convolutions", "channels": 16},
        poor={"features": "cosines", "width": 32},
        train=trained_by_train(architecture, RECORDS),
        records=RECORDS,
        test=TESTS,
        batch=256,
        epsilons=(1.0, 3.0, 8.0),
    )


def listed() -> list[Params]:
    """The list that the package proposes for images."""
    return odp.short_list("image")
