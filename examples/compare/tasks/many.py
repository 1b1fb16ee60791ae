"""Sixteen classes in 60 columns, half of them noise: 28,000 made-up records."""

from networks import BEYOND, STANDARD, standardised, tables, trained
from sklearn import datasets
from task import Task, choices

import optuna_dp as odp


def task() -> Task:
    x, y = datasets.make_classification(
        28_000,
        60,
        n_informative=20,
        n_redundant=10,
        n_classes=16,
        n_clusters_per_class=1,
        class_sep=2.0,
        random_state=4,
    )
    transforms = tables(60, 128)
    return Task(
        name="many",
        x=standardised(x),
        y=y,
        space=choices(features=tuple(transforms), width=(0, 16)),
        good={"features": "raw", "width": 0},
        poor={"features": "a quarter", "width": 16},
        train=trained(transforms, lambda: odp.made_up_inputs(*[STANDARD] * 60), 16),
        records=20_000,
        test=8_000,
        batch=267,
        epsilons=(0.1, 0.3, 1.0),
        beyond=BEYOND,
    )
