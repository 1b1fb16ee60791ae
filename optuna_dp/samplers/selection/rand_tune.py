"""RandTune: the best of a random number of independent draws from a prior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optuna.distributions import BaseDistribution

from optuna_dp.priors.prior import Prior
from optuna_dp.runs.run_plan import RunPlan
from optuna_dp.samplers.selection.slot_strategy import DEFAULT_TRIALS, SelectionStrategy
from optuna_dp.selection.laws.base import TrialCount
from optuna_dp.study.slots import SlotSampler

if TYPE_CHECKING:
    from dp_accounting import dp_event


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
            :class:`optuna_dp.priors.prior.Prior` or
            :class:`optuna_dp.priors.densities.informed.FixedCandidates` need
            ``search_space``. It costs nothing: what is known without the data, of models and
            features too, belongs here (``docs/explanation/searches.md``).
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
        run: RunPlan | dp_event.DpEvent | None = None,
        neighboring_relation: str | None = None,
        output_attributes: Sequence[str] = (),
        seed: int | None = None,
    ) -> None:
        name = type(self).__name__
        super().__init__(
            SelectionStrategy(
                name,
                search_space,
                trials=trials,
                prior=prior,
                run=run,
                neighboring_relation=neighboring_relation,
                output_attributes=output_attributes,
                seed=seed,
            )
        )
