"""The rehearsal: a training on noise alone, which finds the learning rate without any record.

A rule for the noise of each weight (``learning_rate.py``) does not know the model. What a model
can bear is noise in its output. So the private gradient is set to zero, and only the noise of
DP-SGD goes through the user's own optimiser, schedule and weight decay. The rate is the one at
which the logits of made-up inputs have moved by a given size at the end. That one size suits
models, data and epsilons is an observation (``docs/explanation/known-without-data.md``), so the
rate is a good guess and no optimum.

No private record is an argument of anything here, and none may be: the rate is then public.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from optuna_dp import validation
from optuna_dp.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError, MissingExtraError
from optuna_dp.training.learning_rate import (
    LARGEST_STEP,
    Optimizer,
    check_optimizer,
    checked_momentum,
    learning_rate,
)

if TYPE_CHECKING:
    import torch

# Of networks, and of models without a hidden layer, which bear more.
SIZE, LINEAR_SIZE = 1.0, 1.7
LEAST_NOISE_PER_WEIGHT, LARGEST_NOISE_PER_WEIGHT = 0.08, 0.6
FEWEST_STEPS = 20
LEAST_NOISE_MULTIPLIER = 0.05
# Below it up to 5 points were lost; from this share on the model of the majority is hard to beat.
_FEW_FEATURES, _LARGE_CLASS = 10, 0.7
# Of the logarithm of the rate; the curves of accuracy are flat over ten times that.
_TOLERANCE = 0.05
_DEEP = 3
# Of the noise; and how often a search is begun again, where weight decay bends a walk.
_DRAWS, _REPEATS = 8, 8
_BETAS, _TINY = (0.9, 0.999), 1e-8

# From a learning rate to the change of the logits, (inputs, classes).
NoiseTraining = Callable[[float], npt.ArrayLike]


@dataclass(frozen=True)
class Rehearsal:
    """What a rehearsal found.

    Attributes:
        learning_rate: The rate to train with: the first one, where a schedule changes it.
        size: Standard deviation over classes of the change of the logits at that rate; the root
            of its mean square over the inputs.
        target: The size that was looked for. ``size`` differs where the bounds of the noise of a
            weight decided.
        remarks: Where the rule is known to be weak in this case; each was a warning too.
    """

    learning_rate: float
    size: float
    target: float
    remarks: tuple[str, ...] = ()


def rehearse(
    train: NoiseTraining,
    *,
    optimizer: Optimizer = "sgd",
    noise_multiplier: float,
    steps: int,
    batch_size: float,
    clipping_norm: float = 1.0,
    momentum: float = 0.9,
    features: int | None = None,
    largest_class: float | None = None,
    size: float = SIZE,
) -> Rehearsal:
    """Returns the learning rate at which noise alone moves the logits by a given size.

    ``train(rate)`` trains a fresh copy of the model as the private training will, but with
    gradients that are noise only: normal, with standard deviation
    ``noise_multiplier * clipping_norm / batch_size`` in every weight, fresh in each call. It
    returns the logits on made-up or public inputs after the training, less those before it. It
    must not touch a private record. It is called about fifty times, eight for each rate: one draw
    of the noise says little where there are few classes.

    :func:`rehearse_module` and :func:`rehearse_arrays` have such a function ready.

    Args:
        train: From a learning rate to the change of the logits, (inputs, classes), of at least
            two classes.
        optimizer: "sgd", "momentum", "adam" or "adamw"; bounds the rate, with the five below: the
            noise of a weight stays between 0.08 and 0.6 (see :func:`learning_rate`).
        noise_multiplier: Noise of one step over the clipping norm, at least 0.05.
        steps: Number of steps, at least 20.
        batch_size: Expected number of records in a batch; positive.
        clipping_norm: Largest norm of one record's gradient; positive.
        momentum: In [0, 1); for "momentum" only.
        features: Number of features, if known; fewer than 10 make a remark.
        largest_class: Share of the largest class, in (0, 1), if it is public; 0.7 and more make a
            remark.
        size: The target, positive: 1.0 suits networks, 1.7 models without a hidden layer.

    Raises:
        InvalidArgumentError: If an argument is not allowed; if the model has one output, as for
            regression, for which there is no constant; if there are fewer than 20 steps; if there
            is hardly any noise.

    Example:
        >>> import numpy as np, optuna_dp as odp
        >>> inputs = odp.made_up_inputs(*[(0, 1)] * 64)
        >>> rng = np.random.default_rng()
        >>> def train(rate):  # SGD from zeros, for a softmax regression
        ...     weights = np.zeros((64, 10))
        ...     for _ in range(100):
        ...         weights -= rate * rng.normal(0.0, 2.0 / 64, weights.shape)
        ...     return inputs @ weights
        >>> found = odp.rehearse(train, noise_multiplier=2.0, steps=100, batch_size=64)
        >>> 0.5 < found.learning_rate < 1.5
        True
    """
    given = _Training.checked(noise_multiplier, steps, batch_size, clipping_norm)
    check_optimizer(optimizer)
    remarks = _remarks(features, largest_class)
    bounds = [
        learning_rate(
            optimizer,
            noise_multiplier=given.noise_multiplier,
            steps=given.steps,
            batch_size=given.batch_size,
            clipping_norm=given.clipping_norm,
            momentum=momentum,
            noise_per_weight=noise,
        )
        for noise in (LEAST_NOISE_PER_WEIGHT, LARGEST_NOISE_PER_WEIGHT)
    ]
    found = _search(
        lambda rate: _together([size_of_change(train(rate)) for _ in range(_DRAWS)]),
        bounds[0],
        bounds[1],
        size,
        remarks,
    )
    for remark in remarks:
        warnings.warn(remark, UserWarning, stacklevel=2)
    return found


def rehearse_module(
    module: torch.nn.Module,
    inputs: Any,
    *,
    optimizer: Callable[[Iterable[torch.nn.Parameter], float], torch.optim.Optimizer],
    noise_multiplier: float,
    steps: int,
    batch_size: float,
    clipping_norm: float = 1.0,
    scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
    largest_class: float | None = None,
    size: float | None = None,
) -> Rehearsal:
    """Rehearses the training of a PyTorch module, with its own optimiser and schedule.

    The module itself is not changed. Parameters that need no gradient stay as they are. It runs in
    evaluation mode, without dropout.

    Args:
        module: The model as it is before the private training; from inputs to logits.
        inputs: Made-up or public inputs: a tensor or an array, or whatever the module takes; see
            :func:`made_up_inputs` and :func:`made_up_images`. **No private records.**
        optimizer: From parameters and a learning rate to an optimiser, for example
            ``lambda parameters, rate: torch.optim.AdamW(parameters, lr=rate)``.
        noise_multiplier: Noise of one step over the clipping norm, at least 0.05.
        steps: Number of steps, at least 20.
        batch_size: Expected number of records in a batch; positive.
        clipping_norm: Largest norm of one record's gradient; positive.
        scheduler: From the optimiser to a scheduler, whose ``step()`` is called after every step.
        largest_class: Share of the largest class, in (0, 1), if it is public.
        size: The target, positive. Unless given, 1.7 if a single matrix or tensor is trained, and
            1.0 for networks.

    Raises:
        InvalidArgumentError: As for :func:`rehearse`.
        MissingExtraError: If PyTorch is not installed.

    Example:
        .. code-block:: python

            found = odp.rehearse_module(
                model,
                odp.made_up_images(1, 28, 28),
                optimizer=lambda parameters, rate: torch.optim.AdamW(parameters, lr=rate),
                noise_multiplier=run.noise_multiplier,
                steps=run.steps,
                batch_size=256,
            )
            optimizer = torch.optim.AdamW(model.parameters(), lr=found.learning_rate)
    """
    try:
        import torch  # Lazy: an extra.
    except ImportError:
        raise MissingExtraError("torch", "opacus") from None

    given = _Training.checked(noise_multiplier, steps, batch_size, clipping_norm)
    if isinstance(inputs, np.ndarray):
        first = next(module.parameters())
        inputs = torch.as_tensor(inputs, dtype=first.dtype, device=first.device)
    trained = [p for p in module.parameters() if p.requires_grad]
    if not trained:
        raise InvalidArgumentError("module", module, "it must have parameters to train")

    def logits(model: torch.nn.Module) -> FloatArray:
        with torch.no_grad():
            return np.asarray(model(inputs).detach().cpu().double().numpy())

    before_training = copy.deepcopy(module).eval()
    before = logits(before_training)

    def walk(rate: float, draw: int) -> _Walk:
        model = copy.deepcopy(before_training)
        parameters = [p for p in model.parameters() if p.requires_grad]
        steps_of = optimizer(parameters, rate)
        rates_of = None if scheduler is None else scheduler(steps_of)
        # Not private: nothing is protected by this noise, so it may have a seed.
        generators = {p.device: torch.Generator(p.device).manual_seed(draw) for p in parameters}
        for p in parameters:
            p.grad = torch.zeros_like(p)
        for _ in range(given.steps):
            for p in parameters:
                assert p.grad is not None
                p.grad.normal_(0.0, given.noise_of_a_step, generator=generators[p.device])
            steps_of.step()
            if rates_of is not None:
                rates_of.step()
        moved = [(new - old).detach() for new, old in zip(parameters, trained, strict=True)]
        squares = sum(float((change.double() ** 2).sum()) for change in moved)

        def size_at(times: float) -> float:
            with torch.no_grad():
                for p, old, change in zip(parameters, trained, moved, strict=True):
                    p.copy_(old + times * change)
            return size_of_change(logits(model) - before)

        return _Walk(math.sqrt(squares / sum(change.numel() for change in moved)), size_at)

    kind = optimizer(copy.deepcopy(before_training).parameters(), 1.0)
    largest = math.inf
    if isinstance(kind, torch.optim.SGD):
        largest = LARGEST_STEP / given.clipping_norm * (1.0 - kind.param_groups[0]["momentum"])
    wanted = _size(size, sum(p.ndim > 1 for p in trained))
    normalised = sum(isinstance(part, torch.nn.LayerNorm) for part in module.modules())
    features = math.prod(inputs.shape[1:]) if isinstance(inputs, torch.Tensor) else None
    remarks = _remarks(
        features,
        largest_class,
        deep_layer_norm=normalised >= _DEEP,
        convolutions=any(isinstance(part, torch.nn.Conv2d) for part in module.modules()),
    )
    return _search_walks(walk, given, largest, wanted, remarks)


def rehearse_arrays(
    logits: Callable[[list[FloatArray], FloatArray], npt.ArrayLike],
    weights: Sequence[npt.ArrayLike],
    inputs: npt.ArrayLike,
    *,
    optimizer: Optimizer = "sgd",
    noise_multiplier: float,
    steps: int,
    batch_size: float,
    clipping_norm: float = 1.0,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    schedule: Callable[[int], float] | None = None,
    largest_class: float | None = None,
    size: float | None = None,
) -> Rehearsal:
    """Rehearses the training of a model in numpy.

    Args:
        logits: From a list of weights and inputs, (inputs, features), to (inputs, classes).
        weights: As they are before the private training, arrays of any shapes.
        inputs: Made-up or public inputs, see :func:`made_up_inputs`. **No private records.**
        optimizer: "sgd", "momentum", "adam" or "adamw", with PyTorch's other defaults.
        noise_multiplier: Noise of one step over the clipping norm, at least 0.05.
        steps: Number of steps, at least 20.
        batch_size: Expected number of records in a batch; positive.
        clipping_norm: Largest norm of one record's gradient; positive.
        momentum: In [0, 1); for "momentum" only.
        weight_decay: Not negative; added to the gradient, and with "adamw" to the step.
        schedule: From the number of a step, from 0, to what its rate is multiplied by.
        largest_class: Share of the largest class, in (0, 1), if it is public.
        size: The target, positive. Unless given, 1.7 if a single matrix or tensor is trained, and
            1.0 for networks.

    Raises:
        InvalidArgumentError: As for :func:`rehearse`.

    Example:
        >>> import numpy as np, optuna_dp as odp
        >>> found = odp.rehearse_arrays(
        ...     lambda weights, inputs: inputs @ weights[0],
        ...     [np.zeros((64, 10))],
        ...     odp.made_up_inputs(*[(0, 1)] * 64),
        ...     optimizer="adam",
        ...     noise_multiplier=2.0,
        ...     steps=150,
        ...     batch_size=64,
        ... )
        >>> 0.02 < found.learning_rate < 0.05
        True
    """
    given = _Training.checked(noise_multiplier, steps, batch_size, clipping_norm)
    check_optimizer(optimizer)
    kept = checked_momentum(momentum)
    decay = validation.non_negative("weight_decay", weight_decay)
    start = [np.asarray(layer, dtype=float) for layer in weights]
    if not start:
        raise InvalidArgumentError("weights", weights, "there must be at least one array")
    shown = np.asarray(inputs, dtype=float)
    before = np.asarray(logits([layer.copy() for layer in start], shown), dtype=float)

    def walk(rate: float, draw: int) -> _Walk:
        # Not private: nothing is protected by this noise, so it may have a seed.
        rng = np.random.default_rng(draw)
        now = [layer.copy() for layer in start]
        first, second = ([np.zeros_like(layer) for layer in start] for _ in range(2))
        for t in range(given.steps):
            own = rate if schedule is None else rate * schedule(t)
            for layer, mean, square in zip(now, first, second, strict=True):
                gradient = rng.normal(0.0, given.noise_of_a_step, layer.shape)
                if optimizer == "adamw":
                    layer *= 1.0 - own * decay
                elif decay:
                    gradient += decay * layer
                if optimizer == "sgd":
                    layer -= own * gradient
                elif optimizer == "momentum":
                    mean *= kept
                    mean += gradient
                    layer -= own * mean
                else:
                    mean += (1.0 - _BETAS[0]) * (gradient - mean)
                    square += (1.0 - _BETAS[1]) * (gradient * gradient - square)
                    root = np.sqrt(square / (1.0 - _BETAS[1] ** (t + 1))) + _TINY
                    layer -= own * mean / (1.0 - _BETAS[0] ** (t + 1)) / root
        moved = [new - old for new, old in zip(now, start, strict=True)]
        squares = sum(float(np.sum(change**2)) for change in moved)

        def size_at(times: float) -> float:
            there = [old + times * change for old, change in zip(start, moved, strict=True)]
            return size_of_change(np.asarray(logits(there, shown)) - before)

        return _Walk(math.sqrt(squares / sum(layer.size for layer in start)), size_at)

    largest = math.inf
    if optimizer in ("sgd", "momentum"):
        slowed = 1.0 if optimizer == "sgd" else 1.0 - kept
        largest = LARGEST_STEP / given.clipping_norm * slowed
    wanted = _size(size, sum(layer.ndim > 1 for layer in start))
    remarks = _remarks(shown.shape[1] if shown.ndim == 2 else None, largest_class)
    return _search_walks(walk, given, largest, wanted, remarks)


def size_of_change(change: npt.ArrayLike) -> float:
    """Returns the standard deviation over classes, in root mean square over inputs.

    Args:
        change: Of the logits, (inputs, classes).

    Returns:
        The size; infinite if a logit is no finite number.

    Raises:
        InvalidArgumentError: If there are not at least two classes.
    """
    found = np.asarray(change, dtype=float)
    if found.ndim != 2 or found.shape[0] == 0 or found.shape[1] < 2:
        raise InvalidArgumentError(
            "train",
            f"logits of shape {found.shape}",
            "the change must be (inputs, classes) with at least two classes",
            "For two classes and one logit z return the columns (0, z). For regression there is "
            "no constant: choose the rate from public data, or let pilots find it.",
        )
    if not np.all(np.isfinite(found)):
        return math.inf  # the training blew up: any smaller rate is better
    return float(np.sqrt(np.mean(np.var(found, axis=1))))


@dataclass(frozen=True)
class _Training:
    """The public numbers of a private training."""

    noise_multiplier: float
    steps: int
    batch_size: float
    clipping_norm: float

    @classmethod
    def checked(cls, noise: Any, steps: Any, batch_size: Any, clipping_norm: Any) -> _Training:
        multiplier = validation.positive("noise_multiplier", noise)
        if multiplier < LEAST_NOISE_MULTIPLIER:
            raise InvalidArgumentError(
                "noise_multiplier",
                noise,
                f"a rehearsal needs noise of at least {LEAST_NOISE_MULTIPLIER:g}: below that, the "
                "loss limits the learning rate, not the noise",
                "Choose the learning rate as in training without privacy.",
            )
        length = validation.whole("steps", steps, 1)
        if length < FEWEST_STEPS:
            raise InvalidArgumentError(
                "steps",
                steps,
                f"the rule fails with fewer than {FEWEST_STEPS} steps",
                "Take smaller batches, or train for longer.",
            )
        batch = validation.positive("batch_size", batch_size)
        norm = validation.positive("clipping_norm", clipping_norm)
        return cls(multiplier, length, batch, norm)

    @property
    def noise_of_a_step(self) -> float:
        """Standard deviation of the noise in a gradient's entry."""
        return self.noise_multiplier * self.clipping_norm / self.batch_size


