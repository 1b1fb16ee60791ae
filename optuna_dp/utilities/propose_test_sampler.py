"""Propose-test tuning: the doubling loop over averaged utilities, or over proposed batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.models.space import check_space
from optuna_dp.protocol.slots import SlotSampler
from optuna_dp.utilities.doubling import DoublingPlan, Variant
from optuna_dp.utilities.proposed_candidates import ProposedCandidates
from optuna_dp.utilities.settings import PROPOSE_TEST
from optuna_dp.utilities.slot_strategy import UtilityStrategy
from optuna_dp.validation import whole


class ProposeTestSampler(SlotSampler):
    """Tests candidates without privacy on k partitions; chooses by the propose-test loop.

    .. warning::
       ``epsilon`` is the privacy of ONE ITERATION of the loop, as in the papers. The guarantee
       of the whole is ``release(study).guarantee``: at most m iterations, composed optimally.
       With ``granularity=0.01`` and the default variant m is 199, and ``epsilon=0.1`` costs 6.48
       in all at delta = 1e-5.

    Ding & Wu, arXiv:2211.01852 ("Revisiting", Algorithm 1, and "Constant-overhead", Algorithm 1
    and Section 4.1). The objective trains a candidate on each of k disjoint partitions of the data
    (:func:`optuna_dp.partition`) and returns ``report_utilities(trial, scores)``. After the last
    candidate the loop runs and the study stops; ``release(study)`` gives the choice. No score is
    released. The final training is composed on top: ``release(study).with_training(event)``.

    If the candidates can be listed beforehand, :class:`optuna_dp.NoisyMaxSampler` chooses better
    at the same total epsilon. This sampler has its place with ``proposer``: batches of candidates
    that depend on the answers so far.

    Guarantees:
        * The choice satisfies ``release(study).guarantee``, a function of ``epsilon``,
          ``granularity``, ``lower_bound``, ``variant`` and ``max_iterations`` alone.
        * Without a proposer exactly one trial per candidate, on every storage and with any number
          of workers. With one, the number of trials is a function of the private answers.
        * A proposer is given hyperparameters it has proposed itself, and the private answers (an
          index or none per iteration): no utility, time, state or attribute of a trial.
        * Every answer is drawn once; a second release gives the same.
        * A candidate whose trial failed (its worker's death before the objective excepted)
          blocks the choice: its absence may tell a record.

    Args:
        search_space: Distributions by parameter name; None with a list of candidates, or with a
            number of them, lets the objective say what it needs (define-by-run).
        candidates: A list of dicts of parameters; or a number of independent draws from the
            search space; or None, every point of a finite search space. Fix them without looking
            at the data. Not with ``proposer``.
        n_partitions: k, at least 2.
        epsilon: Privacy of one iteration; positive. See the warning above.
        granularity: Smallest step of the threshold, in (0, 1).
        lower_bound: Where the threshold starts, in [0, 1).
        variant: ``"bounded"`` stops when the threshold has been pushed to 1, after at most
            ``2n - 1`` iterations, ``n = ceil((1 - lower_bound) / granularity)``; ``"capped"``
            stops at ``max_iterations`` (default ``ceil(5 log2(n + 1))``).
        max_iterations: Cap on the iterations, fixed beforehand.
        proposer: Any Optuna sampler (TPE, CMA-ES, Gaussian process); needs ``search_space``.
            In its eyes the accepted candidate of an iteration has the threshold it reached as
            its value, those tested before it have 0, and those after it have failed.
        batch_size: Candidates per iteration, with ``proposer``; at least the number of workers.
        resolve: Difference in averaged utility that matters to you. A
            :class:`~optuna_dp.utilities.NoiseWarning` says at once when the noise hides it.
        seed: Makes the draws of candidates repeatable (without a proposer), for simulations;
            never the choice. The study cannot be released then.

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
        candidates: Sequence[Mapping[str, Any]] | int | None = None,
        n_partitions: int,
        epsilon: float,
        granularity: float = 0.01,
        lower_bound: float = 0.0,
        variant: Variant = "bounded",
        max_iterations: int | None = None,
        proposer: BaseSampler | None = None,
        batch_size: int | None = None,
        resolve: float = 0.05,
        seed: int | None = None,
    ) -> None:
        name = type(self).__name__
        plan = DoublingPlan(epsilon, granularity, lower_bound, variant, max_iterations)
        proposed = None
        if proposer is None and batch_size is not None:
            raise InvalidArgumentError(
                "batch_size", batch_size, "it needs a proposer: fixed candidates are one batch"
            )
        if proposer is not None:
            if search_space is None or candidates is not None:
                raise InvalidArgumentError(
                    "proposer",
                    type(proposer).__name__,
                    "it needs search_space and no candidates, because it proposes them",
                )
            check_space(search_space)
            candidates = whole("batch_size", 10 if batch_size is None else batch_size, 1)
            proposed = ProposedCandidates(proposer, candidates, name, seed)
        super().__init__(
            UtilityStrategy(
                name,
                search_space,
                procedure=PROPOSE_TEST,
                plan=plan,
                candidates=candidates,
                n_partitions=n_partitions,
                resolve=resolve,
                seed=seed,
                proposed=proposed,
            )
        )
