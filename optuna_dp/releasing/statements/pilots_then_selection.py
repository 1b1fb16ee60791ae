"""What a statement says of pilots and a selection from the prior that they teach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optuna_dp.accounting.event_words import in_words
from optuna_dp.protocol.plan import Design
from optuna_dp.releasing.statements.base import Description
from optuna_dp.releasing.statements.private_selection import (
    RUN_ASSUMPTIONS,
    RUN_CHECKS,
    SELECTION_ASSUMPTIONS,
    SELECTION_CHECKS,
    facts_of,
)
from optuna_dp.samplers.pilot_settings import PilotSettings

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee


class PilotsThenSelection(Description):
    """See the module's docstring."""

    checked: tuple[str, ...] = (
        "Exactly the stated number of pilots has ended, and no pilot is the winner.",
        *SELECTION_CHECKS,
        *RUN_CHECKS,
    )

    assumptions: tuple[str, ...] = (
        "Each pilot is an algorithm with the stated event of a pilot, and each selection run one "
        "with the stated event of a run, their scores included, whatever hyperparameters they are "
        "given.",
        "The search space, the number of pilots, the law of the number of selection runs and both "
        "events were fixed without looking at the data, and before the first pilot.",
        "The proposer of the pilots uses nothing about the data but what it is given: the "
        "private outputs of earlier pilots.",
        *RUN_ASSUMPTIONS,
        *SELECTION_ASSUMPTIONS,
    )

    def facts(self, design: Design, guarantee: Guarantee) -> dict[str, str]:
        settings = PilotSettings.from_json(design.settings)
        prior = settings.selection.prior
        return {
            **facts_of(settings.selection, design.sampler),
            "Search": f"{design.sampler}: {settings.pilots} pilot runs, then the best of a random "
            "number of selection runs",
            "Pilots": f"{settings.pilots} runs, each proposed by {settings.proposer} from the "
            "private outputs of the completed batches of pilots before its own "
            f"({settings.batch_size} per batch); each is charged in full",
            "Pilots' outputs": "released with the result"
            if settings.release_pilots
            else "kept by the curator, though charged as if they were released",
            "Number of runs": f"{settings.pilots} pilots; the number of selection runs is secret, "
            f"drawn once from {settings.selection.trials!r}",
            "Prior": "one law for all selection runs, frozen when all pilots had ended: with "
            f"probability {prior['uniform_share']:g} uniform, else a softmax of sharpness "
            f"{prior['sharpness']:g} over {prior['candidates']} fresh candidates, scored by "
            f"{prior['surrogate']}",
            "One pilot": in_words(settings.event),
            "One run": in_words(guarantee.event.events[-1].run),
        }