class _Walk(NamedTuple):
    """The end of one training on noise.

    Attributes:
        noise: Root of the mean square of the changes of the weights.
        size_at: The size of the change of the logits if the weights had moved so many times as
            far.
    """

    noise: float
    size_at: Callable[[float], float]


def _search_walks(
    walk: Callable[[float, int], _Walk],
    given: _Training,
    largest: float,
    size: float,
    remarks: tuple[str, ...],
) -> Rehearsal:
    """Searches among walks of the same noise, which are in proportion to their rates.

    The gradients do not depend on the weights, so only weight decay makes them differ from that;
    then a walk at the rate that was found shows it, and the search begins again from there.
    """
    rate = LEAST_NOISE_PER_WEIGHT / math.sqrt(given.steps)
    if math.isfinite(largest):  # SGD: in units of the noise
        rate = min(rate / given.noise_of_a_step, largest)
    for _ in range(_REPEATS):
        walks = [walk(rate, draw) for draw in range(_DRAWS)]
        noise = _together([one.noise for one in walks])
        if not 0.0 < noise < math.inf:
            raise InvalidArgumentError(
                "optimizer", noise, "training on noise must move the weights, by a finite amount"
            )
        bounds = [
            min(rate * wanted / noise, largest)
            for wanted in (LEAST_NOISE_PER_WEIGHT, LARGEST_NOISE_PER_WEIGHT)
        ]

        def measure(tried: float, walks: list[_Walk] = walks, rate: float = rate) -> float:
            return _together([one.size_at(tried / rate) for one in walks])

        found = _search(measure, bounds[0], bounds[1], size, remarks)
        times = found.learning_rate / rate
        rate = found.learning_rate
        if abs(math.log(walk(rate, 0).noise / (times * walks[0].noise))) < _TOLERANCE:
            break
    for remark in remarks:
        warnings.warn(remark, UserWarning, stacklevel=3)
    return found


