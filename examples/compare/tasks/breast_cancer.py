"""Tumours from measurements of cells, benign or not, ships with scikit-learn."""

from networks import BEYOND, STANDARD, standardised, tables, trained
from sklearn import datasets
from task import Task, choices

import optuna_dp as odp


def task() -> Task:
    x, y = datasets.load_breast_cancer(return_X_y=True)
    transforms = tables(30, 64)
    return Task(
        name="breast_cancer",
        x=standardised(x),
        y=y,
        space=choices(features=tuple(transforms), width=(0, 16, 64)),
        good={"features": "raw", "width": 0},
        poor={"features": "a quarter", "width": 64},
        train=trained(transforms, lambda: odp.made_up_inputs(*[STANDARD] * 30), 2),
        records=427,
        test=142,
        batch=64,
        epsilons=(1.0, 3.0, 8.0),
        beyond=BEYOND,
    )
