"""Checks the JSON of a release, or of its statement, without the study and without the data.

The statement is made a second time, from the guarantee, the design and the released values that
it holds itself (:func:`optuna_dp.evidence.statement_data.statement_data`), and compared key by
key. ``_ROWS`` says how a key is compared; a key without a row has to be the same. So a key that is
added to statements is compared from then on, and a key that no statement has is refused.

What is read may come from anybody: it is limited in size, depth, steps and time before anything is
computed, and whatever goes wrong with it is one refusal.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dp_accounting import dp_event

from optuna_dp import validation
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.evidence.procedures import VOTE, description_of, procedure_of
from optuna_dp.evidence.run_record import RunRecord
from optuna_dp.evidence.statement_data import FORMAT, released_words, statement_data
from optuna_dp.protocol.plan import Design
from optuna_dp.releasing.data_description import DataDescription
from optuna_dp.voting.plan import VotePlan

RELEASE_FORMAT = "optuna-dp release"
RELEASE_VERSION = 1
# Other versions of the software, of numpy and of scipy round otherwise; a bound that has become
# tighter since is no objection.
_ROUNDING = 1e-6
_STATEMENT_VERSIONS = (2,)
# Of what is read, before anything is computed from it. Releases have some hundred values.
_MOST_BYTES, _MOST_VALUES, _DEEPEST, _LARGEST = 10_000_000, 200_000, 64, 1e300
# Of an event: how many mechanisms, repeated ones counted, and how many descriptions of them.
_MOST_STEPS, _MOST_EVENTS = 10**9, 1000


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
        """Returns whether all that was computed again agrees."""
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
        lines.append(
            "Everything that can be computed agrees."
            if self.ok
            else "The release does NOT agree with its own events."
        )
        return "\n".join(lines)


@dataclass(frozen=True)
class _Read:
    """A release or a statement that was read, and what follows from it."""

    statement: Mapping[str, Any]
    expected: Mapping[str, Any]
    guarantee: Guarantee
    delta: float

    @property
    def of_another_version(self) -> bool:
        """Returns whether the statement says that another optuna-dp made it."""
        here, there = (one["versions"].get("optuna-dp") for one in (self.expected, self.statement))
        return here is not None and bool(here != there)


def verify(
    path_or_json: str | Path | Mapping[str, Any],
    *,
    artifact: str | Path | None = None,
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
        time_limit: Seconds, positive, that the computing may take.

    Returns:
        What was found. Nothing is raised if the statement turns out to be wrong: see
        :attr:`Verification.ok`.

    Raises:
        InvalidArgumentError: If there is no such file, it holds neither (a key is missing, unknown
            or twice there, a number is NaN), it is larger than any release, or the time is over.

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
    limit = validation.positive("time_limit", time_limit)
    name = str(path_or_json) if isinstance(path_or_json, str | Path) else "a mapping"
    whole = _parsed(path_or_json, name)
    statement = whole["statement"] if whole["format"] == RELEASE_FORMAT else whole
    try:
        _limit_events(statement["guarantee"])
        _limit_events(statement["design"])
        checks, unchecked = _within(limit, lambda: _compared(statement))
    except InvalidArgumentError as error:
        if error.argument == "time_limit":
            raise
        raise _refusal(name, f"InvalidArgumentError: {error}") from None
    except Exception as error:  # It may hold anything, and each refuses in its own way.
        raise _refusal(name, f"{type(error).__name__}: {error}") from None
    content = statement["content"]
    if whole is not statement:
        outside = {k: v for k, v in whole.items() if k not in ("format", "version", "statement")}
        same = outside == content
        checks.append(
            Check("released values", same, "as stated" if same else "other ones are stated")
        )
    checks += _artifact(content, artifact, unchecked)
    unchecked.append(
        "Whether the study took place as its design says. Who holds its storage can release it "
        "again and compare the digest."
    )
    return Verification(tuple(checks), tuple(unchecked), tuple(statement["assumptions"]))


# Reading.


def _refusal(name: str, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        "path_or_json",
        name,
        f"it must be a release or a statement ({why[:300]})",
        "optuna-dp release --json prints a release.",
    )


def _parsed(given: Any, name: str) -> dict[str, Any]:
    """Returns a release or a statement as plain JSON values within the limits."""
    try:
        if isinstance(given, Mapping):
            # Lists for tuples, and copies: nothing changes while it is looked at.
            text: str | bytes = json.dumps(given, default=repr)
        elif isinstance(given, str | Path):
            text = _bytes_of("path_or_json", given, _MOST_BYTES + 1)
        else:
            raise ValueError(f"not {type(given).__name__}")
        if len(text) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
        found = json.loads(text, object_pairs_hook=_without_twins, parse_constant=_no_constant)
        _limit(found)
        return _with_known_keys(found)
    except InvalidArgumentError:
        raise
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise _refusal(name, why) from None


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"the key {twice[:40]!r} is there twice")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _limit(found: Any) -> None:
    """Refuses what no release has: very deep, very many or very large values."""
    left, count = [(found, 0)], 0
    while left:
        value, depth = left.pop()
        count += 1
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        if count > _MOST_VALUES:
            raise ValueError(f"it has more than {_MOST_VALUES:,} values")
        if isinstance(value, int | float) and not -_LARGEST < value < _LARGEST:
            raise ValueError("it has a number beyond 1e300")
        children = value.values() if isinstance(value, dict) else value
        if isinstance(value, dict | list):
            left += [(child, depth + 1) for child in children]


def _limit_events(record: Any) -> None:
    """Refuses events of more steps, or of more parts, than can be accounted for."""
    left, parts, steps = [(record, 1)], 0, 0
    while left:
        value, times = left.pop()
        children = value.values() if isinstance(value, dict) else value
        if isinstance(value, dict) and isinstance(value.get("count"), int):
            times *= max(value["count"], 1)
        if isinstance(value, dict) and "type" in value:
            parts, steps = parts + 1, max(steps, times)
        if isinstance(value, dict | list):
            left += [(child, times) for child in children]
    if parts > _MOST_EVENTS:
        raise ValueError(f"its events have more than {_MOST_EVENTS:,} parts")
    if steps > _MOST_STEPS:
        raise ValueError(f"its events have more than {_MOST_STEPS:,} steps")


_CONTENT = {"params", "value", "attributes", "artifact_sha256", "distributions"}
_OPTIONAL = {"description", "spending"}


def _with_known_keys(found: Any) -> dict[str, Any]:
    """Returns a release or a statement with the keys that it has to have, and no others."""
    if not isinstance(found, dict) or found.get("format") not in (RELEASE_FORMAT, FORMAT):
        raise ValueError("it has another format")
    statement = found
    if found["format"] == RELEASE_FORMAT:
        _check_keys(found, _CONTENT | {"format", "version", "statement"}, _OPTIONAL)
        if found["version"] != RELEASE_VERSION:
            raise ValueError(f"a release of version {found['version']!r}")
        statement = found["statement"]
    if not isinstance(statement, dict) or statement.get("format") != FORMAT:
        raise ValueError("its statement has another format")
    if statement.get("version") not in _STATEMENT_VERSIONS:
        raise InvalidArgumentError(
            "path_or_json",
            f"a statement of version {str(statement.get('version'))[:40]}",
            f"this optuna-dp reads {', '.join(map(str, _STATEMENT_VERSIONS))}",
            "Use the version of optuna-dp that wrote it.",
        )
    content = statement["content"]
    if not isinstance(content, dict) or not isinstance(content.get("attributes"), dict):
        raise ValueError("its content is none")
    _check_keys(content, _CONTENT, _OPTIONAL)
    return found


def _check_keys(found: Mapping[str, Any], keys: set[str], optional: set[str]) -> None:
    wrong = (found.keys() ^ keys) - (found.keys() & optional)
    if wrong:
        key = min(wrong)
        raise ValueError(f"the key {key[:40]!r} is {'unknown' if key in found else 'missing'}")


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
        raise InvalidArgumentError(
            "time_limit", seconds, "the cost of the events takes longer to compute", "Allow more."
        )
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


# Comparing.


def _compared(statement: Mapping[str, Any]) -> tuple[list[Check], list[str]]:
    """Compares every key of a statement with what follows from its own events and values."""
    guarantee = Guarantee.from_json(statement["guarantee"])
    design = Design.from_json(statement["design"])
    delta = validation.open_unit("delta", statement["delta"])
    fits, trained = _design_and_guarantee(design, guarantee)
    described, content = description_of(design), statement["content"]
    cap = None
    if "description" in content:
        cap = DataDescription.from_json(content["description"]).cap
    expected = statement_data(
        guarantee,
        design,
        delta=delta,
        released=released_words(content, described, trained=trained),
        content=content,
        described=described,
        cap=cap,
    )
    _check_keys(statement, set(expected), set())
    read = _Read(statement, json.loads(json.dumps(expected)), guarantee, delta)
    checks, unchecked = [fits], []
    for key in read.expected:
        for found in _ROWS.get(key, _same)(key, read):
            if isinstance(found, Check):
                checks.append(found)
            else:
                unchecked.append(found)
    return checks, unchecked


Found = Iterator[Check | str]


def _same(key: str, read: _Read) -> Found:
    """A key that has to be the same; what it should be is said where it is short."""
    expected = read.expected[key]
    words = expected if isinstance(expected, str) else "as it should be"
    same = _identical(read.statement[key], expected)
    yield Check(_NAMES.get(key, key), same, words if same or words == expected else "other")


def _identical(one: Any, other: Any) -> bool:
    """Equal as JSON: 1 is not true, and 1.0 is 1."""
    return json.dumps(_floats(one), sort_keys=True) == json.dumps(_floats(other), sort_keys=True)


def _floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_floats(item) for item in value]
    return float(value) if type(value) is int else value


def _from_events(key: str, read: _Read) -> Found:
    """What everything else is computed from: it was read to the last field, or refused."""
    if not _identical(read.statement[key], read.expected[key]):
        yield Check(key, False, "it is not as it would be written")


def _fixed(key: str, read: _Read) -> Found:
    yield from ()  # Compared when it was read, or what the others are computed at.


def _words(key: str, read: _Read) -> Found:
    """Words that depend on the version of optuna-dp; of another one they are unknown here."""
    if _identical(read.statement[key], read.expected[key]):
        yield Check(_NAMES[key], True, "the words of its procedure")
    elif read.of_another_version:
        yield f"{_NAMES[key].capitalize()}: these are not the words of this version of optuna-dp."
    else:
        yield Check(_NAMES[key], False, "they are not the words of its procedure")
    if key == "assumptions" and not _texts(read.statement[key]):
        raise ValueError("its assumptions are no list of texts")


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _versions(key: str, read: _Read) -> Found:
    stated = read.statement[key]
    if not isinstance(stated, dict) or not _texts(list(stated.values())):
        raise ValueError("its versions are none")
    words = ", ".join(f"{name} {version}"[:60] for name, version in sorted(stated.items())[:20])
    yield f"The versions of the software that computed it, said to be {words or 'unknown'}."


def _epsilon(key: str, read: _Read) -> Found:
    yield _not_below(f"epsilon at delta = {read.delta:g}", read.statement[key], read.expected[key])


def _by_method(key: str, read: _Read) -> Found:
    """Every method's epsilon; which methods there are may differ from version to version."""
    stated, expected = read.statement[key], read.expected[key]
    if not isinstance(stated, dict):
        raise ValueError("its methods are none")
    pairs = {name: (stated[name], expected[name]) for name in stated if name in expected}
    wrong = {n: _not_below(n, *pair) for n, pair in pairs.items()}
    bad = [f"{name}: {check.found}" for name, check in wrong.items() if not check.holds]
    if not read.of_another_version:
        bad += [
            f"{name} is missing or unknown" for name in sorted(stated.keys() ^ expected.keys())
        ]
    yield Check("epsilon by method", not bad, "; ".join(bad) or "none is too small")
    for name in sorted(stated.keys() - pairs.keys()):
        yield f"Epsilon by the method {name[:40]!r}, which does not apply here."


