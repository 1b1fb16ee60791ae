"""Slots whose hyperparameters are drawn by the study's sampler, and by nobody else.

A private selection and a choice among utilities charge for the distribution that the draws have.
So an enqueued trial is refused, and every draw is stored, or follows from the slot's entry. The
strategies of both are made of these functions.
"""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable

from optuna.distributions import BaseDistribution, FloatDistribution

from optuna_dp.errors import SeedWarning
from optuna_dp.priors.prior import value_at
from optuna_dp.study import entropy
from optuna_dp.study.draws import check_choices, drawn_once
from optuna_dp.study.entries import SLOT
from optuna_dp.study.shared_plan import refuse
from optuna_dp.study.slot_strategy import Slot, SlotStrategy
from optuna_dp.study.trials import SlotEntry, own_slot, was_enqueued

_logger = logging.getLogger("optuna_dp")

# Said of a trial whose hyperparameters were given by hand. Without its number: beyond the last
# run that is T.
NOT_DRAWN = (
    "A trial was enqueued or copied, by hand or by a callback that retries failed trials. Its "
    "parameters were not drawn by the sampler, so it is not run. Unless all runs had started "
    "before, the study has no privacy guarantee. Start a new study without enqueued trials, or "
    "use BudgetSampler(plan_budget(...)), which allows them."
)


def warn_of_seed(sampler_name: str, seed: int | None, stacklevel: int) -> None:
    """Warns, if there is a seed, that T, the tie-breaks and all draws can be known from it.

    Args:
        sampler_name: Class name of the sampler.
        seed: The seed; None is randomness from the operating system, and no warning.
        stacklevel: 1 is the caller of this function.
    """
    if seed is None:
        return
    warning = (
        f"A {sampler_name} with a seed is for tests and simulations: who knows the "
        "seed knows the number of runs and every draw, so release() will refuse the study."
    )
    # Scripts that silence warnings are common; the log says it all the same.
    _logger.warning(warning)
    warnings.warn(warning, SeedWarning, stacklevel=stacklevel + 1)


def refuse_given_by_hand(slot: Slot) -> None:
    """Refuses a trial whose hyperparameters were given by hand; its objective is not called."""
    trial = slot.trial
    is_copy = SLOT.is_in(trial) and own_slot(trial) is None
    if was_enqueued(trial) or is_copy or (trial.params and own_slot(trial) is None):
        refuse(slot.study, trial, NOT_DRAWN)


def value_from_prior(
    strategy: SlotStrategy,
    slot: Slot,
    name: str,
    distribution: BaseDistribution,
    draw: Callable[[], object] | None = None,
) -> object:
    """Returns a run's one draw of a parameter from the prior, the same whenever it is asked for.

    A parameter drawn from the uniform prior is a function of the slot's entry, which is there
    already. So nothing is written, unless it has a few values only: another sampler may have
    chosen the same.

    Args:
        strategy: The strategy that the study's sampler holds.
        slot: The run.
        name: The parameter.
        distribution: Its range.
        draw: Draws from a prior that is not uniform; None is the uniform one.
    """
    check_choices(name, distribution)
    if strategy.search_space is not None and name not in strategy.search_space:
        strategy.warn_once(
            f"The objective asks for {name!r}, which is not in search_space. It is drawn "
            "from the prior, and the sampler learns nothing about it. If the name is a "
            "typing error, start a new study."
        )
    if draw is None:
        draw = functools.partial(draw_alone, _draws_of(slot, strategy.seed), name, distribution)
        if not may_agree(distribution):
            return draw()
    return drawn_once(slot.study, slot.trial, name, distribution, draw)


def new_draws(seed: int | None, number: int) -> int:
    """Returns the random number of a slot of which its single draws are made, 0 <= it < 2^256."""
    return entropy.bits(seed, "draws", number)(entropy.KEY_BITS)


def _draws_of(slot: Slot, seed: int | None) -> int:
    """Returns what fixes the draws of a trial that another process has begun, say."""
    entry = slot.entry
    if entry is not None:
        return entry.entry.draws
    entry = SLOT.of(slot.stored_trial())
    if entry is not None:
        return SlotEntry.from_json(entry).draws
    # No sampler of ours has begun it. It is drawn all the same, and never released.
    return new_draws(seed, slot.number)


def draw_alone(draws: int, name: str, distribution: BaseDistribution) -> object:
    """Returns a run's one draw of a parameter from the uniform prior, a plain Python value.

    ``draws`` is the number of that name in the run's :class:`SlotEntry`.
    """
    return value_at(distribution, entropy.unit(draws, name))


def may_agree(distribution: BaseDistribution) -> bool:
    """Returns whether two independent draws may be equal, or equal up to rounding.

    Then equality does not show who drew a value, so the draw needs an entry of its own.
    """
    if not isinstance(distribution, FloatDistribution) or distribution.step is not None:
        return True
    width = distribution.high - distribution.low
    return width < 1e-300 or width < 1e-6 * max(abs(distribution.low), abs(distribution.high))
