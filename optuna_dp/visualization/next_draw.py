"""What DP-HyPO would draw the next run of a study from; for the curator only.

Candidates are drawn and weighed as the sampler does it, by its own functions, many times over. The
mean of their ratios around a place is the density of the next run there, relative to the prior
("Fresh candidates" in docs/explanation/bounded-densities.md). So it is within the bounds, and its
mean over the prior is 1, whatever the prior, the projection and the space.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial

from optuna_dp.core.arrays import FloatArray, IntArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.priors.densities.adaptive_density import AdaptiveDensity, sign_of
from optuna_dp.priors.densities.informed import FixedCandidates
from optuna_dp.priors.densities.projection import project_log, weights_of
from optuna_dp.priors.densities.shares import uniform_masses
from optuna_dp.priors.history import SharedSpace
from optuna_dp.priors.prior import Candidates
from optuna_dp.priors.scores import RunOutcome, centre_and_spread, clean_scores
from optuna_dp.samplers.selection.bounded_draws import BoundedDraws, outcome_of
from optuna_dp.samplers.selection.dp_hypo import DPHyPOSampler
from optuna_dp.samplers.selection.slot_strategy import SelectionStrategy
from optuna_dp.study.draws import as_stored
from optuna_dp.study.entries import BEYOND
from optuna_dp.study.trials import direction_of, ended, trials_of

# Candidates that are looked at. They are drawn for the figure alone, always the same ones.
_CANDIDATES = 1 << 15
_MOST_SETS = 1000  # which bounds the time
_SEED = 0


@dataclass(frozen=True)
class NextDraw:
    """What a study's sampler would draw its next run from, without waiting for any run.

    Attributes:
        density: How the density is made of earlier runs.
        space: What is drawn jointly.
        sign: 1 if high scores are good, -1 if low ones are.
        runs: The outcomes of all runs that have ended.
        known: The outcomes that the next run may know of.
        is_from_prior: Whether the next run is drawn from the prior.
    """

    density: AdaptiveDensity
    space: dict[str, BaseDistribution]
    sign: float
    runs: list[RunOutcome]
    known: list[RunOutcome]
    is_from_prior: bool


def next_draw(study: object) -> NextDraw:
    """Returns what the next run of a study would be drawn from.

    Raises:
        InvalidArgumentError: If ``study`` is no study, its sampler no ``DPHyPOSampler``, or
            nothing is drawn jointly yet.
        PlanError: If the sampler is not configured as the study's plan says.
    """
    if not isinstance(study, optuna.Study):
        raise InvalidArgumentError("study", study, allowed="it must be an Optuna study")
    sampler = study.sampler
    if not isinstance(sampler, DPHyPOSampler):
        raise InvalidArgumentError(
            "study.sampler",
            sampler,
            allowed="it must be a DPHyPOSampler",
            fix="If the study was made with one, give it again when you load the study: "
            "optuna.load_study(..., sampler=optuna_dp.DPHyPOSampler(...)), with the same "
            "arguments.",
        )
    sampler.check_before_asking(study)
    strategy = sampler.strategy
    assert isinstance(strategy, SelectionStrategy)
    draws = strategy.adaptive
    assert isinstance(draws, BoundedDraws)
    runs = [trial for trial in trials_of(study) if not BEYOND.is_in(trial)]
    known = _known(draws, runs)
    ended_runs = [trial for trial in runs if ended(trial)]
    space = strategy.search_space or SharedSpace().of(known or ended_runs)
    if not space:
        raise InvalidArgumentError(
            "study",
            study.study_name,
            problem="its runs so far have no hyperparameter in common, and its sampler has no "
            "search_space=",
            fix="Ask again when a run has been completed.",
        )
    return NextDraw(
        density=draws.density,
        space={name: as_stored(distribution) for name, distribution in space.items()},
        sign=sign_of(direction_of(study)),
        runs=[outcome_of(trial) for trial in ended_runs],
        known=[outcome_of(trial) for trial in known],
        is_from_prior=not known
        or len(runs) < draws.startup_runs
        or draws.density.bounds == (1.0, 1.0),
    )


def _known(draws: BoundedDraws, runs: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Returns the runs that the next one may know of, with the batches that are complete now."""
    if draws.schedule == "any":
        return [trial for trial in runs if ended(trial)]
    complete = next((i for i, trial in enumerate(runs) if not ended(trial)), len(runs))
    return list(runs[: complete - complete % draws.batch_size])


@dataclass(frozen=True)
class Judged:
    """Candidates, and what becomes of each.

    Attributes:
        candidates: Many sets of candidates, one after the other.
        masses: The prior's share of each, up to a constant.
        mean: The posterior mean of the score, in the units of the scores; NaN if no run is known.
        std: Its standard deviation.
        weights: Softmax weights relative to the prior.
        ratios: The density relative to the prior.
    """

    candidates: Candidates
    masses: IntArray
    mean: FloatArray
    std: FloatArray
    weights: FloatArray
    ratios: FloatArray


