"""The rehearsal: a training on noise alone, which finds the learning rate without any record.

What a model can bear is noise in its output. So the private gradient is set to zero, and only the
noise of DP-SGD goes through the steps of the private training: its optimizer, schedule, weight
decay and averaging. The rate is the one at which the outputs for made-up inputs have moved by a
given size at the end: logits, or the number that a regression answers with. That a size suits all
models of a kind, all data and all epsilons is an observation
(``docs/explanation/known-without-data.md``), so the rate is a good guess and no optimum.

No private record is an argument of anything here, and none may be: the rate is then public.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError, MissingExtraError, type_of
from optuna_dp.runs.run import Run
from optuna_dp.training.learner import Learner, Rehearsable, take_steps
from optuna_dp.training.noise_walk import NoiseWalk, noise_walk
from optuna_dp.training.optimizers import OptimizerFactory
from optuna_dp.training.record_arrays import is_array, leaves, some_rows
from optuna_dp.training.schedules import DEFAULT_SCHEDULE, Schedule

if TYPE_CHECKING:
    import torch

# What a model is called with: a tensor or an array, a tuple for several arguments, or a mapping
# for arguments by name.
Inputs: TypeAlias = Any
# Numbers of a model that are trained: an array of numpy or a tensor of PyTorch.
Weight: TypeAlias = Any

# Of models whose trained weights act through recurrence, or on tokens through attention; others.
SEQUENCE_SIZE, SIZE = 0.85, 1.7
_GIVEN = "size was given"
# Of models with one output, whose targets lie in [-1, 1].
ONE_OUTPUT_SIZE = 0.5
# Networks of up to two hidden layers were compared; deeper ones were not.
MOST_DENSE_LAYERS = 3
# The rate of SGD times the clipping norm, and over 1 - momentum, up to which no training was lost.
LARGEST_SGD_STEP = 10.0
# The same for one output, because a squared error is curved everywhere.
LARGEST_SGD_STEP_OF_ONE_OUTPUT = 0.5
# Of the logarithm of the rate; the curves of accuracy are flat over ten times that.
_TOLERANCE = 0.05
# Draws of the noise: their number times that of the classes less one says how well the size is
# known. Squares of the sizes of single draws spread by a third to two thirds of their mean, for
# models of 600 to a million weights. So 12 draws know a size to 5 to 9 %, and 5 draws to 15 %.
_FEWEST_DRAWS, _MOST_DRAWS, _DEVIATIONS = 2, 8, 40
_MOST_LAST_DRAWS, _LAST_DEVIATIONS = 24, 100
_LAST_STEPS, _LAST_TOLERANCE = 6, 0.03
# Outputs for other inputs move by the same noise, so more of them tell little.
_MOST_INPUTS = 64
# How often a search is begun again, where weight decay bends a walk; and how far it goes.
_REPEATS, _FACTOR, _FACTORS = 8, 4.0, 30
# Outputs that noise moves by less have another reason, such as weights that nothing depends on.
_LEAST_SIZE = 1e-3
# Of a size that was aimed at: what a search reaches unless it is out of reach.
_FAR_ENOUGH = 0.6
# Of a weight, where the search begins.
_FIRST_NOISE = 0.1


@dataclass(frozen=True)
class Rehearsal:
    """What a rehearsal found.

    Attributes:
        learning_rate: The rate to train with: that of the first step.
        noise_per_weight: Root mean square of what the noise has moved the weights by at the end.
            A model's best one is about the same at every epsilon, so it is what to search, once.
        size: Standard deviation over classes of the change of the logits at that rate; the root
            of its mean square over the inputs. Of a single output the root mean square itself.
        aim: The size that was aimed at.
        reason: Why that size, in words.
        remarks: Where the rule is known to be weak in this case; each was a warning too.
    """

    learning_rate: float
    noise_per_weight: float
    size: float
    aim: float
    reason: str
    remarks: tuple[str, ...] = ()


def rehearse_module(
    run: Run,
    module: torch.nn.Module,
    inputs: Inputs,
    *,
    optimizer: str | OptimizerFactory = "adam",
    schedule: Schedule = DEFAULT_SCHEDULE,
    clipping_norm: float = 1.0,
    size: float | None = None,
) -> Rehearsal:
    """Rehearses a private training of a PyTorch module on noise alone, and returns its rate.

    :func:`optuna_dp.train` does this by itself. This is for training loops of your own. The module
    is in evaluation mode meanwhile, and is as it was at the end. Only parameters that require a
    gradient are trained.

    Args:
        run: The run, or the numbers of one (``plan.final``): its noise, steps and batch.
        module: The model as it is before the private training; from inputs to logits, as a tensor
            or as Hugging Face's models return them. The last axis is that of the classes. A
            single output is taken for the answer of a regression, whose targets lie in [-1, 1].
        inputs: Made-up or public inputs: a tensor or an array; a tuple for several arguments; a
            mapping for arguments by name. See :func:`made_up_inputs`, :func:`made_up_images` and
            :func:`made_up_tokens`. **No private records.**
        optimizer: As for :func:`optuna_dp.train`: a name, or a function from parameters and a
            learning rate to an optimizer.
        schedule: How the rate falls, and which of the last weights are averaged.
        clipping_norm: Largest norm of one record's gradient; positive.
        size: How far noise may move the logits, positive. By default 0.85 if trained weights act
            on them through recurrence, as in an LSTM, or on tokens through attention, as in a
            language model or with LoRA; 1.7 if not, as in a softmax regression, a dense or
            convolutional network, a transformer over pictures or measurements, a table or a bag
            of embeddings, and a last layer, whatever is frozen before it. 0.5 for a single output.
            ``Rehearsal.reason`` says which it was. The rate is about in proportion to it.

    Raises:
        InvalidArgumentError: If an argument is not allowed; if the module cannot take the inputs.
        MissingExtraError: If PyTorch is not installed.

    Example:
        .. code-block:: python

            found = odp.rehearse_module(
                run, model, odp.made_up_images(1, 28, 28), optimizer="adamw"
            )
            optimizer = torch.optim.AdamW(model.parameters(), lr=found.learning_rate)
    """
    if not isinstance(run, Run):
        raise InvalidArgumentError(
            "run",
            run,
            allowed="it must be what optuna_dp.start_run(trial) returned, or a plan's run",
        )
    if not isinstance(schedule, Schedule):
        raise InvalidArgumentError(
            "schedule", schedule, allowed="it must be an optuna_dp.Schedule"
        )
    try:
        import torch  # An extra.
    except ImportError:
        raise MissingExtraError("torch", "torch") from None
    if not isinstance(module, torch.nn.Module):
        raise InvalidArgumentError("module", module, allowed="it must be a torch.nn.Module")
    from optuna_dp.training.own_model import OwnModel  # It needs PyTorch, an extra.

    rehearsal = rehearsed(
        run,
        OwnModel(module),
        inputs,
        optimizer=optimizer,
        schedule=schedule,
        clipping_norm=validation.positive("clipping_norm", clipping_norm),
        size=None if size is None else validation.positive("size", size),
    )
    if rehearsal is None:
        raise _unmoved(optimizer)
    for remark in rehearsal.remarks:
        warnings.warn(remark, UserWarning, stacklevel=2)
    return rehearsal


def rehearsed_in_turn(
    run: Run,
    weights: Rehearsable,
    inputs: Inputs,
    *,
    optimizers: Sequence[str | OptimizerFactory],
    schedule: Schedule,
    clipping_norm: float,
    size: float | None = None,
) -> tuple[str | OptimizerFactory, Rehearsal]:
    """Rehearses optimizers in turn, and returns the first one that suits, with its rehearsal.

    SGD does not suit if its steps may be too long for a loss, or too short to move a weight. If
    none suits, the last one is returned.

    Args:
        run: The numbers of the run.
        weights: What is trained.
        inputs: What the model is called with; no records.
        optimizers: At least one: names, or functions that make an optimizer.
        schedule: How the rate falls, and which of the last weights are averaged.
        clipping_norm: Largest norm of one record's gradient.
        size: How far noise may move the outputs; None for the default.

    Raises:
        InvalidArgumentError: As for :func:`rehearsed`, and if noise moves no weight by the last
            optimizer.
    """
    for optimizer in optimizers:
        rehearsal = rehearsed(
            run,
            weights,
            inputs,
            optimizer=optimizer,
            schedule=schedule,
            clipping_norm=clipping_norm,
            size=size,
        )
        if rehearsal is not None and not rehearsal.remarks:
            break
    if rehearsal is None:
        raise _unmoved(optimizer)
    return optimizer, rehearsal


def _unmoved(optimizer: str | OptimizerFactory) -> InvalidArgumentError:
    return InvalidArgumentError(
        "optimizer",
        optimizer,
        problem="noise alone did not move the weights, or moved them without bound, so no rate "
        "is found",
        fix="Take optimizer='adam', or give learning_rate=, the rate of the first step.",
    )


def rehearsed(
    run: Run,
    weights: Rehearsable,
    inputs: Inputs,
    *,
    optimizer: str | OptimizerFactory,
    schedule: Schedule,
    clipping_norm: float,
    size: float | None = None,
) -> Rehearsal | None:
    """Rehearses a training, and puts the weights back to what they were.

    Args:
        run: The numbers of the run.
        weights: What is trained.
        inputs: What the model is called with; no records.
        optimizer: A name, or a function that makes one.
        schedule: How the rate falls, and which of the last weights are averaged.
        clipping_norm: Largest norm of one record's gradient.
        size: How far noise may move the outputs; None for the default.

    Returns:
        What was found; None if noise moves no weight by a finite length, as where a step is below
        the precision of a weight.

    Raises:
        InvalidArgumentError: If the model cannot take the inputs or has no classes, if noise does
            not move its output, or the run has no batch.
    """
    if run.batch_size is None:
        raise InvalidArgumentError(
            "run",
            run,
            problem="its plan was made from a function and does not know the batch size",
        )
    inputs = some_rows(inputs, _MOST_INPUTS)
    deviation = run.noise_multiplier * clipping_norm / run.batch_size
    start = weights.weight_values()
    start_outputs = _first_outputs(weights, inputs)
    outputs = start_outputs.shape[1]
    aim, reason = _usual_size(weights, inputs, outputs) if size is None else (size, _GIVEN)

    def walk(rate: float, draw: int) -> _Walk:
        weights.set_weights(start)
        weights.begin(optimizer, rate)
        noise = weights.noise(draw)
        take_steps(weights, lambda step: noise(deviation), run.steps, schedule)
        return _Walk(_differences(weights.weight_values(), start))

    def size_of(walks: list[_Walk], times: float) -> float:
        sizes = []
        for ended in walks:
            changes = zip(start, ended.moved, strict=True)
            weights.set_weights([weight + times * change for weight, change in changes])
            sizes.append(size_of_change(weights.outputs(inputs) - start_outputs))
        return _together(sizes)

    if isinstance(optimizer, str):

        def walk_of(rate: float) -> NoiseWalk:
            return noise_walk(optimizer, rate, deviation, run.steps, schedule)

        def size_at(rate: float, draws: int) -> float:
            ended, sizes = walk_of(rate), []
            for draw in range(draws):
                changes = weights.noise(draw)(ended.deviation)
                weights.set_weights(
                    [
                        ended.pull * weight + change.reshape(weight.shape)
                        for weight, change in zip(start, changes, strict=True)
                    ]
                )
                sizes.append(size_of_change(weights.outputs(inputs) - start_outputs))
            return _together(sizes)

        weights.begin(optimizer, 1.0)
        at_rate_one = walk_of(1.0).deviation
        if not 0.0 < at_rate_one < math.inf:
            return None
        guess = _FIRST_NOISE / at_rate_one
        try:
            times, found = _search(lambda times: size_at(guess * times, _FEWEST_DRAWS), aim)
            last_draws = _draws(outputs, _LAST_DEVIATIONS, _MOST_LAST_DRAWS)
            # Outputs that cannot move so far are taken where the search has found them.
            rate, size_reached = _nearer(
                lambda rate: size_at(rate, last_draws),
                guess * times,
                found if found < _FAR_ENOUGH * aim else aim,
            )
        finally:
            weights.set_weights(start)
        remarks = _remarks(weights, rate * clipping_norm, outputs)
        return Rehearsal(rate, walk_of(rate).deviation, size_reached, aim, reason, remarks)

    draws = _draws(outputs, _DEVIATIONS, _MOST_DRAWS)
    rate = _first_guess(weights, optimizer, deviation, run.steps, start)
    try:
        for _ in range(_REPEATS):
            walks = [walk(rate, draw) for draw in range(draws)]
            if not all(ended.is_finite for ended in walks):
                return None
            length = _together([ended.length for ended in walks])
            times, size_reached = _search(partial(size_of, walks), aim)
            # Gradients of noise do not depend on the weights, so a walk is in proportion to its
            # rate, unless weight decay bends it: then the search begins again from here.
            expected_length = times * walks[0].length
            rate *= times
            again = walk(rate, 0)
            if not again.is_finite:
                return None
            if abs(math.log(again.length / expected_length)) < _TOLERANCE:
                break
    finally:
        weights.set_weights(start)
    numbers = sum(math.prod(part.shape) for part in start)
    remarks = _remarks(weights, rate * clipping_norm, outputs)
    noise_per_weight = times * length / math.sqrt(numbers)
    return Rehearsal(rate, noise_per_weight, size_reached, aim, reason, remarks)


def default_optimizers(learner: Learner, inputs: Inputs = None) -> list[str]:
    """Returns which optimizers to rehearse, in order: the first that suits is taken.

    "sgd" and then "adam" for small dense models and where a single matrix is trained, else "adam".
    "adam" alone for a single output, because the noise bounds its steps whatever the curvature.
    A choice by the form of the model alone, which is public. It was measured
    (``docs/explanation/known-without-data.md``).

    Args:
        learner: The model; its weights are not changed.
        inputs: What the model is called with, no records; None if nothing is rehearsed.

    Raises:
        InvalidArgumentError: If the model cannot take the inputs, or no rate is known for it.
    """
    if inputs is not None and _first_outputs(learner, inputs).shape[1] == 1:
        return ["adam"]
    matrices = _matrices(learner.weight_values())
    is_small = learner.is_dense_only() and matrices <= MOST_DENSE_LAYERS
    return ["sgd", "adam"] if is_small or matrices == 1 else ["adam"]


def _usual_size(weights: Rehearsable, inputs: Inputs, outputs: int) -> tuple[float, str]:
    """Returns how far noise may move the outputs by default, and why."""
    if outputs == 1:
        return ONE_OUTPUT_SIZE, "the model has a single output"
    layers = weights.sequence_layers(inputs)
    if "recurrence" in layers:
        return SEQUENCE_SIZE, "trained weights act through recurrence"
    if "attention" in layers and _has_tokens(inputs):
        return SEQUENCE_SIZE, "trained weights act on tokens through attention"
    return SIZE, "no trained weight acts through recurrence, or on tokens through attention"


def _has_tokens(inputs: Inputs) -> bool:
    """Returns whether whole numbers are among some inputs, several for each record."""
    return any(
        is_array(array) and array.ndim > 1 and "int" in str(array.dtype)
        for array in leaves(inputs)
    )


def _matrices(values: list[Weight]) -> int:
    """Returns how many of the trained parameters are matrices, or have more axes."""
    return sum(value.ndim > 1 for value in values)


def size_of_change(change: npt.NDArray[np.float64]) -> float:
    """Returns the standard deviation over classes, in root mean square over inputs.

    Of a single output it is the root mean square of the change.

    Args:
        change: Of the outputs, (inputs, classes).

    Returns:
        The size; infinite if an output is no finite number.
    """
    if not np.all(np.isfinite(change)):
        return math.inf  # the training blew up: any smaller rate is better
    squares = change**2 if change.shape[1] == 1 else np.var(change, axis=1)
    return float(np.sqrt(np.mean(squares)))


@dataclass
class _Walk:
    """The end of one training on noise.

    Attributes:
        moved: By how much the weights have changed.
        length: The root of the sum of the squares of the changes.
    """

    moved: list[Weight]
    length: float = field(init=False)

    def __post_init__(self) -> None:
        self.length = math.sqrt(sum(float((change * change).sum()) for change in self.moved))

    @property
    def is_finite(self) -> bool:
        """Whether the weights have moved, by a finite length."""
        return 0.0 < self.length < math.inf


def _first_outputs(weights: Rehearsable, inputs: Inputs) -> npt.NDArray[np.float64]:
    """Returns the output before the training, (rows, classes), or says what is wrong with it."""
    if inputs is None:
        raise unknown_inputs()
    try:
        outputs = weights.outputs(inputs)
    except InvalidArgumentError:
        raise
    except Exception as error:
        raise InvalidArgumentError(
            "inputs",
            type_of(inputs),
            problem=f"the model failed on them: {type(error).__name__}: {error}",
            fix="Make them up as the model is called: a batch of inputs, a tuple for several "
            "arguments, or a mapping for arguments by name, all with as many rows.",
        ) from error
    if outputs.ndim != 2 or 0 in outputs.shape:
        raise InvalidArgumentError(
            "learning_rate",
            None,
            problem=f"no rate is known for a model whose outputs have the shape {outputs.shape}",
            fix="The model must return a row of numbers for each input: logits, or one number "
            "for a regression. Or give learning_rate=, the rate of the first step.",
        )
    if outputs.shape[1] == 1 and weights.has_logits:
        raise InvalidArgumentError(
            "learning_rate",
            None,
            problem="no rate is known for a single output that is no logit, as after a sigmoid",
            fix="Let the model return a logit, and give loss=torch.nn.BCEWithLogitsLoss(). Or "
            "give learning_rate=, the rate of the first step.",
        )
    if not np.all(np.isfinite(outputs)):
        raise InvalidArgumentError(
            "inputs", type_of(inputs), problem="the model's output on them is not finite"
        )
    return outputs


def unknown_inputs(example: str = "") -> InvalidArgumentError:
    """Returns the error for a model that is given neither made-up inputs nor a rate.

    Args:
        example: How inputs of the records' shape are made up; by default examples of all kinds.
    """
    example = example or (
        "Thirty numbers between -1 and 1: inputs=odp.made_up_inputs(*[(-1, 1)] * 30). Images: "
        "odp.made_up_images(1, 28, 28). Tokens: odp.made_up_tokens(vocabulary, length)."
    )
    return InvalidArgumentError(
        "inputs",
        None,
        problem="the learning rate is rehearsed on made-up inputs, and for this model they "
        "cannot be known without a schema",
        fix=f"Describe what is public about a record: its shape, and in which range its numbers "
        f"lie. {example} Or give learning_rate=, the rate of the first step.",
    )


def _first_guess(
    weights: Rehearsable,
    optimizer: str | OptimizerFactory,
    deviation: float,
    steps: int,
    start: list[Weight],
) -> float:
    """Returns a rate of about the right size, whatever units the optimizer has."""
    weights.begin(optimizer, 1.0)
    try:
        weights.step(weights.noise(0)(deviation), 1.0)
        end = weights.weight_values()
    finally:
        weights.set_weights(start)
    walked = _Walk(_differences(end, start))
    numbers = sum(math.prod(part.shape) for part in start)
    return 0.1 * math.sqrt(numbers / steps) / walked.length if walked.length else 1.0


def _differences(end: list[Weight], start: list[Weight]) -> list[Weight]:
    """Returns by how much each weight has moved."""
    return [end_weight - start_weight for end_weight, start_weight in zip(end, start, strict=True)]


def _search(measure: Callable[[float], float], size: float) -> tuple[float, float]:
    """Returns by what to multiply a walk for a size, and the size then.

    Some models have bounded outputs, such as a norm before a frozen last layer. Where the size is
    out of their reach, it is half of the largest there is.
    """
    size_by_times: dict[float, float] = {}

    def excess(times: float) -> float:
        walk_size = size_by_times[times] = measure(math.exp(times))
        # Logits that overflow, or do not move at all, still say which side they are on.
        return math.log(min(max(walk_size, 1e-12), 1e12) / size)

    low = high = 0.0
    step = math.copysign(math.log(_FACTOR), -excess(0.0))
    for _ in range(_FACTORS):
        low, high = high, high + step
        if excess(high) * step > 0.0:
            break
    else:
        largest = max(filter(math.isfinite, size_by_times.values()), default=0.0)
        if step < 0.0 or largest <= _LEAST_SIZE:
            raise InvalidArgumentError(
                "learning_rate",
                None,
                problem="none was found: noise in the model's weights does not move its output "
                f"on the made-up inputs far enough (by {largest:.2g} at most)",
                fix="Give learning_rate=, the rate of the first step.",
            )
        warnings.warn(
            "Noise in the model's weights moves its outputs on the made-up inputs by "
            f"{largest:.2g} at most, as in front of a frozen last layer with small weights. The "
            f"learning rate is the one at which noise moves them half as far, where {size:g} is "
            "usual. Give learning_rate= if you know a better one.",
            UserWarning,
            stacklevel=2,
        )
        return _search(measure, largest / 2.0)
    brentq(excess, low, high, xtol=_TOLERANCE)
    best_times = min(
        size_by_times, key=lambda times: abs(math.log(max(size_by_times[times], 1e-12) / size))
    )
    return math.exp(best_times), size_by_times[best_times]


def _nearer(measure: Callable[[float], float], rate: float, size: float) -> tuple[float, float]:
    """Returns a rate near another one whose size is the wanted one, and the size at that rate.

    Args:
        measure: From a rate to a size, better known than the one that found the rate.
        rate: Where to begin.
        size: What is wanted.
    """
    tried: list[tuple[float, float]] = []
    slope = 1.0  # Of the logarithm of the size by that of the rate.
    for _ in range(_LAST_STEPS):
        reached = measure(rate)
        tried.append((rate, reached))
        if not 0.0 < reached < math.inf or abs(math.log(reached / size)) < _LAST_TOLERANCE:
            break
        if len(tried) > 1:
            (last_rate, last_reached), _ = tried[-2:]
            rise = math.log(reached / last_reached) / math.log(rate / last_rate)
            slope = min(max(rise, 0.5), 3.0)
        rate *= (size / reached) ** (1.0 / slope)
    return min(tried, key=lambda pair: abs(math.log(min(max(pair[1], 1e-12), 1e12) / size)))


def _draws(outputs: int, deviations: int, most: int) -> int:
    """Returns how many draws of the noise have about so many independent deviations."""
    return min(max(-(-deviations // max(outputs - 1, 1)), _FEWEST_DRAWS), most)


def _together(sizes: list[float]) -> float:
    """Returns the root of the mean square."""
    return math.sqrt(sum(size * size for size in sizes) / len(sizes))


def _remarks(weights: Rehearsable, step: float, outputs: int) -> tuple[str, ...]:
    """Returns where the rule is known to be weak.

    Args:
        weights: What was trained.
        step: The rate times the clipping norm.
        outputs: How many the model has.
    """
    momentum = weights.sgd_momentum
    limit = LARGEST_SGD_STEP_OF_ONE_OUTPUT if outputs == 1 else LARGEST_SGD_STEP
    if momentum is None or step / (1.0 - momentum) <= limit:
        return ()
    if outputs == 1:
        return (
            f"The noise allows SGD steps of up to {step / (1.0 - momentum):.3g}. Trainings of a "
            f"single output with a squared error have failed at steps longer than {limit:g}, "
            "because the loss is curved. Take optimizer='adam', whose steps are bounded.",
        )
    return (
        f"The noise allows SGD steps of up to {step / (1.0 - momentum):.3g}, and from about "
        f"{LARGEST_SGD_STEP:g} on a loss may be too curved for them: networks have collapsed from "
        "13 on. Take optimizer='adam', whose steps are bounded, or more steps.",
    )