def _size(given: float | None, layers: int) -> float:
    """Returns the target for so many trained layers, unless it is given."""
    return given if given is not None else LINEAR_SIZE if layers <= 1 else SIZE


def _together(sizes: Sequence[float]) -> float:
    """Returns the root of the mean square."""
    return math.sqrt(sum(size * size for size in sizes) / len(sizes))


def _search(
    measure: Callable[[float], float],
    least: float,
    largest: float,
    size: float,
    remarks: tuple[str, ...],
) -> Rehearsal:
    """Returns the rate between two at which the size is the target, or the nearer end."""
    target = validation.positive("size", size)
    seen: dict[float, float] = {}

    def excess(log_rate: float) -> float:
        found = seen[log_rate] = measure(math.exp(log_rate))
        # Logits that overflow, or do not move at all, still say which side they are on.
        return math.log(min(max(found, 1e-12), 1e12) / target)

    low, high = math.log(least), math.log(largest)
    if excess(low) >= 0.0:
        return Rehearsal(least, seen[low], target, remarks)
    if excess(high) <= 0.0:
        return Rehearsal(largest, seen[high], target, remarks)
    brentq(excess, low, high, xtol=_TOLERANCE)
    at = min(seen, key=lambda log_rate: abs(math.log(max(seen[log_rate], 1e-12) / target)))
    return Rehearsal(math.exp(at), seen[at], target, remarks)


