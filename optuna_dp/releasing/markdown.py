"""The privacy statement as a page to read, and as a sheet of questions, made of its JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import count

from optuna_dp.core.numbers_shown import rounded_down, rounded_up
from optuna_dp.core.validation import is_large_delta
from optuna_dp.core.value_types import JsonObject
from optuna_dp.evidence.assumptions import Assumption
from optuna_dp.evidence.data_description import (
    EARLIER_ROW,
    MOST_ROW,
    OLDER_ROW,
    OLDER_STUDIES,
    SAMPLING_ROW,
    UNIT_ROW,
)
from optuna_dp.evidence.facts import Fact, Part, Status, enforced
from optuna_dp.evidence.layout import counted, escaped, numbered, one_line, table, two_columns
from optuna_dp.evidence.preparation import ROW as PREPARATION_ROW
from optuna_dp.evidence.preparation import schema_section
from optuna_dp.evidence.run_kinds import RunKind
from optuna_dp.evidence.statement import SCRIPT_ROW, VOUCHED_ROWS
from optuna_dp.releasing.statement_data import MODEL_ROW

_FALSE_ALARMS = 0.05
# Above it no float holds the power of e.
_LARGEST_EXPONENT = 700.0
# How many pilots a page lists; the JSON has them all.
_SHOWN_PILOTS = 60
# Of a budget's last run, in what is released of it.
_FAILED = "it failed"
_LONGEST_VALUE = 200  # Characters.
_WORDS = {
    "record": """\
A *record* is one line of the data. *Epsilon* says how much one record can change what is released:
the smaller, the more private. *Delta* is, roughly, the probability that this bound fails. A *run*
is one training and its score. *Sensitivity* is the most that one record can change a sum before
noise is added to it. The *curator* sees the data and made this release.""",
    "client": """\
A *client* is one participant, with all of its data. *Epsilon* says how much one client can change
what is released: the smaller, the more private. *Delta* is, roughly, the probability that this
bound fails. A *run* is one training and its score. *Sensitivity* is the most that one client can
change a sum before noise is added to it. The *curator* is who made this release.""",
}
_PROTECTED = {"record": "each record", "client": "each client as a whole"}


def facts_shown(data: JsonObject) -> tuple[Fact, ...]:
    """Returns the rows of the page: what follows from the statement's numbers, and its facts.

    Args:
        data: The statement's JSON.
    """
    stored = [Fact.from_json(record) for record in data["facts"]]
    return tuple({f.name: f for f in (*_of_numbers(data), *stored, *_of_content(data))}.values())


def _assumptions(data: JsonObject) -> list[Assumption]:
    return [Assumption.from_json(record) for record in data["assumptions"]]


def _of_numbers(data: JsonObject) -> list[Fact]:
    of_data = {
        "What is protected": _protected(data),
        **_several_records(data),
        "What an attacker can tell": _detection(data),
        "What delta means": _delta(data),
    }
    of_check = {
        "By which bound": f"{METHODS.get(data['method'], data['method'])}; theorems and proofs "
        "are in docs/explanation/theorems.md of optuna-dp",
        "How tight it is": _beside_the_attack(data),
    }
    rows = {Part.DATA: of_data, Part.PUBLICATION: {"Trust": data["trust"]}, Part.CHECK: of_check}
    return [
        fact
        for part, texts in rows.items()
        for fact in enforced({name: text for name, text in texts.items() if text}, part)
    ]


def _protected(data: JsonObject) -> str:
    """Returns who is protected: a person with several records first."""
    group = data["unit_with_several_records"]
    of_record = f"{_PROTECTED[data['unit']]}: the output hardly depends on {data['protected']}"
    if group is None:
        return of_record
    return (
        f"each {escaped(one_line(group['unit']))} with all of up to {group['records']} records "
        f"({_epsilon_in_words(group['epsilon'])}), and {of_record} "
        f"({_epsilon_in_words(data['epsilon'], 4)})"
    )


def _epsilon_in_words(epsilon: float | None, places: int = 2) -> str:
    if epsilon is None:
        return "no finite epsilon is known"
    return f"epsilon {rounded_up(epsilon, places)}"


def _of_content(data: JsonObject) -> list[Fact]:
    ranges = _ranges(data["content"]["distributions"])
    return enforced({"Ranges of the parameters": ranges} if ranges else {})


def statement_markdown(data: JsonObject) -> str:
    """Returns a statement as Markdown a reviewer can read.

    Args:
        data: The statement's JSON.
    """
    facts, assumptions = facts_shown(data), _assumptions(data)
    open_points = _open_for_the_curator(facts, assumptions) + _persons(facts) + _large_delta(data)
    rows = {
        part: two_columns({fact.name: fact.text for fact in facts if fact.part is part})
        for part in Part
    }
    return f"""# Privacy statement

