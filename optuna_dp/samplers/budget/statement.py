"""The text of a budget's statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from optuna_dp.core.value_types import JsonObject, Params
from optuna_dp.evidence import preparation
from optuna_dp.evidence.assumptions import (
    EARLIER_COSTS,
    FRESH_RANDOMNESS,
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
from optuna_dp.evidence.facts import Fact, Part, Status, enforced, weakest
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
from optuna_dp.runs.judgement import ENFORCED, NOT_CHECKED, WORDS
from optuna_dp.samplers.budget.plan import BudgetPlan
from optuna_dp.samplers.budget.settings import BudgetSettings
from optuna_dp.study.plan import Design

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee

_CHOICES = {
    "best": "those of the pilot with the best score on the last rung",
    "evidence": "those of the first guess, if one was given and no pilot was clearly better on "
    "the last rung; otherwise those of the pilot with the best score there",
}
_SCORES: dict[str | None, str] = {
    "training": "computed on the training records, with noise, and charged beside the training",
    "disjoint": "computed with noise on private records that are never trained on; the more "
    "expensive of training and score is charged",
    None: "computed on public records, at no cost",
}


_REPORTS = Assumption(
    "The stated cost of a training covers every number that it computed from the records and "
    "showed to anybody, or to a pruner.",
    "the columns of the table",
)
_PUBLIC_DIVISOR = Assumption(
    "The number of records that scores are divided by is public: with one person more or less in "
    "the data it would have been the same.",
    "row *The score*",
)
_COST_FIXED = Assumption(
    "The number of runs and the cost of each were fixed without looking at the records.",
    "row *Search*",
)
_SPACE_FIXED = Assumption(
    "The ranges of the hyperparameters and any list of candidates were fixed without looking at "
    "the records, or chosen from outputs that are charged for.",
    "rows *Parameters* and *Ranges of the parameters*",
)
_CHOSEN_FROM_OUTPUTS = Assumption(
    "Whatever, and whoever, proposed, pruned or chose hyperparameters knew nothing of the records "
    "but the outputs of earlier runs.",
    "the rows of the pilots, and row *The last run*",
)


class BudgetDescription(Description):
    """See the module's docstring."""

    score_is_told = False
    checked: tuple[str, ...] = (
        "No more pilots and last runs began than the plan charges for. A failed run is charged "
        "like any other.",
        "Every run belongs to this study and to this plan, and the plan is the one of the first "
        "run.",
    )

    must_not = (
        "how long runs took, when they began and ended",
        "models of pilots, attributes and reported values that the plan does not charge for",
        "logs, seeds and random states",
    )

    trust = (
        "one trusted curator, who sees the data. Everybody else may see the hyperparameters and "
        "scores of all runs, the pilots' too, also while the study runs"
    )

    not_covered = """\
The guarantee covers the hyperparameters and scores of all runs, how each of them ended, and the
last run's model, also if they are shown while the study runs. It does not cover how long runs
took, when they ended, logs, or attributes and reported values outside the stated outputs."""

    def assumptions(self, design: Design, content: JsonObject) -> tuple[Assumption, ...]:
        """See :class:`Description`; those that the plan and its runs leave to a person."""
        plan, spending = BudgetSettings.of(design).plan, content.get("spending", {})
        return (
            *what_runs_are(spending),
            *((_REPORTS,) if plan.final.records is None else ()),
            *((PUBLIC_SCORES,) if plan.score is None else ()),
            *((TOLD_APART,) if plan.score == "disjoint" else ()),
            *(() if is_enforced(spending) else (NO_EXACT_SCORE_DECIDED,)),
            *(() if is_trained_here(spending) else PUBLIC_SETTINGS),
            *_public_numbers(plan),
            _COST_FIXED,
            _SPACE_FIXED,
            _CHOSEN_FROM_OUTPUTS,
            FRESH_RANDOMNESS,
            *preparation.assumptions_of(spending),
            PRIVATE_FAILURES,
            RELEASED_ANYHOW,
            NO_OTHER_SEARCH,
            EARLIER_COSTS,
        )

    def record_counts(self, design: Design, spending: JsonObject) -> RecordCounts:
        """See :class:`Description`."""
        plan = BudgetSettings.of(design).plan
        return RecordCounts(
            trained=None if plan.final.records is None else round(plan.final.records),
            scored=spending.get("scored_records"),
            are_disjoint=plan.score == "disjoint",
        )

    def facts(self, design: Design, guarantee: Guarantee) -> list[Fact]:
        """See :class:`Description`."""
        settings = BudgetSettings.of(design)
        plan, choose = settings.plan, settings.choose
        rungs = {
            name: f"planned: {_origin(settings, i)}"
            for i, name in enumerate(_names_of_rungs(len(plan.rungs)), start=1)
        }
        space = (
            "named by the objective and not by the plan; their ranges stand below"
            if settings.search_space is None
            else f"planned: {', '.join(sorted(settings.search_space))}; a run may use a part of "
            "them, and the proposer proposes all others that it asks for"
        )
        if not plan.pilots:
            origin = "drawn at random from their ranges, or given by a person"
            search = "one run, without pilots"
        else:
            by_function = f"chosen by {escaped(str(choose))} from the outputs of pilots"
            origin = (
                f"{_CHOICES.get(choose, by_function)}, unless a person gave others after seeing "
                "the pilots' outputs"
            )
            search = (
                f"{plan.pilots} pilots, whose outputs are released, then one last run. The "
                "guarantee is that of releasing the outputs of all runs"
            )
        rows = {
            "Search": f"planned: {escaped(design.sampler)}: {search}",
            **rungs,
            "The last run": f"planned: hyperparameters: {origin}",
            "Parameters": space,
        }
        unscored = "" if settings.scores_last_run else "; the last run has no score"
        touching = {"The score": f"planned: {_SCORES[plan.score]}{unscored}"}
        if plan.spare_runs:
            touching["Spare runs"] = (
                f"planned: {plan.spare_runs}, used if the last run fails, and charged in any case"
            )
        if plan.ranges is not None:
            touching["Ranges drawn with noise"] = f"planned: {plan.ranges.in_words()}. Drawn once"
        return enforced(touching, Part.RUNS) + enforced(rows)

    def run_kinds(
        self, design: Design, guarantee: Guarantee, content: JsonObject, delta: float
    ) -> list[RunKind]:
        """See :class:`Description`; pilots of each rung, and the last run with the spare ones."""
        plan = BudgetSettings.of(design).plan
        scored = content.get("spending", {}).get("scored_records")
        names = (*_names_of_rungs(len(plan.rungs)), "The last run")
        counts = (*plan.rung_sizes, 1 + plan.spare_runs)
        kinds = [
            RunKind.of(name, run, delta, count=count, scored_records=scored)
            for name, count, run in zip(names, counts, (*plan.rungs, plan.final), strict=True)
        ]
        if plan.ranges is not None:
            draw = RunKind.of_event("Drawing ranges", plan.ranges.event, guarantee, delta, count=1)
            return [draw, *kinds]
        return kinds

    def planned(self, design: Design) -> tuple[float, float] | None:
        """See :class:`Description`."""
        plan = BudgetSettings.of(design).plan
        return plan.epsilon, plan.delta

    def contradiction(self, design: Design, content: JsonObject) -> str:
        """See :class:`Description`; counts that no study of the plan can have."""
        settings, spending = BudgetSettings.of(design), content["spending"]
        shown_pilots = content["attributes"]["pilots"]
        pilots, runs = len(shown_pilots), spending["runs"]
        if pilots > settings.pilots:
            return f"{pilots} pilots are listed, and the plan has {settings.pilots}"
        # Fewer, if some never began: their worker died before.
        for rung, size in enumerate(settings.plan.rung_sizes):
            if sum(pilot["rung"] == rung for pilot in shown_pilots) > size:
                return f"more than {size} pilots are listed in rung {rung + 1}"
        for number, pilot in enumerate(shown_pilots, start=1):
            if reason := _impossible_pilot(pilot, len(settings.plan.rung_sizes)):
                return f"pilot {number} {reason}"
        if runs > pilots + settings.paid:
            return (
                f"{runs} runs gave an output, but {pilots} pilots are listed, and the plan has "
                f"{settings.paid} run{'s' if settings.paid > 1 else ''} after them"
            )
        outputs = sum(pilot["values"] is not None for pilot in shown_pilots)
        outputs += content["value"] is not None or "values" in content["attributes"]
        if runs < outputs:
            return f"{runs} runs are said to have given an output, and {outputs} outputs are shown"
        words_of_score = sum(spending["score"].values())
        for name, counted, is_possible in (
            (
                "asked the plan what they may spend",
                spending["asked"],
                runs - spending["training"].get(NOT_CHECKED, 0) <= spending["asked"] <= runs,
            ),
            *(
                (f"have a word on their {part}", counted, counted == runs)
                for part in ("preparation", "training")
                for counted in [sum(spending[part].values())]
            ),
            (
                "have a word on their score",
                words_of_score,
                words_of_score == (outputs if settings.plan.score is not None else 0),
            ),
        ):
            if not is_possible:
                return f"{counted} runs {name}, {runs} gave an output, and {outputs} are shown"
        return (
            _impossible_scores(settings.plan, content)
            or impossible_step(spending)
            or impossible_measure(spending)
            or preparation.contradiction(spending)
        )

    def facts_of_release(self, design: Design, content: JsonObject) -> list[Fact]:
        """See :class:`Description`."""
        settings, spending = BudgetSettings.of(design), content["spending"]
        plan, runs, attributes = settings.plan, spending["runs"], content["attributes"]
        records = self.record_counts(design, spending).row
        facts = enforced({"Planned for": records} if records else {}, Part.DATA)
        facts += enforced(_taken_from(attributes["pilots"], content["params"]))
        if content["params"] == {} and not content["distributions"]:
            facts += enforced({"Parameters": "none: no hyperparameter was searched"})
        rows = {
            "Runs that are charged for": _charged(settings.pilots + settings.paid, runs),
            "What runs may spend": f"checked: {_part(spending['asked'], runs)} with an output "
            "asked the plan what they may spend (odp.start_run)",
        }
        facts += enforced(rows, Part.RUNS) + preparation.preparation_fact(spending)
        remark = ""
        if spending.get("fewer_steps"):
            remark = (
                f". {spending['fewer_steps']} of them took fewer steps than planned: the curator "
                "has to say why. If a score without noise decided when they stopped, no "
                "guarantee covers it"
            )
        if spending["training"]:
            counts = spending["training"]
            facts.append(_by_word("Training", counts, TRAININGS, runs, "with an output", remark))
            facts += [sampling_fact(content)] if set(counts) == {ENFORCED} else []
        facts += step_facts(spending) + script_facts(spending)
        if plan.score is not None and spending["score"]:
            run_count = sum(spending["score"].values())
            measure = measure_in_words(content)
            facts.append(
                _by_word("Score", spending["score"], SCORES, run_count, "with a score", measure)
            )
        facts += vouched_facts(spending)
        remarks = {"Last run": "last run", "Not covered": "not covered"}
        said = {name: attributes[key] for name, key in remarks.items() if attributes.get(key)}
        return facts + enforced(said, Part.RUNS)