def _remarks(
    features: int | None,
    largest_class: float | None,
    *,
    deep_layer_norm: bool = False,
    convolutions: bool = False,
) -> tuple[str, ...]:
    """Returns where the rule is known to be weak."""
    found = []
    if features is not None and features < _FEW_FEATURES:
        found.append(
            f"With only {features} features the rehearsed rate is less certain: in tests it lost "
            "up to 5 points of accuracy."
        )
    if largest_class is not None and (
        validation.open_unit("largest_class", largest_class) >= _LARGE_CLASS
    ):
        found.append(
            f"With {largest_class:.0%} of the records in one class the rehearsed rate is often "
            "too small."
        )
    if deep_layer_norm:
        found.append(
            "Deep networks with LayerNorm want less noise than others: try size=0.7 in the "
            "rehearsal."
        )
    if convolutions:
        found.append(
            "With convolutions the rate of run.learning_rate was better in the one network "
            "measured, by up to 13 points of accuracy."
        )
    return tuple(found)


# -- inputs made up from a public schema ----------------------------------------------------------


def made_up_inputs(*columns: tuple[float, float] | int, rows: int = 256) -> FloatArray:
    """Returns inputs that look like the public description of the records, and like nothing else.

    The scale of the columns matters, for it is what the rehearsal depends on: a range that is ten
    times too wide makes the learning rate about ten times too small. A standardised feature is
    given as the range (-1.73, 1.73), which has standard deviation 1. Describe columns by what is
    public. Minima and maxima that were read off private records are not.

    Args:
        *columns: For each feature a range (low, high), drawn uniformly, or for each block of
            features that are zero except for a single one, its width, a whole number from 2 on.
        rows: Number of inputs, at least 1.

    Returns:
        (rows, features); the same each time.

    Raises:
        InvalidArgumentError: If a column is neither.

    Example:
        >>> import optuna_dp as odp
        >>> odp.made_up_inputs((0, 1), (-1.73, 1.73), 5, rows=100).shape
        (100, 7)
    """
    count = validation.whole("rows", rows, 1)
    if not columns:
        raise InvalidArgumentError("columns", columns, "there must be at least one")
    rng = np.random.default_rng(0)
    parts = []
    for column in columns:
        if isinstance(column, tuple | list):
            low, high = _range_of(column)
            parts.append(rng.uniform(low, high, (count, 1)))
        else:
            width = validation.whole("columns", column, 2)
            parts.append(np.eye(width)[rng.integers(width, size=count)])
    return np.hstack(parts)