{_first_sentence(data, assumptions)}{_condition(facts)}

{_paragraph(_no_model(data["content"]))}{_paragraph(_road(facts))}{_earlier(data)}{open_points}

{rows[Part.DATA]}

## 1. What touched the data

{_runs(data)}

{_together(data)}

{rows[Part.RUNS]}
{schema_section(data["content"].get("spending", {}))}
## 2. How the choice was made

{rows[Part.CHOICE]}

What the software made sure of, and refuses to release otherwise:

{numbered(data["checked"])}

## 3. What may be published

{_may_and_must_not(data)}

{rows[Part.PUBLICATION]}

{data["not_covered"]}

{_values(data["content"])}
{_pilots(data["content"])}
## 4. True only if

No software can check these lines. A person who knows says *yes*, *no* or *unknown* to each.
*Unknown* counts as *no*. `optuna-dp verify FILE --questions` prints them on a sheet for the owner
of the data, with what else is open, and says what to do after a *no*.

{_lines_to_tick(assumptions)}

## 5. Who checked the number

{rows[Part.CHECK]}

{_CHECKS}

SHA-256 of the guarantee, the design and the released content: `{data["digest"]}`

Made with {_versions(data)}.

{_WHOM_IT_DEFENDS_AGAINST}

## Appendix: words

{_WORDS[data["unit"]]}

{_STATUSES_IN_WORDS}

## Appendix: the same guarantee in other measures

