"""The text of the statement of a private selection."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from optuna_dp.core.value_types import JsonObject
from optuna_dp.evidence import preparation
from optuna_dp.evidence.assumptions import (
    EARLIER_COSTS,
    FRESH_RANDOMNESS,
    NO_COPY,
    NO_EXACT_SCORE_DECIDED,
    NO_OTHER_SEARCH,
    PRIVATE_FAILURES,
    PUBLIC_NUMBERS,
    PUBLIC_SCORES,
    PUBLIC_SETTINGS,
    RELEASED_ANYHOW,
    TOLD_APART,
    Assumption,
)
from optuna_dp.evidence.facts import Fact, Part, Status, enforced
from optuna_dp.evidence.layout import escaped
from optuna_dp.evidence.measures import impossible_measure, measure_in_words
from optuna_dp.evidence.record_counts import RecordCounts
from optuna_dp.evidence.run_assumptions import is_enforced, is_trained_here, what_runs_are
from optuna_dp.evidence.run_kinds import RunKind
from optuna_dp.evidence.shown_scores import impossible_score
from optuna_dp.evidence.statement import (
    SCORES,
    TRAININGS,
    Description,
    impossible_step,
    sampling_fact,
    script_facts,
    step_facts,
    vouched_facts,
)
from optuna_dp.runs.judgement import ENFORCED, NOT_CHECKED
from optuna_dp.samplers.selection.settings import SelectionSettings
from optuna_dp.selection.laws.base import TrialCount
from optuna_dp.study.plan import Design

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee

_RUN_ROW = "the column *One run*"
_COST_FIXED = Assumption(
    "The cost of a run and the distribution of the number of runs were fixed without looking at "
    "the records.",
    "the table, and row *Number of runs*",
)
_SPACE_FIXED = Assumption(
    "The ranges of the hyperparameters and the prior were fixed without looking at the records.",
    "rows *Prior*, *Parameters* and *Ranges of the parameters*",
)
_RUNS_ALONE = Assumption(
    "Every run began anew: it used no other run's model, checkpoint or state.", _RUN_ROW
)
_NOTHING_ELSE_LEAVES = Assumption(
    "Nobody but the curator sees the table of trials, their number, their times, the logs and the "
    "dashboard, before and after the publication.",
    "row *Trust*; What may be published",
)
_OWN_MODELS = Assumption(
    "If the curator wrote a surrogate, a prior or a distance for the search: it uses nothing but "
    "its arguments, neither data nor times nor the order in which runs ended.",
    "rows *Prior* and *Adaptivity*",
)
# The law of the number of runs is that of the runs that had a chance to succeed. If all fail from
# some run on, that is the law of min(T, s), which may cost more: see
# failures.check_failures.
_DEATHS_BY_CHANCE = (
    Assumption(
        "A run was marked as failed only if its worker died.",
        "row *Number of runs*",
    ),
    Assumption(
        "Workers died by chance, equally likely in every run, and not in all runs after some "
        "point.",
        "row *Number of runs*",
    ),
)
RUN_CHECKS = (
    "Every run was drawn by the study's sampler from the stated prior, within the stated bounds: "
    "none was enqueued, added by hand, copied, or made by another sampler, and all parameters "
    "come from the stated ranges.",
    "No seed fixed the draws, and no run that ended as pruned was compared with others.",
    "What the study's storage holds agrees with itself, its plan among it. (Somebody who can "
    "write to the storage can change it so that it still agrees.) Nothing else was released from "
    "this plan in this storage.",
)
SELECTION_CHECKS = (
    "The number of runs was drawn from the stated distribution before the first run, with the "
    "operating system's randomness. Exactly so many have ended, failed runs included.",
    "The best of all runs was taken, ties by lot. No block of failed runs is too long to be "
    "chance, or the curator vouched for it.",
)


class SelectionDescription(Description):
    """See the module's docstring."""

    checked: tuple[str, ...] = (*SELECTION_CHECKS, *RUN_CHECKS)

    def assumptions(self, design: Design, content: JsonObject) -> tuple[Assumption, ...]:
        """See :class:`Description`; those that the plan and its runs leave to a person."""
        settings, spending = SelectionSettings.of(design), content.get("spending", {})
        run = settings.plan_of_run
        return (
            *what_runs_are(spending),
            *(
                (replace(PUBLIC_SCORES, place=_RUN_ROW),)
                if run is not None and run.score is None
                else ()
            ),
            *(
                (replace(TOLD_APART, place=_RUN_ROW),)
                if run is not None and run.score == "disjoint"
                else ()
            ),
            *(() if is_enforced(spending) else (NO_EXACT_SCORE_DECIDED,)),
            *(() if is_trained_here(spending) else PUBLIC_SETTINGS),
            *(() if run is None else (PUBLIC_NUMBERS,)),
            _COST_FIXED,
            _SPACE_FIXED,
            _RUNS_ALONE,
            FRESH_RANDOMNESS,
            *preparation.assumptions_of(spending),
            PRIVATE_FAILURES,
            *_DEATHS_BY_CHANCE,
            *((_OWN_MODELS,) if _has_models(settings) else ()),
            _NOTHING_ELSE_LEAVES,
            RELEASED_ANYHOW,
            NO_OTHER_SEARCH,
            NO_COPY,
            EARLIER_COSTS,
        )

    def contradiction(self, design: Design, content: JsonObject) -> str:
        """See :class:`Description`; a score that no run of the plan can have."""
        spending = content.get("spending", {})
        reason = impossible_step(spending) or impossible_measure(spending)
        if content["params"] is not None:  # Of no result there are no notes either.
            reason = reason or preparation.contradiction(spending)
        settings = SelectionSettings.of(design)
        law, shown, run = settings.trials, content.get("disclosed_runs"), settings.plan_of_run
        if shown is not None and not (law.mean == law.maximum == shown):
            return f"{shown} runs are disclosed, and the guarantee is that of {law!r}"
        if reason or run is None or run.score is None or "vouched" in spending:
            return reason
        if spending.get("score") in (None, NOT_CHECKED):
            return ""
        records = spending.get("scored_records") if run.score == "disjoint" else run.records
        return impossible_score([content["value"]], run.score_noise_multiplier, records)

    def record_counts(self, design: Design, spending: JsonObject) -> RecordCounts:
        """See :class:`Description`."""
        run = SelectionSettings.of(design).plan_of_run
        if run is None:
            return RecordCounts()
        return RecordCounts(run.records, spending.get("scored_records"), run.score == "disjoint")

    def facts(self, design: Design, guarantee: Guarantee) -> list[Fact]:
        """See :class:`Description`."""
        settings = SelectionSettings.of(design)
        facts = enforced(facts_of(settings, design.sampler))
        if settings.plan_of_run is None:
            text = "not checked: the curator stated what it costs"
            facts.append(Fact("One run", text, Status.NOT_CHECKED, Part.RUNS))
        return facts

    def run_kinds(
        self, design: Design, guarantee: Guarantee, content: JsonObject, delta: float
    ) -> list[RunKind]:
        """See :class:`Description`; one kind, of which nobody is told how many there were."""
        settings = SelectionSettings.of(design)
        run, count = settings.plan_of_run, content.get("disclosed_runs")
        if run is None:
            event = guarantee.event.run
            return [RunKind.of_event("One run", event, guarantee, delta, count=count)]
        scored = content.get("spending", {}).get("scored_records")
        return [RunKind.of("One run", run.run, delta, count=count, scored_records=scored)]

    def facts_of_release(self, design: Design, content: JsonObject) -> list[Fact]:
        """See :class:`Description`; in every run alike, since the number of runs is secret."""
        facts = []
        if "disclosed_runs" in content:
            number = (
                f"{content['disclosed_runs']} runs could be chosen from. The number is revealed "
                "here, and the guarantee is that of the best of exactly so many. Vouched for: a "
                "block of other runs failed for a cause that does not depend on the data"
            )
            facts.append(Fact("Number of runs", number, Status.NOT_CHECKED))
        spending = content.get("spending", {})
        records = self.record_counts(design, spending).row
        facts += enforced({"Planned for": records} if records else {}, Part.DATA)
        facts += preparation.preparation_fact(spending)
        training, score = spending.get("training"), spending.get("score")
        if training is not None:
            facts += [sampling_fact(content)] if training == ENFORCED else []
            text = f"{TRAININGS[training]}, in every run with an output"
            facts.append(Fact("Training", text, Status(training), Part.RUNS))
            facts += step_facts(spending) + script_facts(spending)
        if score is not None:
            text = f"{SCORES[score]}, in every run with a score{measure_in_words(content)}"
            facts.append(Fact("Score", text, Status(score), Part.RUNS))
        return facts + vouched_facts(spending)


