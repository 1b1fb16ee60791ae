"""RandTune: the best of a random number of independent draws from a prior."""

from __future__ import annotations

from optuna.distributions import BaseDistribution

from optuna_dp.models.prior import Prior
from optuna_dp.private_selection.slot_strategy import DEFAULT_TRIALS, SelectionStrategy
from optuna_dp.private_selection.trial_counts.base import TrialCount
from optuna_dp.protocol.slots import SlotSampler
from optuna_dp.training.run_plan import RunPlan


class RandTuneSampler(SlotSampler):
    """Draws every run from the prior, a secret random number of times.

    The procedure of Liu & Talwar (2019, arXiv:1811.07971) and Papernot & Steinke (2022,
    arXiv:2110.03620v2). Nothing is learnt between runs, so nothing is paid for it: of all samplers
    here this has the smallest epsilon for a given law of T, and it never waits for other workers.

    Guarantees:
        * Exactly T trials have parameters, T drawn once per study from ``trials``.
        * Every run's joint density is the prior's; c = C = 1 in the accounting.

    Args:
        search_space: Distributions by parameter name. None (the default) draws each parameter
            when the objective asks for it, conditional ones included.
        trials: The law of the number of runs. Fix it before the data are touched.
        prior: None is Optuna's own uniform law; :func:`optuna_dp.around` a good guess, another
            :class:`optuna_dp.models.prior.Prior` or
            :class:`optuna_dp.adaptive_selection.densities.informed.FixedCandidates` need
            ``search_space``. It costs nothing: what is known without the data, of models and
            features too, belongs here (``docs/explanation/searches.md``).
        run: What each run is, if the study is to know it: :func:`optuna_dp.fidelity` grants it to
            the trials, and neither the callback nor the release has to be told what a run costs.
            None (the default): the callback or the release is given the event of one run.
        seed: Makes the study repeatable, for simulations. It cannot be released then.

    Raises:
        InvalidArgumentError: If an argument is not allowed; when called, if the study has several
            directions.
        PlanError: When called in a study of another design or with enqueued trials.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> study = optuna.create_study(sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=3)))
        >>> study.optimize(lambda trial: trial.suggest_float("x", -1, 1) ** 2)  # stops by itself
    """

    def __init__(
        self,
        search_space: dict[str, BaseDistribution] | None = None,
        *,
        trials: TrialCount = DEFAULT_TRIALS,
        prior: Prior | None = None,
        run: RunPlan | None = None,
        seed: int | None = None,
    ) -> None:
        name = type(self).__name__
        super().__init__(
            SelectionStrategy(name, search_space, trials=trials, prior=prior, run=run, seed=seed)
        )