To add up this release with others of the same data, use `Guarantee.compose`.
{_gaussian(data)}
{_rdp_in_words(data["rdp"])}
"""


_CHECKS = table(
    ("check", "what came out", "by whom", "when"),
    [
        (check, "", "", "")
        for check in (
            "`optuna-dp verify FILE`: epsilon, tables and digest again from the release's JSON",
            "`python examples/verify_independently.py FILE`: epsilon by a program without any "
            "code of this one",
            "the release made once more from the study's storage by somebody who may see the "
            "trials: the same SHA-256",
            "`optuna-dp verify FILE --key KEY`: who signed the file",
        )
    ],
)
_STATUSES_IN_WORDS = """\
*Planned* was fixed before the first run. *Checked* was verified by the software. *Vouched for* is
the curator's word, which no software has checked. *Enforced*: the software did it. *Compared*:
code of the curator's did a part, and the row says which part the software compared or did. *Not
checked*: only the curator's word says it. Of the preparation: *by schema*, the software made
tensors of the records, by what is public; *prepared row by row*, a function of the curator's did,
and it was tried on made-up rows; *as given*, the software got ready tensors. Whoever can write the
file of this release can write all of these words. The study's storage shows whether they are true:
a release made of it once more has the same SHA-256."""


def _runs(data: JsonObject) -> str:
    """Returns a table with a column for each kind of run."""
    kinds = [RunKind.from_json(record) for record in data["runs"]]
    unit, delta = data["unit"], data["delta"]
    rows: dict[str, list[str]] = {
        "how many are charged for": [_charged_for(kind) for kind in kinds],
        "noise of a step, in clipping norms": [_number(kind.noise_multiplier) for kind in kinds],
        f"a step takes each {unit} with the chance": [_chance(kind) for kind in kinds],
        "steps": ["" if kind.steps is None else f"{kind.steps:,}" for kind in kinds],
        "noise of the score's sum, over its sensitivity of 1/2": [
            _number(kind.score_noise_multiplier) for kind in kinds
        ],
        "standard deviation of that noise in the score": [
            "" if kind.score_deviation is None else f"{kind.score_deviation:.2g}" for kind in kinds
        ],
        "in words": [kind.does if kind.steps is None else "" for kind in kinds],
        f"epsilon of one by itself, at delta = {delta:g}": [
            "no finite number" if kind.epsilon is None else rounded_up(kind.epsilon, 4)
            for kind in kinds
        ],
    }
    shown = [[name, *cells] for name, cells in rows.items() if any(cells)]
    return table(["", *(kind.name for kind in kinds)], shown)


def _charged_for(kind: RunKind) -> str:
    return "T of them, and T is secret" if kind.count is None else f"{kind.count:,}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _chance(kind: RunKind) -> str:
    if kind.batch_size is None or not kind.records:
        return ""
    share = kind.batch_size / kind.records
    return f"{share:.6g} ({kind.batch_size:,.6g} of {kind.records:,.6g})"


def _together(data: JsonObject) -> str:
    """Returns what all runs cost together, and what was planned."""
    epsilon = data["epsilon"]
    cost = "no finite epsilon" if epsilon is None else f"epsilon = {rounded_up(epsilon, 4)}"
    text = f"Together with the choice: {cost} at delta = {data['delta']:g}"
    planned = data["planned"]
    if planned is not None:
        at = "" if planned["delta"] == data["delta"] else f" at delta = {planned['delta']:g}"
        text += f". Planned was at most {planned['epsilon']:g}{at}"
    return f"{text}. A run that fails is charged like any other."


def _may_and_must_not(data: JsonObject) -> str:
    """Returns what is released beside what is not, for people who publish."""
    may = [*map(escaped, _released(data)), "this page, and the JSON that it is made of"]
    must_not = data["must_not"]
    rows = [
        [may[i] if i < len(may) else "", must_not[i] if i < len(must_not) else ""]
        for i in range(max(len(may), len(must_not)))
    ]
    return table(["may be published", "must not be published"], rows)


def _lines_to_tick(assumptions: Sequence[Assumption]) -> str:
    rows = [
        [f"{i}. {assumption.text}", "☐ yes ☐ no ☐ unknown", ""]
        for i, assumption in enumerate(assumptions, start=1)
    ]
    return table(["", "", "name, date"], rows)


def _versions(data: JsonObject) -> str:
    versions = ", ".join(f"{name} {text}" for name, text in data["versions"].items())
    return escaped(versions)


_WHOM_IT_DEFENDS_AGAINST = """\
The software defends against whoever reads the release, against faults, and against honest
mistakes. It does not defend against a program that goes around its interface on purpose."""


def questions_markdown(data: JsonObject) -> str:
    """Returns a sheet of questions to the owner of the data, with space for answers.

    It has what no software can answer: one question for each fact that nobody stated, that the
    curator stated or that nothing has checked, and one for each assumption.

    Args:
        data: The statement's JSON.
    """
    facts, assumptions = facts_shown(data), _assumptions(data)
    asked_by_assumptions = {name for assumption in assumptions for name in assumption.facts}
    vouched = [
        fact
        for fact in facts
        if fact.status in (Status.STATED, Status.NOT_CHECKED)
        and fact.name not in asked_by_assumptions
    ]
    parts = {
        "True only if": [
            f"Is it true? {assumption.text}" + (f" ({assumption.place})" * bool(assumption.place))
            for assumption in assumptions
        ],
        "Not stated": [
            _QUESTIONS.get(fact.name, f"What is to be said of *{fact.name}*? (row *{fact.name}*)")
            for fact in facts
            if fact.status is Status.NOT_STATED
        ],
        "Vouched for by the curator": [
            f'Is it right what the row *{fact.name}* says: "{one_line(str(fact.value))}"?'
            for fact in vouched
        ]
        + (
            [f"Does each of these rows fit the lines 1 to {len(assumptions)}? " + _CONTRADICTION]
            * bool(vouched)
        ),
        "Values that are released besides": [
            f"Was {escaped(name)} computed without the records, or charged for? (part *What was "
            "released*)"
            for name in data["content"]["attributes"]
            if name not in (*_WITH_OWN_PLACE, "values")
        ],
        "The file itself": [
            "Did somebody other than its author release the study once more from its storage "
            "(`optuna-dp release`, which costs nothing), with the SHA-256 above? It has to be "
            "somebody who may see the trials. Nothing else shows that the words *checked*, "
            "*enforced* and *compared* are the software's own."
        ],
    }
    numbers = count(1)
    sections = [
        f"## {heading}\n\n"
        + "\n\n".join(f"{next(numbers)}. {question}{_ANSWER}" for question in questions)
        for heading, questions in parts.items()
        if questions
    ]
    return f"""# Questions to the owner of the data

For the release with the SHA-256 `{data["digest"]}`:
{plain_guarantee(data)}.

No software can answer these questions. Rows and lines are those of the privacy statement
(`optuna-dp verify FILE --statement`), which explains their words. The first questions are its
lines under *True only if*, with the same numbers. The guarantee holds if a person who knows
answers each of them with "yes". Whoever gains by the release should not be the only one who
answers.

What the file says of the data cannot be changed after the release, so the answers on this sheet
complete it: keep the two together. Of a row that is not stated, or is wrong, the sheet says what
is right.

If a line is not confirmed, or nobody knows, do not sign. Epsilon may then be larger than
stated, or there may be no guarantee. Nothing of this release is published until the curator knows
what else was done with the records and what that costs. If nobody knows it, nothing of it can be
published.

{_BLANK_LINE.join(sections)}

The reviewer signs that each question above has an answer of a named person, and that nothing is
known which contradicts one.

Signed by the reviewer: ______________________________  Date: ______________
"""


_BLANK_LINE = "\n\n"
_CONTRADICTION = (
    "A row that says, for example, that the records were scaled by their own range, or chosen by "
    "their values, is true and contradicts one of them all the same."
)
_ANSWER = """

   Answer: ______________________________________________________________

   How it is known: _____________________________________________________

   Name: ______________________________  Date: ______________"""
# Of facts that nobody stated.
_QUESTIONS = {
    MODEL_ROW: "Which file is the model that is to be published, with its SHA-256, and is it the "
    "one that the run of this release trained? (If no model is published, say so.) (row *Model "
    "file*)",
    "Data": "Which data set is it, in which version, and how many records has it? (row *Data*)",
    "Owner of the data": "Who answers for the data? (row *Owner of the data*)",
    "Purpose": "What is the result for? (row *Purpose*)",
    UNIT_ROW: "Whose record is one record (a person's, a visit's, a transaction's)? (row *A "
    "record belongs to*)",
    MOST_ROW: "How many records may one person have at most? (row *Records of one person*; "
    "`optuna-dp verify FILE --most N` says what the guarantee is for such a person)",
    SCRIPT_ROW: "Which source files made the runs, with their SHA-256? (row *Script*)",
    EARLIER_ROW: "How many results that depend on these records were released before, by anybody "
    "(models, tables, other searches)? Their costs add to that of this one. (row *Earlier "
    "releases of these records*)",
    SAMPLING_ROW: "How were the batches really drawn: each record independently, as the "
    "statement says, or shuffled? (row *Sampling as performed*)",
}


def _first_sentence(data: JsonObject, assumptions: Sequence[Assumption]) -> str:
    """Returns what is guaranteed, and under which condition."""
    lines = f"the {counted(len(assumptions), 'line')} under *True only if*"
    whole = "That is for the whole procedure: every training run, every score and the choice."
    if data["epsilon"] is None:
        return (
            "What is released of this hyperparameter search has **no finite privacy guarantee**, "
            f"with respect to {data['protected']}. {whole}"
        )
    group = data["unit_with_several_records"]
    # Of a person the row "What is protected" says it.
    about = f", with respect to {data['protected']}" if group is None else ""
    return (
        f"What is released of this hyperparameter search is **differentially private with "
        f"{_bounds(data)}{about}, if {lines} are true. {whole}"
    )


def _no_model(content: JsonObject) -> str:
    """Returns that nothing was trained that could be published, where no run succeeded."""
    if content["params"] is None:
        return "**There is no model and no score**: no run succeeded."
    if _FAILED in (content["attributes"].get("last run") or ""):
        return (
            "**There is no model and no score**: the last run failed. What is released are its "
            "hyperparameters, and the outputs of pilots if there were any."
        )
    return ""


def _earlier(data: JsonObject) -> str:
    """Returns a paragraph on what was released of the records before, if anything was."""
    count = data["content"].get("description", {}).get("earlier_releases")
    if not count:
        return _older(data)
    return _paragraph(
        f"**{counted(count, 'earlier release')} of these records {'is' if count == 1 else 'are'} "
        "not counted in this epsilon.** `optuna-dp verify FILE --with OTHER` says what two "
        "releases cost together."
    )


def _older(data: JsonObject) -> str:
    """Returns a paragraph on older studies, where the curator names no earlier release."""
    if OLDER_STUDIES not in data["content"].get("spending", {}):
        return ""
    return _paragraph(
        f"**The storage held other private studies** when this one was made (row *{OLDER_ROW}*). "
        "The curator names no earlier release: ask what became of them."
    )


def _paragraph(text: str) -> str:
    return f"{text}\n\n" if text else ""


def _named(facts: Sequence[Fact], status: Status) -> list[str]:
    return [fact.name for fact in facts if fact.status is status]


def _condition(facts: Sequence[Fact]) -> str:
    """Returns which rows the first sentence depends on that no software has checked, if any."""
    names = _named(facts, Status.NOT_CHECKED)
    if not names:
        return ""
    return (
        "\n\n**This is true only if the curator is right** in what no software has checked: the "
        f"{'row' if len(names) == 1 else 'rows'} {', '.join(f'*{name}*' for name in names)}."
    )


def _open_for_the_curator(facts: Sequence[Fact], assumptions: Sequence[Assumption]) -> str:
    """Returns one line that names what the statement leaves to the curator."""
    parts = []
    for status in (Status.NOT_STATED, Status.NOT_CHECKED):
        names = _named(facts, status)
        if names:
            parts.append(f"{counted(len(names), 'row')} {status.value} (*{', '.join(names)}*)")
    parts.append(f"{counted(len(assumptions), 'assumption')} to confirm")
    return f"**Open for the curator:** {', '.join(parts)}."


def plain_open_points(data: JsonObject) -> str:
    """Returns what the statement leaves open and what speaks against it, without Markdown.

    Args:
        data: The statement's JSON.
    """
    text = _open_for_the_curator(facts_shown(data), _assumptions(data)) + _large_delta(data)
    return text.replace("**", "").replace("*", "").replace("\n\n", " ")


def _persons(facts: Sequence[Fact]) -> str:
    """Returns what a reader has to know if it is open how many records a person may have."""
    if MOST_ROW not in _named(facts, Status.NOT_STATED):
        return ""
    return (
        "\n\n**One record may not be one person.** The curator has not said how many records one "
        "person may have. Whoever has several is protected less: for k records of one person "
        "epsilon is k times as large, or more (`optuna-dp verify FILE --most k` computes it)."
    )


def _large_delta(data: JsonObject) -> str:
    """Returns what a reader has to know of a delta that promises nothing."""
    records, delta = data["protected_records"], data["delta"]
    if records is None or not is_large_delta(delta, records):
        return ""
    return (
        f"\n\n**Delta is too large.** Times the {records:,} protected records it is "
        f"{delta * records:.2g}, and it should be at most a tenth. Publishing one record "
        "as it is would satisfy a delta of one over their number."
    )


def _road(facts: Sequence[Fact]) -> str:
    """Returns what the whole road is worth, from the records as they came to the released score.

    Args:
        facts: The statement's facts. Empty text if they say nothing of trainings.
    """
    statuses = {fact.name: fact.status for fact in facts}
    if "Training" not in statuses:
        return ""
    preparation = statuses.pop(PREPARATION_ROW, Status.NOT_CHECKED)
    parts = {statuses.get(name, Status.ENFORCED) for name in ("Training", "Score")}
    is_done_here = parts == {Status.ENFORCED} and not set(VOUCHED_ROWS) & statuses.keys()
    if preparation is Status.NOT_CHECKED:
        then = (
            "From the tensors on the software did everything itself"
            if is_done_here
            else "What came after stands in the rows *Training* and *Score*"
        )
        return (
            "**From ready-made tensors on.** How the records became tensors is *as given*: the "
            "curator's word. A scaler, an encoder or a filling of gaps that was fitted on the "
            f"records is not in this epsilon. {then}."
        )
    if not is_done_here:
        return (
            "**The software prepared the records, and did not do all that followed.** The rows "
            f"*{PREPARATION_ROW}*, *Training* and *Score* say which part it did."
        )
    if preparation is Status.ENFORCED:
        return (
            "**The whole road is enforced**, from the table as it was given to the score: the "
            "software encoded each record by what is public, trained and scored."
        )
    return (
        "**The whole road is enforced, but for a function of the curator's** that prepared the "
        "rows. It was tried on made-up rows, and prepared each by itself."
    )


def _beside_the_attack(data: JsonObject) -> str:
    attack, epsilon = data["attack"], data["epsilon"]
    if not attack:
        return ""
    attack_words = (
        f"for some runs and scores of this cost epsilon is at least {rounded_down(attack, 4)}. "
        "This was calculated; nobody attacked this release"
    )
    if epsilon is None:
        return attack_words
    return f"the guarantee is {_excess(epsilon / attack - 1)} above what must be: {attack_words}"


def _excess(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.0005 else "less than 0.1 %"


def _bounds(data: JsonObject) -> str:
    """Returns the bound for each person first, if one may have several records."""
    group, delta = data["unit_with_several_records"], f"delta = {data['delta']:g}"
    for_a_record = f"epsilon = {rounded_up(data['epsilon'], 4)}"
    if group is None:
        return f"{for_a_record} and {delta}**"
    epsilon = group["epsilon"]
    bound = "no finite epsilon" if epsilon is None else f"epsilon = {rounded_up(epsilon)}"
    unit = one_line(group["unit"])
    return (
        f"{bound} and {delta} for each {unit}** with\nup to {group['records']} records, and with "
        f"{for_a_record} for a {unit} with one record"
    )


def plain_guarantee(data: JsonObject) -> str:
    """Returns the guarantee for a unit with several records and for one, without Markdown."""
    stated = (
        f"epsilon = {rounded_up(data['epsilon'], 4)} at delta = {data['delta']:g}, for "
        f"{data['protected']}"
    )
    group = data["unit_with_several_records"]
    if group is None:
        return stated
    epsilon = group["epsilon"]
    bound = "no finite epsilon is known" if epsilon is None else f"epsilon = {rounded_up(epsilon)}"
    unit = one_line(group["unit"])
    return (
        f"{bound} at delta = {data['delta']:g} for one {unit} with up to {group['records']} "
        f"records; {stated}"
    )


def _detection(data: JsonObject) -> str:
    """How often a present record is detected, and how much better than guessing that is."""
    risks = data["attack_risks"]
    rates = dict(zip(risks["false_positive_rates"], risks["true_positive_rates"], strict=True))
    right = rounded_up(50 + 50 * risks["advantage"], 1)
    return (
        f"suppose that an attacker knows everything except whether a given {data['unit']} is in "
        f"the data, and is wrong for at most {100 * _FALSE_ALARMS:.0f} % of absent ones (false "
        "alarms). Then the attacker detects a present one in at most "
        f"{rounded_up(100 * rates[_FALSE_ALARMS], 1)} % of cases (guessing detects "
        f"{100 * _FALSE_ALARMS:.0f} %). If half of the {data['unit']}s in question are in the "
        f"data, the attacker is right in at most {right} % of cases (guessing: 50 %)"
        f"{_detection_of_a_person(data)}"
    )


def _detection_of_a_person(data: JsonObject) -> str:
    """How often a person with several records is detected: a part of a sentence, or nothing.

    Of a test of two outputs that are (epsilon, delta)-indistinguishable, false alarms a and missed
    cases b have a + e^epsilon b >= 1 - delta and b + e^epsilon a >= 1 - delta.
    """
    group, delta = data["unit_with_several_records"], data["delta"]
    if group is None or group["epsilon"] is None:
        return ""
    factor = math.exp(min(group["epsilon"], _LARGEST_EXPONENT))
    detected = min(
        delta + factor * _FALSE_ALARMS, 1.0 - (1.0 - delta - _FALSE_ALARMS) / factor, 1.0
    )
    unit, most = escaped(one_line(group["unit"])), group["records"]
    return (
        f". That is for one record. All of up to {most} records of a {unit} together are detected "
        f"in at most {rounded_up(100 * detected, 1)} % of cases"
    )


def _delta(data: JsonObject) -> str:
    records = data["protected_records"]
    chance = f"the bound by epsilon fails with a probability of roughly {data['delta']:g}"
    if records is None:
        return f"{chance}. It should be far below one over the number of {data['unit']}s"
    times = f"times the number of {data['unit']}s that is {data['delta'] * records:.2g}"
    return f"{chance}; {times} (it should be far below 1)"


def _gaussian(data: JsonObject) -> str:
    gaussian_dp = data["gaussian_dp"]
    if gaussian_dp["mu"] is None:
        return ""
    mu = rounded_up(gaussian_dp["mu"], 3)
    unit = f"{data['unit']} as a whole" if data["unit"] == "client" else data["unit"]
    return f"""
**In one number:** {mu}. To find out whether a {unit} is in the data is at least as hard as to tell
from one draw which of two normal distributions it came from. Both have variance one, and their
means are {mu} apart. (In papers: {mu}-Gaussian-DP, up to {gaussian_dp["tail"]:g} more chance of
being right.) One number has to hold for all tests at once, so it says less than the guarantee
above.
"""


def _several_records(data: JsonObject) -> dict[str, str]:
    group = data["unit_with_several_records"]
    if group is None:
        return {}
    epsilon = group["epsilon"]
    bound = "no finite epsilon is known" if epsilon is None else f"epsilon {rounded_up(epsilon)}"
    return {
        "Who has several records": f"{bound} at delta = {data['delta']:g} for all of up to "
        f"{group['records']} records together (group privacy)"
    }


def _ranges(distributions: Mapping[str, JsonObject]) -> str:
    """The search space as far as it is released: the ranges of the released parameters."""
    return "; ".join(
        f"{escaped(name)}: {range_in_words(record)}" for name, record in distributions.items()
    )


def range_in_words(record: JsonObject) -> str:
    """Returns the range of one parameter in words, from the JSON of its distribution."""
    about = record["attributes"]
    if "choices" in about:
        return f"one of {escaped(', '.join(map(repr, about['choices'])))}"
    step = f", in steps of {about['step']:g}" if about.get("step") not in (None, 1) else ""
    scale = ", on a logarithmic scale" if about.get("log") else ""
    kind = "whole numbers " if record["name"] == "IntDistribution" else ""
    return f"{kind}{about['low']:g} to {about['high']:g}{step}{scale}"


def _released(data: JsonObject) -> list[str]:
    """Returns names of what is released; pilots by their number."""
    pilots = len(data["content"]["attributes"].get("pilots") or ())
    words = {"attribute 'pilots'": f"the outputs of {counted(pilots, 'pilot')}" if pilots else ""}
    return [words.get(name, name) for name in data["released"] if words.get(name, name)]


def _values(content: JsonObject) -> str:
    if content["params"] is None:
        return "No run succeeded, so nothing was chosen."
    score = {} if content["value"] is None else {"score": content["value"]}
    other_attributes = {n: v for n, v in content["attributes"].items() if n not in _WITH_OWN_PLACE}
    rows = {
        escaped(str(name)): escaped(_shortened(repr(value)))
        for name, value in (content["params"] | score | other_attributes).items()
    }
    if content["artifact_sha256"] is not None:
        rows["model file"] = f"SHA-256 {content['artifact_sha256']}"
    if not rows:
        return "No hyperparameters and no score."
    return two_columns(rows, ("released", "value"))


# Attributes that the page shows elsewhere.
_WITH_OWN_PLACE = ("pilots", "last run", "not covered")


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}... (see the JSON)"


def _pilots(content: JsonObject) -> str:
    """Returns a section on the outputs of pilots; empty if none are released."""
    pilots = content["attributes"].get("pilots") or ()
    if not pilots:
        return ""
    names = list(dict.fromkeys(name for pilot in pilots for name in pilot["params"] or {}))
    heads = ["pilot", "rung", *map(escaped, names), "score", "ended"]
    lines = []
    for number, pilot in enumerate(pilots[:_SHOWN_PILOTS], start=1):
        params = [escaped(repr(pilot["params"][n])) if n in pilot["params"] else "" for n in names]
        scores = ", ".join(repr(value) for value in pilot["values"] or ()) or "none"
        end = _ENDS.get(pilot["state"], escaped(pilot["state"].lower()))
        lines.append([str(number), str(pilot["rung"] + 1), *params, scores, end])
    unlisted_count = len(pilots) - _SHOWN_PILOTS
    more = f"\nThe other {unlisted_count} are in the JSON.\n" if unlisted_count > 0 else ""
    return f"""
