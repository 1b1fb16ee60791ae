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

from optuna_dp.densities.adaptive_density import AdaptiveDensity
from optuna_dp.densities.frozen_prior import FrozenPrior
from optuna_dp.densities.informed import FixedCandidates
from optuna_dp.densities.shares import integer_masses
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.visible_runs import outcomes
from optuna_dp.releasing.procedures import procedure_of
from optuna_dp.samplers.dp_hypo import DPHyPOSampler
from optuna_dp.samplers.pilots import PilotSampler
from optuna_dp.samplers.rand_tune import RandTuneSampler
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
    * :class:`~optuna_dp.PilotSampler`: the prior that was frozen when the last pilot had ended,
      relative to the uniform one, on a logarithmic axis; the line at the bottom is what the
      uniform share leaves everywhere. With density bounds, times what they allow.

    **For the curator only**: it is a function of the scores of all runs.

    Args:
        study: A study of one of these samplers, loaded with its sampler.
        params: Which parameters to show; by default the first six that are drawn jointly.

    Raises:
        InvalidArgumentError: If the study has another sampler (the candidates of
            :class:`~optuna_dp.ProposeTestSampler` and :class:`~optuna_dp.NoisyMaxSampler` are not
            drawn from a density), if pilots are still open, or if the study has a budget.
        PlanError: If the study has no plan.
        MissingExtraError: If plotly is not installed.
    """
    plan = plan_of(study)
    runs = candidates_of(study, plan)
    sampler = _sampler_of(study, plan)
    direction = plan.design.direction
    rng = np.random.default_rng()  # for a picture only: nothing of it is ever released
    if procedure_of(plan.design).in_the_open:
        raise InvalidArgumentError(
            "study",
            "PilotSampler(plan=...)",
            "its runs are not drawn from a density: pilots are proposed in the open, and the best "
            "are run again",
        )
    if isinstance(sampler, PilotSampler):
        law = _pilots(sampler, runs, direction, rng)
    else:
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


def _pilots(
    sampler: PilotSampler,
    runs: Sequence[FrozenTrial],
    direction: str,
    rng: np.random.Generator,
) -> Law:
    count = sampler._pilots
    pilots = [trial for trial in runs if trial.number < count]
    selection = [trial for trial in runs if trial.number >= count]
    if len(pilots) < count:
        raise InvalidArgumentError(
            "study",
            f"{len(pilots)} of {count} pilots have ended",
            "the prior of the selection runs is made when all have",
        )
    found = sampler._search_space or intersection_search_space(pilots)
    space = dict(sorted(found.items()))
    settings = sampler._frozen
    prior = FrozenPrior(settings, outcomes(pilots), space, direction)
    candidates = settings.base.sample(space, _CANDIDATES, rng)
    ratios = prior.ratios(candidates, rng)
    # The candidates are drawn from the base prior, and stand for draws from this one.
    c, big_c = sampler._bounds
    if c != big_c:
        adaptive = AdaptiveDensity(bounds=(c, big_c), prior=prior, surrogate=settings.surrogate)
        masses = integer_masses(list(np.maximum(ratios, _LEAST * ratios.max())))
        bounded = adaptive.density(outcomes(selection), candidates, direction, masses)
        ratios = ratios * bounded.ratios
    floor = settings.uniform_share * c
    levels = {1.0: "1"} if floor in (0.0, 1.0) else {floor: f"{floor:g} (uniform share)", 1.0: "1"}
    return Law(
        title="Where selection runs are drawn: the prior that the pilots taught",
        axis=f"relative to uniform (line: uniform share {settings.uniform_share:g})",
        candidates=candidates,
        ratios=ratios,
        weights=np.full(len(candidates), 1.0 / len(candidates)),
        levels=levels,
        band=None,
        marks=(
            Marks("pilots", theme.OTHER, tuple(pilots)),
            Marks("selection runs so far", theme.ATTACK, tuple(selection)),
        ),
    )


def _sampler_of(
    study: optuna.Study, plan: StudyPlan
) -> DPHyPOSampler | RandTuneSampler | PilotSampler:
    """Returns the study's own sampler, as its plan describes it."""
    sampler = study.sampler
    if (
        isinstance(sampler, DPHyPOSampler | RandTuneSampler | PilotSampler)
        and sampler._design(plan.design.direction).fingerprint == plan.design.fingerprint
    ):
        return sampler
    raise InvalidArgumentError(
        "study.sampler",
        type(sampler).__name__,
        f"the density is made by the study's own sampler, {plan.design.sampler}, with the "
        "arguments it was started with",
        "Load the study with it: optuna.load_study(..., sampler=...). Densities of "
        "DPHyPOSampler, RandTuneSampler and PilotSampler can be shown.",
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
