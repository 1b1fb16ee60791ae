"""The sampler of a budget: pilot runs rung by rung, then the last run."""

from __future__ import annotations

from collections.abc import Sequence

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler

from optuna_dp.core.value_types import Params
from optuna_dp.samplers.budget.choice import Choose
from optuna_dp.samplers.budget.plan import BudgetPlan
from optuna_dp.samplers.budget.slot_strategy import BudgetStrategy
from optuna_dp.study.slots import SlotSampler


class BudgetSampler(SlotSampler):
    """A few noisy pilot runs, then one last run with what they found, within a budget plan.

    An ordinary Optuna sampler proposes the pilots of the first rung. The best of a rung run again
    on the next, which has less noise. The last run takes the hyperparameters that ``choose``
    picks. Every run is charged for by composition, so nothing is secret: hyperparameters and
    scores may be shown while the study runs. The objective asks :func:`optuna_dp.start_run` what
    it may spend.

    A plan without pilots is one run. Its objective usually asks for no hyperparameters, because
    they follow from public numbers; those that it asks for are drawn at random, or enqueued.

    With a plan for a short list (``plan_budget(candidates=k)``) each candidate is one pilot, and
    the last run takes the one with the best score.

    Whatever depends on the data only through the runs' private outputs is allowed: an enqueued
    trial is a pilot, and the first of them, the first guess, is repeated on every rung; several
    objectives, if ``choose`` is a function. A person who has seen the pilots may enqueue the last
    run. Pruners that compare trials are silenced.

    Guarantees:
        * Trials 0 to B - 1 are the pilots, rung by rung. Then one run begins, and one more for
          each that failed as long as spare runs are charged for. No other trial begins, on any
          storage and with any number of workers.
        * A pilot's hyperparameters are a function of the outputs of the completed batches before
          its own, of those of the whole rung below from the second rung on, of fresh randomness,
          and of what was enqueued. Equal scores are ordered by uniforms drawn beforehand.
        * A last run begins when all pilots have ended. A trial that ends before its run begins (a
          worker dies while it waits, ``choose`` raises) costs nothing, and the next trial takes
          its place.

    Args:
        plan: What is charged for; see :func:`optuna_dp.plan_budget`.
        search_space: Distributions by parameter name. None (the default) finds them while the
            study runs; proposers learn more from a space that they know.
        proposer: Any Optuna sampler; None is ``TPESampler``, random for the first half of the
            first rung. Its seed is not used, except by samplers that keep it in ``reseed_rng``
            (quasi-random ones: give every worker the same ``seed``, secret or not).
        candidates: The short list, with a plan that was made for one of this length: dicts of
            parameters by name, all different. Pilot i runs ``candidates[i]``; what a candidate
            does not name is drawn at random. An enqueued trial takes the place of the candidate
            of its number. Without a list such a plan's pilots are those that are enqueued, and
            the proposer's. No candidate may come from looking at the private data.
        choose: How the last run's hyperparameters are chosen. None (the default) is ``"best"`` for
            a short list and ``"evidence"`` otherwise. ``"best"``: those of the pilot with
            the best score on the last rung that has scores; scores of different rungs have
            different noise and are not compared. ``"evidence"``: the same, unless the
            first guess is behind it by no more than the standard deviation of the first
            rung's scores; then the first guess. A function: it is given a list of (params,
            values), ``values`` with one score per objective, of that rung's pilots, best first,
            and returns hyperparameters, one of them or others within their ranges. It must be a
            function of that list alone.
        pilot_batch_size: Pilots of the first rung per batch, at least 1. A pilot sees the
            completed batches before its own; the number of workers keeps all of them busy. The
            default proposer's random pilots and the higher rungs run side by side in any case.
        output_attributes: User attributes of a trial that are part of a run's private output (for
            example a calibrated threshold), are charged for by the plan
            (``plan_budget(run=...)``), and may be released with the last run. A plan of
            ``records`` charges for trainings and scores only: of numbers computed from these,
            ``release`` asks how you know it.
        seed: Makes what is drawn here repeatable (with the default proposer). That is harmless, as
            long as the training's own noise has no seed.

    Raises:
        InvalidArgumentError: If an argument is not allowed; when called, if several objectives
            meet a ``choose`` that is no function.
        PlanError: When called, if no pilot has a score by which to choose the last run.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> from dp_accounting.rdp import RdpAccountant
        >>> plan = odp.plan_budget(
        ...     epsilon=3.0, records=20_000, batch_size=256, epochs=10, pilots=(4, 2)
        ... )
        >>> study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
        >>> def objective(trial):
        ...     run = odp.start_run(trial)  # what it may spend
        ...     x = trial.suggest_float("x", -1, 1)  # train here; then hand in what that spent
        ...     noise, rate, steps = run.noise_multiplier, run.sample_rate, run.steps
        ...     training = odp.dp_sgd(noise_multiplier=noise, sample_rate=rate, steps=steps)
        ...     run.spent(RdpAccountant().compose(training))  # the training's accountant
        ...     return run.score([abs(x) < 0.5] * 20_000)  # one value per record; adds the noise
        >>> study.optimize(objective)  # stops by itself
        >>> release = odp.release(study)
        >>> len(release.pilots), release.params == study.trials[6].params
        (6, True)
    """

    def __init__(
        self,
        plan: BudgetPlan,
        *,
        search_space: dict[str, BaseDistribution] | None = None,
        proposer: BaseSampler | None = None,
        candidates: Sequence[Params] | None = None,
        choose: Choose | None = None,
        pilot_batch_size: int = 1,
        output_attributes: Sequence[str] = (),
        seed: int | None = None,
    ) -> None:
        super().__init__(
            BudgetStrategy(
                type(self).__name__,
                plan,
                search_space=search_space,
                proposer=proposer,
                candidates=candidates,
                choose=choose,
                pilot_batch_size=pilot_batch_size,
                output_attributes=output_attributes,
                seed=seed,
            )
        )
