"""Checks the JSON of a release, or of its statement, without the study and without the data.

The statement is made a second time, from the guarantee, the design and the released values that
it holds itself (:func:`optuna_dp.evidence.statement_data.statement_data`), and compared key by
key. All has to be the same, except for what the constants below name. So a key that is added to
statements is compared from then on, and a key that no statement has is refused.

What is read may come from anybody: it is limited in size, depth, steps and time before anything is
computed, and whatever goes wrong with it is one refusal.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dp_accounting import dp_event

from optuna_dp import validation
from optuna_dp.accounting.groups import group_epsilon
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.evidence.earlier_words import is_earlier
from optuna_dp.evidence.markdown import (
    Page,
    plain_open_points,
    questions_markdown,
    statement_markdown,
)
from optuna_dp.evidence.procedures import (
    description_of,
    guarantee_without_study,
    procedure_of,
)
from optuna_dp.evidence.record_counts import RecordCounts
from optuna_dp.evidence.run_record import RunRecord
from optuna_dp.evidence.statement_data import FORMAT, VERSION, released_words, statement_data
from optuna_dp.numbers_shown import rounded_up
from optuna_dp.protocol.plan import Design
from optuna_dp.releasing.data_description import DataDescription
from optuna_dp.releasing.release import statement_page

RELEASE_FORMAT = "optuna-dp release"
RELEASE_VERSION = 1
# Of what is read, before anything is computed from it. Releases have some hundred values.
_MOST_BYTES, _MOST_VALUES, _DEEPEST, _LARGEST = 10_000_000, 200_000, 64, 1e300
# Of events: how many mechanisms, repeated ones counted, and how many descriptions of them.
_MOST_STEPS, _MOST_EVENTS = 10**9, 2000

# Bounds, in which a number may be larger than what is found; but the parts in _EXACT may not.
_BOUNDS = {"epsilon", "epsilon_by_method", "unit_with_several_records", "rdp", "gaussian_dp"}
_EXACT = {"records", "orders", "tail"}
# Other versions of the software, of numpy and of scipy round otherwise; a bound that has become
# tighter since is no objection.
_ROUNDING = 1e-6
# Grids of bounds depend on how numpy and scipy round. All of them are true. One by other versions
# cannot be computed again: smaller by no more than this share, it is said to be unchecked.
_OTHER_GRIDS = 1e-3
_LIBRARIES_OF_GRIDS = ("numpy", "scipy", "dp-accounting")
# Words and methods that depend on the version of optuna-dp; those of another one are unknown here.
_OF_A_VERSION = {
    "trust",
    "checked",
    "assumptions",
    "not_covered",
    "method",
    "epsilon_by_method",
    "comparisons",
}
# Of these the page shows this version's, whatever the JSON has.
_WORDS = ("protected", "trust", "checked", "assumptions", "not_covered")


@dataclass(frozen=True)
class Check:
    """One thing that was computed again.

    Attributes:
        what: What it is about.
        holds: Whether the statement says the same.
        found: What was found, in words.
        reason: Of what differs, what that means; empty of what agrees.
    """

    what: str
    holds: bool
    found: str
    reason: str = ""


@dataclass(frozen=True)
class Verification:
    """What :func:`verify` found.

    Attributes:
        checks: What was computed again.
        unchecked: What was not there to be checked, each with what is missing.
        believed: What no software can check and the signatory vouches for.
        statement: The statement in Markdown, made from the JSON, in the words of this version;
            empty if anything differs. The cost of a final training is as the JSON says it.
        questions: What a person has to confirm, as a sheet of questions to the owner of the data
            in Markdown, with space for answers, names and dates; empty if anything differs.
        guaranteed: What is guaranteed, a sentence.
        open_points: What the statement leaves open, a sentence.
        of_another_version: Parts that another version of optuna-dp, or of a library that it
            computes with, has made otherwise, and that were not compared.
        what_if: What ``cap`` asked for, a sentence; empty if it was not given.
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

    def to_json(self) -> dict[str, Any]:
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
        lines += [self.what_if] if self.what_if else []
        shown = {
            check.what: check.found
            for check in agreeing
            if check.what in _WITH_NUMBERS and check.found != "None"
        }
        lines += [f"  agrees   {what}: {text}" for what, text in shown.items()]
        agreeing_parts = ", ".join(check.what for check in agreeing if check.what not in shown)
        lines += [f"  agrees   {agreeing_parts}"] if agreeing_parts else []
        if self.unchecked and not differing:
            lines += ["Could not be checked:", *(f"  - {text}" for text in self.unchecked)]
        if self.believed and not differing:
            lines.append("Remains to be believed (--questions prints them as questions):")
            lines += [f"  {i}. {text}" for i, text in enumerate(self.believed, start=1)]
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
)


