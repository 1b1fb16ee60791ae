"""What a statement says of the best of a random number of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optuna_dp.accounting.event_words import in_words
from optuna_dp.evidence.statement import Description
from optuna_dp.private_selection.settings import SelectionSettings
from optuna_dp.protocol.plan import Design

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee

RUN_ASSUMPTIONS = (
    "A run depends on the data, its own hyperparameters and fresh randomness only: not on other "
    "runs, shared checkpoints or shared random seeds.",
    "Whether a run fails or is pruned is part of its private output.",
    "The result was released whatever it was; no other search on the same data was discarded in "
    "its favour, and no copy of this one was continued or released elsewhere (several releases "
    "compose).",
    "Nothing else of the search leaves the curator: no trial table, number of runs, timings, logs "
    "or dashboard.",
)
# The law of the number of runs is that of the runs that had a chance to succeed. If all fail from
# some run on, that is the law of min(T, s), which may cost more: see check_same_design.
SELECTION_ASSUMPTIONS = (
    "A surrogate or prior of the user's own is a function of what it is given, and of nothing "
    "else: not of the data, durations or the order in which runs ended.",
    "No run was started and then told to have failed for any reason but that its worker died, and "
    "workers died by chance, in one run as likely as in another: not in every run from some run "
    "on. (A study whose failed runs stand together beyond chance, at 1 %, is released only if its "
    "curator vouches for chance, or with the number of the other runs told and charged for.)",
)
RUN_CHECKS = (
    "Every run was drawn by the study's sampler from the stated prior, within the stated bounds: "
    "none was enqueued, added by hand, copied, or made by another sampler, and all parameters "
    "come from the stated ranges.",
    "No seed fixed the draws, and no run was pruned by comparison with others.",
    "Everything that was recorded, this study's plan among it, is as it was written, and nothing "
    "else was released from this plan in this storage.",
)
SELECTION_CHECKS = (
    "How many runs there are was drawn from the stated law, by the operating system's randomness, "
    "before the first of them; exactly so many have ended, failed ones included.",
    "The best was taken of all of them, ties by lot; failed runs do not stand together beyond "
    "chance, or that was vouched for.",
)


class SelectionDescription(Description):
    """See the module's docstring."""

    checked: tuple[str, ...] = (*SELECTION_CHECKS, *RUN_CHECKS)

    assumptions: tuple[str, ...] = (
        "Each run is an algorithm with the stated privacy event, its score included, whatever "
        "hyperparameters it is given.",
        "The search space, the prior, the law of the number of runs and the event were fixed "
        "without looking at the data.",
        *RUN_ASSUMPTIONS,
        *SELECTION_ASSUMPTIONS,
    )

    def facts(self, design: Design, guarantee: Guarantee) -> dict[str, str]:
        settings = SelectionSettings.from_json(design.settings)
        return {**facts_of(settings, design.sampler), "One run": in_words(guarantee.event.run)}


def facts_of(settings: SelectionSettings, sampler: str) -> dict[str, str]:
    """Returns what a statement says of the search, by heading."""
    c, big_c = settings.density_bounds
    adaptive = {
        "independent": "none: every run is drawn from the prior",
        "batch": "each run sees the private outputs of the completed batches before its own "
        f"({settings.batch_size} per batch)",
        "any": "each run sees whatever runs have ended",
    }
    space = (
        "found while the study ran"
        if settings.search_space is None
        else f"{', '.join(sorted(settings.search_space))}: the search space fixed beforehand, of "
        "which a run may use a part; whatever else it asks for is drawn from the prior by "
        "itself"
    )
    return {
        "Search": f"{sampler}, best of a random number of runs",
        "Number of runs": f"secret, drawn once from {settings.trials!r}",
        "Density bounds": "none needed: every run is drawn from the prior itself"
        if big_c == 1.0
        else f"each run's joint density within [{c:g}, {big_c:g}] of the prior",
        "Prior": _prior_in_words(settings.prior),
        "Parameters": space,
        "Adaptivity": adaptive[settings.schedule] + _started(settings.startup_runs),
    }


def _started(runs: int | None) -> str:
    if runs is None:
        return ""
    which = "run is" if runs == 1 else f"{runs} runs are"
    return f"; the first {which} drawn from the prior itself"


def _prior_in_words(fingerprint: dict[str, Any]) -> str:
    if fingerprint.get("prior") == "uniform":
        return "Optuna's uniform law over the parameters' ranges"
    if fingerprint.get("prior") == "around":
        guesses = ", ".join(f"{name} {c:.4g}" for name, c in fingerprint["centers"].items())
        return (
            f"around guesses fixed beforehand ({guesses}): ln(value / guess) is normal with "
            f"standard deviation {fingerprint['sd']:g}, within the range; others uniform"
        )
    return ", ".join(f"{name}: {value}" for name, value in sorted(fingerprint.items()))