def facts_of(settings: SelectionSettings, sampler: str) -> dict[str, str]:
    """Returns what a statement says of the search, by heading."""
    c, big_c = settings.density_bounds
    adaptive = {
        "independent": "none: every run is drawn from the prior",
        "batch": "each run uses the private outputs of earlier batches "
        f"({settings.batch_size} per batch)",
        "any": "each run uses the private outputs of all runs that have ended",
    }
    space = (
        "named by the objective and not by the plan; their ranges stand below"
        if settings.search_space is None
        else f"planned: {', '.join(sorted(settings.search_space))}; a run may use a part of them, "
        "and all others that it asks for are drawn from the prior"
    )
    bounds = f"checked: each run's joint density is within [{c:g}, {big_c:g}] times the prior"
    return {
        "Search": f"planned: {escaped(sampler)}, best of a random number of runs",
        "Number of runs": _number_in_words(settings.trials),
        **({} if big_c == 1.0 else {"Density bounds": bounds}),
        "Prior": "planned: " + _prior_in_words(settings.prior),
        "Parameters": space,
        "Adaptivity": "planned: " + adaptive[settings.schedule] + _started(settings.startup_runs),
    }


def _has_models(settings: SelectionSettings) -> bool:
    """Returns whether something that the curator may have written proposes or weighs runs."""
    is_ours = settings.prior.get("prior") in ("uniform", "around")
    return settings.schedule != "independent" or not is_ours


def _number_in_words(law: TrialCount) -> str:
    if law.maximum is not None and law.mean == law.maximum:
        return (
            f"{law.maximum} runs could be chosen from. The number is no secret, and the guarantee "
            "is that of the best of exactly so many"
        )
    return (
        f"checked: secret, drawn once from {law!r}. It is 1 with probability "
        f"{100 * law.pmf(1):.2g} %, and at most {law.quantile(0.95):,} with probability 95 %"
    )


def _started(runs: int | None) -> str:
    if runs is None:
        return ""
    subject = "run is" if runs == 1 else f"{runs} runs are"
    return f"; the first {subject} drawn from the prior itself"


def _prior_in_words(fingerprint: JsonObject) -> str:
    if fingerprint.get("prior") == "uniform":
        return "uniform over the parameters' ranges, as in Optuna"
    if fingerprint.get("prior") == "around":
        guesses = ", ".join(f"{name} {c:.4g}" for name, c in fingerprint["centers"].items())
        return (
            f"around guesses fixed beforehand ({guesses}): ln(value / guess) is normal with "
            f"standard deviation {fingerprint['sd']:g}, within the range; others uniform"
        )
    return ", ".join(f"{name}: {value}" for name, value in sorted(fingerprint.items()))
