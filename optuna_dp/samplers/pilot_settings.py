"""What the plan records of a study with pilots, and what runs record of the frozen prior."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from optuna.distributions import distribution_to_json
from optuna.trial import FrozenTrial

from optuna_dp.json_records import Record, stored
from optuna_dp.protocol.plan import canonical_json
from optuna_dp.protocol.records import score
from optuna_dp.samplers.selection import SelectionSettings
from optuna_dp.validation import whole

PROCEDURE = "pilots_then_selection"


@dataclass(frozen=True)
class PilotSettings(Record):
    """The settings of pilots before a private selection, as the plan records them.

    Attributes:
        pilots: B, how many pilots there are: trials 0 to B - 1.
        batch_size: Pilots per batch; a pilot sees the completed batches before its own.
        run: The event of one pilot, as JSON.
        proposer: Class name of the Optuna sampler that proposes pilots.
        release_pilots: Whether the pilots' hyperparameters and scores are part of the release.
        selection: The settings of the selection; its prior is the frozen one.
    """

    described_as: ClassVar[str] = "The record of the settings in the study's plan"

    pilots: int
    batch_size: int = field(metadata=stored(key="pilot_batch_size"))
    run: dict[str, Any] = field(metadata=stored(key="pilot_run"))
    proposer: str
    release_pilots: bool
    selection: SelectionSettings

    def __post_init__(self) -> None:
        whole("pilots", self.pilots, 1)
        whole("batch_size", self.batch_size, 1)
        _ = self.event  # Refuses what is none.

    @property
    def event(self) -> Any:
        """The event of one pilot."""
        # Start-up time: workers do without an accountant.
        from optuna_dp.accounting.event_json import event_from_json

        return event_from_json(self.run)


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
