"""What the plan records of a study with pilots, and what runs record of the frozen prior."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optuna.distributions import distribution_to_json
from optuna.trial import FrozenTrial

from optuna_dp.errors import OptunaDPError, PlanError
from optuna_dp.protocol.plan import MEND, canonical_json
from optuna_dp.protocol.records import score
from optuna_dp.samplers.selection import SelectionSettings

PROCEDURE = "pilots_then_selection"


@dataclass(frozen=True)
class PilotSettings:
    """The settings of pilots before a private selection, as the plan records them.

    Attributes:
        pilots: B, how many pilots there are: trials 0 to B - 1.
        batch_size: Pilots per batch; a pilot sees the completed batches before its own.
        run: The event of one pilot, as JSON.
        proposer: Class name of the Optuna sampler that proposes pilots.
        release_pilots: Whether the pilots' hyperparameters and scores are part of the release.
        selection: The settings of the selection; its prior is the frozen one.
    """

    pilots: int
    batch_size: int
    run: dict[str, Any]
    proposer: str
    release_pilots: bool
    selection: SelectionSettings

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {
            "pilots": self.pilots,
            "pilot_batch_size": self.batch_size,
            "pilot_run": self.run,
            "proposer": self.proposer,
            "release_pilots": self.release_pilots,
            "selection": self.selection.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PilotSettings:
        """Reads what :meth:`to_json` wrote; raises :class:`PlanError` on anything else."""
        try:
            settings = cls(
                pilots=data["pilots"],
                batch_size=data["pilot_batch_size"],
                run=data["pilot_run"],
                proposer=data["proposer"],
                release_pilots=data["release_pilots"],
                selection=SelectionSettings.from_json(data["selection"]),
            )
            counts = (settings.pilots, settings.batch_size)
            sound = all(type(n) is int and n >= 1 for n in counts) and settings.to_json() == data
            _ = settings.event
        except (KeyError, TypeError, OptunaDPError) as error:
            raise PlanError(
                f"The settings in the study's plan are corrupted: {error} {MEND}"
            ) from error
        if not sound:
            raise PlanError(f"The settings in the study's plan are corrupted: {data!r}. {MEND}")
        return settings

    @property
    def event(self) -> Any:
        """The event of one pilot."""
        # Start-up time: workers do without an accountant.
        from optuna_dp.accounting.event_json import event_from_json

        return event_from_json(self.run)

    def facts(self, sampler: str) -> dict[str, str]:
        """Returns what a privacy statement says of the search, by heading."""
        prior = self.selection.prior
        return {
            **self.selection.facts(sampler),
            "Search": f"{sampler}: {self.pilots} pilot runs, then the best of a random number of "
            "selection runs",
            "Pilots": f"{self.pilots} runs, each proposed by {self.proposer} from the private "
            "outputs of the completed batches of pilots before its own "
            f"({self.batch_size} per batch); "
            "each is charged in full",
            "Pilots' outputs": "released with the result"
            if self.release_pilots
            else "kept by the curator, though charged as if they were released",
            "Number of runs": f"{self.pilots} pilots; the number of selection runs is secret, "
            f"drawn once from {self.selection.trials!r}",
            "Prior": "one law for all selection runs, frozen when all pilots had ended: with "
            f"probability {prior['uniform_share']:g} uniform, else a softmax of sharpness "
            f"{prior['sharpness']:g} over {prior['candidates']} fresh candidates, scored by "
            f"{prior['surrogate']}",
        }


def outputs_digest(pilots: Sequence[FrozenTrial]) -> str:
    """Returns a digest of the pilots' private outputs, by slot.

    Every selection run records it when it draws: equal digests mean equal frozen priors.
    """
    content = [
        [
            {
                name: [
                    distribution_to_json(trial.distributions[name]),
                    repr(float(trial.distributions[name].to_internal_repr(value))),
                ]
                for name, value in trial.params.items()
            },
            repr(score(trial)),
        ]
        for trial in pilots
    ]
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()
