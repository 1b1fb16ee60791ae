"""The privacy statement as a page to read, made of its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

from optuna_dp.numbers_shown import rounded_down, rounded_up

_FALSE_ALARMS = 0.05
_NOT_CHECKED = "not checked"
_PROTECTED = {"record": "each record", "client": "each client as a whole"}


def statement_markdown(data: dict[str, Any], facts: dict[str, str]) -> str:
    """Returns a statement as Markdown a reviewer can read.

    ``facts`` are more rows of its table: on the procedure, and what the curator says of the data.
    """
    epsilon = rounded_up(data["epsilon"], 4)
    promise = (
        "has **no finite privacy guarantee**"
        if data["epsilon"] is None
        else f"is **differentially private with epsilon = {epsilon} and "
        f"delta = {data['delta']:g}**{_for_all_records(data)}"
    )
    rows = {
        "What is protected": f"{_PROTECTED[data['unit']]}: the output hardly depends on "
        f"{data['protected']}",
        "Guarantee": f"epsilon = {epsilon} at delta = {data['delta']:g}",
        "Accounting": METHODS.get(data["method"], data["method"]),
        "How tight it is": _beside_the_attack(data),
        "What an attacker can tell": _detection(data),
        "What delta means": _delta(data),
        "In one number": _gaussian(data),
        **_several_records(data),
        "Trust": data["trust"],
        **facts,
        "Ranges of the parameters": _ranges(data["content"]["distributions"]),
        "What is released": ", ".join(data["released"]),
        "Model file": _model(data["content"]["artifact_sha256"]),
    }
    rows = {name: text for name, text in rows.items() if text}
    table = two_columns(rows)
    versions = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    return f"""# Privacy statement

The released output of this hyperparameter search {promise},
with respect to {data["protected"]}. The guarantee is for the whole procedure: every training run,
every score and the choice among them.{_condition(rows)}

{_open_for_the_curator(rows, data["assumptions"])}{_persons(data, rows)}

*Planned* was fixed before the first run. *Checked* was verified by the software, and *vouched for*
is the curator's word, which no software has checked. Of trainings and scores three words are used.
*Enforced*: the software did it. *Compared*: other code did it, and what its accountant recorded
was compared with the plan. *Not checked*: nothing shows it but the curator's word.

{table}

## What it depends on

What the software checked (otherwise it refuses the release):

{numbered(data["checked"])}

What the software cannot check, and the curator must confirm:

{numbered(data["assumptions"])}

## What is covered, and what is not

{data["not_covered"]}

## Rényi differential privacy of the release

{_rdp_in_words(data["rdp"])}

## What was released, and how to check this page

{_values(data["content"])}

This page is made from the release's JSON. `optuna-dp verify FILE` (or `optuna_dp.verify`)
computes epsilon, the tables and the digest again from that JSON, without the data and without
the study, and says what remains to be believed.

SHA-256 of the guarantee, the design and the released content: `{data["digest"]}`

Made with {versions}. Nobody outside the project has reviewed this software yet.
"""


def _condition(rows: Mapping[str, str]) -> str:
    """Returns which rows the first sentence depends on that no software has checked, if any."""
    names = [name for name, text in rows.items() if _NOT_CHECKED in name or _NOT_CHECKED in text]
    if not names:
        return ""
    row_names = (
        f"{'row' if len(names) == 1 else 'rows'} {', '.join(f'*{name}*' for name in names)}"
    )
    return (
        "\n\n**This is true only if the curator is right** in what no software has checked: the "
        f"{row_names}."
    )


def _open_for_the_curator(rows: Mapping[str, str], assumptions: Sequence[str]) -> str:
    """Returns one line that names what the statement leaves to the curator."""
    parts = []
    for mark in ("not stated", _NOT_CHECKED):
        names = [name for name, text in rows.items() if mark in text]
        if names:
            heads = f"{len(names)} {'row' if len(names) == 1 else 'rows'} {mark}"
            parts.append(f"{heads} (*{', '.join(names)}*)")
    promises = len(assumptions)
    parts.append(f"{promises} {'promise' if promises == 1 else 'promises'} to confirm")
    return f"**Open for the curator:** {', '.join(parts)}."


def _persons(data: Mapping[str, Any], rows: Mapping[str, str]) -> str:
    """Returns what a reader has to know if it is open how many records a person may have."""
    if data["unit"] != "record" or "not stated" not in rows.get("A record belongs to", ""):
        return ""
    return (
        "\n\n**One record may not be one person.** The curator has not said how many records one "
        "person may have. Whoever has several is protected less. For k records of one person the "
        "bound is k times epsilon, or more."
    )


def numbered(sentences: Sequence[str]) -> str:
    """Returns a numbered list in Markdown."""
    return "\n".join(f"{i}. {text}" for i, text in enumerate(sentences, start=1))


def _beside_the_attack(data: dict[str, Any]) -> str:
    attack, epsilon = data["attack"], data["epsilon"]
    if not attack:
        return ""
    attack_words = (
        f"for some runs and scores of this cost epsilon is at least {rounded_down(attack, 4)}, by "
        "an attack that was computed and not made on this release"
    )
    if epsilon is None:
        return attack_words
    return f"{attack_words} (the guarantee is {100 * (epsilon / attack - 1):.1f} % above that)"


def _for_all_records(data: dict[str, Any]) -> str:
    group = data["unit_with_several_records"]
    if group is None:
        return ""
    epsilon = group["epsilon"]
    bound = "no finite epsilon" if epsilon is None else f"epsilon = {rounded_up(epsilon)}"
    return f" for one record, and {bound} for one {_person(data)} with {group['records']} records"


def _person(data: dict[str, Any]) -> str:
    return str(data["content"].get("description", {}).get("unit") or "person")


def _detection(data: dict[str, Any]) -> str:
    """How often a present record is detected, by the Gaussian trade-off that bounds all tests."""
    mu, tail = data["gaussian_dp"]["mu"], data["gaussian_dp"]["tail"]
    if mu is None:
        return ""
    normal = NormalDist()
    power = min(normal.cdf(normal.inv_cdf(_FALSE_ALARMS) + mu) + tail, 1.0)
    unit = _PROTECTED[data["unit"]].removeprefix("each ").removesuffix(" as a whole")
    return (
        f"suppose that an attacker knows everything except whether a given {unit} is in the "
        f"data, and is wrong for at most {100 * _FALSE_ALARMS:.0f} % of absent ones (false "
        "alarms). Then the attacker detects a present one in at most "
        f"{rounded_up(100 * power, 1)} % of cases "
        f"(guessing detects {100 * _FALSE_ALARMS:.0f} %)"
    )


def _delta(data: dict[str, Any]) -> str:
    records = data["content"].get("description", {}).get("records")
    chance = f"the bound by epsilon fails with a probability of roughly {data['delta']:g}"
    if records is None:
        return f"{chance}. It should be far below one over the number of records"
    times = f"times the number of records that is {data['delta'] * records:.2g}"
    return f"{chance}; {times} (it should be far below 1)"


def _gaussian(data: dict[str, Any]) -> str:
    gaussian_dp = data["gaussian_dp"]
    if gaussian_dp["mu"] is None:
        return ""
    mu = rounded_up(gaussian_dp["mu"], 3)
    unit = _PROTECTED[data["unit"]].removeprefix("each ")
    return (
        f"{mu}. To find out whether a {unit} is in the data is at least as hard as to tell from "
        "one draw which of two normal distributions it came from. Both have variance one, and "
        f"their means are {mu} apart. (In papers: {mu}-Gaussian-DP, up to {gaussian_dp['tail']:g} "
        "more chance of being right.)"
    )


def _several_records(data: dict[str, Any]) -> dict[str, str]:
    group = data["unit_with_several_records"]
    if group is None:
        return {}
    epsilon = group["epsilon"]
    bound = "no finite epsilon is known" if epsilon is None else f"epsilon {rounded_up(epsilon)}"
    return {
        "Who has several records": f"{bound} at delta = {data['delta']:g} for all of up to "
        f"{group['records']} records together (group privacy)"
    }


def _ranges(distributions: Mapping[str, Any]) -> str:
    """The search space as far as it is released: the ranges of the released parameters."""
    words = []
    for name, record in distributions.items():
        about = record["attributes"]
        if "choices" in about:
            words.append(f"{name}: one of {', '.join(map(repr, about['choices']))}")
            continue
        step = f", in steps of {about['step']:g}" if about.get("step") not in (None, 1) else ""
        scale = ", on a logarithmic scale" if about.get("log") else ""
        kind = "whole numbers " if record["name"] == "IntDistribution" else ""
        words.append(f"{name}: {kind}{about['low']:g} to {about['high']:g}{step}{scale}")
    return "; ".join(words)


def _model(sha256: str | None) -> str:
    if sha256 is None:
        return "no file is named (optuna_dp.release(artifact_store=) names one by its SHA-256)"
    return f"checked: the one whose SHA-256 is {sha256}"


def _values(content: Mapping[str, Any]) -> str:
    if content["params"] is None:
        return "No run succeeded, so nothing was chosen."
    score = {} if content["value"] is None else {"score": content["value"]}
    rows = {str(name): repr(value) for name, value in (content["params"] | score).items()}
    return two_columns(rows, "| released | value |")


def _rdp_in_words(rdp: dict[str, Any]) -> str:
    if not any(value is not None for value in rdp["epsilons"]):
        return (
            "No such bound is known for this search and this distribution of the number of\n"
            "runs. To compose this release with others, use `Guarantee.compose`."
        )
    pairs = zip(rdp["orders"], rdp["epsilons"], strict=True)
    rows = {f"{order:g}": rounded_up(value, 4) for order, value in pairs}
    return f"""\
For reviewers who use Rényi accounting. Converted to epsilon and delta, this table is looser than
the guarantee above. To compose this release with others, use `Guarantee.compose`.

{two_columns(rows, "| order | epsilon |")}"""


METHODS = {
    "data_profile": "privacy-profile bound of selection",
    "rank_profile": "privacy-profile bound of selection by ranks of outputs",
    "all_runs": "composition of all runs that there may be",
    "history_profile": "privacy-profile bound for policies that see private outputs only",
    "rdp": "Rényi differential privacy of selection",
    "pure": "pure differential privacy",
    "profile": "privacy loss distributions",
}


def two_columns(rows: Mapping[str, str], heads: str = "| | |") -> str:
    """Returns a table in Markdown."""
    lines = [f"| {_cell(name)} | {_cell(text)} |" for name, text in rows.items()]
    return "\n".join([heads, "|---|---|", *lines])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
