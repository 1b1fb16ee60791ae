"""Where the next run of a study would be drawn. For the curator only.

This module finds the law; :mod:`optuna_dp.visualization.panels` draws it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.search_space import intersection_search_space
from optuna.trial import FrozenTrial

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.evidence.procedures import procedure_of
from optuna_dp.private_selection.densities.adaptive_density import AdaptiveDensity
from optuna_dp.private_selection.densities.informed import FixedCandidates
from optuna_dp.private_selection.dp_hypo import DPHyPOSampler
from optuna_dp.private_selection.rand_tune import RandTuneSampler
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.visible_runs import outcomes
from optuna_dp.visualization import theme
from optuna_dp.visualization.panels import Law, Marks, panels
from optuna_dp.visualization.targets import candidates_of, plan_of

if TYPE_CHECKING:
    import plotly.graph_objects as go


_CANDIDATES = 1024
_LARGEST_PANELS = 6
_LEAST = 1e-5  # of the largest: candidates of less weight are not told apart in a picture


def plot_sampling_density(
    study: optuna.Study, *, params: Sequence[str] | None = None
) -> go.Figure:
    """Plots the density from which the next run would be drawn, relative to the prior.

    One panel per parameter. A dot is a candidate, at its ratio of density to prior; the line is
    the mean ratio along the parameter, the marginal; ticks at the bottom are the runs so far.

    * :class:`~optuna_dp.DPHyPOSampler`, :class:`~optuna_dp.RandTuneSampler`: the band is [c, C],
      which no dot can leave. Under ``schedule="batch"`` a run sees completed batches only; the
      figure takes all runs that have ended.

    **For the curator only**: it is a function of the scores of all runs.

    Args:
        study: A study of one of these samplers, loaded with its sampler.
        params: Which parameters to show; by default the first six that are drawn jointly.

    Raises:
        InvalidArgumentError: If the study has another sampler (the candidates of
            :class:`~optuna_dp.ProposeTestSampler` and :class:`~optuna_dp.NoisyMaxSampler` are not
            drawn from a density) or has a budget.
        PlanError: If the study has no plan.
        MissingExtraError: If plotly is not installed.
    """
    plan = plan_of(study)
    runs = candidates_of(study, plan)
    sampler = _sampler_of(study, plan)
    direction = plan.design.direction
    rng = np.random.default_rng()  # for a picture only: nothing of it is ever released
    if procedure_of(plan.design).releases_all_runs:
        raise InvalidArgumentError(
            "study",
            "BudgetSampler",
            "its runs are not drawn from a density: pilots are proposed in the open, and the best "
            "are run again",
        )
    law = _bounded(sampler, runs, direction, rng)
    return panels(_shown(law.candidates.space, params), law)


def _bounded(
    sampler: DPHyPOSampler | RandTuneSampler,
    runs: Sequence[FrozenTrial],
    direction: str,
    rng: np.random.Generator,
) -> Law:
    if isinstance(sampler, DPHyPOSampler):
        adaptive = sampler._adaptive
    else:
        adaptive = AdaptiveDensity(bounds=(1.0, 1.0), prior=sampler._prior)
    space = dict(sorted((sampler._search_space or intersection_search_space(list(runs))).items()))
    if isinstance(adaptive.prior, FixedCandidates):
        candidates = adaptive.prior.candidates(space)
        masses = adaptive.prior.masses
    else:
        candidates = adaptive.prior.sample(space, _CANDIDATES, rng)
        masses = np.ones(len(candidates), dtype=np.int64)
    ratios = adaptive.density(outcomes(runs), candidates, direction).ratios
    c, big_c = adaptive.bounds
    return Law(
        title="Where the next run is drawn",
        axis="density relative to the prior",
        candidates=candidates,
        ratios=ratios,
        weights=masses / masses.sum(),
        levels={1.0: "1"} if c == big_c else {c: f"c = {c:g}", 1.0: "1", big_c: f"C = {big_c:g}"},
        band=(c, big_c),
        marks=(Marks("runs so far", theme.ATTACK, tuple(runs)),),
    )


def _sampler_of(study: optuna.Study, plan: StudyPlan) -> DPHyPOSampler | RandTuneSampler:
    """Returns the study's own sampler, as its plan describes it."""
    sampler = study.sampler
    if (
        isinstance(sampler, DPHyPOSampler | RandTuneSampler)
        and sampler._design(plan.design.direction).fingerprint == plan.design.fingerprint
    ):
        return sampler
    raise InvalidArgumentError(
        "study.sampler",
        type(sampler).__name__,
        f"the density is made by the study's own sampler, {plan.design.sampler}, with the "
        "arguments it was started with",
        "Load the study with it: optuna.load_study(..., sampler=...). Densities of "
        "DPHyPOSampler and RandTuneSampler can be shown.",
    )


def _shown(space: dict[str, BaseDistribution], params: Sequence[str] | None) -> list[str]:
    names = list(space)[:_LARGEST_PANELS] if params is None else list(params)
    unknown = [name for name in names if name not in space]
    if unknown or not names:
        raise InvalidArgumentError(
            "params",
            params,
            f"parameters that are drawn jointly so far: {', '.join(space) or 'none'}",
            "Give the sampler a search_space to have one from the first run.",
        )
    return names
