"""DP-HyPO: adaptive search with a bounded density."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from optuna.distributions import BaseDistribution

from optuna_dp.priors.densities.adaptive_density import AdaptiveDensity, search_bounds
from optuna_dp.priors.densities.projection import Projection
from optuna_dp.priors.prior import Prior
from optuna_dp.priors.surrogate import GaussianProcess, ScoreModel
from optuna_dp.runs.run_plan import RunPlan
from optuna_dp.samplers.selection.bounded_draws import BoundedDraws
from optuna_dp.samplers.selection.slot_strategy import (
    DEFAULT_TRIALS,
    SelectionStrategy,
    checked_prior,
)
from optuna_dp.selection.laws.base import TrialCount
from optuna_dp.study.slots import SlotSampler

if TYPE_CHECKING:
    from dp_accounting import dp_event

_DEFAULTS = AdaptiveDensity()


class DPHyPOSampler(SlotSampler):
    """Learns from earlier runs, within bounds of the prior that the accounting charges for.

    DP-HyPO (Wang et al. 2023, arXiv:2306.05734), Framework 1 and Algorithm 3: a surrogate scores
    candidates, a softmax turns scores into weights, and the weights are projected onto densities
    within [c, C] of the prior. Candidates are drawn afresh from the prior for every run, so the
    bounds hold exactly on continuous, discrete, categorical and conditional spaces alike
    (``docs/explanation/bounded-densities.md``).

    At equal epsilon, plain RandTune affords many more runs: in-loop adaptivity pays when compute,
    not epsilon, is the limit. ``optuna-dp plan`` shows both prices.

    Guarantees:
        * Exactly T trials have parameters, T drawn once per study from ``trials``.
        * The joint density of all parameters of a run, relative to the prior, is within
          ``density_bounds``; a parameter that is not drawn jointly is drawn from the prior.
        * Under ``schedule="batch"`` the density is a function of hyperparameters and scores of
          the completed batches before the run's own, and of nothing else; this is what the
          cheaper accounting (``docs/explanation/history-bound.md``) needs.
        * The first ``startup_runs`` runs, and the first batch, are drawn from the prior itself,
          which is charged less; the release checks it, run by run.

    Args:
        search_space: Distributions by parameter name. None (the default) lets the sampler find
            the parameters that all completed runs share; these are drawn jointly, others from
            the prior. Give it explicitly to adapt from the second run on.
        trials: The law of the number of runs. Fix it before the data are touched.
        density_bounds: (c, C) with 0 < c < 1 < C. (1, 1) is RandTune.
        schedule: ``"batch"``: a run sees the completed batches before its own, and waits for
            them (for ever, saying in the log for what: a run that gave up would depend on the
            durations of others). ``"any"``: a run sees whatever has ended and never
            waits; charged much more, because who ends first may depend on the data.
        batch_size: Runs per batch under ``"batch"``, at least 1; give it the number of workers or
            more, so that none waits for nothing.
        startup_runs: How many runs, the first ones, are drawn from the prior whatever is known;
            at least the first batch, which nothing is known to (None: that batch alone). 0
            promises nothing and charges for it; under ``"any"`` it is None or 0, because runs from
            the prior cost as much as others there.
        projection: ``"kl"`` or ``"l2"`` (the paper's), both by bisection: exact, and some fifty
            times faster than a solver. Or :class:`~optuna_dp.ConvexProjection`: any other convex
            distance, by cvxpy.
        tau: Weight of the surrogate's standard deviation in a candidate's score; finite, larger
            explores more.
        beta: Inverse temperature of the softmax; at least 0 (the prior's own weights).
        standardize: Score candidates in units of the spread of the observed scores, so that tau
            and beta mean the same for accuracies and for losses. False: raw scores. With
            ``projection="l2"``, ``tau=0.1`` and ``beta=1.0`` it is Algorithm 3 with the paper's
            settings (``docs/explanation/convex-projections.md``).
        surrogate: Any :class:`optuna_dp.priors.surrogate.ScoreModel`; default a Gaussian
            process.
        candidates: Fresh candidates per run, at least 1.
        prior: None is Optuna's own uniform law; :func:`optuna_dp.around` a good guess, another
            :class:`~optuna_dp.priors.prior.Prior` or a weighted finite set,
            :class:`~optuna_dp.priors.densities.informed.FixedCandidates`, need
            ``search_space``. It costs nothing, where learning within density bounds does: what
            is known without the data belongs here (``docs/explanation/searches.md``).
        run: What each run is, a :class:`optuna_dp.RunPlan`: :func:`optuna_dp.start_run` gives it
            to the trials. Or the event of one whole run, training and scoring, for any other
            training; see :func:`optuna_dp.dp_sgd` and :func:`optuna_dp.compose`. What an event
            says is your word, and ``release`` asks how you know it (``vouched=``). Without it
            (None) the :class:`optuna_dp.PrivacyCallback` has to be told.
        neighboring_relation: The relation under which an event of training and scoring is read:
            ``"add_or_remove_one"`` (None) or ``"replace_one"``. A plan of a run has its own.
        output_attributes: User attributes of a trial that are part of the run's private output
            (for example a calibrated threshold), are charged for by ``run``, and may be released
            with the winner. A :class:`optuna_dp.RunPlan` charges for a training and a score only:
            of numbers computed from these two, ``release`` asks how you know it.
        seed: Makes the study repeatable, for simulations. It cannot be released then.

    Raises:
        InvalidArgumentError: If an argument is not allowed; when called, if the study has several
            directions.
        UnsupportedEventError: If no accountant supports ``run``.
        PlanError: When called in a study of another design or with enqueued trials.
        ProjectionError: When called, if every solver of a :class:`~optuna_dp.ConvexProjection`
            fails. The study cannot be released then.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> space = {"x": optuna.distributions.FloatDistribution(-1, 1)}
        >>> study = optuna.create_study(
        ...     sampler=odp.DPHyPOSampler(space, trials=odp.Geometric(mean=5))
        ... )
        >>> study.optimize(lambda trial: trial.suggest_float("x", -1, 1) ** 2)  # stops by itself
    """

    def __init__(
        self,
        search_space: dict[str, BaseDistribution] | None = None,
        *,
        trials: TrialCount = DEFAULT_TRIALS,
        density_bounds: tuple[float, float] = _DEFAULTS.bounds,
        schedule: Literal["batch", "any"] = "batch",
        batch_size: int = 1,
        startup_runs: int | None = None,
        projection: Projection = _DEFAULTS.projection,
        tau: float = _DEFAULTS.tau,
        beta: float = _DEFAULTS.beta,
        standardize: bool = _DEFAULTS.standardize,
        surrogate: ScoreModel | None = None,
        candidates: int = _DEFAULTS.candidates,
        prior: Prior | None = None,
        run: RunPlan | dp_event.DpEvent | None = None,
        neighboring_relation: str | None = None,
        output_attributes: Sequence[str] = (),
        seed: int | None = None,
    ) -> None:
        density = AdaptiveDensity(
            bounds=search_bounds(density_bounds),
            prior=checked_prior(prior),
            projection=projection,
            tau=tau,
            beta=beta,
            surrogate=GaussianProcess() if surrogate is None else surrogate,
            candidates=candidates,
            standardize=standardize,
        )
        super().__init__(
            SelectionStrategy(
                type(self).__name__,
                search_space,
                trials=trials,
                prior=prior,
                run=run,
                neighboring_relation=neighboring_relation,
                output_attributes=output_attributes,
                seed=seed,
                adaptive=BoundedDraws(
                    density,
                    schedule=schedule,
                    batch_size=batch_size,
                    startup_runs=startup_runs,
                ),
            )
        )
