"""A regression: Friedman's function of five of ten columns, 28,000 made-up records.

Trained as a softmax over twelve bins of the target, for which there is a rate without data; a
prediction is the mean of the bins. The score is 1 less the mean squared error in units of the
public variance, the error of one record counting as 1 at most.
"""

import numpy as np
from networks import BEYOND, STANDARD, standardised, tables, trained
from sklearn import datasets
from task import Task, choices

import optuna_dp as odp

# What is public: about where the target lies, and how far it spreads.
MIDDLE, SPREAD = 14.4, 5.0
CENTERS = tuple(np.linspace(-2.2, 2.2, 12))


def task() -> Task:
    x, y = datasets.make_friedman1(28_000, 10, noise=1.0, random_state=5)
    transforms, target = tables(10, 128), (y - MIDDLE) / SPREAD
    return Task(
        name="friedman",
        x=standardised(x),
        y=np.abs(target[:, None] - CENTERS).argmin(axis=1),
        space=choices(features=tuple(transforms), width=(0, 32)),
        good={"features": "raw", "width": 32},
        poor={"features": "the last half", "width": 32},
        train=trained(transforms, lambda: odp.made_up_inputs(*[STANDARD] * 10), len(CENTERS)),
        records=20_000,
        test=8_000,
        batch=267,
        epsilons=(0.1, 0.3, 1.0),
        beyond=BEYOND,
        target=target,
        centers=CENTERS,
    )
