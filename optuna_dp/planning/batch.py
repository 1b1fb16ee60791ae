"""Batch size and number of steps by accounting alone (``docs/explanation/known-without-data.md``).

What a private training can learn depends on the signal over noise of all its gradients together,
``B sqrt(S) / s`` for expected batch B, S steps and noise multiplier s. It has a limit: with all n
records in every step it is n times the mu of the Gaussian mechanism that is (epsilon, delta)-DP.
Larger batches come nearer to it and take more computing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from scipy.optimize import newton

from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.planning.budget_split import central_limit_noise, squared_mu
from optuna_dp.planning.saddle_point import Steps, estimated_epsilon
from optuna_dp.training.learning_rate import LARGEST_STEP, NOISE_PER_WEIGHT

if TYPE_CHECKING:
    from optuna_dp.samplers.budget.plan import BudgetPlan

# Softmax regressions and networks do as well with 100 to 300 steps; with 40 they lose. More are
# taken where SGD needs them and they cost at most this share of the signal.
FAVORED_STEPS = 150
_KEPT = 0.95
ENOUGH = 0.98
# Of the digits at epsilon 3 three quarters cost a point of accuracy, and half at 8 cost 1.4.
_LOW = 0.8
_SMALLEST_BATCH = 16
_RELATIONS = ("add_or_remove_one", "replace_one")


@dataclass(frozen=True)
class BatchChoice:
    """One way to spend a number of gradients.

    Attributes:
        batch_size: Expected number of records in a batch.
        steps: Number of steps.
        noise_multiplier: Of one training that costs the whole epsilon; about a per cent off, for
            guidance. A plan computes its own.
        share: Of the attainable signal, in (0, 1].
        epochs: Passes over the records, which is the computing.
    """

    batch_size: int
    steps: int
    noise_multiplier: float
    share: float
    epochs: float


@dataclass(frozen=True)
class BatchChoices:
    """What batch sizes make of an epsilon.

    Attributes:
        rows: Batch sizes by factors of two around the favored one, and all records, all with the
            computing given.
        favored: What to take: about 150 steps, more where so few would ask for a larger learning
            rate than SGD bears, and no more computing than it takes to have 98 % of the signal
            that is attainable.
        doubled: The same for twice the computing; equal to ``favored`` if that has enough.
    """

    rows: tuple[BatchChoice, ...]
    favored: BatchChoice
    doubled: BatchChoice

    def __str__(self) -> str:
        lines = ["batch  steps  noise  signal  epochs"]
        rows = [(row, "") for row in self.rows]
        rows += [(self.favored, "  favored"), (self.doubled, "  with twice the computing")]
        for row, remark in rows:
            lines.append(
                f"{row.batch_size:5d}  {row.steps:5d}  {row.noise_multiplier:5.2f}  "
                f"{row.share:6.0%}  {row.epochs:6.3g}{remark}"
            )
        return "\n".join(lines)


def batch_choices(
    *,
    epsilon: float,
    delta: float = 1e-5,
    records: int,
    epochs: float,
    work: float = 1.0,
    neighboring_relation: str = "add_or_remove_one",
) -> BatchChoices:
    """Returns batch sizes with the share of the attainable signal that each has.

    No record is looked at, only their number, which must be public.

    Args:
        epsilon: What one training may cost; positive.
        delta: In (0, 1).
        records: Number of training records.
        epochs: The computing: so many passes over the records; positive.
        work: Times that; positive.
        neighboring_relation: "add_or_remove_one" or "replace_one".

    Raises:
        InvalidArgumentError: If an argument is not allowed.

    Example:
        >>> import optuna_dp as odp
        >>> choices = odp.batch_choices(epsilon=1.0, records=1348, epochs=10)
        >>> choices.favored.batch_size, choices.favored.steps
        (90, 150)
        >>> choices.favored.share < choices.doubled.share
        True
    """
    target = validation.positive("epsilon", epsilon)
    chance = validation.open_unit("delta", delta)
    count = validation.whole("records", records, 1)
    passes = validation.positive("epochs", epochs) * validation.positive("work", work)
    if neighboring_relation not in _RELATIONS:
        raise InvalidArgumentError(
            "neighboring_relation",
            neighboring_relation,
            allowed=f"it must be one of {', '.join(map(repr, _RELATIONS))}",
        )
    if round(passes * count) < 1:
        raise InvalidArgumentError("epochs", epochs, allowed="it must make at least one gradient")
    is_replace_one = neighboring_relation == "replace_one"
    limit = count * math.sqrt(squared_mu(target, chance)) / (2.0 if is_replace_one else 1.0)
    smallest = min(_SMALLEST_BATCH, count)
    # The rate that follows for SGD is 0.3 times the signal, over the steps: with fewer than these
    # it would be larger than SGD bears.
    fewest_steps = math.ceil(NOISE_PER_WEIGHT * limit / LARGEST_STEP)

    def choice(batch: int, steps: int) -> BatchChoice:
        noise = noise_of_training(target, chance, batch / count, steps, is_replace_one)
        share = min(batch * math.sqrt(steps) / noise / limit, 1.0)
        return BatchChoice(batch, steps, noise, share, batch * steps / count)

    def spent(passes: float, length: int) -> BatchChoice:
        """All of the computing, in about so many steps."""
        total = passes * count
        batch = min(max(round(total / length), smallest), count)
        return choice(batch, max(1, min(round(total / batch), length)))

    def favored(passes: float) -> BatchChoice:
        chosen_batch = spent(passes, FAVORED_STEPS)
        length, least_share = FAVORED_STEPS, _KEPT * chosen_batch.share
        while length < fewest_steps:
            length = min(math.ceil(1.25 * length), fewest_steps)
            longer = spent(passes, length)
            if longer.share < least_share:
                break
            chosen_batch = longer
        steps, batch = chosen_batch.steps, chosen_batch.batch_size
        low, high = smallest - 1, batch
        if chosen_batch.share <= ENOUGH:
            return chosen_batch
        # The share rises with the batch: the smallest that has enough.
        while high - low > max(1, high // 64):
            middle = (low + high) // 2
            candidate = choice(middle, steps)
            if candidate.share >= ENOUGH:
                high, chosen_batch = middle, candidate
            else:
                low = middle
        return chosen_batch

    best = favored(passes)
    batch_sizes = [
        2**k for k in range(4, 40) if best.batch_size / 10 < 2**k < best.batch_size * 10
    ]
    rows = [
        choice(size, steps)
        for size in batch_sizes
        if size < count and (steps := round(passes * count / size)) >= 1
    ]
    rows.append(choice(count, max(1, round(passes))))
    doubled = best if best.share >= ENOUGH else favored(2.0 * passes)
    return BatchChoices(tuple(rows), best, doubled)


def remark_on_batch(plan: BudgetPlan) -> str:
    """Returns what a larger batch would gain, for a plan whose batch loses much; "" for others.

    What pilots cost is left out: it is about the batch alone.
    """
    rate, steps = plan.final.sample_rate, plan.final.steps
    if rate is None or plan.final.batch_size is None:
        return ""
    is_replace_one = plan.neighboring_relation == "replace_one"
    noise = noise_of_training(plan.epsilon, plan.delta, rate, steps, is_replace_one)
    # The limit is that of all records in every step: noise for a batch, over the batch's share.
    limit = noise_of_training(plan.epsilon, plan.delta, 1.0, steps, is_replace_one)
    share = rate * limit / noise
    if share >= _LOW:
        return ""
    remark = (
        f"A batch of {plan.final.batch_size:g} for {steps} steps has {share:.0%} of the signal "
        "that this epsilon can buy."
    )
    for times, words in ((1.0, "the same"), (4.0, "four times the")):
        favored = batch_choices(
            epsilon=plan.epsilon,
            delta=plan.delta,
            records=max(1, round(plan.final.batch_size / rate)),
            epochs=rate * steps,
            work=times,
            neighboring_relation=plan.neighboring_relation,
        ).favored
        if favored.share > share + 0.05:
            remark += (
                f" With {words} computing, {favored.batch_size} for {favored.steps} steps has "
                f"{favored.share:.0%}."
            )
            share = favored.share
    return remark


@lru_cache(maxsize=256)
def noise_of_training(
    epsilon: float, delta: float, sample_rate: float, steps: int, replace_one: bool = False
) -> float:
    """Returns about the noise multiplier at which DP-SGD costs an epsilon.

    Args:
        epsilon: Positive.
        delta: In (0, 1).
        sample_rate: In (0, 1].
        steps: At least 1.
        replace_one: Whether a record is replaced rather than removed.
    """
    squared = squared_mu(epsilon, delta)
    if sample_rate >= 1.0:
        return (2.0 if replace_one else 1.0) * math.sqrt(steps / squared)
    start = central_limit_noise(squared, sample_rate, steps, replace_one=replace_one)

    def excess(log_noise: float) -> float:
        part = Steps(sample_rate, math.exp(log_noise), steps)
        cost = estimated_epsilon([part], delta, near=epsilon, replace_one=replace_one)
        return math.log(min(cost, 1e9) / epsilon)

    # Nearly a straight line: secants meet it in three or four steps.
    at = math.log(start)
    return math.exp(float(newton(excess, at, x1=at + 0.1, tol=1e-3, maxiter=50)))
