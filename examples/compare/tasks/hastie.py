"""Whether ten normal numbers lie outside a sphere (Hastie et al., 10.2): 28,000 made-up records.

A straight line learns nothing here, so everything depends on features and model.
"""

import numpy as np
from networks import BEYOND, STANDARD, standardised, tables, trained
from sklearn import datasets
from task import Task, choices

import optuna_dp as odp


def task() -> Task:
    x, y = datasets.make_hastie_10_2(28_000, random_state=2)
    transforms = tables(10, 128)
    return Task(
        name="hastie",
        x=standardised(x),
        y=(y > 0).astype(np.int64),
        # The kind of unit is asked for only if there are units.
        space=choices(features=tuple(transforms), width=(0, 32), unit=("tanh", "relu")),
        only_if={"unit": lambda params: params["width"] > 0},
        good={"features": "squares too", "width": 0},
        poor={"features": "raw", "width": 0},
        train=trained(transforms, lambda: odp.made_up_inputs(*[STANDARD] * 10), 2),
        records=20_000,
        test=8_000,
        batch=267,
        epsilons=(0.1, 0.3, 1.0),
        beyond=BEYOND,
    )
