"""The best of a random number of runs, drawn within bounds of a prior (DP-HyPO, RandTune)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from optuna_dp.errors import ReleaseRefusedError
from optuna_dp.evidence.drawn_runs import DrawnRuns
from optuna_dp.evidence.run_checks import checked_vouched, conduct_of_all
from optuna_dp.evidence.slot_entries import NEW_STUDY
from optuna_dp.evidence.stated_run import RunCost, StatedRun
from optuna_dp.runs.judgement import ENFORCED, NOT_CHECKED
from optuna_dp.samplers.selection.failures import check_failures, is_unlikely_block
from optuna_dp.samplers.selection.settings import SelectionSettings
from optuna_dp.samplers.selection.winner import choose
from optuna_dp.study.entries import DRAW, NOT_PROPOSED
from optuna_dp.study.plan import Design
from optuna_dp.study.trials import SlotEntry, ended, score
from optuna_dp.training.prepared import AS_GIVEN

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from optuna_dp.accounting.guarantee import Guarantee
    from optuna_dp.evidence.ended_runs import Evidence
    from optuna_dp.evidence.procedure import Outcome, ReleaseRequest
    from optuna_dp.runs.run import Run
    from optuna_dp.runs.run_plan import RunPlan


class PrivateSelection(DrawnRuns):
    """See the module's docstring; docs/explanation/profile-bound.md has the proof."""

    @functools.cached_property
    def settings(self) -> SelectionSettings:
        """What the study's plan records."""
        return SelectionSettings.of(self.design)

    @property
    def knows_cost(self) -> bool:
        """See :class:`Procedure`; the design does if the sampler was told."""
        return self.settings.run is not None

    def own_cost(self) -> RunCost:
        """See :class:`Procedure`; of one run."""
        run = self._run
        return RunCost(StatedRun(run.event, run.neighboring_relation), self.output_attributes)

    def told(self, cost: RunCost) -> PrivateSelection:
        """See :class:`Procedure`."""
        if self.knows_cost:
            return self
        names = cost.output_attributes
        settings = replace(self.settings, run=cost.run, output_attributes=names)
        return PrivateSelection(replace(self.design, settings=settings.to_json()))

    @property
    def output_attributes(self) -> tuple[str, ...]:
        """See :class:`Procedure`."""
        return self.settings.output_attributes

    @property
    def _run(self) -> RunPlan | StatedRun:
        """What each run is, or costs; refuses a design that does not say it."""
        if self.settings.run is None:
            raise ReleaseRefusedError("Its design does not say what one run costs.")
        return self.settings.run

    def run_of(self, number: int) -> Run | None:
        """See :class:`Procedure`; all runs are alike."""
        run = self.settings.plan_of_run
        return None if run is None else run.run

    def guarantee(self) -> Guarantee:
        """See :class:`Procedure`.

        Raises:
            ReleaseRefusedError: If the design does not say what one run costs.
        """
        # Start-up time: the callback reads a design before anything is accounted for.
        from optuna_dp.selection.guarantee import selection_guarantee

        settings, run = self.settings, self._run
        return selection_guarantee(
            run.event,
            settings.trials,
            density_bounds=settings.density_bounds,
            policy=settings.policy,
            startup_runs=settings.startup_runs or 0,
            neighboring_relation=run.neighboring_relation,
        )

    def check_run(self, trial: FrozenTrial, entry: SlotEntry | None) -> None:
        """Refuses a run that could not be drawn, and a start-up run not from the prior, too.

        From a uniform prior the parameters are drawn one by one, and those draws are made again
        from the slot's entry; joint ones are within density bounds.
        """
        super().check_run(trial, entry)
        if NOT_PROPOSED.is_in(trial):
            raise ReleaseRefusedError(
                "its parameters could not be drawn, because the score model or the solver of the "
                "projection raised an error. That may depend on the scores of earlier runs, so "
                "it does not count as a failed run.",
                trial_number=trial.number,
                fix=f"{NEW_STUDY} Use another surrogate or another projection.",
            )
        runs = self.settings.startup_runs
        draw = DRAW.of(trial)
        if runs is None or draw is None or trial.number >= runs:
            return
        if self.settings.prior == {"prior": "uniform"} or "density_ratio" in draw:
            raise ReleaseRefusedError(
                "it is one of the first runs. The plan draws these from the prior, but this run "
                "was drawn in view of other runs.",
                trial_number=trial.number,
                fix=f"{NEW_STUDY} Give every worker the same version of optuna-dp.",
            )

    def warning(self, runs: Sequence[FrozenTrial]) -> str:
        """See :class:`Procedure`; runs fail as if none could succeed any more."""
        latest = next((trial for trial in reversed(runs) if ended(trial)), None)
        if latest is None or score(latest) is not None:
            return ""
        if not is_unlikely_block([score(trial) is None for trial in runs if ended(trial)]):
            return ""
        return (
            "So many runs fail in a row that chance hardly explains it. If the objective or the "
            "machine is broken, stop, repair it and continue with study.optimize. Every run that "
            "fails until then is spent, and release() will ask about these runs."
        )

    def check_request(self, request: ReleaseRequest) -> None:
        """See :class:`Procedure`; runs may be lost, and vouched for."""
        self.refuse_needless(request, "give_up_last_run")

    def outcome(self, evidence: Evidence, request: ReleaseRequest) -> Outcome:
        """See :class:`Procedure`; with ``failures="lost"``, the best of a known number of runs."""
        disclosed = check_failures(evidence, request.failures)
        run = self.run_of(0)
        if run is None:
            spending = _conduct_by_word(request.vouched)
        else:
            spending = conduct_of_all(evidence.runs, request.vouched, NEW_STUDY)
        outcome = super().outcome(evidence, request)
        # Of the winner alone: what other runs did may tell how many there were.
        is_counted = run is not None and spending.get("score") != NOT_CHECKED
        winners = (run for run in evidence.runs if run.trial is outcome.trial)
        judgement = next((run.judgement for run in winners), None)
        if judgement is not None:
            size = judgement.scored_records if is_counted else None
            spending |= {} if size is None else {"scored_records": size}
            has_measure = spending.get("score") == ENFORCED and judgement.measure is not None
            spending |= {"measure": judgement.measure} if has_measure else {}
            is_enforced = spending.get("training") == ENFORCED and judgement.step is not None
            spending |= {"step": judgement.step} if is_enforced else {}
            if spending.get("preparation") not in (None, AS_GIVEN):
                spending |= {"prepared": judgement.prepared}
        outcome = replace(outcome, spending=spending)
        if disclosed is None:
            return outcome
        return replace(outcome, design=self._best_of_exactly(disclosed), disclosed_runs=disclosed)

    def _best_of_exactly(self, runs: int) -> Design:
        """The design with a known number of runs.

        None of them is charged as a start-up run: the runs that were lost may have been these.
        """
        # Lazy: only releases that reveal the number of runs need it.
        from optuna_dp.selection.laws.binomial import Binomial

        exactly = Binomial(runs, mean=runs).to_json()
        settings = {n: v for n, v in self.design.settings.items() if n != "startup_runs"}
        return replace(self.design, settings={**settings, "trials": exactly})

    def winner(self, evidence: Evidence) -> FrozenTrial | None:
        return choose(evidence.runs, maximize=self.design.direction == "maximize")


def _conduct_by_word(vouched: str | None) -> dict[str, object]:
    """Returns what is known of runs whose cost the curator states, and whose plan says nothing."""
    checked_vouched(vouched)
    if vouched is None:
        raise ReleaseRefusedError(
            "Nothing shows what its runs spent: the cost of a run was stated as an event, which "
            "is your word.",
            fix="The study is intact: do not run it again, both would count. Say how you know "
            "what a run costs: release(study, vouched='...'). The statement prints your words. "
            "Give the sampler of a new study a plan of a run: run=optuna_dp.RunPlan(...).",
        )
    return {"training": NOT_CHECKED, "vouched": vouched}
