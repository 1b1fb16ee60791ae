"""What a statement says of a budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from optuna_dp.accounting.event_words import in_words
from optuna_dp.budget.settings import BudgetSettings
from optuna_dp.evidence.statement import Description
from optuna_dp.protocol.plan import Design

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee

_CHOICES = {
    "best": "those of the pilot with the best score on the last rung",
    "evidence": "those of the first guess, if one was given and no pilot was clearly better on "
    "the last rung; otherwise those of the pilot with the best score there",
}
_SAMPLES = (
    "each pilot trains and is scored on a secret sample of its own, which a record joins with "
    "probability {:g}, independently of all others; drawn by the objective, not by this package. "
    "The last run has all records"
)
_SCORES: dict[str | None, str] = {
    "training": "computed on the records trained on, with noise, and charged beside the training",
    "disjoint": "computed with noise on private records never trained on; the worse of training "
    "and score is charged",
    None: "computed on public records, at no cost",
}


class BudgetDescription(Description):
    """See the module's docstring."""

    score_is_told = False
    checked: tuple[str, ...] = (
        "No more pilots and last runs began than the plan charges for; a run that failed is "
        "charged like any other.",
        "Every run is of this study and of this plan, which is as it was written.",
    )

    trust = (
        "one trusted curator: whoever trains sees the data; the hyperparameters and scores of "
        "all runs, the pilots' too, may be seen by anybody, also while the study runs"
    )

    not_covered = """\
It covers the hyperparameters and scores of all runs, how each of them ended, and the last run's
model, also while they are shown as the study runs. It does not cover how long runs took, when they
ended, logs, or attributes and reported values that are no part of the stated outputs."""

    assumptions: tuple[str, ...] = (
        "Each run spent what the plan grants it and no more: it is an algorithm with the stated "
        "event, its score and whatever it reports to a pruner included, whatever hyperparameters "
        "it is given.",
        "How many runs there are and what each costs was fixed without looking at the data; the "
        "search space too, or in view of outputs that are charged for.",
        "Whatever proposed, pruned or chose hyperparameters (a sampler, a pruner, a function, a "
        "person) used the data only through the private outputs of earlier runs.",
        "A run depends on the data, its own hyperparameters and fresh randomness only: not on "
        "shared random seeds.",
        "If pilots run on samples (the search above says so), each drew its own, afresh from "
        "randomness that nobody knows, touched no other private record, and told nobody which.",
        "Whether a run fails or is pruned is part of its private output.",
        "The result was released whatever it was; no other search on the same data was discarded "
        "in its favour (several releases compose).",
    )

    def facts(self, design: Design, guarantee: Guarantee) -> dict[str, str]:
        settings = BudgetSettings.of(design)
        plan, how = settings.plan, settings.choose
        rungs = {}
        for i, (size, rung) in enumerate(zip(plan.rung_sizes, plan.rungs, strict=True), start=1):
            name = "Pilots" if len(plan.rungs) == 1 else f"Pilots, rung {i}"
            each = f"{size} run{'s' if size > 1 else ''}, each {in_words(rung.event)}"
            rungs[name] = f"{each}; {_origin(settings, i)}; all charged, however they ended"
        spare = (
            f"; {plan.spare_runs} more would have replaced it had it failed, and are charged"
            if plan.spare_runs
            else ""
        )
        space = (
            "found while the study ran"
            if settings.search_space is None
            else f"{', '.join(sorted(settings.search_space))}: the search space fixed beforehand, "
            "of which a run may use a part; the proposer proposes whatever else it asks for"
        )
        if not plan.pilots:
            origin = "drawn at random from their ranges, or given by a person"
            search = "one run, without pilots"
        else:
            origin = (
                f"{_CHOICES.get(how, f'chosen by {how} from the outputs of pilots')}, "
                "unless a person who saw the pilots' outputs gave others"
            )
            search = (
                f"{plan.pilots} pilots, whose outputs are released, then one last run. The "
                "guarantee is that of releasing the outputs of all runs"
            )
        return {
            "Search": f"{design.sampler}: {search}",
            **rungs,
            **({} if plan.sample is None else {"The samples": _SAMPLES.format(plan.sample)}),
            "The last run": f"{in_words(plan.final.event)}{spare}. Its hyperparameters: {origin}",
            "The score": _SCORES[plan.score]
            + ("" if settings.scores_last_run else "; the last run's is not charged for")
            + ". That is the plan; see below what was checked",
            "Parameters": space,
            **(
                {}
                if plan.final.records is None
                else {"Planned for": f"{round(plan.final.records):,} records"}
            ),
        }

    def facts_of_spending(self, design: Design, spending: Mapping[str, Any]) -> dict[str, str]:
        runs, scored = spending["runs"], spending["scored"]
        plan = BudgetSettings.of(design).plan
        rows = {
            "What runs may spend": f"{spending['asked']} of {runs} runs asked this package",
            "What runs spent": f"checked against the training's own accountant: "
            f"{spending['checked']} of {runs} runs"
            if spending["checked"]
            else "not checked against the training's own accountant",
        }
        if plan.score is not None:
            rows["Noise of scores"] = (
                f"added by this package in {scored} of {runs} runs"
                if scored
                else "not checked: added by the objective"
            )
        if "vouched" in spending:
            rows["Vouched for by the curator, not checked"] = str(spending["vouched"])
        return rows


def _origin(settings: BudgetSettings, rung: int) -> str:
    if rung > 1:
        return f"the best of rung {rung - 1} by their private scores, once more"
    first = min(settings.first_batch, settings.plan.rung_sizes[0])
    return (
        f"proposed by {settings.proposer} from private outputs of the completed batches of "
        f"pilots before its own (a first batch of {first}, then {settings.pilot_batch_size} per "
        "batch), or given by a person who saw no more"
    )
