"""Checks the JSON of a release, or of its statement, without the study and without the data."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dp_accounting import dp_event

from optuna_dp.accounting.groups import group_epsilon
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.errors import InvalidArgumentError, OptunaDPError
from optuna_dp.evidence.procedures import VOTE, description_of, procedure_of
from optuna_dp.evidence.run_record import RunRecord
from optuna_dp.evidence.statement_data import FORMAT, digest, protected_by
from optuna_dp.protocol.plan import Design
from optuna_dp.voting.plan import VotePlan

RELEASE_FORMAT = "optuna-dp release"
# Other versions of the software, of numpy and of scipy round otherwise; a bound that has become
# tighter since is no objection.
_ROUNDING = 1e-6
_STATEMENT_VERSIONS = (2,)


@dataclass(frozen=True)
class Check:
    """One thing that was computed again.

    Attributes:
        what: What it is about.
        holds: Whether the statement says the same.
        found: What was found, in words.
    """

    what: str
    holds: bool
    found: str


@dataclass(frozen=True)
class Verification:
    """What :func:`verify` found.

    Attributes:
        checks: What was computed again.
        unchecked: What was not there to be checked, each with what is missing.
        believed: What no software can check and the signatory vouches for.
    """

    checks: tuple[Check, ...]
    unchecked: tuple[str, ...]
    believed: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether all that was computed again agrees."""
        return all(check.holds for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {
            "format": "optuna-dp verification",
            "version": 1,
            "ok": self.ok,
            "checks": [vars(check) for check in self.checks],
            "unchecked": list(self.unchecked),
            "believed": list(self.believed),
        }

    def __str__(self) -> str:
        lines = ["Computed again:"]
        lines += [
            f"  {'agrees ' if check.holds else 'DIFFERS'}  {check.what}: {check.found}"
            for check in self.checks
        ]
        for heading, texts in (
            ("Could not be checked:", self.unchecked),
            ("Remains to be believed:", self.believed),
        ):
            lines += [heading, *(f"  - {text}" for text in texts)] if texts else []
        lines.append("Everything that can be computed agrees." if self.ok else "It does NOT hold.")
        return "\n".join(lines)


def verify(
    path_or_json: str | Path | Mapping[str, Any], *, artifact: str | Path | None = None
) -> Verification:
    """Computes the guarantee and the digest of a release again, from its JSON alone.

    What agrees shows that the numbers follow from the events and the design that are written
    there, and that nothing was changed afterwards. It cannot show that those events are what was
    done; the result says what remains to be believed.

    Args:
        path_or_json: ``Release.to_json()``, ``Release.to_json()["statement"]``, or a file that
            holds either, as ``optuna-dp release --json`` prints the release.
        artifact: A file that is said to be the released artifact.

    Returns:
        What was found. Nothing is raised if the statement turns out to be wrong: see
        :attr:`Verification.ok`.

    Raises:
        InvalidArgumentError: If there is no such file, or it holds neither.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> study = optuna.create_study(sampler=odp.RandTuneSampler())
        >>> study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
        >>> release = odp.release(study, odp.gaussian(noise_multiplier=4)).to_json()
        >>> odp.verify(release).ok
        True
        >>> release["statement"]["epsilon"] /= 2
        >>> odp.verify(release).ok
        False
    """
    whole = _read(path_or_json)
    statement = whole["statement"] if whole.get("format") == RELEASE_FORMAT else whole
    try:
        guarantee = Guarantee.from_json(statement["guarantee"])
        design = Design.from_json(statement["design"])
        believed = tuple(statement["assumptions"])
        checks = [
            *_numbers(statement, design, guarantee),
            _design_and_guarantee(design, guarantee),
        ]
    except (KeyError, TypeError, ValueError, AttributeError, OptunaDPError) as error:
        raise InvalidArgumentError(
            "path_or_json",
            path_or_json if isinstance(path_or_json, str | Path) else "a mapping",
            f"it must be a release or a statement ({type(error).__name__}: {error})",
        ) from error
    content = _content(whole, statement)
    unchecked = []
    if content is None:
        unchecked.append("The digest: it covers the released values, which are not in this file.")
    else:
        found = digest(statement["guarantee"], statement["design"], content)
        checks.append(Check("SHA-256", found == statement["digest"], found))
        if whole is not statement and "content" in statement:
            same = content == statement["content"]
            checks.append(
                Check("released values", same, "as stated" if same else "other ones are stated")
            )
    checks += _artifact(content, artifact, unchecked)
    unchecked.append(
        "That the study took place as its design says: whoever holds its storage can release it "
        "again, and gets the same digest."
    )
    return Verification(tuple(checks), tuple(unchecked), believed)


def _read(given: Any) -> Mapping[str, Any]:
    name: Any = given
    if isinstance(given, str | Path):
        try:
            given = json.loads(_bytes_of("path_or_json", given))
        except ValueError:
            given = None
    known = (
        isinstance(given, Mapping)
        and given.get("format") in (RELEASE_FORMAT, FORMAT)
        and (given["format"] == FORMAT or isinstance(given.get("statement"), Mapping))
    )
    if not known:
        raise InvalidArgumentError(
            "path_or_json",
            str(name) if isinstance(name, str | Path) else type(name).__name__,
            "it must hold the JSON of a release or of a statement",
            "optuna-dp release --json prints a release.",
        )
    statement = given["statement"] if given["format"] == RELEASE_FORMAT else given
    if statement.get("version") not in _STATEMENT_VERSIONS:
        raise InvalidArgumentError(
            "path_or_json",
            f"a statement of version {statement.get('version')!r}",
            f"this optuna-dp reads {', '.join(map(str, _STATEMENT_VERSIONS))}",
            "Use the version of optuna-dp that wrote it.",
        )
    return dict(given)


def _numbers(
    statement: Mapping[str, Any], design: Design, guarantee: Guarantee
) -> Iterator[Check]:
    delta = float(statement["delta"])
    yield _not_below(
        f"epsilon at delta = {delta:g}", statement["epsilon"], guarantee.epsilon(delta)
    )
    same = statement["neighboring_relation"] == guarantee.neighboring_relation
    yield Check("neighbouring relation", same, guarantee.neighboring_relation)
    protected = protected_by(guarantee, description_of(design))
    yield Check("what is protected", statement["protected"] == protected, protected)
    rdp = statement["rdp"]
    worst = max(
        zip(rdp["epsilons"], guarantee.rdp(rdp["orders"]), strict=True),
        key=lambda pair: _excess(*pair),
    )
    holds = _excess(*worst) <= 0.0
    yield Check(
        "Rényi table", holds, "no entry is too small" if holds else f"{worst[0]} for {worst[1]:g}"
    )
    if statement.get("attack"):
        attack, _ = guarantee.bounds(delta)
        holds = statement["attack"] <= attack * (1 + _ROUNDING)
        yield Check("attack", holds, f"{attack:.6g}")
    gaussian = statement.get("gaussian_dp")
    if gaussian is not None:
        yield _not_below("mu", gaussian["mu"], guarantee.mu(gaussian["tail"]))
    several = statement.get("unit_with_several_records")
    if several is not None:
        found = group_epsilon(guarantee, delta, several["records"])
        yield _not_below(f"epsilon of {several['records']} records", several["epsilon"], found)


def _not_below(what: str, stated: float | None, found: float) -> Check:
    holds = _excess(stated, found) <= 0.0
    words = f"{found:.6g}" + ("" if holds else f", stated {stated}")
    return Check(what, holds, words)


def _excess(stated: float | None, found: float) -> float:
    """How far what was found lies above what was stated; None stands for infinity."""
    if stated is None:
        return -math.inf
    return float(found - stated * (1 + _ROUNDING))


def _design_and_guarantee(design: Design, guarantee: Guarantee) -> Check:
    """The event must be the one that this design has, a final training aside."""
    what = "the guarantee is the one of the stated design"
    searches = [guarantee]
    if isinstance(guarantee.event, dp_event.ComposedDpEvent) and guarantee.event.events:
        # Release.with_training puts the search first.
        searches.append(replace(guarantee, event=guarantee.event.events[0]))
    for search in searches:
        if _implied(design, search).to_json() == search.to_json():
            return Check(what, True, "it is")
    return Check(what, False, "it is not")


def _implied(design: Design, search: Guarantee) -> Guarantee:
    """The guarantee of a study of this design, whose runs cost what they do in this one."""
    if design.procedure == VOTE:
        plan = VotePlan.from_json(design.settings["plan"])
        return plan.guarantee(design.settings["attempts"])
    # One run, where the design leaves it open: in a selection, which pilots may stand before.
    last = getattr(search.event, "events", [search.event])[-1]
    run = getattr(last, "run", search.event)
    record = RunRecord(run, neighboring_relation=search.neighboring_relation)
    return procedure_of(design).guarantee(record)


def _content(whole: Mapping[str, Any], statement: Mapping[str, Any]) -> dict[str, Any] | None:
    if whole is statement or whole.get("format") == FORMAT:
        content: dict[str, Any] | None = statement.get("content")
        return content
    return {k: v for k, v in whole.items() if k not in ("format", "version", "statement")}


def _artifact(
    content: Mapping[str, Any] | None, file: str | Path | None, unchecked: list[str]
) -> Iterator[Check]:
    wanted = None if content is None else content.get("artifact_sha256")
    if file is None:
        if wanted is not None:
            unchecked.append(f"The artifact: its file was not given; its SHA-256 is {wanted}.")
        return
    found = hashlib.sha256(_bytes_of("artifact", file)).hexdigest()
    yield Check("artifact", found == wanted, found)


def _bytes_of(argument: str, file: str | Path) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InvalidArgumentError(
            argument, str(file), f"it must be a file that can be read ({error.strerror})"
        ) from error
