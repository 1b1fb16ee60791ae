"""DP-SGD on features made by public transforms, at the rate that a rehearsal finds.

The engine is that of ``examples/known_without_data``. Hyperparameters that are known here:

=============  =================================================================================
``features``   the name of one of the task's transforms; "joined" is all of them side by side
``width``      units of one hidden layer; 0 is a softmax regression
``depth``      number of hidden layers, 1 unless given
``unit``       "tanh" (unless given) or "relu"
``optimiser``  "sgd" (unless given), "momentum" or "adam"
``decay``      0 unless given: of its first weights, a training keeps exp(-``decay``), however long
               it is. The learning rate goes up, so that noise adds up to as much as without.
``balance``    from 0 to 1: records of common classes join a step more rarely, so that classes
               count by their shares to the power of 1 - ``balance``. A record joins with at most
               the chance that is paid for.
=============  =================================================================================
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from landscape import JOINED
from task import Array, Params, Predict, Train

from optuna_dp.runs.run import Run
from optuna_dp.training.public_maps import side_by_side

sys.path.append(str(Path(__file__).parents[1] / "known_without_data"))

import rehearsed
import training

# A softmax regression on all maps, which a short list may have and no space has.
BEYOND: tuple[Params, ...] = ({"features": JOINED, "width": 0},)
# Uniform on this range has mean 0 and standard deviation 1.
STANDARD = (-(3**0.5), 3**0.5)
Transform = Callable[[Array], Array]


def trained(
    transforms: Mapping[str, Transform],
    made_up: Callable[[], Array],
    classes: int,
    shares: tuple[float, ...] | None = None,
) -> Train:
    """Returns the training of a task.

    Args:
        transforms: Public feature maps by name, from inputs to (n, features) of order one.
        made_up: Inputs that look like the public description of the records.
        classes: Number of classes.
        shares: Public shares of the classes, for ``balance``.
    """

    @functools.cache
    def transform_of(features: str) -> Transform:
        return side_by_side(transforms, made_up()) if features == JOINED else transforms[features]

    @functools.cache
    def noise_per_weight(
        features: str, model: training.Model, optimiser: str, steps: int
    ) -> float:
        """What a rehearsal finds, as a number that suits all noise multipliers."""
        inputs = transform_of(features)(made_up())
        start = model.start(inputs.shape[1], classes, np.random.default_rng(0))
        public = {"noise_multiplier": 1.0, "steps": steps, "batch_size": 1.0}
        rate = rehearsed.rehearsed(
            lambda weights, x: model.logits(weights, x),
            start,
            inputs,
            optimizer=optimiser,
            **public,
        )
        return float(rehearsed.noise_per_weight(optimiser, rate, **public))

    def train(x: Array, y: Array, params: Params, run: Run, rng: np.random.Generator) -> Predict:
        transform = transform_of(params["features"])
        widths = (params["width"],) * params.get("depth", 1) if params["width"] else ()
        model = training.Model(widths, params.get("unit", "tanh"))
        optimiser = params.get("optimiser", "sgd")
        noise = noise_per_weight(params["features"], model, optimiser, max(run.steps, 20))
        decay = params.get("decay", 0.0)
        if decay:
            # The noise of early steps has shrunk by the end: a root of a mean of exp(-2 decay t).
            noise /= math.sqrt(-math.expm1(-2.0 * decay) / (2.0 * decay))
        inputs = transform(x)
        chance = np.full(len(y), run.sample_rate)
        if params.get("balance"):
            ratio = min(shares) / np.array(shares)
            chance *= ratio[y] ** params["balance"]
        weights = training.train(
            model,
            inputs,
            y,
            [np.arange(len(y))],
            classes,
            optimiser=optimiser,
            rates=np.array([run.learning_rate(optimiser, noise_per_weight=noise)]),
            noise_multiplier=run.noise_multiplier,
            sample_rates=[chance],
            batch=run.batch_size,
            steps=run.steps,
            kept=math.exp(-decay / run.steps),
            rng=rng,
        )
        own = [layer[0, 0] for layer in weights]
        return lambda at: model.logits(own, transform(at))

    return train


def standardised(x: Array) -> Array:
    """The data's own mean and spread, taken for public here."""
    return np.clip((x - x.mean(axis=0)) / x.std(axis=0), -3.0, 3.0).astype(np.float32)


def random_features(columns: int, count: int, scale: float) -> Transform:
    """Cosines of random directions, the same each time (Rahimi and Recht, 2007)."""
    rng = np.random.default_rng(0)
    directions = (scale * rng.standard_normal((columns, count))).astype(np.float32)
    shifts = rng.uniform(0.0, 2.0 * np.pi, count).astype(np.float32)
    return lambda x: np.cos(x @ directions + shifts)


def tables(columns: int, count: int) -> dict[str, Transform]:
    """Feature maps of tables with standardised columns, eight of them."""
    few = max(2, columns // 4)
    mixed = np.random.default_rng(1).standard_normal((columns, few)).astype(np.float32)
    return {
        "raw": lambda x: x,
        "a quarter": lambda x: x[:, :few],
        "the last half": lambda x: x[:, columns // 2 :],
        "signs": lambda x: np.sign(x),
        "squares too": lambda x: np.hstack([x, (x * x - 1.0) / 2**0.5]),
        "three bins": lambda x: np.hstack([x < -0.5, x > 0.5]).astype(np.float32),
        "mixed to few": lambda x: x @ mixed / columns**0.5,
        "cosines": random_features(columns, count, 1.0 / columns**0.5),
    }
