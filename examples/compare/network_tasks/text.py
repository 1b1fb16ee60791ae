"""Which package of Python's library a window of 24 characters is of: fine-tuning, LoRA and others.

The public text, on which a small language model is trained before, are the modules at the top of
the library. Records are windows of six packages of it.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from by_train import Architecture, trained_by_train
from optuna.distributions import CategoricalDistribution
from task import Array, Params, Task
from torch import nn

import optuna_dp as odp

sys.path.append(str(Path(__file__).parents[2] / "known_without_data"))

import families

RECORDS, TESTS = 4000, 2000
SHARES_OF_TESTS = 1.5  # windows that are drawn, for one that is needed


def windows() -> tuple[Array, Array]:
    """Windows of text and their packages, (n, 24) and (n,)."""
    rng = np.random.default_rng(11)
    y = rng.integers(len(families.PACKAGES), size=int(SHARES_OF_TESTS * (RECORDS + TESTS)))
    x = []
    for label in y:
        text = families.source(families.PACKAGES[label])
        start = rng.integers(len(text) - families.LENGTH)
        x.append(text[start : start + families.LENGTH])
    return np.array(x), y


def pretrained() -> families.Transformer:
    model = families.Transformer()
    head = model.head
    model.load_state_dict(families.pretrained())
    model.head = nn.Linear(head.in_features, head.out_features)
    return model


def with_lora(rank: int) -> nn.Module:
    model = pretrained().requires_grad_(False)
    model.head.requires_grad_(True)
    for block in model.blocks:
        block.mixed = families.Adapted(block.mixed, rank)
    return model


def head(width: int) -> nn.Module:
    if width:
        return nn.Sequential(
            nn.Linear(families.WIDTH, width), nn.ReLU(), nn.Linear(width, len(families.PACKAGES))
        )
    return families.zero(nn.Linear(families.WIDTH, len(families.PACKAGES)))


def features(x: Array) -> Array:
    return families.frozen_features(torch.as_tensor(x)).numpy()


def architecture(params: Params) -> Architecture:
    trained = params["trained"]
    if trained == "last layer":
        return Architecture(
            lambda: head(params["width"]), lambda: features(families.letters()), features
        )
    models = {
        "lora": lambda: with_lora(params["rank"]),
        "all": pretrained,
        "from scratch": families.Transformer,
        "bag of embeddings": families.Bag,
    }
    return Architecture(models[trained], families.letters)


def task() -> Task:
    x, y = windows()
    trained = ("last layer", "lora", "all", "from scratch", "bag of embeddings")
    return Task(
        name="text",
        x=x,
        y=y,
        space={
            "trained": CategoricalDistribution(trained),
            "width": CategoricalDistribution((0, 64)),
            "rank": CategoricalDistribution((4, 16)),
        },
        only_if={
            "width": lambda params: params["trained"] == "last layer",
            "rank": lambda params: params["trained"] == "lora",
        },
        good={"trained": "lora", "rank": 4},
        poor={"trained": "from scratch"},
        train=trained_by_train(architecture, RECORDS),
        records=RECORDS,
        test=TESTS,
        batch=256,
        epsilons=(1.0, 3.0, 8.0),
    )


def listed() -> list[Params]:
    """The list that the package proposes for fine-tuning."""
    return [
        {name: value for name, value in one.items() if value != 0 or name == "width"}
        if one["trained"] == "last layer"
        else {name: value for name, value in one.items() if value}
        for one in odp.short_list("fine-tuning")
    ]
