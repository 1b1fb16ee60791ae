"""The callback that keeps the books of a study."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import optuna.logging
from optuna.study import Study

from optuna_dp.core.numbers_shown import rounded_down, rounded_up, significant_up
from optuna_dp.core.optuna_internals import is_in_optimize_loop
from optuna_dp.core.validation import open_unit
from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import InvalidArgumentError, PlanError
from optuna_dp.evidence.data_description import read_description
from optuna_dp.evidence.persons import in_words, person_epsilon
from optuna_dp.evidence.preparation import person_of, persons
from optuna_dp.evidence.procedure import Procedure
from optuna_dp.evidence.reading import OpenedStudy, open_study
from optuna_dp.evidence.slot_entries import slot_entry
from optuna_dp.evidence.start import OPTUNA_LOG
from optuna_dp.evidence.stated_run import (
    ONE_COST,
    RunCost,
    StatedRun,
    attribute_names,
    run_costs,
    write_run_cost,
)
from optuna_dp.releasing.reminders import looks_exact, missing_facts, warn_of_scores
from optuna_dp.study.entries import study_attributes
from optuna_dp.study.plan import StudyPlan
from optuna_dp.study.trials import below_number, ended, score

if TYPE_CHECKING:
    from dp_accounting import dp_event
    from optuna.trial import FrozenTrial

    from optuna_dp.accounting.guarantee import Guarantee
    from optuna_dp.core.arrays import FloatArray

# For the curator: a line for each run, with their count, at level DEBUG.
_logger = logging.getLogger("optuna_dp")
# Of how many runs scores are compared after each; release compares all of them.
_COMPARED_SCORES = 100
_WHATEVER_NUMBER = ", however many runs there are."
_NO_COST = (
    "PrivacyCallback can show no privacy loss: nobody said what one run costs. Say it to the "
    "sampler, %s(run=optuna_dp.RunPlan(...)). Of a study that has begun, say it here: "
    "PrivacyCallback(event). It can also be said when all runs are made, before the release."
)
# At which the callback shows Renyi divergences.
_SHOWN_ORDERS = (2.0, 8.0, 32.0)
_ONE_COMPUTES = threading.Lock()  # Of threads that need the same epsilon.


class PrivacyCallback:
    """Tracks the privacy loss, refuses early what ``release`` would, and stops at the secret T.

    Give it to ``study.optimize(..., callbacks=[...])``. It needs no argument, because the
    sampler's plan says what a run costs. For a page in Optuna Dashboard add
    :class:`optuna_dp.dashboard.DashboardCallback` after it.

    After the first run and after the last one Optuna's own log shows one line with the privacy
    loss of the whole study: epsilon, and the Renyi divergence at the order that suits delta best.
    Where one person may have several records (``unit=``, ``most=``), it says epsilon for a person,
    too. In a budget, whose runs are counted openly, each run has a line that says what is spent so
    far.
    The loss of a private selection is fixed before its first run, and a line says so once.
    ``optuna.logging.set_verbosity`` hides it with Optuna's other lines. :meth:`guarantee` returns
    all of it. None of it depends on the number of runs. A line for each run, with their count,
    goes to the ``optuna_dp`` logger at level DEBUG, the curator's own.

    Args:
        run: Only for a sampler that was made without ``run=``, as in
            ``optuna.create_study(sampler=odp.DPHyPOSampler())``: the event of one whole run, as
            the sampler would have been told. It is recorded in the study, and the callback of
            every worker has to be given the same.
        delta: The delta at which epsilon is shown here, in (0, 1); by default the plan's, else
            1e-5. The statement has the delta of ``release``.
        neighboring_relation: How ``run`` is read; as the sampler's.
        output_attributes: What of a run's output ``run`` includes; as the sampler's.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
        UnsupportedEventError: If no accountant supports ``run``.
        PlanError: When called in a study of another sampler, in one of which nobody said what a
            run costs, or in one whose plan or entry has another cost than ``run``.
        ReleaseRefusedError: When called after a trial for which ``release`` would refuse the
            study: it was enqueued, drawn by another sampler, from other ranges, and so on.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> run = odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.01, steps=100)
        >>> sampler = odp.RandTuneSampler(trials=odp.Geometric(mean=3), run=run)
        >>> study = optuna.create_study(sampler=sampler)
        >>> study.optimize(
        ...     lambda trial: trial.suggest_float("x", 0, 1),
        ...     callbacks=[callback := odp.PrivacyCallback()],
        ... )
        >>> round(callback.guarantee(study).epsilon(delta=1e-5), 2)
        0.88
    """

    def __init__(
        self,
        run: dp_event.DpEvent | None = None,
        *,
        delta: float | None = None,
        neighboring_relation: str | None = None,
        output_attributes: Sequence[str] | None = None,
    ) -> None:
        self._delta = None if delta is None else open_unit("delta", delta)
        self._stated = _stated(run, neighboring_relation, output_attributes)
        # By the design's fingerprint, and of a person by the number of records, too.
        self._epsilons: dict[str, float] = {}
        self._said: set[tuple[str, str]] = set()  # By the plan's nonce: what was said of a study.
        # By the plan's nonce: how many runs, from the first on, were checked after they had ended.
        self._checked: dict[str, int] = {}

    def __repr__(self) -> str:
        cost = self._stated
        if cost is None:
            return "PrivacyCallback(<what the study's plan charges for>)"
        names = list(cost.output_attributes)
        return f"PrivacyCallback({cost.run!r}, output_attributes={names!r})"

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """Called by Optuna after each trial."""
        opened_study = _opened(study)
        plan, snapshot = opened_study.plan, opened_study.snapshot
        if self._stated is None and not opened_study.procedure.knows_cost:
            if self._is_new(plan, "no cost"):
                _logger.warning(_NO_COST, opened_study.procedure.design.sampler)
            return
        procedure = self._with_cost(opened_study)
        if self._stated is not None and not opened_study.procedure.knows_cost:
            ran = trial.number < plan.slots
            _record_cost(study, self._stated, snapshot.attributes, ran=ran)
            opened_study = replace(opened_study, procedure=procedure)
        slots = below_number(snapshot.trials, plan.slots)
        open_runs = [number for number, slot in enumerate(slots) if not ended(slot)]
        first_open = open_runs[0] if open_runs else len(slots)
        self._check(opened_study, trial, slots, first_open)
        ended_count = len(slots) - len(open_runs)
        is_over = ended_count == plan.slots
        self._track(opened_study, trial, slots)
        self._say(opened_study, trial, ended_count, is_over=is_over)
        self._warn(opened_study, slots)
        if is_over and is_in_optimize_loop(study):
            study.stop()

    def _check(
        self,
        opened_study: OpenedStudy,
        trial: FrozenTrial,
        slots: Sequence[FrozenTrial],
        first_open: int,
    ) -> None:
        """Refuses what a release would refuse: now, and not when all runs have been charged for.

        Runs that have ended do not change, so each below ``first_open`` is checked once.
        """
        plan, procedure = opened_study.plan, opened_study.procedure
        procedure.check_origin(slots[min(self._checked.get(plan.nonce, 0), first_open) :])
        self._checked = {plan.nonce: first_open}
        if procedure.runs_among([trial], plan):
            procedure.check_run(trial, slot_entry(trial, plan))
            procedure.check_spending(trial)
        procedure.check_beside(trial, slots)

    def _say(
        self,
        opened_study: OpenedStudy,
        trial: FrozenTrial,
        ended_count: int,
        *,
        is_over: bool,
    ) -> None:
        """Says what is guaranteed: once after the first run, and once after the last.

        A line for each run, or for each worker that had one, could be counted. The two lines are
        there whatever the number of runs.
        """
        plan, procedure = opened_study.plan, opened_study.procedure
        epsilon, delta = self._epsilon(procedure), self._delta_for(procedure)
        text = "no finite epsilon" if math.isinf(epsilon) else f"epsilon {rounded_up(epsilon, 3)}"
        _logger.debug("%d of %d runs have ended: %s.", ended_count, plan.slots, text)
        logger = optuna.logging.get_logger(OPTUNA_LOG)
        if not logger.isEnabledFor(logging.INFO):
            return
        words = (
            "%s run has ended. The release is guaranteed %s at delta %g (%s)"
            + (", for all runs together." if procedure.releases_all_runs else _WHATEVER_NUMBER)
            if procedure.runs_are_private
            else "%s candidate has been evaluated. The choice is guaranteed %s at delta %g (%s). "
            "The evaluations themselves are not private."
        )
        for is_due, which in ((trial.number == 0, "A"), (is_over, "The last")):
            if is_due and self._is_new(plan, which):
                renyi = renyi_in_words(procedure.guarantee(), delta)
                logger.info(
                    words + self._of_person(opened_study, trial), which, text, delta, renyi
                )
        # A description cannot change once the study is released.
        names = missing_facts(opened_study.snapshot.attributes) if is_over else []
        if names and self._is_new(plan, "missing facts"):
            logger.info(
                "Before the release, say what a reviewer looks for first: odp.describe(study, "
                "%s). odp.release(study, artifact_store=...) names the model's file.",
                ", ".join(f"{name}=..." for name in names),
            )

    def _of_person(self, opened_study: OpenedStudy, trial: FrozenTrial) -> str:
        """Returns what is guaranteed to a person with several records, a sentence; or nothing.

        Args:
            opened_study: The study.
            trial: A run that has ended, whose records may have a schema with a person.
        """
        procedure = opened_study.procedure
        judgement = procedure.judgement(trial)
        description = read_description(opened_study.snapshot.attributes)
        unit, most = persons(
            {
                "spending": {} if judgement is None else person_of([judgement.prepared]),
                "description": {} if description is None else description.to_json(),
            }
        )
        if most in (None, 1):
            return ""
        key = f"{procedure.design.fingerprint}, {most} records"
        if key not in self._epsilons:
            delta = self._delta_for(procedure)
            epsilon = person_epsilon(procedure.guarantee(), delta, most)
            if epsilon is None:
                return ""
            self._epsilons[key] = epsilon
        epsilon = self._epsilons[key]
        return f" For one {unit} with up to {most} records: {in_words(epsilon)}."

    def _track(
        self, opened_study: OpenedStudy, trial: FrozenTrial, slots: Sequence[FrozenTrial]
    ) -> None:
        """Says what is spent so far where runs are counted openly; else what is fixed, once.

        The loss of a private selection is fixed before its first run. A sum over its runs would
        tell their number.
        """
        plan, procedure = opened_study.plan, opened_study.procedure
        logger = optuna.logging.get_logger(OPTUNA_LOG)
        if not (logger.isEnabledFor(logging.INFO) and procedure.runs_are_private):
            return
        if not procedure.releases_all_runs:
            if trial.number == 0 and self._is_new(plan, "divergences"):
                logger.info(divergences_in_words(procedure.guarantee()))
            return
        if trial.number >= plan.slots:
            return
        whole = procedure.guarantee()
        so_far = [procedure.run_of(slot.number) for slot in slots if ended(slot)]
        events = [run.event for run in so_far if run is not None]
        events += [] if procedure.ranges is None else [procedure.ranges.event]
        spent = _spent(events, whole.neighboring_relation)
        logger.info(
            "%s has ended. Spent so far, as Renyi divergence at orders %s: %s of %s.",
            procedure.name_of(trial.number),
            _in_words(_SHOWN_ORDERS),
            _in_words(spent),
            _in_words(_spent([whole.event], whole.neighboring_relation)),
        )

    def _warn(self, opened_study: OpenedStudy, slots: Sequence[FrozenTrial]) -> None:
        """Warns once if runs fail together, and once if scores look as without noise."""
        plan, procedure = opened_study.plan, opened_study.procedure
        words = procedure.warning(slots)
        if words and self._is_new(plan, "failures"):
            _logger.warning(words)
        if (plan.nonce, "scores") in self._said or not procedure.runs_are_private:
            return  # Utilities have no noise, and are not released.
        scores = [score(trial) for trial in slots[-_COMPARED_SCORES:] if ended(trial)]
        words = looks_exact([value for value in scores if value is not None])
        if words and self._is_new(plan, "scores"):
            warn_of_scores(words)

    def _is_new(self, plan: StudyPlan, what: str) -> bool:
        """Returns whether something is said of a study for the first time."""
        is_new = (plan.nonce, what) not in self._said
        self._said.add((plan.nonce, what))
        return is_new

    def guarantee(self, study: Study) -> Guarantee:
        """Returns what is guaranteed of the study's release, from its first run on.

        It is the guarantee that :func:`optuna_dp.release` will give, with ``epsilon(delta)``,
        ``rdp(orders)`` and the rest, unless that release is asked to reveal more
        (``failures="lost"``).

        Guarantees:
            * The result is a function of the study's design and of the cost of a run: the number
              of runs, how many have ended and what came out change nothing.

        Args:
            study: A study with a sampler of optuna-dp, in which a run has begun.

        Raises:
            InvalidArgumentError: If ``study`` is not an Optuna study.
            PlanError: If no run has begun yet, the study is one of another sampler, nobody said
                what a run costs, or another cost stands in its plan or entry.
        """
        if not isinstance(study, Study):
            raise InvalidArgumentError("study", study, allowed="it must be an Optuna study")
        opened_study = _opened(study)
        procedure = self._with_cost(opened_study)
        if self._stated is not None and not opened_study.procedure.knows_cost:
            _check_same_cost(self._stated, run_costs(opened_study.snapshot.attributes))
        return procedure.guarantee()

    def _with_cost(self, opened_study: OpenedStudy) -> Procedure:
        """Returns a study's procedure with what a run costs: as its plan says, or this callback.

        Raises:
            PlanError: If neither says it, or the two differ.
        """
        procedure, stated = opened_study.procedure, self._stated
        if not procedure.knows_cost and stated is None:
            raise PlanError(
                "Nobody said what one run costs. Give the sampler run=, as in "
                f"{procedure.design.sampler}(run=optuna_dp.RunPlan(...)). Of a study that has "
                "begun, say it here: PrivacyCallback(event)."
            )
        if stated is None:
            return procedure
        if not procedure.knows_cost:
            return procedure.told(stated)
        planned = procedure.own_cost()
        if stated.digest != planned.digest:
            # Start-up time: most workers agree.
            from optuna_dp.accounting.event_words import differences_of_runs

            raise PlanError(
                "This PrivacyCallback states another cost of a run than the study's plan: "
                f"{differences_of_runs(stated, planned)} (in the plan). Leave it out: "
                "PrivacyCallback()."
                if procedure.runs_are_private
                else f"In a study of {procedure.design.sampler} only the choice costs, and the "
                "study's plan says how much. Give study.optimize a PrivacyCallback() without a "
                "run. Add the final training with release(study).with_training(event)."
            )
        return procedure

    def _delta_for(self, procedure: Procedure) -> float:
        return procedure.delta if self._delta is None else self._delta

    def _epsilon(self, procedure: Procedure) -> float:
        """The epsilon of the whole study, computed once per design."""
        with _ONE_COMPUTES:
            key = procedure.design.fingerprint
            if key not in self._epsilons:
                delta = self._delta_for(procedure)
                self._epsilons[key] = procedure.guarantee().epsilon(delta)
            return self._epsilons[key]


def _stated(
    run: dp_event.DpEvent | None,
    neighboring_relation: str | None,
    output_attributes: Sequence[str] | None,
) -> RunCost | None:
    """Returns what a callback states; refuses words on a run that it does not state."""
    for name, value in (
        ("neighboring_relation", neighboring_relation),
        ("output_attributes", output_attributes),
    ):
        if run is None and value is not None:
            raise InvalidArgumentError(
                name,
                value,
                problem="it is said where the cost of a run is",
                fix="Give it to the sampler.",
            )
    if run is None:
        return None
    names = () if output_attributes is None else attribute_names(output_attributes)
    return RunCost(StatedRun.told(run, neighboring_relation), names)


def _record_cost(study: Study, stated: RunCost, attributes: JsonObject, *, ran: bool) -> None:
    """Writes down what a run costs, unless it stands there; refuses two different costs.

    Each worker writes before it looks, so of two that differ at least one sees the other. What is
    written stays, though it spoils the release: a run has taken place under each.
    """
    entries = run_costs(attributes)
    is_new = stated.digest not in {entry.digest for entry in entries}
    if is_new and (ran or not entries):
        write_run_cost(study, stated)
        entries = run_costs(study_attributes(study))
    spoilt = " This study cannot be released any more: start a new one." if ran else ""
    _check_same_cost(stated, entries, spoilt)


def _check_same_cost(stated: RunCost, entries: Sequence[RunCost], spoilt: str = "") -> None:
    """Refuses a cost of a run that is not the one stored."""
    different = [entry for entry in entries if entry.digest != stated.digest]
    if not different:
        return
    # Start-up time: most workers agree.
    from optuna_dp.accounting.event_words import differences_of_runs

    raise PlanError(
        "This PrivacyCallback states another cost of a run than the study has: "
        f"{differences_of_runs(stated, different[0])} (stored).{spoilt} {ONE_COST}"
    )


def divergences_in_words(guarantee: Guarantee) -> str:
    """Returns the Renyi divergences of one run of a selection and of its release, rounded up.

    A function of the guarantee alone: the number of runs changes nothing.
    """
    from optuna_dp.accounting.guarantee import Guarantee  # Start-up time.

    one_run = Guarantee(guarantee.event.run, guarantee.neighboring_relation)
    return (
        f"Renyi divergence at orders {_in_words(_SHOWN_ORDERS)}: one run "
        f"{_in_words(one_run.rdp(_SHOWN_ORDERS))}; the release of the whole search "
        f"{_in_words(guarantee.rdp(_SHOWN_ORDERS))}, fixed before the first run. Further runs add "
        "nothing to it."
    )


def _spent(events: Sequence[dp_event.DpEvent], relation: str) -> FloatArray:
    """Returns the Renyi divergences of events that are released, all together."""
    # Start-up time.
    import numpy as np

    from optuna_dp.accounting.run_rdp import rdp_of

    # Divergences add up. Runs of one rung are equal, and their curve is computed once.
    return np.asarray(sum(rdp_of(event, relation, _SHOWN_ORDERS) for event in events))


def _in_words(numbers: Iterable[float]) -> str:
    return " / ".join(
        significant_up(float(n)) if math.isfinite(n) else "no bound" for n in numbers
    )


def renyi_in_words(guarantee: Guarantee, delta: float) -> str:
    """Returns the Renyi divergence at the order that suits ``delta`` best, rounded up.

    A function of the guarantee and delta alone.
    """
    # Start-up time: only these words need Renyi divergences.
    import numpy as np

    from optuna_dp.accounting.rdp_curves import DEFAULT_ORDERS, best_order

    curve = guarantee.rdp()
    order = best_order(DEFAULT_ORDERS, curve, delta)
    if order is None:
        return "no finite Renyi divergence is known"
    divergence = float(curve[np.searchsorted(DEFAULT_ORDERS, order)])
    # Divergences grow with the order, so an order that is shown rounded is rounded down.
    shown_order = rounded_down(order).rstrip("0").rstrip(".")
    return f"Renyi divergence at most {significant_up(divergence)} at order {shown_order}"


def _opened(study: Study) -> OpenedStudy:
    opened_study = open_study(study)
    if opened_study is None:
        raise PlanError(
            "PrivacyCallback needs a study with a sampler of optuna-dp in which a run has begun, "
            "and this study has no plan. Make it with "
            "sampler=optuna_dp.BudgetSampler(plan_budget(...)), and call study.optimize."
        )
    return opened_study