def verify(
    path_or_json: str | Path | Mapping[str, Any],
    *,
    artifact: str | Path | None = None,
    cap: int | None = None,
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
        cap: What if a person may have so many records? At least 1. The result then says what is
            guaranteed for such a person, whatever the statement says of persons.
        time_limit: Seconds, positive, that the computing may take.

    Returns:
        What was found. Nothing is raised if the statement turns out to be wrong: see
        :attr:`Verification.ok`.

    Raises:
        InvalidArgumentError: If there is no such file, it holds neither (a key is missing, unknown
            or twice there, a number is NaN), it is larger than any release, the time is over, or
            ``cap`` is given for a release that protects clients.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> study = optuna.create_study(sampler=odp.RandTuneSampler())
        >>> study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
        >>> release = odp.release(study, odp.gaussian(noise_multiplier=4), vouched="why").to_json()
        >>> odp.verify(release).ok
        True
        >>> release["statement"]["epsilon"] /= 2
        >>> odp.verify(release).ok
        False
    """
    limit = validation.positive("time_limit", time_limit)
    if cap is not None:
        validation.whole("cap", cap, 1)
    source: Any = path_or_json
    name, text = "a mapping", None
    if isinstance(source, str | Path):
        name, text = str(source), _bytes_of("path_or_json", source, _MOST_BYTES + 1)
    try:
        # Of a mapping a copy, so that nothing changes while it is looked at.
        document = _parsed(json.dumps(source, default=repr) if text is None else text)
        statement = _statement_of(document)
        comparison, what_if = _within(limit, lambda: _compared_with(statement, cap))
    except TimeoutError:
        raise InvalidArgumentError(
            "time_limit", limit, "the cost of the events takes longer to compute", "Allow more."
        ) from None
    except RecursionError:
        raise _refusal(name, "it is nested too deeply") from None
    except Exception as error:  # It may hold anything, and each refuses in its own way.
        raise _refusal(name, f"{type(error).__name__}: {error}") from None
    if cap is not None and not what_if:
        raise InvalidArgumentError(
            "cap", cap, "this release protects clients as a whole, not records", "Leave it out."
        )
    checks, unchecked = list(comparison.checks), list(comparison.unchecked)
    content = statement["content"]
    if document is not statement:
        released_values = {
            k: v for k, v in document.items() if k not in ("format", "version", "statement")
        }
        is_equal = released_values == content
        checks.append(
            Check("released values", True, "as stated")
            if is_equal
            else _difference_check("released values", "other ones are stated")
        )
    stated_digest = content["artifact_sha256"]
    if artifact is not None:
        file_digest = hashlib.sha256(_bytes_of("artifact", artifact)).hexdigest()
        checks.append(
            Check("artifact", True, file_digest)
            if file_digest == stated_digest
            else _difference_check("artifact", f"{file_digest}, stated {stated_digest}")
        )
    elif stated_digest is not None:
        unchecked.append(f"The artifact: its file was not given; its SHA-256 is {stated_digest}.")
    unchecked.append(
        "Whether the study took place as its design says, and whether the software itself found "
        "what is said to be checked, enforced or compared: whoever can write the file can write "
        "that. Who holds the study's storage can make the release once more, which costs "
        "nothing, and compare the SHA-256."
    )
    found_all: Verification = replace(
        comparison, checks=tuple(checks), unchecked=tuple(unchecked), what_if=what_if
    )
    return found_all if found_all.ok else replace(found_all, statement="", questions="")


# Reading.


def _refusal(name: str, reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        "path_or_json",
        name,
        f"it must be a release or a statement ({reason[:300]})",
        "optuna-dp release --json prints a release.",
    )


def _parsed(text: str | bytes) -> Any:
    """Returns plain JSON values within the limits."""
    if len(text) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
    values = json.loads(text, object_pairs_hook=_without_twins, parse_constant=_no_constant)
    _limit(values)
    return values


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        repeated_key = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"the key {repeated_key[:40]!r} is there twice")
    return mapping


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _limit(document: Any) -> None:
    """Refuses what no release has: very deep, many or large values, or events of much work."""
    stack, values, events = [(document, 0, 1)], 0, 0
    while stack:
        value, depth, steps = stack.pop()
        values += 1
        children: Any = value if isinstance(value, list) else ()
        if isinstance(value, dict):
            children = value.values()
            if "type" in value:
                count = value.get("count")
                events += 1
                steps *= max(count, 1) if isinstance(count, int) else 1
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        if values > _MOST_VALUES:
            raise ValueError(f"it has more than {_MOST_VALUES:,} values")
        if events > _MOST_EVENTS:
            raise ValueError(f"its events have more than {_MOST_EVENTS:,} parts")
        if steps > _MOST_STEPS:
            raise ValueError(f"its events have more than {_MOST_STEPS:,} steps")
        if isinstance(value, int | float) and not -_LARGEST < value < _LARGEST:
            raise ValueError("it has a number beyond 1e300")
        stack += [(child, depth + 1, steps) for child in children]


_CONTENT = {"params", "value", "attributes", "artifact_sha256", "distributions"}
_OPTIONAL = {"description", "spending"}


def _statement_of(document: Any) -> Any:
    """Returns the statement of a release, or of itself, with the keys that it has to have."""
    statement, kind = document, document.get("format") if isinstance(document, dict) else None
    if kind == RELEASE_FORMAT:
        _check_keys(document, _CONTENT | {"format", "version", "statement"}, _OPTIONAL)
        if document["version"] != RELEASE_VERSION:
            raise ValueError(f"a release of version {document['version']!r}")
        statement = document["statement"]
    elif kind != FORMAT:
        raise ValueError("it has another format")
    if statement["format"] != FORMAT or statement["version"] != VERSION:
        raise ValueError(
            f"its statement is of version {str(statement['version'])[:40]}; this optuna-dp reads "
            f"{VERSION}"
        )
    _check_keys(statement["content"], _CONTENT, _OPTIONAL)
    if not isinstance(statement["content"]["attributes"], dict):
        raise ValueError("its attributes are none")
    return statement


def _check_keys(mapping: Mapping[str, Any], keys: set[str], optional: set[str]) -> None:
    wrong_keys = (mapping.keys() ^ keys) - (mapping.keys() & optional)
    if wrong_keys:
        key = min(wrong_keys)
        raise ValueError(f"the key {key[:40]!r} is {'unknown' if key in mapping else 'missing'}")


def _within(seconds: float, compute: Callable[[], Any]) -> Any:
    """Returns what a computation finds; gives it up when the time is over.

    What has been given up goes on in its thread until it ends or the process does.
    """
    outcome: list[Any] = []

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


# Comparing.


_REASONS = {
    "epsilon": "A smaller epsilon is stated than the runs in the file cost: the statement claims "
    "more privacy than there is.",
    "attack": "The attack is that of other runs: the runs in the file, or the attack, were "
    "changed after the release was made.",
    "counts of runs": "No study can have that: runs were left out of the file, or a number was "
    "changed.",
    "unit with several records": "Whoever has several records is protected less than stated, or "
    "the stated cap is not that of the description.",
    "rdp": "A smaller bound is stated than the runs cost.",
    "gaussian dp": "A smaller bound is stated than the runs cost.",
    "epsilon by method": "A smaller bound is stated than the runs cost.",
    "SHA-256": "The guarantee, the design or the released values were changed after the digest "
    "was made, or the digest was.",
    "guarantee of the stated design": "A study of the stated design costs something else: one of "
    "the two was changed.",
    "records": "The curator's description and the plan count other records. Ask which number is "
    "right: batches, delta and scores depend on it.",
    "released values": "The values beside the statement are not those that it was made for.",
    "artifact": "The file is not the released model, or was changed since.",
    "protected": "Something else is said to be protected than the guarantee protects.",
    "neighboring relation": "Something else is said to be protected than the guarantee protects.",
    "unit": "Something else is said to be protected than the guarantee protects.",
}
_OF_WORDS = (
    "These are not the words of this version of optuna-dp for such a release: somebody has "
    "changed them."
)
_OTHERWISE = "Somebody has changed the file, or another version of optuna-dp made it."


def _difference_check(what: str, found: str) -> Check:
    """Returns the check of something that differs, with what that means."""
    is_text = what.replace(" ", "_") in _WORDS
    return Check(what, False, found, _REASONS.get(what, _OF_WORDS if is_text else _OTHERWISE))


def _compared_with(statement: Mapping[str, Any], cap: int | None) -> tuple[Verification, str]:
    """Returns what was compared, and what holds for a person with ``cap`` records."""
    comparison = _compared(statement)
    guarantee, delta = Guarantee.from_json(statement["guarantee"]), statement["delta"]
    if cap is None or guarantee.unit != "record":
        return comparison, ""
    epsilon = group_epsilon(guarantee, delta, cap)
    bound = (
        "no finite epsilon is known"
        if math.isinf(epsilon)
        else f"epsilon = {rounded_up(epsilon, 4)}"
    )
    records = "1 record" if cap == 1 else f"up to {cap:,} records"
    return comparison, (
        f"What if: for a person with {records}, {bound} at delta = {delta:g}. This is no part of "
        "the statement."
    )


def _compared(statement: Mapping[str, Any]) -> Verification:
    """Compares every key of a statement with what follows from its own events and values.

    The statement as a page and the questions are in the words of this version, since a statement
    may leave some out.
    """
    guarantee = Guarantee.from_json(statement["guarantee"])
    design = Design.from_json(statement["design"])
    fits, has_training = _design_and_guarantee(design, guarantee)
    procedure_words, content = description_of(design), statement["content"]
    cap, described_records = None, None
    if "description" in content:
        description = DataDescription.from_json(content["description"])
        cap, described_records = description.cap, description.records
    made_anew = statement_data(
        guarantee,
        design,
        delta=validation.open_unit("delta", statement["delta"]),
        released=released_words(content, procedure_words, trained=has_training),
        content=content,
        procedure_words=procedure_words,
        cap=cap,
    )
    _check_keys(statement, set(made_anew), set())
    recomputed = json.loads(json.dumps(made_anew))
    versions = statement["versions"]
    if not _texts(list(versions.values())) or not _texts(statement["assumptions"]):
        raise ValueError("its versions or its assumptions are no texts")
    software = ", ".join(
        f"{name} {version}"[:60] for name, version in sorted(versions.items())[:20]
    )
    unchecked = [
        f"The versions of the software that computed it, said to be {software or 'unknown'}."
    ]
    own_versions = recomputed.pop("versions")
    own_version = own_versions.get("optuna-dp")
    other_libraries = [
        f"{name} {own_versions.get(name)}"
        for name in _LIBRARIES_OF_GRIDS
        if own_versions.get(name) != versions.get(name)
    ]
    of_another_version = own_version is not None and own_version != versions.get("optuna-dp")
    counts = procedure_words.record_counts(design, content.get("spending", {}))
    checks = [fits]
    contradiction = procedure_words.contradiction(design, content)
    if contradiction:
        checks.append(_difference_check("counts of runs", contradiction))
    parts_of_another_version = []
    if described_records is not None and counts.protected is not None:
        checks.append(_check_of_records(counts, described_records))
    elif described_records is not None and counts.trained is not None:
        unchecked.append(
            f"The number of records: {described_records:,} are described. The plan trains on "
            f"{counts.trained:,} and scores others, which are protected too; how many is not "
            "recorded."
        )
    for key, value in recomputed.items():
        heading = "SHA-256" if key == "digest" else key.replace("_", " ")
        differs = _difference_in(key, statement, value)
        if differs and is_earlier(key, design.procedure, statement[key]):
            unchecked.append(
                f"{heading.capitalize()}: in an earlier wording of optuna-dp {own_version}. "
                "--statement prints them as they are worded now."
            )
        elif (
            differs
            and other_libraries
            and key in _BOUNDS
            and not _difference(statement[key], value, bound=True, share=_OTHER_GRIDS)
        ):
            parts_of_another_version.append(heading)
            unchecked.append(
                f"{heading.capitalize()}: smaller by less than {100 * _OTHER_GRIDS:g} % than what "
                f"follows with {', '.join(other_libraries)}, which check here. Verify it with the "
                "versions that are said to have computed it."
            )
        elif differs and of_another_version and key in _OF_A_VERSION:
            parts_of_another_version.append(heading)
            stated_version = str(versions.get("optuna-dp", "another version"))[:40]
            unchecked.append(
                f"{heading.capitalize()}: not as in optuna-dp {own_version}, which checks here. "
                f"Verify it with the version that is said to have made it: {stated_version}."
            )
        else:
            recomputed_text = _shown(value) or "as computed again"
            if key == "epsilon" and value is not None:
                recomputed_text = rounded_up(value, 4)
            if key in ("epsilon", "attack") and _differs_much(statement[key], value):
                recomputed_text += (
                    f"; the statement says {_shown(statement[key]) or 'none'}, which claims less"
                )
            checks.append(
                _difference_check(heading, differs)
                if differs
                else Check(heading, True, recomputed_text)
            )
    result = Verification(
        checks=tuple(checks),
        unchecked=tuple(unchecked),
        believed=tuple(recomputed["assumptions"]),
        guaranteed=_guaranteed(statement, len(recomputed["assumptions"])),
        of_another_version=tuple(parts_of_another_version),
    )
    if not result.ok:
        return result
    words = {key: made_anew[key] for key in _WORDS}
    page = _page({**statement, **words}, design, guarantee, has_training)
    return replace(
        result,
        open_points=_without_controls(plain_open_points(page)),
        statement=_without_controls(statement_markdown(page)),
        questions=_without_controls(questions_markdown(page)),
    )


def _check_of_records(counts: RecordCounts, described_records: int) -> Check:
    """Compares the described number of records with the planned one."""
    reason = counts.contradiction(described_records)
    if reason:
        return _difference_check("records", f"{described_records:,} are described, but {reason}")
    return Check("records", True, f"{described_records:,} are described, and planned for")


def _guaranteed(statement: Mapping[str, Any], promises: int) -> str:
    """Returns what is guaranteed if everything agrees, a sentence."""
    if statement["epsilon"] is None:
        return "No finite epsilon is known for this release."
    return (
        f"If the {promises} promises below hold: epsilon = "
        f"{rounded_up(statement['epsilon'], 4)} at delta = {statement['delta']:g}, for "
        f"{statement['protected']}."
    )


def _page(
    data: Mapping[str, Any], design: Design, guarantee: Guarantee, has_training: bool
) -> Page:
    """Returns what the statement says, in the words of this version."""
    search, training = guarantee, None
    if has_training:  # Release.with_training puts the search first.
        search_event, *training_events = guarantee.event.events
        search = replace(guarantee, event=search_event)
        training = (
            training_events[0]
            if len(training_events) == 1
            else dp_event.ComposedDpEvent(training_events)
        )
    law = design.settings.get("trials")
    constant = law.get("n") if isinstance(law, dict) and law.get("n") == law.get("mean") else None
    number = (
        None
        if constant is None
        else (
            f"{constant} runs could be chosen from. The number is no secret, and the guarantee is "
            "that of the best of exactly so many"
        )
    )
    return statement_page(data, design, search, training=training, number_of_runs=number)


def _without_controls(text: str) -> str:
    """Returns a text without characters that steer a terminal."""
    return "".join(c for c in text if c == "\n" or c.isprintable())


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _shown(value: Any) -> str:
    """Returns what was found in words, where it is short; else nothing."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return "" if isinstance(value, dict | list) or len(text) > 70 else text


def _difference_in(key: str, statement: Mapping[str, Any], value: Any) -> str:
    """Says where a key of a statement is not what was found; empty if nowhere."""
    stated_value = statement[key]
    if key == "attack":  # A bound from below, which may say less.
        if stated_value is None or not _difference(value, stated_value, bound=True):
            return ""
        return _difference(stated_value, value, bound=False)
    methods = statement["epsilon_by_method"]
    if key == "method" and stated_value not in statement["comparisons"]:
        # Of two methods with the same epsilon, rounding may choose either.
        value = stated_value if methods.get(stated_value) == statement["epsilon"] else value
    return _difference(stated_value, value, bound=key in _BOUNDS)


def _difference(stated_value: Any, value: Any, *, bound: bool, share: float = _ROUNDING) -> str:
    """Says where values of JSON differ; empty if nowhere. 1 is not true, and 1.0 is 1.

    Of a bound, a stated number may be larger than what was found, or smaller by ``share`` of it;
    None stands for infinity.
    """
    if (
        isinstance(value, list)
        and isinstance(stated_value, list)
        and len(value) == len(stated_value)
    ):
        stated_value, value = dict(enumerate(stated_value)), dict(enumerate(value))
    if isinstance(value, dict) and isinstance(stated_value, dict):
        for key in value.keys() ^ stated_value.keys():
            return f"{str(key)[:40]} is missing or unknown"
        for key in value:
            is_bound = bound and key not in _EXACT
            part = _difference(stated_value[key], value[key], bound=is_bound, share=share)
            if part:
                return f"{str(key)[:40]}: {part}"
        return ""
    is_equal = stated_value == value and isinstance(stated_value, bool) == isinstance(value, bool)
    if bound and _is_bound(stated_value) and _is_bound(value):
        limit = math.inf if value is None else value
        is_equal = stated_value is None or limit <= stated_value * (1 + share)
    return "" if is_equal else f"{_shown(value) or 'another'}, stated {str(stated_value)[:40]}"


def _differs_much(stated_value: Any, value: Any) -> bool:
    """Returns whether a bound is stated that other versions of the software do not explain."""
    if not _is_number(stated_value) or not _is_number(value):
        return bool(stated_value != value)
    return not math.isclose(stated_value, value, rel_tol=1e-3)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_bound(value: Any) -> bool:
    return value is None or _is_number(value)


def _design_and_guarantee(design: Design, guarantee: Guarantee) -> tuple[Check, bool]:
    """Whether the event is the one that this design has, and has a final training besides."""
    subject = "guarantee of the stated design"
    searches = [guarantee]
    if isinstance(guarantee.event, dp_event.ComposedDpEvent) and guarantee.event.events:
        # Release.with_training puts the search first.
        searches.append(replace(guarantee, event=guarantee.event.events[0]))
    for search in searches:
        if _implied(design, search).to_json() == search.to_json():
            return Check(subject, True, "the same"), search is not guarantee
    return _difference_check(subject, "another one"), False


def _implied(design: Design, search: Guarantee) -> Guarantee:
    """The guarantee of a study of this design, whose runs cost what they do in this one."""
    guarantee = guarantee_without_study(design)
    if guarantee is not None:
        return guarantee
    # One run, where the design leaves it open: in a selection, which pilots may stand before.
    last_event = getattr(search.event, "events", [search.event])[-1]
    run = getattr(last_event, "run", search.event)
    record = RunRecord(run, neighboring_relation=search.neighboring_relation)
    return procedure_of(design).guarantee(record)


def _bytes_of(argument: str, file: str | Path, limit: int = -1) -> bytes:
    try:
        with Path(file).open("rb") as stream:
            return stream.read(limit)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidArgumentError(
            argument, str(file)[:200], f"it must be a file that can be read ({reason})"
        ) from error
