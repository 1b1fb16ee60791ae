"""Five classes of two clusters each in 40 columns, half of them noise: 28,000 made-up records."""

from networks import BEYOND, STANDARD, standardised, tables, trained
from sklearn import datasets
from task import Task, choices

import optuna_dp as odp


def task() -> Task:
    x, y = datasets.make_classification(
        28_000,
        40,
        n_informative=12,
        n_redundant=8,
        n_classes=5,
        n_clusters_per_class=2,
        class_sep=1.5,
        random_state=1,
    )
    transforms = tables(40, 128)
    return Task(
        name="clusters",
        x=standardised(x),
        y=y,
        space=choices(features=tuple(transforms), width=(0, 32), optimiser=("sgd", "adam")),
        good={"features": "raw", "width": 32, "optimiser": "sgd"},
        poor={"features": "a quarter", "width": 0, "optimiser": "adam"},
        train=trained(transforms, lambda: odp.made_up_inputs(*[STANDARD] * 40), 5),
        records=20_000,
        test=8_000,
        batch=267,
        epsilons=(0.1, 0.3, 1.0),
        beyond=tuple({**one, "optimiser": value} for value in ("sgd", "adam") for one in BEYOND),
    )
