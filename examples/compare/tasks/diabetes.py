"""Whether a disease got worse than in half of the patients; ships with scikit-learn.

Few records, so that whether to regularise is a question: the strength of a weight decay is open.
"""

import numpy as np
from networks import BEYOND, STANDARD, standardised, tables, trained
from sklearn import datasets
from task import Task, choices

import optuna_dp as odp


def task() -> Task:
    x, y = datasets.load_diabetes(return_X_y=True)
    transforms = tables(10, 64)
    return Task(
        name="diabetes",
        x=standardised(x),
        y=(y > np.median(y)).astype(np.int64),
        space=choices(features=tuple(transforms), width=(0, 16, 64), decay=(0.0, 2.0)),
        good={"features": "raw", "width": 0, "decay": 0.0},
        poor={"features": "mixed to few", "width": 16, "decay": 0.0},
        train=trained(transforms, lambda: odp.made_up_inputs(*[STANDARD] * 10), 2),
        records=332,
        test=110,
        batch=50,
        epsilons=(1.0, 3.0, 8.0),
        beyond=tuple({**one, "decay": value} for value in (0.0, 2.0) for one in BEYOND),
    )