def made_up_images(
    *shape: int, low: float = 0.0, high: float = 1.0, rows: int = 256
) -> FloatArray:
    """Returns images of a public shape and range: squares of even brightness.

    Neighbouring pixels of a picture are alike, and convolutions answer to that; so a picture is
    about four squares wide and high, each uniform in the range.

    Args:
        *shape: Channels, height, width.
        low: Darkest value.
        high: Brightest value, above ``low``.
        rows: Number of images, at least 1.

    Returns:
        (rows, channels, height, width); the same each time.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """
    count = validation.whole("rows", rows, 1)
    if len(shape) != 3:
        raise InvalidArgumentError("shape", shape, "it must be channels, height, width")
    channels, height, width = (validation.whole("shape", side, 1) for side in shape)
    bottom, top = _range_of((low, high))
    rng = np.random.default_rng(0)
    squares = rng.uniform(bottom, top, (count, channels, 4, 4))
    down, across = np.arange(height) * 4 // height, np.arange(width) * 4 // width
    return np.asarray(squares[:, :, down][:, :, :, across])


def _range_of(given: Any) -> tuple[float, float]:
    if len(given) != 2:
        raise InvalidArgumentError("columns", given, "a range must be (low, high)")
    low, high = (validation.number("columns", value) for value in given)
    if not -np.inf < low < high < np.inf:
        raise InvalidArgumentError("columns", given, "a range must be (low, high) with low < high")
    return low, high