def _method(key: str, read: _Read) -> Found:
    """The method that is named has to have the epsilon that is stated, and to be one that may."""
    stated, methods = read.statement, read.statement["epsilon_by_method"]
    name = stated[key]
    known = isinstance(name, str) and name in methods and name not in stated["comparisons"]
    fits = known and (name == read.expected[key] or methods[name] == stated["epsilon"])
    yield Check("method", fits, str(name)[:40] if fits else f"it is {read.expected[key]}")


def _attack(key: str, read: _Read) -> Found:
    stated, found = read.statement[key], read.expected[key]
    holds = stated is None or (_is_number(stated) and stated <= found * (1 + _ROUNDING))
    yield Check("attack", holds, f"{found:.6g}")


def _several(key: str, read: _Read) -> Found:
    stated, found = read.statement[key], read.expected[key]
    if found is None or not isinstance(stated, dict) or set(stated) != set(found):
        yield from _same(key, read)
        return
    same = stated["records"] == found["records"]
    yield Check("most records of one unit", same, str(found["records"]))
    yield _not_below(f"epsilon of {found['records']} records", stated["epsilon"], found["epsilon"])


def _rdp(key: str, read: _Read) -> Found:
    """A table at whichever orders its version shows."""
    stated = read.statement[key]
    orders, epsilons = stated["orders"], stated["epsilons"]
    if set(stated) != {"orders", "epsilons"} or not len(orders) == len(epsilons) <= 1000:
        raise ValueError("its Rényi table is none")
    if not all(_is_number(order) for order in orders):
        raise ValueError("its Rényi table has orders that are no numbers")
    pairs = zip(epsilons, map(float, read.guarantee.rdp(orders)), strict=True)
    bad = [check for check in (_not_below("", *pair) for pair in pairs) if not check.holds]
    yield Check("Rényi table", not bad, bad[0].found if bad else "no entry is too small")


