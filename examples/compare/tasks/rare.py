"""A class of one in twelve among 28,000 made-up records; the score is the balanced accuracy."""

from networks import BEYOND, STANDARD, standardised, tables, trained
from sklearn import datasets
from task import Task, choices

import optuna_dp as odp

SHARES = (11 / 12, 1 / 12)


def task() -> Task:
    x, y = datasets.make_classification(
        28_000,
        24,
        n_informative=8,
        n_redundant=4,
        n_clusters_per_class=3,
        weights=[SHARES[0]],
        class_sep=1.2,
        flip_y=0.02,
        random_state=3,
    )
    transforms = tables(24, 96)
    kept = ("raw", "a quarter", "squares too", "three bins", "cosines")
    return Task(
        name="rare",
        x=standardised(x),
        y=y,
        space=choices(features=kept, width=(0, 32), balance=(0.0, 0.5, 1.0)),
        good={"features": "raw", "width": 0, "balance": 1.0},
        poor={"features": "raw", "width": 0, "balance": 0.0},
        train=trained(transforms, lambda: odp.made_up_inputs(*[STANDARD] * 24), 2, SHARES),
        records=20_000,
        test=8_000,
        batch=267,
        epsilons=(0.1, 0.3, 1.0),
        beyond=tuple({**one, "balance": value} for value in (0.0, 0.5, 1.0) for one in BEYOND),
        shares=SHARES,
    )
