"""The callback that keeps the books of a study."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import optuna.logging
from optuna.study import Study

from optuna_dp.errors import InvalidArgumentError, PlanError
from optuna_dp.evidence.procedure import Procedure
from optuna_dp.evidence.reading import OpenedStudy, open_study
from optuna_dp.evidence.run_record import (
    ONE_COST,
    RunRecord,
    run_records,
    write_run_record,
)
from optuna_dp.evidence.slot_records import slot_record
from optuna_dp.numbers_shown import rounded_up
from optuna_dp.optuna_internals import is_in_optimize_loop, storage_of, study_id_of
from optuna_dp.protocol.ended_runs import ended_from_start
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import below_number, ended
from optuna_dp.releasing.reminders import ProgressLine, Reminder, say_what_is_open
from optuna_dp.validation import open_unit

if TYPE_CHECKING:
    from dp_accounting import dp_event
    from optuna.trial import FrozenTrial

    from optuna_dp.accounting.guarantee import Guarantee

# For the curator: a line for each run, with their count, at level DEBUG.
_logger = logging.getLogger("optuna_dp")
# Below Optuna's own logger, so that its handler shows the line and its verbosity hides it.
LOSS_LOGGER = "optuna.optuna_dp"
_ONE_COMPUTES = threading.Lock()  # Of threads that need the same epsilon.


class PrivacyCallback:
    """Records what a run costs, tracks the privacy loss, and stops the study at the secret T.

    Give it to ``study.optimize(..., callbacks=[...])``. With it, ``release(study)`` needs no
    ``run``. If the sampler was not told what a run is, the cost is your word, and ``release``
    asks for ``vouched``. For a page in Optuna Dashboard add
    :class:`optuna_dp.dashboard.DashboardCallback` after it.

    After the first run and after the last one Optuna's own log shows one line with the privacy
    loss of the whole study: epsilon, and the Renyi divergence at the order that suits delta best.
    ``optuna.logging.set_verbosity`` hides it with Optuna's other lines. :meth:`guarantee` returns
    all of it. None of it depends on the number of runs. A line for each run, with their count,
    goes to the ``optuna_dp`` logger at level DEBUG, the curator's own.

    In a study of :class:`optuna_dp.ProposeTestSampler` or :class:`optuna_dp.NoisyMaxSampler` only
    the choice costs, and the plan says how much: give it a ``PrivacyCallback()`` without ``run``.

    Args:
        run: The event of one whole run, training and scoring; see :func:`optuna_dp.dp_sgd` and
            :func:`optuna_dp.compose`. Left out for samplers whose plan says what is spent:
            :class:`optuna_dp.BudgetSampler`, :class:`optuna_dp.ProposeTestSampler` and
            :class:`optuna_dp.NoisyMaxSampler`.
        delta: The delta at which epsilon is shown, in (0, 1); by default the plan's, else 1e-5.
        neighboring_relation: ``"add_or_remove_one"`` or ``"replace_one"``: the one relation under
            which the events of training and scoring are all read; by default the plan's, else
            ``"add_or_remove_one"``.
        output_attributes: User attributes of a trial that are part of the run's private output
            (for example a calibrated threshold) and may be released with the winner.
        show_progress: Show one line that says that a run has ended and what is guaranteed, and
            take it away with the last run. Unlike Optuna's own bar it needs no ``n_trials``. It
            counts pilots ("pilot 5 of 20"); where the number of runs is secret, it neither counts
            nor leaves a trace of how many there were.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
        UnsupportedEventError: If no accountant supports ``run``.
        PlanError: When called in a study of another sampler, or one in which another cost of a
            run is recorded (by another worker's callback, or an earlier ``optimize``).
        ReleaseRefusedError: When called after a trial for which ``release`` would refuse the
            study: it was enqueued, drawn by another sampler, from other ranges, and so on.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> run = odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.01, steps=100)
        >>> study = optuna.create_study(sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=3)))
        >>> study.optimize(
        ...     lambda trial: trial.suggest_float("x", 0, 1),
        ...     callbacks=[callback := odp.PrivacyCallback(run)],
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
        output_attributes: Sequence[str] = (),
        show_progress: bool = False,
    ) -> None:
        self._delta = None if delta is None else open_unit("delta", delta)
        self._relation = neighboring_relation
        self._output_attributes = output_attributes
        # What runs cost, unless the study's plan says it.
        self._stated = None if run is None else self._record_of(run, 1e-5, "add_or_remove_one")
        self._progress = ProgressLine() if show_progress else None
        self._epsilons: dict[str, float] = {}  # By the design's fingerprint.
        self._asked_about: set[str] = set()  # By the plan's nonce.
        self._logged: set[tuple[str, bool]] = set()  # By the plan's nonce; whether it was the end.
        self._reminder = Reminder()
        # By the plan's nonce: how many runs, from the first on, were checked after they had ended.
        self._checked: dict[str, int] = {}

    def __repr__(self) -> str:
        # Start-up time: workers make callbacks before any cost is computed.
        from optuna_dp.accounting.event_words import in_words

        record = self._stated
        if record is None:
            return "PrivacyCallback(<what the study's plan charges for>)"
        return (
            f"PrivacyCallback(<{in_words(record.event)}>, delta={record.delta:g}, "
            f"neighboring_relation={record.neighboring_relation!r}, "
            f"output_attributes={list(record.output_attributes)!r})"
        )

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """Called by Optuna after each trial."""
        opened_study = _opened(study)
        plan, procedure = opened_study.plan, opened_study.procedure
        record = self._record_for(procedure)
        snapshot = opened_study.snapshot
        self._record_cost(study, snapshot.attributes, record, ran=trial.number < plan.slots)
        trials = snapshot.trials
        slots = below_number(trials, plan.slots)
        # Said now, not when all runs have been charged for. Runs that have ended do not change.
        checked_runs = self._checked.get(plan.nonce, 0)
        ended_runs = min(ended_from_start(study, trials), len(slots))
        procedure.check_origin(slots[min(checked_runs, ended_runs) :])
        self._checked = {plan.nonce: ended_runs}
        if procedure.runs_among([trial], plan):
            procedure.check_run(trial, slot_record(trial, plan))
            procedure.check_spending(trial, record)
        procedure.check_beside(trial, slots)
        total_ended = ended_runs + sum(map(ended, slots[ended_runs:]))
        is_over = total_ended == plan.slots
        epsilon = self._epsilon(procedure, record)
        epsilon_text = (
            "no finite epsilon" if math.isinf(epsilon) else f"epsilon {rounded_up(epsilon, 3)}"
        )
        _logger.debug("%d of %d runs have ended: %s.", total_ended, plan.slots, epsilon_text)
        # A line for each run, or for each worker that had one, could be counted. These two lines
        # are there whatever the number of runs.
        if trial.number == 0:
            self._log_loss(plan, procedure, record, epsilon_text, is_over=False)
        if is_over:
            self._log_loss(plan, procedure, record, epsilon_text, is_over=True)
            self._log_what_is_open(study, plan)
        if self._progress is not None:
            self._progress.show(
                procedure.progress(total_ended), epsilon_text, record.delta, is_over
            )
        self._reminder.look(procedure, plan, slots)
        if is_over and is_in_optimize_loop(study):
            study.stop()

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
            PlanError: If no run has begun yet, the study is one of another sampler, or another
                cost of a run is recorded in it.
        """
        if not isinstance(study, Study):
            raise InvalidArgumentError("study", type(study).__name__, "it must be an Optuna study")
        opened = _opened(study)
        procedure = opened.procedure
        record = self._record_for(procedure)
        _check_same_cost(record, run_records(opened.snapshot.attributes))
        return procedure.guarantee(record)

    def _log_loss(
        self,
        plan: StudyPlan,
        procedure: Procedure,
        record: RunRecord,
        epsilon_text: str,
        *,
        is_over: bool,
    ) -> None:
        """Says what the whole study costs, once after the first run and once after the last."""
        logger = optuna.logging.get_logger(LOSS_LOGGER)
        line = (plan.nonce, is_over)
        if line in self._logged or not logger.isEnabledFor(logging.INFO):
            return
        self._logged.add(line)
        # Lazy: only this line needs Renyi divergences.
        from optuna_dp.releasing.renyi_shown import renyi_in_words

        loss = renyi_in_words(procedure.guarantee(record), record.delta)
        words = (
            "%s run has ended. The release is guaranteed %s at delta %g (%s), however many runs "
            "there are."
            if procedure.runs_are_private
            else "%s candidate has been evaluated. The choice is guaranteed %s at delta %g (%s). "
            "The evaluations themselves are not private."
        )
        logger.info(words, "The last" if is_over else "A", epsilon_text, record.delta, loss)

    def _log_what_is_open(self, study: Study, plan: StudyPlan) -> None:
        """Says once what a reviewer will look for: lines that come again would count runs."""
        if plan.nonce not in self._asked_about:
            self._asked_about.add(plan.nonce)
            say_what_is_open(study, optuna.logging.get_logger(LOSS_LOGGER))

    def _record_of(self, run: Any, delta: float, relation: str) -> RunRecord:
        """What runs cost, with these where the arguments leave something open."""
        return RunRecord.checked(
            run,
            delta if self._delta is None else self._delta,
            relation if self._relation is None else self._relation,
            self._output_attributes,
        )

    def _record_for(self, procedure: Procedure) -> RunRecord:
        """What runs of a study cost: as its plan says, else as this callback does."""
        plan_record = procedure.own_record()
        if plan_record is not None and self._stated is not None and procedure.runs_are_private:
            raise PlanError(
                "The study's plan already says what runs cost. Give study.optimize a "
                "PrivacyCallback() without a run."
            )
        if plan_record is not None and self._stated is not None:
            raise PlanError(
                f"In a study of {procedure.design.sampler} only the choice costs, and the "
                "study's plan says how much. Give study.optimize a PrivacyCallback() without a "
                "run. Add the final training with release(study).with_training(event)."
            )
        procedure.check_outputs(self._output_attributes, None)
        is_fixed = plan_record is not None and procedure.runs_are_private
        if (
            plan_record is not None
            and is_fixed
            and self._relation not in (None, plan_record.neighboring_relation)
        ):
            # Before anything is written: a record of it would spoil the release.
            raise PlanError(
                f"The study's plan has neighboring_relation={plan_record.neighboring_relation!r}, "
                f"not {self._relation!r}. Leave out neighboring_relation."
            )
        if plan_record is not None:
            return self._record_of(
                plan_record.event, plan_record.delta, plan_record.neighboring_relation
            )
        if self._stated is None:
            raise PlanError(
                "The cost of one run is not known. Give study.optimize a PrivacyCallback(run), "
                "for example with run=optuna_dp.dp_sgd(...). Or use "
                "BudgetSampler(plan_budget(...)), whose plan knows the cost."
            )
        return self._stated

    def _record_cost(
        self, study: Study, books: Mapping[str, Any], record: RunRecord, *, ran: bool
    ) -> None:
        """Writes down what a run costs, unless it stands there; refuses two different costs.

        Each worker writes before it looks, so of two that differ at least one sees the other. What
        is written stays, though it spoils the release: a run has taken place under each.
        """
        storage, study_id = storage_of(study), study_id_of(study)
        records = run_records(books)
        if not any(record.says_the_same(r) for r in records) and (ran or not records):
            write_run_record(storage, study_id, record)
            records = run_records(storage.get_study_system_attrs(study_id))
        spoilt = " This study cannot be released any more: start a new one." if ran else ""
        _check_same_cost(record, records, spoilt)

    def _epsilon(self, procedure: Procedure, record: RunRecord) -> float:
        """The epsilon of the whole study, computed once per design."""
        with _ONE_COMPUTES:
            key = procedure.design.fingerprint
            if key not in self._epsilons:
                self._epsilons[key] = procedure.guarantee(record).epsilon(record.delta)
            return self._epsilons[key]


def _opened(study: Study) -> OpenedStudy:
    opened_study = open_study(study)
    if opened_study is None:
        raise PlanError(
            "PrivacyCallback needs a study with a sampler of optuna-dp in which a run has begun, "
            "and this study has no plan. Make it with "
            "sampler=optuna_dp.BudgetSampler(plan_budget(...)), and call study.optimize."
        )
    return opened_study


def _check_same_cost(record: RunRecord, records: Sequence[RunRecord], spoilt: str = "") -> None:
    """Refuses a cost of a run that is not the one in the study's books."""
    different = next(
        (stored_record for stored_record in records if not record.same_cost(stored_record)), None
    )
    if different is None:
        return
    # Start-up time: most workers agree.
    from optuna_dp.accounting.event_words import differences_of_runs

    raise PlanError(
        "This PrivacyCallback states another cost of a run than the study's record: "
        f"{differences_of_runs(record, different)} (on record).{spoilt} {ONE_COST}"
    )