def _gaussian(key: str, read: _Read) -> Found:
    stated = read.statement[key]
    if set(stated) != {"mu", "tail"}:
        raise ValueError("its mu is none")
    yield _not_below("mu", stated["mu"], read.guarantee.mu(stated["tail"]))


# How keys are compared that need not be the very same; all others have to be.
_ROWS: dict[str, Callable[[str, _Read], Found]] = {
    "format": _fixed,
    "version": _fixed,
    "delta": _fixed,
    "guarantee": _from_events,
    "design": _from_events,
    "content": _from_events,
    "epsilon": _epsilon,
    "epsilon_by_method": _by_method,
    "method": _method,
    "attack": _attack,
    "unit_with_several_records": _several,
    "rdp": _rdp,
    "gaussian_dp": _gaussian,
    "trust": _words,
    "checked": _words,
    "assumptions": _words,
    "not_covered": _words,
    "versions": _versions,
}
_NAMES = {
    "assumptions": "assumptions",
    "checked": "what the software made sure of",
    "comparisons": "bounds for comparison",
    "digest": "SHA-256",
    "neighboring_relation": "neighbouring relation",
    "not_covered": "what is not covered",
    "protected": "what is protected",
    "released": "what is released",
    "trust": "who sees what",
    "unit": "unit of protection",
    "unit_with_several_records": "several records of one unit",
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _not_below(what: str, stated: Any, found: float | None) -> Check:
    """Returns whether a stated bound is at least what was found; None stands for infinity."""
    limit = math.inf if found is None else float(found)
    holds = stated is None or (_is_number(stated) and limit <= stated * (1 + _ROUNDING))
    return Check(what, holds, f"{limit:.6g}" + ("" if holds else f", stated {str(stated)[:40]}"))


def _design_and_guarantee(design: Design, guarantee: Guarantee) -> tuple[Check, bool]:
    """Whether the event is the one that this design has, and has a final training besides."""
    what = "guarantee of the stated design"
    searches = [guarantee]
    if isinstance(guarantee.event, dp_event.ComposedDpEvent) and guarantee.event.events:
        # Release.with_training puts the search first.
        searches.append(replace(guarantee, event=guarantee.event.events[0]))
    for search in searches:
        if _implied(design, search).to_json() == search.to_json():
            return Check(what, True, "the same"), search is not guarantee
    return Check(what, False, "another one"), False


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


def _artifact(
    content: Mapping[str, Any], file: str | Path | None, unchecked: list[str]
) -> Iterator[Check]:
    wanted = content.get("artifact_sha256")
    if file is None:
        if wanted is not None:
            unchecked.append(f"The artifact: its file was not given; its SHA-256 is {wanted}.")
        return
    found = hashlib.sha256(_bytes_of("artifact", file)).hexdigest()
    yield Check("artifact", found == wanted, found)


def _bytes_of(argument: str, file: str | Path, most: int = -1) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            return opened.read(most)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidArgumentError(
            argument, str(file)[:200], f"it must be a file that can be read ({reason})"
        ) from error
