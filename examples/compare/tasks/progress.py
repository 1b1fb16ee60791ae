"""A regression: how far a disease got in a year, 442 patients; ships with scikit-learn.

As ``friedman.py``, with six bins.
"""

import numpy as np
from networks import BEYOND, STANDARD, standardised, tables, trained
from sklearn import datasets
from task import Task, choices

import optuna_dp as odp

# What is public: about where the measure of progress lies, and how far it spreads.
MIDDLE, SPREAD = 152.0, 77.0
CENTERS = tuple(np.linspace(-1.6, 2.0, 6))


def task() -> Task:
    x, y = datasets.load_diabetes(return_X_y=True)
    transforms, target = tables(10, 64), (y - MIDDLE) / SPREAD
    return Task(
        name="progress",
        x=standardised(x),
        y=np.abs(target[:, None] - CENTERS).argmin(axis=1),
        space=choices(features=tuple(transforms), width=(0, 16, 64)),
        good={"features": "raw", "width": 0},
        poor={"features": "mixed to few", "width": 16},
        train=trained(transforms, lambda: odp.made_up_inputs(*[STANDARD] * 10), len(CENTERS)),
        records=332,
        test=110,
        batch=50,
        epsilons=(1.0, 3.0, 8.0),
        beyond=BEYOND,
        target=target,
        centers=CENTERS,
    )
