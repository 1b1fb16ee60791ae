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
from typing import Any

from optuna_dp.errors import PlanError

PLAN_KEY = "optuna_dp:plan"
# What can be done about a record that is not what was written.
MEND = "Restore the storage from a backup, or start a new study."
_VERSION = 2


def canonical_json(value: Any) -> str:
    """Returns the one text that stands for a JSON value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Design:
    """What all workers of a study must agree on. Public: the statement prints it.

    Attributes:
        procedure: Which private procedure the study runs, for example ``"private_selection"``.
        sampler: Class name of the sampler.
        direction: ``"maximize"`` or ``"minimize"``.
        seeded: Whether the randomness was fixed by a seed (such a study cannot be released).
        settings: The procedure's own settings, JSON values only.
    """

    procedure: str
    sampler: str
    direction: str
    seeded: bool
    settings: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {
            "procedure": self.procedure,
            "sampler": self.sampler,
            "direction": self.direction,
            "seeded": self.seeded,
            "settings": self.settings,
        }

    @classmethod
    def from_json(cls, data: Any) -> Design:
        """Reads what :meth:`to_json` wrote; raises :class:`PlanError` on anything else."""
        kinds = {
            "procedure": str,
            "sampler": str,
            "direction": str,
            "seeded": bool,
            "settings": dict,
        }
        if not isinstance(data, dict) or set(data) != set(kinds):
            raise PlanError(
                f"The record of the study's design is corrupted: it holds {_names(data)} instead "
                f"of {sorted(kinds)}. {MEND}"
            )
        for name, kind in kinds.items():
            if not isinstance(data[name], kind):
                raise PlanError(
                    f"The record of the study's design is corrupted: {name}={data[name]!r} should "
                    f"be of type {kind.__name__}. {MEND}"
                )
        try:
            canonical_json(data["settings"])
        except (TypeError, ValueError):
            raise PlanError(
                f"The record of the study's design is corrupted: its settings are no JSON. {MEND}"
            ) from None
        return cls(**data)

    @property
    def fingerprint(self) -> str:
        """A digest that two designs share only if they are equal."""
        return hashlib.sha256(canonical_json(self.to_json()).encode()).hexdigest()

    def differences(self, other: Design) -> str:
        """Says in words where two designs differ (empty if nowhere)."""
        mine, theirs = _flat(self.to_json()), _flat(other.to_json())
        names = sorted(set(mine) | set(theirs))
        return "; ".join(
            f"{name}: {mine.get(name)!r} against {theirs.get(name)!r}"
            for name in names
            if mine.get(name) != theirs.get(name)
        )


@dataclass(frozen=True)
class Plan:
    """A design and what was drawn for it. For the curator only.

    Attributes:
        design: The public part.
        slots: How many runs the study has in all. Secret where the design draws it at random.
        nonce: Drawn once per study; every slot repeats it, so that runs of another study (a
            reused id, a copied trial) are recognised.
        selection_from: The first slot of the selection runs, those of which the best is taken;
            None if the study has no such runs. Slots before it are a fixed number (pilots).
        digest: SHA-256 of the record as it was written. Every slot repeats it, so that a record
            that is damaged afterwards (the number of slots, say) is noticed.
    """

    design: Design
    # Not in the repr: exceptions and debuggers print it.
    slots: int = field(repr=False)
    nonce: str = field(repr=False)
    selection_from: int | None
    digest: str = field(default="", repr=False, compare=False)

    @classmethod
    def drawn(cls, design: Design, slots: int, selection_from: int | None) -> Plan:
        """Returns a new plan with a nonce from the operating system."""
        plan = cls(design, slots, secrets.token_hex(16), selection_from)
        return replace(plan, digest=digest_of(plan.to_json()))

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values; contains the secret number of slots."""
        return {
            "version": _VERSION,
            "design": self.design.to_json(),
            "slots": self.slots,
            "nonce": self.nonce,
            "selection_from": self.selection_from,
        }

    @classmethod
    def from_json(cls, data: Any) -> Plan:
        """Reads what :meth:`to_json` wrote; raises :class:`PlanError` on anything else."""
        record, data = data, _with_what_version_1_left_out(data)
        names = {"version", "design", "slots", "nonce", "selection_from"}
        if not isinstance(data, dict) or set(data) != names:
            raise PlanError(
                f"The study's plan record is corrupted: it holds {_names(data)} instead of "
                f"{sorted(names)}. {MEND}"
            )
        if type(data["version"]) is not int or data["version"] != _VERSION:
            raise PlanError(
                f"The plan record has version {data['version']!r}; this optuna-dp reads "
                f"{_VERSION}. Use the version of optuna-dp that made the study."
            )
        slots, nonce, first = data["slots"], data["nonce"], data["selection_from"]
        sound = {
            "number of slots": _is_count(slots),
            "nonce": isinstance(nonce, str) and len(nonce) == 32,
            "first selection run": first is None or _is_count(first),
        }
        for name, is_sound in sound.items():
            if not is_sound:  # Without their values: the first is secret, the next a mark.
                raise PlanError(f"The study's plan record is corrupted in its {name}. {MEND}")
        return cls(Design.from_json(data["design"]), slots, nonce, first, digest_of(record))


def digest_of(record: Any) -> str:
    """Returns the SHA-256 of the record of a plan."""
    return hashlib.sha256(canonical_json(record).encode()).hexdigest()


def _with_what_version_1_left_out(data: Any) -> Any:
    """The record of a plan, as this version writes it; anything but version 1 is left as it is.

    Version 0.1.0 of optuna-dp wrote plans of version 1, without ``selection_from``: there it
    follows from the procedure.
    """
    if not isinstance(data, dict) or set(data) != {"version", "design", "slots", "nonce"}:
        return data
    if type(data["version"]) is not int or data["version"] != 1:
        return data
    design = Design.from_json(data["design"])
    first = {
        "private_selection": 0,
        "pilots_then_selection": design.settings.get("pilots"),
    }.get(design.procedure)
    return {**data, "version": _VERSION, "selection_from": first}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _names(data: Any) -> str:
    """What a damaged record holds, without its values."""
    return str(sorted(map(str, data))) if isinstance(data, dict) else f"a {type(data).__name__}"


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat
