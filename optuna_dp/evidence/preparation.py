"""What a statement says of how records became tensors, and of whose records they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optuna_dp.core.value_types import JsonObject, JsonValue
from optuna_dp.errors import OptunaDPError
from optuna_dp.evidence.assumptions import BEFORE_THE_RUNS, Assumption
from optuna_dp.evidence.data_description import MOST_ROW, UNIT_ROW
from optuna_dp.evidence.facts import Fact, Part, Status, weakest
from optuna_dp.evidence.layout import escaped, two_columns
from optuna_dp.training.prepared import AS_GIVEN, BY_ROW, BY_SCHEMA, WORDS

ROW = "Preparation"
_SENTENCES = {
    BY_SCHEMA: "by schema: this package made the tensors by the public ranges and lists below, "
    "without any statistic of the records",
    BY_ROW: "prepared row by row (tried on made-up rows): a function of the curator's made the "
    "tensors. Each made-up row gave alone what it gave among others",
    AS_GIVEN: "as given: how the tensors were made is the curator's word",
}
_STATUSES = {
    BY_SCHEMA: Status.ENFORCED,
    BY_ROW: Status.COMPARED,
    AS_GIVEN: Status.NOT_CHECKED,
}
_PUBLIC_SCHEMA = (
    Assumption(
        "Every range and every list under *What was said to be public about the records* was "
        "fixed without looking at these records.",
        f"row *{ROW}*",
    ),
    Assumption(
        "The table that was encoded held the records as they came: nothing in it was scaled, "
        "filled in or repeated, and no row or column was chosen, by what is in several of them.",
        f"row *{ROW}*",
    ),
)
_OUTSIDE = Assumption(
    "What the function that prepared rows holds from outside was made without these records.",
    f"row *{ROW}*",
)


def words_of(spending: JsonObject) -> set[str]:
    """Returns which of the three words are true of some run; "as given" where nothing is known."""
    words = spending.get("preparation")
    if isinstance(words, Mapping):
        return {word for word in words if word in WORDS} or {AS_GIVEN}
    return {words} if words in WORDS else {AS_GIVEN}


def preparation_fact(spending: JsonObject) -> list[Fact]:
    """Returns how the records became tensors; nothing where no run has a word on it.

    Args:
        spending: What is known of runs, as releases have it.
    """
    counts = spending.get("preparation")
    if isinstance(counts, Mapping):
        runs = spending.get("runs")
        text = "; ".join(
            f"{_SENTENCES[kind]} ({counts[kind]} of {runs} runs)"
            for kind in WORDS
            if kind in counts
        )
        status = weakest(_STATUSES[kind] for kind in words_of(spending))
    elif counts in WORDS:  # The number of runs is secret, so all of them have one word.
        text, status = f"{_SENTENCES[counts]}, in every run", _STATUSES[counts]
    else:
        return []
    notes = _notes(spending)
    if notes.get("word") == BY_ROW:
        outside = ", ".join(map(str, notes.get("outside") or ())) or "nothing"
        text += (
            f". The function of the released run is {escaped(str(notes.get('function')))}. It "
            f"holds from outside: {escaped(outside)}"
        )
        text += "; how that was made is the curator's word" if notes.get("outside") else ""
    return [Fact(ROW, text, status, Part.RUNS)]


def assumptions_of(spending: JsonObject) -> tuple[Assumption, ...]:
    """Returns what a person has to confirm of the preparation."""
    words = words_of(spending)
    return (
        *(BEFORE_THE_RUNS if AS_GIVEN in words else ()),
        *(_PUBLIC_SCHEMA if words != {AS_GIVEN} else ()),
        *((_OUTSIDE,) if BY_ROW in words or _notes(spending).get("word") == BY_ROW else ()),
    )


def schema_section(spending: JsonObject) -> str:
    """Returns the table of what was said to be public; empty if there is no schema.

    Raises:
        OptunaDPError: If the notes hold no schema of this package.
    """
    notes = _notes(spending)
    parts = []
    for noun, data in (("column", notes.get("schema")), ("prepared column", notes.get("then"))):
        if data is not None:
            # Lazy: only statements about records with a schema need it.
            from optuna_dp.preparation.schema import Schema

            words = Schema.from_json(data).words().items()
            rows = {escaped(name): escaped(text) for name, text in words}
            parts.append(two_columns(rows, (noun, "what was said to be public")))
    if not parts:
        return ""
    tables = "\n\n".join(parts)
    return f"\n## What was said to be public about the records\n\n{tables}\n"


def contradiction(spending: JsonObject) -> str:
    """Returns why no study can have this preparation; empty if one can."""
    words, stated = words_of(spending), spending.get("preparation")
    if not words.issuperset({stated} if isinstance(stated, str) else stated or ()):
        return "no record is prepared as it is said"
    if _notes(spending).get("word", min(words)) not in words:
        return (
            "the released run's records are said to be prepared otherwise than those of all runs"
        )
    person, schema = spending.get("person"), _notes(spending).get("schema")
    if person is not None and isinstance(schema, Mapping) and person != _person_in(schema):
        return "records of a person are said to be bounded otherwise than in the schema"
    if words == {AS_GIVEN} and not _notes(spending).get("schema"):
        return ""
    try:
        section = schema_section(spending)
    except OptunaDPError as error:
        return f"its schema is none: {error}"
    return "" if section or AS_GIVEN in words else "records were prepared by a schema, and none is"


def persons(content: JsonObject) -> tuple[str | None, int | None]:
    """Returns whose record a record is, and how many one has at most; None where not known.

    Args:
        content: What is released, with what is known of the runs and what the curator said.
    """
    description = content.get("description", {})
    person = _person(content)
    if person is not None:
        return str(person["unit"]), person["most"]
    return description.get("unit"), description.get("most")


def person_facts(content: JsonObject) -> list[Fact]:
    """Returns whose record a record is, where the software used no more records of a person.

    They take the place of what the curator said.
    """
    person = _person(content)
    if person is None:
        return []
    unit, most = persons(content)
    described_unit = content.get("description", {}).get("unit")
    words = f"enforced: one {escaped(str(unit))}"
    if described_unit not in (None, unit):
        words += f". In the curator's words: one {escaped(str(described_unit))}"
    return [
        Fact(UNIT_ROW, words, Status.ENFORCED, Part.DATA),
        Fact(MOST_ROW, f"enforced: {most} of each at most were used", Status.ENFORCED, Part.DATA),
    ]


def _person(content: JsonObject) -> JsonObject | None:
    person = content.get("spending", {}).get("person")
    return person if isinstance(person, Mapping) else None


def person_of(prepared: Sequence[JsonObject]) -> dict[str, JsonValue]:
    """Returns the bound on the records of a person that every run has kept, as JSON.

    Args:
        prepared: What is known of the preparation of each run.
    """
    persons = [_person_in(notes.get("schema") or {}) for notes in prepared]
    is_one = all(person == persons[0] for person in persons)
    return {"person": persons[0]} if persons and is_one and persons[0]["most"] is not None else {}


def _person_in(schema: JsonObject) -> JsonObject:
    """Returns whose records a schema bounds, and by how many; None where it does not say it."""
    return {"unit": schema.get("unit"), "most": schema.get("most")}


def _notes(spending: JsonObject) -> JsonObject:
    notes = spending.get("prepared")
    return notes if isinstance(notes, Mapping) else {}


def _of_release(spending: JsonObject) -> str:
    word = _notes(spending).get("word")
    return word if word in WORDS else AS_GIVEN
