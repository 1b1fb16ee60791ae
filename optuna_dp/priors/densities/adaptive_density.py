"""DP-HyPO's adaptive sampling distribution: from earlier runs to the next run's hyperparameters.

Algorithm 3 of Wang et al. 2023 (arXiv 2306.05734v2), on any score model and any search space:
score the candidates by ``mean + tau * std``, take a softmax, bring it within [c, C] of the prior,
draw. Proofs: docs/explanation/bounded-densities.md ("Fresh candidates", "Fixed candidate sets").

The density is a function of (hyperparameters, score) pairs and a random source; there is no
argument through which a duration, an arrival order, a log line or the number of runs could reach
it. That is what the accounting of policies that see only DP outputs asks for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.core.value_types import JsonValue
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.priors.densities.informed import FixedCandidates
from optuna_dp.priors.densities.projection import (
    Projection,
    check_projection,
    describe_projection,
    project_log,
    scores_to_log_weights,
)
from optuna_dp.priors.densities.shares import BoundedDensity
from optuna_dp.priors.encoding import encoded
from optuna_dp.priors.history import points_of
from optuna_dp.priors.prior import Candidates, Prior, UniformPrior
from optuna_dp.priors.scores import RunOutcome, clean_scores, standardized
from optuna_dp.priors.space import Space
from optuna_dp.priors.surrogate import GaussianProcess, ScoreModel, checked_model, describe_model


@dataclass(frozen=True)
class Proposal:
    """Hyperparameters for the next run.

    Attributes:
        params: Plain Python values, one per parameter of the space.
        ratio: ``f_i`` of the chosen candidate, within [c, C]; for the curator's diagnosis. Among
            fresh candidates it is the ratio *given* the other candidates; the density of the
            draw is its average over them.
    """

    params: dict[str, Any]
    ratio: float


@dataclass(frozen=True)
class AdaptiveDensity:
    """Draws the next run from a density that learns; holds settings, no state.

    Args:
        bounds: ``(c, C)``. With (1, 1) every run is drawn from the prior (RandTune).
        prior: Law of the candidates, or a fixed candidate set.
        projection: How the softmax is brought within the bounds.
        tau: Weight of the surrogate's uncertainty in a candidate's score.
        beta: Inverse temperature of the softmax.
        surrogate: The score model.
        candidates: Number of fresh candidates per run; not used with a fixed set.
        standardize: Score candidates in units of the spread of the observed scores, so that tau
            and beta mean the same on accuracies and on losses. False: raw scores, as the paper.

    Guarantees:
        * Whatever the history and the surrogate, the law of the proposed hyperparameters has a
          density within [c, C] relative to the prior, exactly, on any space:
          ``(1/N) sum_i E[f_i | lambda_i = lambda]`` with N fresh candidates, ``f_i`` on a fixed
          set.
        * The first run (empty history) is drawn from the prior exactly.
        * The proposal is a function of the arguments of :meth:`propose` and of nothing else.
    """

    bounds: tuple[float, float] = (0.75, 2.0)
    prior: Prior = field(default_factory=UniformPrior)
    projection: Projection = "kl"
    tau: float = 0.5
    beta: float = 4.0
    surrogate: ScoreModel = field(default_factory=GaussianProcess)
    candidates: int = 512
    standardize: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", validation.density_bounds(self.bounds))
        object.__setattr__(self, "tau", validation.number("tau", self.tau))
        if not math.isfinite(self.tau):
            raise InvalidArgumentError("tau", self.tau, allowed="it must be finite")
        object.__setattr__(self, "beta", validation.non_negative("beta", self.beta))
        object.__setattr__(self, "candidates", validation.whole("candidates", self.candidates, 1))
        if not isinstance(self.standardize, bool):
            raise InvalidArgumentError(
                "standardize", self.standardize, allowed="it must be True or False"
            )
        check_projection(self.projection)
        if not isinstance(self.prior, Prior):
            raise InvalidArgumentError(
                "prior",
                self.prior,
                allowed="it must have the methods sample, draw_one and fingerprint",
            )
        checked_model(self.surrogate)

    def propose(
        self,
        history: Sequence[RunOutcome],
        space: Space,
        rng: np.random.Generator,
        direction: str = "maximize",
    ) -> Proposal:
        """Draws the next run's hyperparameters.

        Args:
            history: Outcomes of the runs this one may know of, in order of their slots.
            space: The joint search space, the same for every run of a study.
            rng: Secret randomness, independent of the data and of the history.
            direction: ``"maximize"`` or ``"minimize"``, whether high or low scores are good.

        Raises:
            ProjectionError: If the solver of a :class:`~optuna_dp.ConvexProjection` fails.
        """
        sign_of(direction)  # Refuses what is none, before anything is drawn.
        if isinstance(self.prior, FixedCandidates):
            candidates = self.prior.candidates(space)
        else:
            n = self.candidates if self._learns_from(history) else 1
            candidates = self.prior.sample(space, n, rng)
        if len(candidates) == 1:
            return Proposal(candidates.params(0), 1.0)  # The only weights that average to one.
        density = self.density(history, candidates, direction)
        i = density.draw(rng)
        return Proposal(candidates.params(i), float(density.ratios[i]))

    def density(
        self,
        history: Sequence[RunOutcome],
        candidates: Candidates,
        direction: str = "maximize",
    ) -> BoundedDensity:
        """The law by which :meth:`propose` chooses among these candidates.

        Args:
            history: As of :meth:`propose`.
            candidates: N points, drawn from the prior; with a fixed set all of it.
            direction: As of :meth:`propose`.
        """
        logs = self.log_weights(history, candidates, sign_of(direction))
        if len(logs) != len(candidates):
            raise ValueError(f"{len(logs)} weights for {len(candidates)} candidates")
        masses = self.prior.masses if isinstance(self.prior, FixedCandidates) else None
        return project_log(logs, self.bounds, self.projection, masses)

    def describe(self, space: Space) -> dict[str, JsonValue]:
        """All settings as plain data, for the record of a plan."""
        return {
            "bounds": list(self.bounds),
            "prior": self.prior.fingerprint(space),
            "projection": describe_projection(self.projection),
            "tau": self.tau,
            "beta": self.beta,
            "surrogate": describe_model(self.surrogate),
            "candidates": self.candidates,
            "standardize": self.standardize,
        }

    def posterior(
        self, history: Sequence[RunOutcome], candidates: Candidates, sign: float
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of candidates, in the units that the softmax is given.

        Args:
            history: As of :meth:`propose`, at least one outcome.
            candidates: As of :meth:`density`.
            sign: 1 if high scores are good, -1 if low ones are.
        """
        x = points_of(history, candidates.space)
        y = clean_scores([outcome.score for outcome in history], sign)
        if self.standardize:
            y = standardized(y)
        return self.surrogate.fit(x, y).predict(encoded(candidates))

    def _learns_from(self, history: Sequence[RunOutcome]) -> bool:
        return len(history) > 0 and self.bounds != (1.0, 1.0)

    def log_weights(
        self, history: Sequence[RunOutcome], candidates: Candidates, sign: float
    ) -> FloatArray:
        """Logarithms of the softmax weights of candidates, up to a constant.

        Args:
            history: As of :meth:`propose`.
            candidates: As of :meth:`density`.
            sign: 1 if high scores are good, -1 if low ones are.
        """
        if not self._learns_from(history):
            return np.zeros(len(candidates))  # Projected onto the prior itself, exactly.
        mean, std = self.posterior(history, candidates, sign)
        with np.errstate(invalid="ignore", over="ignore"):
            return scores_to_log_weights(mean + self.tau * std, self.beta)


def sign_of(direction: str) -> float:
    """1 where high scores are good, -1 where low ones are."""
    if direction == "maximize":
        return 1.0
    if direction == "minimize":
        return -1.0
    raise InvalidArgumentError(
        "direction", direction, allowed='it must be "maximize" or "minimize"'
    )


def search_bounds(value: object) -> tuple[float, float]:
    """Returns (c, C) of a search that is meant to learn: c < 1 < C, or (1, 1) if it is not.

    :func:`optuna_dp.core.validation.density_bounds` takes (1, C) and (c, 1) for (1, 1). That is
    right for the accounting, but a search that was given such a pair would learn nothing and not
    say so.
    """
    c, big_c = validation.any_bounds(value)
    if (c == 1.0) != (big_c == 1.0):
        raise InvalidArgumentError(
            "density_bounds",
            value,
            problem="if only one of the two is 1, all runs are drawn from the prior and none "
            "learns",
            fix="Give c < 1 < C, for example (0.75, 2.0), or (1, 1) to draw from the prior.",
        )
    return (c, big_c)
