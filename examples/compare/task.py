"""A task: records, a space of hyperparameters, and a private training.

A task is a file with a function ``task()`` that returns a :class:`Task`; ``tasks/wine.py`` is a
short one. Nothing else is asked of it, so that a file of your own does as well.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution

from optuna_dp.runs.run import Run

HERE = Path(__file__).parent

Array = npt.NDArray[Any]
Params = dict[str, Any]
# From inputs to logits, (inputs, classes).
Predict = Callable[[Array], Array]
# Private records and labels, hyperparameters, what the run may spend, the source of its noise.
Train = Callable[[Array, Array, Params, Run, np.random.Generator], Predict]


@dataclass(frozen=True)
class Task:
    """What a search is about.

    Attributes:
        name: In tables.
        x: All inputs, (n, ...).
        y: Labels from 0, (n,).
        space: What only the data can answer, distributions by name.
        good: A default that suits.
        poor: One that does not.
        train: DP-SGD, at a learning rate that needs no data.
        records: Expected number of private records, a public number.
        test: Expected number of test records.
        batch: Expected number of records in a batch.
        epsilons: What searches may cost.
        steps: Of the run that is released.
        only_if: For parameters that are not always there: whether they are, given those before.
        shares: Public shares of the classes; with them the score is the balanced accuracy.
        target: For a regression, the numbers in units of their public spread, (n,); ``y`` has the
            bins that they fall into, which is what is trained.
        centers: For a regression, what each bin stands for; a prediction is their mean.
        beyond: Configurations that the space does not have, for short lists.
    """

    name: str
    x: Array
    y: Array
    space: Mapping[str, BaseDistribution]
    good: Params
    poor: Params
    train: Train
    records: int
    test: int
    batch: int
    epsilons: tuple[float, ...]
    steps: int = 150
    only_if: Mapping[str, Callable[[Params], bool]] = field(default_factory=dict)
    shares: tuple[float, ...] | None = None
    target: Array | None = None
    centers: tuple[float, ...] = ()
    beyond: tuple[Params, ...] = ()

    @property
    def classes(self) -> int:
        return int(self.y.max()) + 1

    @property
    def weights(self) -> Array:
        """What a right answer counts, by class: 1, or more for rare ones."""
        if self.shares is None:
            return np.ones(self.classes)
        return 1.0 / (self.classes * np.array(self.shares))

    def values(self, logits: Array, rows: Array) -> Array:
        """What each record adds to the score, a mean, from 0 to :attr:`reach`, (n,).

        1 if its class is right, times the class's weight; in a regression 1 less the squared
        error, which counts as 1 at most.
        """
        if self.target is None:
            return self.weights[self.y[rows]] * (np.argmax(logits, axis=1) == self.y[rows])
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        found = chances @ np.array(self.centers) / chances.sum(axis=1)
        errors: Array = np.minimum((found - self.target[rows]) ** 2, 1.0)
        return 1.0 - errors

    @property
    def reach(self) -> float:
        return float(self.weights.max())

    def suggest(self, trial: optuna.trial.BaseTrial) -> Params:
        params: Params = {}
        for name, distribution in self.space.items():
            if name not in self.only_if or self.only_if[name](params):
                params[name] = trial._suggest(name, distribution)  # type: ignore[attr-defined]
        return params

    def configurations(self) -> list[Params]:
        """All there are, where every parameter is one of some choices."""
        found = []
        choices = [_choices(name, one) for name, one in self.space.items()]
        for values in itertools.product(*choices):
            every = dict(zip(self.space, values, strict=True))
            params: Params = {}
            for name, value in every.items():
                if name not in self.only_if or self.only_if[name](params):
                    params[name] = value
            if params not in found:
                found.append(params)
        return found

    def split(self, repetition: int) -> tuple[Array, Array]:
        """Private and test rows, each record by a draw of its own; the same for all arms."""
        drawn = np.random.default_rng([repetition, len(self.y)]).random(len(self.y))
        private, test = (count / len(self.y) for count in (self.records, self.test))
        return np.flatnonzero(drawn < private), np.flatnonzero(drawn >= 1.0 - test)


def _choices(name: str, distribution: BaseDistribution) -> tuple[Any, ...]:
    if not isinstance(distribution, CategoricalDistribution):
        raise ValueError(f"{name} cannot be listed: a landscape needs choices only")
    return distribution.choices


def choices(**given: tuple[Any, ...]) -> dict[str, BaseDistribution]:
    """A space in which everything is one of some choices."""
    return {name: CategoricalDistribution(values) for name, values in given.items()}


def from_file(path: Path) -> ModuleType:
    """What a file of Python defines."""
    spec = importlib.util.spec_from_file_location(f"compared_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def load(name: str) -> Task:
    """A task by its name, or by the path of its file."""
    path = Path(name) if name.endswith(".py") else HERE / "tasks" / f"{name}.py"
    found: Task = from_file(path).task()
    return found
