"""Checks the JSON of a release, or of its statement, without the study and without the data.

What the file holds is read (:mod:`optuna_dp.releasing.statement_file`), compared with what follows
from it (:mod:`optuna_dp.releasing.comparison`) and told. The file may come from anybody: the time
is limited, and whatever goes wrong with it is one refusal.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from optuna_dp.accounting.groups import group_epsilon
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.core import validation
from optuna_dp.core.numbers_shown import rounded_up
from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.evidence.layout import one_line
from optuna_dp.evidence.persons import person_epsilon
from optuna_dp.evidence.preparation import persons
from optuna_dp.releasing.comparison import Check, compared, differing
from optuna_dp.releasing.markdown import (
    plain_guarantee,
    plain_open_points,
    questions_markdown,
    statement_markdown,
)
from optuna_dp.releasing.signature import check_form, is_signed_by
from optuna_dp.releasing.statement_file import (
    MOST_BYTES,
    bytes_of,
    file_refusal,
    parsed,
    statement_of,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Verification:
    """What :func:`verify` found.

    Attributes:
        checks: What was computed again.
        unchecked: What was not there to be checked, each with what is missing.
        believed: What no software can check and a person has to confirm.
        statement: The statement in Markdown, made from the JSON, in the words of this version;
            empty if anything differs. The cost of a final training is as the JSON says it.
        questions: What a person has to confirm, as a sheet of questions to the owner of the data
            in Markdown, with space for answers, names and dates; empty if anything differs.
        guaranteed: What is guaranteed, a sentence.
        open_points: What the statement leaves open, a sentence.
        of_another_version: Parts that another version of optuna-dp has made otherwise, and that
            were not compared.
        what_if: What ``most`` asked for, a sentence; empty if it was not given.
    """

    checks: tuple[Check, ...]
    unchecked: tuple[str, ...]
    believed: tuple[str, ...]
    statement: str = field(default="", repr=False)
    questions: str = field(default="", repr=False)
    guaranteed: str = ""
    open_points: str = ""
    of_another_version: tuple[str, ...] = ()
    what_if: str = ""

    @property
    def ok(self) -> bool:
        """Returns whether all that was computed again agrees."""
        return all(check.holds for check in self.checks)

    def to_json(self) -> JsonObject:
        """Returns plain JSON values."""
        return {
            "format": "optuna-dp verification",
            "version": 1,
            "ok": self.ok,
            "of_another_version": list(self.of_another_version),
            "checks": [vars(check) for check in self.checks],
            "unchecked": list(self.unchecked),
            "believed": list(self.believed),
            **({"what_if": self.what_if} if self.what_if else {}),
        }

    def __str__(self) -> str:
        agreeing = [check for check in self.checks if check.holds]
        differing = [check for check in self.checks if not check.holds]
        if differing:
            lines = [
                f"DIFFERS: {len(differing)} of {len(self.checks)} parts are not what follows from "
                "the rest of the file. Do not sign; send it back to the curator."
            ]
            for check in differing:
                lines.append(f"  DIFFERS  {check.what}: {check.found}")
                lines += [f"           {check.reason}"] if check.reason else []
        else:
            lines = [
                f"AGREES: the file agrees with itself, in the {len(agreeing)} parts that can be "
                "computed again. That is no permission to publish."
            ]
            if self.of_another_version:
                lines = [
                    "AGREES IN PART: what could be compared agrees. These parts were made by "
                    "another version of the software, and could not be: "
                    f"{', '.join(self.of_another_version)}. Read no page but the one that "
                    "--statement prints."
                ]
            lines += [self.guaranteed, self.open_points]
            lines.append(
                "Next: verify the file with the versions that made it, which are named below."
                if self.of_another_version
                else "Next: read the statement (--statement). Have every assumption confirmed by "
                "somebody who knows (--questions)."
            )
        lines += [self.what_if] if self.what_if else []
        shown = {
            check.what: check.found
            for check in agreeing
            if check.what in _WITH_NUMBERS and check.found != "None"
        }
        lines += [f"  agrees   {what}: {text}" for what, text in shown.items()]
        unnamed_count = len(agreeing) - len(shown)
        if unnamed_count:
            noun = "part" if unnamed_count == 1 else "parts"
            lines.append(f"  agrees   {unnamed_count} other {noun} of the file")
        if self.unchecked and not differing:
            lines += ["Could not be checked:", *(f"  - {text}" for text in self.unchecked)]
        if self.believed and not differing:
            lines.append("Remains to be believed:")
            lines += [
                f"  {i}. {text.replace('*', '')}" for i, text in enumerate(self.believed, start=1)
            ]
        # Words of the file must not look like those of the check, or clear the terminal.
        return "\n".join(_without_controls(line).replace("\n", " ") for line in lines)


# Checks whose findings a reader may want to see; of the others it is enough that they agree.
_WITH_NUMBERS = (
    "epsilon",
    "attack",
    "unit with several records",
    "records",
    "SHA-256",
    "artifact",
    "signature",
)
# What a release's JSON has besides the released values.
_AROUND_VALUES = ("format", "version", "statement", "signature")
_KEY_MISSING = (
    "The signature: whose it is shows only by the public key that you got from the signer "
    "(--key KEY). It says that its key is {key}."
)


def verify(
    path_or_json: str | Path | JsonObject,
    *,
    artifact: str | Path | None = None,
    most: int | None = None,
    key: str | Path | None = None,
    others: Sequence[str | Path | JsonObject] = (),
    time_limit: float = 300.0,
) -> Verification:
    """Computes the guarantee and the digest of a release again, from its JSON alone.

    Every field is compared with what follows from the events, the design and the values that are
    written there, or is named as unchecked. What agrees shows that the numbers follow from these
    events. It cannot show that those events are what was done, nor who wrote them: who changes
    a release can compute its digest again. The result says what remains to be believed.

    Args:
        path_or_json: ``Release.to_json()``, ``Release.to_json()["statement"]``, or a file that
            holds either, as ``optuna-dp release --json`` prints the release.
        artifact: A file that is said to be the released artifact.
        most: What if a person may have so many records? At least 1. The result then says what is
            guaranteed for such a person, whatever the statement says of persons.
        key: A file with the Ed25519 public key of whoever signed the release
            (:func:`optuna_dp.sign`), as you got it from them: PEM or OpenSSH.
        others: Other releases of the same records, in the same forms. The result then says what
            all of them guarantee together, and whether they agree.
        time_limit: Seconds, positive, that the computing may take.

    Returns:
        What was found. Nothing is raised if the statement turns out to be wrong: see
        :attr:`Verification.ok`.

    Raises:
        InvalidArgumentError: If there is no such file, it holds neither (a key is missing, unknown
            or twice there, a number is NaN), it is larger than any release, the time is over,
            ``most`` is given for a release that protects clients, ``key`` is no such key, or one
            of ``others`` is no release or protects something else.
        MissingExtraError: If ``key`` is given and the ``cryptography`` package is not installed.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> run = odp.gaussian(noise_multiplier=4)
        >>> study = optuna.create_study(sampler=odp.RandTuneSampler(run=run))
        >>> study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
        >>> release = odp.release(study, vouched="why").to_json()
        >>> odp.verify(release).ok
        True
        >>> release["statement"]["epsilon"] /= 2
        >>> odp.verify(release).ok
        False
    """
    limit = validation.positive("time_limit", time_limit)
    if most is not None:
        validation.whole("most", most, 1)
    source = path_or_json
    name, text = "a mapping", None
    if isinstance(source, str | Path):
        name, text = str(source), bytes_of("path_or_json", source, MOST_BYTES + 1)
    try:
        # Of a mapping a copy, so that nothing changes while it is looked at.
        document = parsed(json.dumps(source, default=repr) if text is None else text)
        statement = statement_of(document)
        if isinstance(document, dict) and "signature" in document:
            check_form(document["signature"])
        verification = _within(limit, lambda: _verification(statement, most))
    except TimeoutError:
        raise InvalidArgumentError(
            "time_limit",
            limit,
            problem="the cost of the events takes longer to compute",
            fix="Allow more.",
        ) from None
    except RecursionError:
        raise file_refusal(name, "it is nested too deeply") from None
    except Exception as error:  # It may hold anything, and each refuses in its own way.
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise file_refusal(name, f"{kind}{error}") from None
    if most is not None and not verification.what_if:
        raise InvalidArgumentError(
            "most",
            most,
            problem="this release protects clients as a whole, not records",
            fix="Leave it out.",
        )
    checks, unchecked = list(verification.checks), list(verification.unchecked)
    content = statement["content"]
    if isinstance(document, dict) and document is not statement:
        released_values = {k: v for k, v in document.items() if k not in _AROUND_VALUES}
        is_equal = released_values == content
        checks.append(
            Check("released values", True, "as stated")
            if is_equal
            else differing("released values", "other ones are stated")
        )
    stated_digest = content["artifact_sha256"]
    if artifact is not None:
        file_digest = hashlib.sha256(bytes_of("artifact", artifact)).hexdigest()
        checks.append(
            Check("artifact", True, file_digest)
            if file_digest == stated_digest
            else differing("artifact", f"{file_digest}, stated {stated_digest}")
        )
    elif stated_digest is not None:
        unchecked.append(f"The artifact: its file was not given; its SHA-256 is {stated_digest}.")
    signed = _signature(document, key)
    if isinstance(signed, Check):
        checks.append(signed)
    elif signed:
        unchecked.append(signed)
    unchecked.append(
        "Whether the study took place as its design says, and whether the software itself found "
        "what is said to be checked, enforced or compared: whoever can write the file can write "
        "that. Who holds the study's storage can make the release once more, which costs "
        "nothing, and compare the SHA-256."
    )
    for i, other in enumerate(others, start=1):
        agrees = verify(other, time_limit=limit).ok
        place = str(other) if isinstance(other, str | Path) else f"number {i} of others"
        found = "it agrees with itself" if agrees else "it does not agree with itself"
        checks.append(Check(f"other release {place}", agrees, found))
    if others:
        statements = [statement, *map(_statement_in, others)]
        said = []
        if verification.ok and all(check.holds for check in checks):
            said = [persons(each["content"]) for each in statements]
        sentence = _together(statements, statement["delta"], said, most)
        verification = replace(verification, what_if=f"{verification.what_if} {sentence}".strip())
    verification = replace(verification, checks=tuple(checks), unchecked=tuple(unchecked))
    return verification if verification.ok else replace(verification, statement="", questions="")


def _statement_in(source: str | Path | JsonObject) -> JsonObject:
    """Returns the statement of a release that was read before."""
    if not isinstance(source, str | Path):
        return statement_of(source)
    return statement_of(parsed(bytes_of("path_or_json", source, MOST_BYTES + 1)))


def _together(
    statements: Sequence[JsonObject],
    delta: float,
    said: Sequence[tuple[str | None, int | None]],
    most: int | None,
) -> str:
    """Returns what several releases of the same records cost together, some sentences.

    Args:
        statements: Of the releases.
        delta: At which epsilon is given.
        said: Whose record a record is and how many one has at most, by each statement; none if
            some statement is not to be believed.
        most: How many records a person may have, as somebody asked; None if nobody did.
    """
    first, *others = [Guarantee.from_json(statement["guarantee"]) for statement in statements]
    try:
        together = first.compose(*others)
        epsilon = together.epsilon(delta)
    except InvalidArgumentError as error:
        raise error.about("others") from None
    bound = "no finite epsilon" if math.isinf(epsilon) else f"epsilon = {rounded_up(epsilon, 4)}"
    return (
        f"Together: the {len(statements)} releases have {bound} at delta = {delta:g}"
        f"{_for_a_person(together, delta, said, most)}, if they are of the same records. "
        "This is no part of the statement."
    )


def _for_a_person(
    together: Guarantee,
    delta: float,
    said: Sequence[tuple[str | None, int | None]],
    most: int | None,
) -> str:
    """Returns what releases cost together for a person with several records, a part of a sentence.

    Of a person, each release has at most the most records that any of them has. Step by step, one
    record changes in each release at most, so the bound for groups holds for their composition.
    """
    counts = [count for _, count in said if count is not None]
    if most is None and len(counts) == len(said) and len({unit for unit, _ in said}) == 1:
        most = max(counts)
    epsilon = None if most == 1 else person_epsilon(together, delta, most)
    if epsilon is None:
        return ""
    bound = "no finite epsilon" if math.isinf(epsilon) else f"epsilon = {rounded_up(epsilon)}"
    unit = one_line(str((said and said[0][0]) or "person"))
    return f" for one record, and {bound} for one {unit} with up to {most:,} records"


def _signature(document: object, key: str | Path | None) -> Check | str:
    """Returns what was found of a signature, or what is missing; empty if there is none to ask."""
    if not isinstance(document, dict) or "signature" not in document:
        return "" if key is None else differing("signature", "the file has none")
    stated = document["signature"]
    if key is None:
        return _KEY_MISSING.format(key=stated["public_key"][:60])
    if is_signed_by(document, key):
        words = f"by the key {key}; the study's storage had SHA-256 {stated['storage_sha256']}"
        return Check("signature", True, words)
    return differing("signature", f"it is not that of the key {key} for this content")


def _verification(statement: JsonObject, most: int | None) -> Verification:
    """Returns what was found of a statement, and what holds for a person with ``most`` records."""
    comparison = compared(statement)
    data, assumptions = comparison.statement, comparison.statement["assumptions"]
    verification = Verification(
        checks=comparison.checks,
        unchecked=comparison.unchecked,
        believed=tuple(assumption["text"] for assumption in assumptions),
        guaranteed=_guaranteed(statement, len(assumptions)),
        of_another_version=comparison.of_another_version,
        what_if=_what_if(comparison.guarantee, statement["delta"], most),
    )
    if not verification.ok:
        return verification
    return replace(
        verification,
        open_points=_without_controls(plain_open_points(data)),
        statement=_without_controls(statement_markdown(data)),
        questions=_without_controls(questions_markdown(data)),
    )


def _what_if(guarantee: Guarantee, delta: float, most: int | None) -> str:
    """Returns what holds for a person with ``most`` records; empty if that is not asked."""
    if most is None or guarantee.unit != "record":
        return ""
    epsilon = group_epsilon(guarantee, delta, most)
    bound = (
        "no finite epsilon is known"
        if math.isinf(epsilon)
        else f"epsilon = {rounded_up(epsilon, 4)}"
    )
    records = "1 record" if most == 1 else f"up to {most:,} records"
    return (
        f"What if: for a person with {records}, {bound} at delta = {delta:g}. This is no part of "
        "the statement."
    )


def _guaranteed(statement: JsonObject, assumptions: int) -> str:
    """Returns what is guaranteed if everything agrees, a sentence."""
    if statement["epsilon"] is None:
        return "No finite epsilon is known for this release."
    return f"If the {assumptions} assumptions below hold: {plain_guarantee(statement)}."


def _within(seconds: float, compute: Callable[[], T]) -> T:
    """Returns what a computation finds; gives it up when the time is over.

    What has been given up goes on in its thread until it ends or the process does.
    """
    outcome: list[T | BaseException] = []

    def run() -> None:
        try:
            outcome.append(compute())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TimeoutError
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _without_controls(text: str) -> str:
    """Returns a text without characters that steer a terminal."""
    return "".join(c for c in text if c == "\n" or c.isprintable())