def judged(draw: NextDraw) -> Judged:
    """Returns candidates of the next run as its sampler would judge them."""
    density = draw.density
    candidates, masses, size = _candidates(density, draw.space)
    mean = std = np.full(len(candidates), math.nan)
    if draw.known:
        mean, std = _in_units_of_scores(
            draw, *density.posterior(draw.known, candidates, draw.sign)
        )
    history = [] if draw.is_from_prior else draw.known
    logs = density.log_weights(history, candidates, draw.sign)
    sets = [slice(start, start + size) for start in range(0, len(candidates), size)]
    weights = [weights_of(logs[one], masses[one]) for one in sets]
    ratios = [
        project_log(logs[one], density.bounds, density.projection, masses[one]).ratios
        for one in sets
    ]
    return Judged(candidates, masses, mean, std, np.concatenate(weights), np.concatenate(ratios))


def _candidates(
    density: AdaptiveDensity, space: dict[str, BaseDistribution]
) -> tuple[Candidates, IntArray, int]:
    """Returns sets of candidates, one after the other, their masses, and the size of a set."""
    if isinstance(density.prior, FixedCandidates):
        return density.prior.candidates(space), density.prior.masses, len(density.prior)
    rng = np.random.default_rng(_SEED)
    count = min(math.ceil(_CANDIDATES / density.candidates), _MOST_SETS)
    drawn = [density.prior.sample(space, density.candidates, rng) for _ in range(count)]
    columns = {name: np.concatenate([one.columns[name] for one in drawn]) for name in space}
    total = count * density.candidates
    return Candidates(space, columns, total), uniform_masses(total), density.candidates


def _in_units_of_scores(
    draw: NextDraw, mean: FloatArray, std: FloatArray
) -> tuple[FloatArray, FloatArray]:
    if draw.density.standardize:
        scores = clean_scores([outcome.score for outcome in draw.known], draw.sign)
        centre, spread = centre_and_spread(scores)
        mean, std = centre + spread * mean, spread * std
    return draw.sign * mean, std


@dataclass(frozen=True)
class Axis:
    """The places along one hyperparameter at which a figure shows something.

    Attributes:
        name: Of the hyperparameter.
        distribution: Its range.
        places: Where they are, in Optuna's internal representation; shape (n,).
        edges: Where each begins and ends, shape (n + 1,); None where they are single values.
    """

    name: str
    distribution: BaseDistribution
    places: FloatArray
    edges: FloatArray | None

    @staticmethod
    def of(name: str, candidates: Candidates, most: int) -> Axis:
        """Returns all values that candidates have, or ``most`` parts of the range if fewer."""
        distribution, values = candidates.space[name], np.unique(candidates.columns[name])
        if len(values) <= most:
            return Axis(name, distribution, values, None)
        low, high = float(values[0]), float(values[-1])
        if getattr(distribution, "log", False):
            edges = np.geomspace(low, high, most + 1)
            return Axis(name, distribution, np.sqrt(edges[1:] * edges[:-1]), edges)
        edges = np.linspace(low, high, most + 1)
        return Axis(name, distribution, 0.5 * edges[1:] + 0.5 * edges[:-1], edges)

    def index(self, column: FloatArray) -> IntArray:
        """Returns the place of each value of a column."""
        if self.edges is None:
            return np.searchsorted(self.places, column)
        return np.searchsorted(self.edges[1:-1], column, side="right")

    @property
    def has_names(self) -> bool:
        """Whether its values are choices, which have names and no order."""
        return isinstance(self.distribution, CategoricalDistribution)

    @property
    def is_log(self) -> bool:
        """Whether its range is logarithmic."""
        return bool(getattr(self.distribution, "log", False))

    def shown(self, value: float) -> object:
        """Returns a value as a figure has it: a number, or the name of a choice."""
        return str(self.distribution.to_external_repr(value)) if self.has_names else value


def averages(found: Judged, axes: Sequence[Axis], values: FloatArray) -> FloatArray:
    """Returns the mean of values over the prior around each place; NaN where the prior has none.

    Hyperparameters without an axis are averaged over.
    """
    shape = tuple(len(axis.places) for axis in axes)
    index = np.ravel_multi_index(
        tuple(axis.index(found.candidates.columns[axis.name]) for axis in axes), shape
    )
    size = math.prod(shape)
    masses = np.bincount(index, found.masses, size)
    with np.errstate(invalid="ignore"):
        means: FloatArray = np.bincount(index, found.masses * values, size) / masses
    return means.reshape(shape)
