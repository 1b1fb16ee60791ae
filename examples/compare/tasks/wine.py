"""Three kinds of wine from a chemical analysis, ships with scikit-learn."""

from networks import BEYOND, STANDARD, standardised, tables, trained
from sklearn import datasets
from task import Task, choices

import optuna_dp as odp


def task() -> Task:
    x, y = datasets.load_wine(return_X_y=True)
    transforms = tables(13, 64)
    return Task(
        name="wine",
        x=standardised(x),
        y=y,
        space=choices(features=tuple(transforms), width=(0, 16, 64)),
        good={"features": "raw", "width": 0},
        poor={"features": "mixed to few", "width": 16},
        train=trained(transforms, lambda: odp.made_up_inputs(*[STANDARD] * 13), 3),
        records=134,
        test=44,
        batch=40,
        epsilons=(1.0, 3.0, 8.0),
        beyond=BEYOND,
    )
