"""Report-noisy-max over averaged utilities: one epsilon for the whole choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optuna.distributions import BaseDistribution

from optuna_dp.core.value_types import Params
from optuna_dp.mechanisms.report_noisy_max import Noise, NoisyMaxPlan, better_noise
from optuna_dp.samplers.choice.settings import NOISY_MAX
from optuna_dp.samplers.choice.slot_strategy import UtilityStrategy
from optuna_dp.study.slots import SlotSampler

if TYPE_CHECKING:
    import dp_accounting


class NoisyMaxSampler(SlotSampler):
    """Tests listed candidates without privacy on k partitions; chooses one by report-noisy-max.

    The objective trains a candidate on each of k disjoint partitions of the data
    (:func:`optuna_dp.partition`) and returns ``report_utilities(trial, scores)``. After the last
    candidate the choice is made and the study stops; ``release(study)`` gives it, with its
    guarantee. No score is released. The final training is yours, and is composed on top:
    ``release(study).with_training(event)``. Say beforehand what it costs (``training=``): then the
    noise of the choice is of the kind that makes both together cheaper.

    At equal total epsilon this chooses better from the same candidates than
    :class:`optuna_dp.ProposeTestSampler` (``docs/explanation/propose-test.md``).

    Guarantees:
        * The choice is ``epsilon``-DP, delta 0: ``epsilon`` is the whole.
        * Exactly one trial per candidate, on every storage and with any number of workers.
        * The choice is made once; a second release gives the same.
        * A candidate whose trial failed (its worker's death before the objective excepted)
          blocks the choice: its absence may tell a record.

    Args:
        search_space: Distributions by parameter name; None with a list of candidates, or with a
            number of them, lets the objective say what it needs (define-by-run).
        candidates: A list of dicts of parameters; or a number of independent draws from the
            search space; or None, every point of a finite search space. Fix them without looking
            at the data.
        n_partitions: k, at least 2.
        epsilon: Privacy of the whole choice; positive.
        training: What the final training will cost, if one is composed with the choice. It
            decides between two kinds of noise, both ``epsilon``-DP, and the plan records which:
            Gumbel noise, an exponential mechanism, if that makes choice and training together
            cheaper by 1 % at delta = 1e-5 (it costs about half in a composition;
            ``docs/explanation/bounded-range.md``); else, and for a choice that is released alone,
            exponential noise, which chooses better.
        resolve: Difference in averaged utility that matters to you. A
            :class:`~optuna_dp.mechanisms.NoiseWarning` says at once when the noise hides it.
        neighboring_relation: ``"add_or_remove_one"`` or ``"replace_one"``: the relation of the
            guarantee, and of a final training that is composed with the choice.
        seed: Makes the draws of candidates repeatable, for simulations; never the choice. The
            study cannot be released then.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
        UnsupportedEventError: If no accountant judges ``training``.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> candidates = [{"x": 0.1}, {"x": 0.5}, {"x": 0.9}]
        >>> sampler = odp.NoisyMaxSampler(candidates=candidates, n_partitions=500, epsilon=1.0)
        >>> study = optuna.create_study(direction="maximize", sampler=sampler)
        >>> study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
        >>> odp.release(study).params in candidates
        True
    """

    def __init__(
        self,
        search_space: dict[str, BaseDistribution] | None = None,
        *,
        candidates: Sequence[Params] | int | None = None,
        n_partitions: int,
        epsilon: float,
        training: dp_accounting.DpEvent | None = None,
        resolve: float = 0.05,
        neighboring_relation: str = "add_or_remove_one",
        seed: int | None = None,
    ) -> None:
        noise: Noise = "exponential"
        if training is not None:
            from optuna_dp.accounting.events import as_event  # start-up time

            noise = better_noise(epsilon, as_event("training", training))
        super().__init__(
            UtilityStrategy(
                type(self).__name__,
                search_space,
                procedure=NOISY_MAX,
                plan=NoisyMaxPlan(epsilon, noise),
                candidates=candidates,
                n_partitions=n_partitions,
                resolve=resolve,
                neighboring_relation=neighboring_relation,
                seed=seed,
            )
        )