def _impossible_pilot(pilot: JsonObject, rungs: int) -> str:
    """Returns why no study with so many rungs can show such a pilot; empty if one can."""
    values = pilot["values"]
    if pilot["rung"] not in range(rungs):
        return f"is said to be of rung {pilot['rung'] + 1}, and the plan has {rungs}"
    if pilot["state"] not in ("COMPLETE", "PRUNED", "FAIL"):
        return f"ended in the state {pilot['state']!r}, which no run has"
    if "value" in pilot and pilot["value"] != (values and values[0]):
        return "has two different scores"
    if pilot["state"] == "FAIL" and values is not None:
        return "failed, and has a score"
    return ""


def _impossible_scores(plan: BudgetPlan, content: JsonObject) -> str:
    """Returns which score is none of a run of the plan; empty if each may be one."""
    spending = content["spending"]
    if plan.score is None or NOT_CHECKED in spending["score"] or "vouched" in spending:
        return ""
    records = spending.get("scored_records") if plan.score == "disjoint" else plan.final.records
    noise = [rung.score_noise_multiplier for rung in plan.rungs]
    for i, multiplier in enumerate(noise):
        pilots = [pilot for pilot in content["attributes"]["pilots"] if pilot["rung"] == i]
        scores = [pilot.get("value") for pilot in pilots]
        if reason := impossible_score(scores, multiplier, records):
            return reason
    return impossible_score([content["value"]], plan.final.score_noise_multiplier, records)


