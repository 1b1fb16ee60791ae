"""The plan of a study: everything that is fixed before the data are touched, and the secret T.

Trial number 0 leads: in its ``before_trial`` it draws T and writes the plan into its own system
attributes, where the dashboard does not show it. Everybody else reads it there. A plan is never
kept anywhere that outlives the study, so a storage that reuses the id of a deleted study cannot
bring an old plan back.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from optuna_dp.core.json_entries import NOT_STORED, Entry

_VERSION = 1


def canonical_json(value: object) -> str:
    """Returns the one text that stands for a JSON value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Design(Entry):
    """What all workers of a study must agree on. Public: the statement prints it.

    Attributes:
        procedure: Which private procedure the study runs, for example ``"private_selection"``.
        sampler: Class name of the sampler.
        direction: ``"maximize"`` or ``"minimize"``.
        seeded: Whether the randomness was fixed by a seed (only a budget is released then).
        settings: The procedure's own settings, JSON values only.
    """

    described_as: ClassVar[str] = "The entry of the study's design"

    procedure: str
    sampler: str
    direction: str
    seeded: bool
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        canonical_json(self.settings)  # Refuses what is no JSON.

    @property
    def fingerprint(self) -> str:
        """A digest that two designs share only if they are equal."""
        return hashlib.sha256(canonical_json(self.to_json()).encode()).hexdigest()


@dataclass(frozen=True)
class StudyPlan(Entry):
    """A design and what was drawn for it. For the curator only.

    Attributes:
        design: The public part.
        slots: How many runs the study has in all. Secret where the design draws it at random.
        nonce: Drawn once per study; every slot repeats it, so that runs of another study (a
            reused id, a copied trial) are recognised.
        digest: SHA-256 of the entry as it was written. Every slot repeats it, so that an entry
            that is damaged afterwards (the number of slots, say) is noticed.
    """

    described_as: ClassVar[str] = "The study's plan entry"
    constants: ClassVar[dict[str, Any]] = {"version": _VERSION}

    design: Design
    # Not in the repr: exceptions and debuggers print it.
    slots: int = field(repr=False)
    nonce: str = field(repr=False)
    digest: str = field(default="", repr=False, compare=False, metadata=NOT_STORED)

    def __post_init__(self) -> None:
        # Without their values: the first is secret, the next a mark.
        for name, sound in (
            ("number of slots", self.slots >= 0),
            ("nonce", len(self.nonce) == 32),
        ):
            if not sound:
                raise ValueError(f"its {name} is damaged")

    @classmethod
    def drawn(cls, design: Design, slots: int) -> StudyPlan:
        """Returns a new plan with a nonce from the operating system."""
        plan = cls(design, slots, secrets.token_hex(16))
        return replace(plan, digest=digest_of(plan.to_json()))

    @classmethod
    def from_json(cls, data: object) -> StudyPlan:
        """Reads what :meth:`to_json` wrote; raises :class:`PlanError` on anything else."""
        plan = super().from_json(data)
        return replace(plan, digest=digest_of(data))


def digest_of(entry: object) -> str:
    """Returns the SHA-256 of the entry of a plan."""
    return hashlib.sha256(canonical_json(entry).encode()).hexdigest()
