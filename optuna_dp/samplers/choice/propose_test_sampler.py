"""Propose-test tuning: the doubling loop over averaged utilities."""

from __future__ import annotations

from collections.abc import Sequence

from optuna.distributions import BaseDistribution

from optuna_dp.core.value_types import Params
from optuna_dp.mechanisms.doubling import DoublingPlan, Variant
from optuna_dp.samplers.choice.settings import PROPOSE_TEST
from optuna_dp.samplers.choice.slot_strategy import UtilityStrategy
from optuna_dp.study.slots import SlotSampler


class ProposeTestSampler(SlotSampler):
    """Tests candidates without privacy on k partitions; chooses by the propose-test loop.

    .. warning::
       ``epsilon`` is the privacy of ONE ITERATION of the loop, as in the papers. The guarantee
       of the whole is ``release(study).guarantee``: at most m iterations, composed optimally.
       With ``granularity=0.01`` and the default variant m is 199, and ``epsilon=0.1`` costs 6.48
       in all at delta = 1e-5.

    Ding & Wu, arXiv:2211.01852 ("Revisiting", Algorithm 1, and "Constant-overhead", Algorithm
    1). The objective trains a candidate on each of k disjoint partitions of the data
    (:func:`optuna_dp.partition`) and returns ``report_utilities(trial, scores)``. After the last
    candidate the loop runs and the study stops; ``release(study)`` gives the choice. No score is
    released. The final training is composed on top: ``release(study).with_training(event)``.

    :class:`optuna_dp.NoisyMaxSampler` chooses better from the same candidates at the same total
    epsilon. Use this sampler to reproduce the papers, or to compare with them.

    Guarantees:
        * The choice satisfies ``release(study).guarantee``, a function of ``epsilon``,
          ``granularity``, ``lower_bound``, ``variant`` and ``max_iterations`` alone.
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
        epsilon: Privacy of one iteration; positive. See the warning above.
        granularity: Smallest step of the threshold, in (0, 1).
        lower_bound: Where the threshold starts, in [0, 1).
        variant: ``"bounded"`` stops when the threshold has been pushed to 1, after at most
            ``2n - 1`` iterations, ``n = ceil((1 - lower_bound) / granularity)``; ``"capped"``
            stops at ``max_iterations`` (default ``ceil(5 log2(n + 1))``).
        max_iterations: Cap on the iterations, fixed beforehand.
        resolve: Difference in averaged utility that matters to you. A
            :class:`~optuna_dp.mechanisms.NoiseWarning` says at once when the noise hides it.
        neighboring_relation: ``"add_or_remove_one"`` or ``"replace_one"``: the relation of the
            guarantee, and of a final training that is composed with the choice.
        seed: Makes the draws of candidates repeatable, for simulations; never the choice. The
            study cannot be released then.

    Raises:
        InvalidArgumentError: If an argument is not allowed.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> space = {"x": optuna.distributions.FloatDistribution(0, 1, step=0.1)}
        >>> sampler = odp.ProposeTestSampler(
        ...     space, n_partitions=30_000, epsilon=0.1, granularity=0.05, resolve=0.1
        ... )
        >>> study = optuna.create_study(direction="maximize", sampler=sampler)
        >>> study.optimize(lambda trial: trial.suggest_float("x", 0, 1, step=0.1))
        >>> round(odp.release(study).guarantee.epsilon(delta=1e-5), 2)  # 39 iterations
        2.46
    """

    def __init__(
        self,
        search_space: dict[str, BaseDistribution] | None = None,
        *,
        candidates: Sequence[Params] | int | None = None,
        n_partitions: int,
        epsilon: float,
        granularity: float = 0.01,
        lower_bound: float = 0.0,
        variant: Variant = "bounded",
        max_iterations: int | None = None,
        resolve: float = 0.05,
        neighboring_relation: str = "add_or_remove_one",
        seed: int | None = None,
    ) -> None:
        super().__init__(
            UtilityStrategy(
                type(self).__name__,
                search_space,
                procedure=PROPOSE_TEST,
                plan=DoublingPlan(epsilon, granularity, lower_bound, variant, max_iterations),
                candidates=candidates,
                n_partitions=n_partitions,
                resolve=resolve,
                neighboring_relation=neighboring_relation,
                seed=seed,
            )
        )