def _public_numbers(plan: BudgetPlan) -> tuple[Assumption, ...]:
    """Returns the assumption that the numbers of a plan and of its scores are public."""
    if plan.final.records is not None:
        return (PUBLIC_NUMBERS,)
    return () if plan.score is None else (_PUBLIC_DIVISOR,)


def _names_of_rungs(count: int) -> tuple[str, ...]:
    """Returns the names of the rows that say what the pilots are."""
    return ("Pilots",) if count == 1 else tuple(f"Pilots, rung {i + 1}" for i in range(count))


def _by_word(
    name: str,
    counts: Mapping[str, int],
    sentences: Mapping[str, str],
    runs: int,
    which: str,
    remark: str = "",
) -> Fact:
    """Returns how many runs each of the three words is true of, with what it means.

    ``which`` says which runs ``runs`` are: those that show something.
    """
    words = [word for word in WORDS if word in counts]
    text = "; ".join(f"{sentences[word]} ({_part(counts[word], runs)} {which})" for word in words)
    return Fact(name, text + remark, weakest(map(Status, words)), Part.RUNS)


def _part(count: int, runs: int) -> str:
    return f"{count} of {runs} run{'' if runs == 1 else 's'}"


def _charged(planned: int, runs: int) -> str:
    """Returns how many runs are charged for, and how many of them showed anything."""
    words = f"planned: {planned}. {runs} gave an output"
    if runs == planned:
        return words
    return (
        f"{words}, and {planned - runs} gave none (failed, ended early, not needed, or given up "
        "by the curator). Every planned run is charged in full"
    )


def _taken_from(pilots: Sequence[JsonObject], params: Params | None) -> dict[str, str]:
    """Which pilot had the last run's hyperparameters; a row only if anything was searched."""
    if not pilots or not params:
        return {}
    sources = [i for i, pilot in enumerate(pilots, start=1) if pilot["params"] == params]
    origin = f"are those of pilot {sources[0]}" if sources else "were no pilot's"
    return {"What the last run took": f"its hyperparameters {origin} (of {len(pilots)})"}


def _origin(settings: BudgetSettings, rung: int) -> str:
    if settings.candidates is not None:
        return (
            "hyperparameters of a list that was given before the first run and is in the study's "
            "plan, or given by a person"
        )
    if rung > 1:
        return f"hyperparameters of the best of rung {rung - 1}, by their private scores"
    first_batch = min(settings.first_batch, settings.plan.rung_sizes[0])
    return (
        f"hyperparameters proposed by {escaped(settings.proposer)} from the private outputs of "
        f"earlier batches of pilots (a first batch of {first_batch} pilots, "
        f"then {settings.pilot_batch_size} per batch), or given by a person who saw no more"
    )