## What was released of the pilots

These are the runs before the last one. All of them are charged for in the guarantee, those that
failed too. Their models are not released.

{table(heads, lines)}
{more}"""


_ENDS = {"COMPLETE": "with a score", "FAIL": "failed", "PRUNED": "pruned"}


def _rdp_in_words(rdp: JsonObject) -> str:
    if not any(value is not None for value in rdp["epsilons"]):
        return "**Rényi differential privacy:** no such bound is known for this release."
    pairs = zip(rdp["orders"], rdp["epsilons"], strict=True)
    rows = {f"{order:g}": rounded_up(value, 4) for order, value in pairs}
    return f"""\
**Rényi differential privacy**, for reviewers who use it. Converted to epsilon and delta, this
table is looser than the guarantee above.

{two_columns(rows, ("order", "epsilon"))}"""


METHODS = {
    "data_profile": "privacy-profile bound of selection (theorem 1)",
    "rank_profile": "privacy-profile bound of selection by ranks of outputs (theorem 12)",
    "all_runs": "composition of all runs that there may be (theorem 7)",
    "history_profile": "privacy-profile bound for policies that see private outputs only "
    "(theorems 2 and 3)",
    "rdp": "Rényi differential privacy of selection (theorem 9)",
    "pure": "pure differential privacy",
    "profile": "composition of privacy loss distributions (theorem 7)",
}
