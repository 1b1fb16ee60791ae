"""The text of a budget's statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optuna_dp.accounting.event_words import in_words
from optuna_dp.budget.settings import BudgetSettings
from optuna_dp.evidence.statement import Description, sampling_row
from optuna_dp.protocol.plan import Design
from optuna_dp.training.judgement import (
    ENFORCED,
    SCORE_WORDS,
    STATED,
    TRAINING_WORDS,
    WORDS,
)

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


class BudgetDescription(Description):
    """See the module's docstring."""

    score_is_told = False
    checked: tuple[str, ...] = (
        "No more pilots and last runs began than the plan charges for. A failed run is charged "
        "like any other.",
        "Every run belongs to this study and to this plan, and nobody changed the plan since.",
    )

    trust = (
        "one trusted curator, who sees the data. Everybody else may see the hyperparameters and "
        "scores of all runs, the pilots' too, also while the study runs"
    )

    not_covered = """\
The guarantee covers the hyperparameters and scores of all runs, how each of them ended, and the
last run's model, also if they are shown while the study runs. It does not cover how long runs
took, when they ended, logs, or attributes and reported values outside the stated outputs."""

    assumptions: tuple[str, ...] = (
        "If the scores were computed on public records: those records are public, and no part "
        "that was split off from the protected ones.",
        "Each run did what its accountant recorded or, where nothing was checked, what the plan "
        "allows, with any hyperparameters. Its event includes its score and everything that it "
        "reports to a pruner.",
        "No score without noise decided when a training stopped, or which of its checkpoints is "
        "the model.",
        "The number of runs and the cost of each were fixed without looking at the data. So were "
        "the search space and any list of candidates, or they were chosen from outputs that are "
        "charged for.",
        "Samplers, pruners, functions and persons that proposed, pruned or chose hyperparameters "
        "used the data only through the private outputs of earlier runs.",
        "A run depends only on the data, its own hyperparameters and fresh randomness: not on "
        "shared random seeds.",
        "What was done with a record before the runs (scaling, filling gaps, selecting it, "
        "splitting it off) depends on that record and on public numbers alone, or was charged "
        "for. Nothing was pretrained on private records otherwise.",
        "Whether a run fails or is pruned is part of its private output.",
        "The result would have been released whatever it was. No other search on the same data "
        "was discarded in its favour. (The costs of several releases add up.)",
    )

    def facts(self, design: Design, guarantee: Guarantee) -> dict[str, str]:
        settings = BudgetSettings.of(design)
        plan, choose = settings.plan, settings.choose
        rungs = {}
        for i, (size, rung) in enumerate(zip(plan.rung_sizes, plan.rungs, strict=True), start=1):
            name = "Pilots" if len(plan.rungs) == 1 else f"Pilots, rung {i}"
            runs = f"{size} run{'s' if size > 1 else ''}, each {in_words(rung.event)}"
            rungs[name] = f"planned: {runs}; {_origin(settings, i)}; all charged, even if failed"
        spare_words = (
            f"; {plan.spare_runs} spare, used if the last run fails, and charged in any case"
            if plan.spare_runs
            else ""
        )
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
            origin = (
                f"{_CHOICES.get(choose, f'chosen by {choose} from the outputs of pilots')}, "
                "unless a person gave others after seeing the pilots' outputs"
            )
            search = (
                f"{plan.pilots} pilots, whose outputs are released, then one last run. The "
                "guarantee is that of releasing the outputs of all runs"
            )
        return {
            "Search": f"planned: {design.sampler}: {search}",
            **rungs,
            "The last run": f"planned: {in_words(plan.final.event)}{spare_words}. Its "
            f"hyperparameters: {origin}",
            "The score": f"planned: {_SCORES[plan.score]}"
            + ("" if settings.scores_last_run else "; the last run has no score"),
            "Parameters": space,
            **(
                {}
                if plan.final.records is None
                else {
                    "Planned for": f"{round(plan.final.records):,} records, a public number; "
                    f"delta should be far below {1 / plan.final.records:.2g}, one over it"
                }
            ),
        }

    def facts_of_release(self, design: Design, content: Mapping[str, Any]) -> dict[str, str]:
        plan, spending = BudgetSettings.of(design).plan, content["spending"]
        runs = spending["runs"]
        rows = _taken_from(content["attributes"]["pilots"], content["params"]) | {
            "What runs may spend": f"checked: {spending['asked']} of {runs} runs asked this "
            "package (odp.fidelity)",
            "Training": _by_word(spending["training"], TRAINING_WORDS, runs),
        }
        rows |= sampling_row(content, set(spending["training"]) == {ENFORCED})
        if spending.get("stated"):
            rows["Training"] += f". {STATED}, in {spending['stated']} of {runs} runs"
        if spending.get("fewer_steps"):
            rows["Training"] += (
                f". {spending['fewer_steps']} of them took fewer steps than planned: the curator "
                "has to say why. If a score without noise decided when they stopped, no "
                "guarantee covers it"
            )
        if plan.score is not None and spending["score"]:
            run_count = sum(spending["score"].values())
            rows["Score"] = _by_word(spending["score"], SCORE_WORDS, run_count)
        if "vouched_in_runs" in spending:
            rows["Vouched for in runs, not checked"] = "; ".join(spending["vouched_in_runs"])
        if "vouched" in spending:
            rows["Vouched for by the curator, not checked"] = str(spending["vouched"])
        return rows


def _by_word(counts: Mapping[str, int], sentences: Mapping[str, str], runs: int) -> str:
    """Returns how many runs each of the three words is true of, with what it means."""
    parts = [
        f"{sentences[word]} ({counts[word]} of {runs} runs)" for word in WORDS if word in counts
    ]
    return "; ".join(parts)


def _taken_from(pilots: Sequence[Mapping[str, Any]], params: Any) -> dict[str, str]:
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
        f"hyperparameters proposed by {settings.proposer} from the private outputs of earlier "
        f"batches of pilots (a first batch of {first_batch}, then {settings.pilot_batch_size} per "
        "batch), or given by a person who saw no more"
    )
