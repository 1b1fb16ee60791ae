"""The files that a guarantee rests on, by procedure. ``python tests/trusted_base.py`` lists them.

With ``--write`` it also brings the counts in docs/explanation/trusted-base.md up to date.

They are found by following imports, those inside functions included, from the sampler that draws
the runs and the release that judges them. Attacks, comparisons with the bounds of others,
planning, figures and the command line are not among them, and no file among them may import one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from import_graph import code_lines, file_of, imports, neighbours

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "trusted-base.md"

# Where each procedure begins: what draws its runs, and what judges them. The procedure's file
# under releasing/procedures is named in a study's plan and loaded by that name.
_RELEASE = "releasing/make_release.py"
# Laws of T are named in the plan as well, and loaded by that name. Every procedure is counted with
# the default law; the others stand by themselves.
_GEOMETRIC = "trial_counts/negative_binomial.py"


def _procedure(name: str) -> str:
    return f"releasing/procedures/{name}.py"


def _kind(name: str) -> str:
    """Kinds of events are named in a record as well, and loaded by that name."""
    return f"accounting/kinds/{name}.py"


STARTS: dict[str, tuple[str, ...]] = {
    "private selection": (
        "samplers/rand_tune.py",
        _GEOMETRIC,
        _procedure("private_selection"),
        _RELEASE,
    ),
    "another law of T": (
        "samplers/rand_tune.py",
        *(
            f"trial_counts/{law}.py"
            for law in ("binomial", "capped", "logarithmic", "once", "poisson")
        ),
        _procedure("private_selection"),
        _RELEASE,
    ),
    "runs known in part": (
        "samplers/rand_tune.py",
        "accounting/opacus.py",
        *map(_kind, ("approximate", "curve", "worst_case")),
        _procedure("private_selection"),
        _RELEASE,
    ),
    "what seldom happens": (
        "samplers/rand_tune.py",
        _GEOMETRIC,
        _procedure("private_selection"),
        _RELEASE,
    ),
    "with density bounds": (
        "samplers/dp_hypo.py",
        _procedure("private_selection"),
        _RELEASE,
    ),
    "pilots": (
        "samplers/pilots.py",
        _procedure("pilots_then_selection"),
        _RELEASE,
    ),
    "with a budget": (
        "samplers/pilots.py",
        _procedure("budgeted_runs"),
        _RELEASE,
    ),
    "choice among utilities": (
        "samplers/noisy_max.py",
        *map(_kind, ("approximate", "bounded_range")),
        _procedure("utility_choice"),
        _RELEASE,
    ),
    "doubling": (
        "samplers/propose_test.py",
        _kind("approximate"),
        _procedure("utility_choice"),
        _RELEASE,
    ),
    "votes": (
        "federated/client.py",
        "federated/server.py",
        _kind("per_client"),
        "releasing/release.py",
    ),
}

# Imports inside functions that some procedures never come to: a file, what it imports, and the
# procedures that do come to it; IN_WORDS stands for every procedure's statement. A test runs each
# procedure and looks at what was loaded.
IN_WORDS = "statement"
_WITH_DENSITIES = ("with density bounds", "pilots")
_HISTORY = "accounting/selection/history_only.py"
_RENYI = "accounting/selection/renyi.py"
_RENYI_METHOD = "accounting/renyi_method.py"
_KNOWN_IN_PART = ("runs known in part",)
_OTHER_LAWS = ("another law of T",)
_SELDOM = ("what seldom happens",)
_BY_CURVE = (*_OTHER_LAWS, *_KNOWN_IN_PART, "choice among utilities")
DOORS: dict[tuple[str, str], tuple[str, ...]] = {
    ("accounting/epsilon_methods.py", _HISTORY): _WITH_DENSITIES,
    ("accounting/epsilon_methods.py", _RENYI_METHOD): (*_BY_CURVE, IN_WORDS),
    ("accounting/guarantee.py", "accounting/gaussian_dp.py"): (IN_WORDS,),
    ("accounting/guarantee.py", "accounting/rdp_curves.py"): (IN_WORDS,),
    ("accounting/guarantee.py", "accounting/run_rdp.py"): (IN_WORDS,),
    ("accounting/guarantee.py", _kind("per_client")): ("votes",),
    ("accounting/guarantee.py", _kind("started")): ("with density bounds",),
    ("accounting/run_profile.py", "accounting/known_bounds.py"): _KNOWN_IN_PART,
    ("accounting/run_profile.py", "accounting/sampled_pairs.py"): ("with a budget",),
    ("accounting/run_profile.py", "accounting/selection/as_part.py"): (
        "pilots",
        *_KNOWN_IN_PART,
        *_SELDOM,
    ),
    ("accounting/run_profile.py", _kind("bounded_range")): ("choice among utilities",),
    ("accounting/selection/as_part.py", _HISTORY): ("pilots",),
    (_RENYI, "accounting/selection/renyi_poisson.py"): _OTHER_LAWS,
    (_RENYI, "trial_counts/poisson.py"): _OTHER_LAWS,
    ("accounting/dominating_pairs.py", "accounting/pair_epsilon.py"): ("choice among utilities",),
    ("protocol/plan.py", "protocol/plan_of_version_1.py"): _SELDOM,
    ("protocol/shared_plan.py", "protocol/succession.py"): _SELDOM,
    ("releasing/evidence.py", "releasing/startup_evidence.py"): ("with density bounds",),
    ("releasing/make_release.py", "releasing/artifacts.py"): _SELDOM,
    ("releasing/make_release.py", "releasing/runs_told.py"): _SELDOM,
    ("releasing/release.py", "releasing/with_training.py"): _SELDOM,
    ("trial_counts/negative_binomial.py", "trial_counts/other_shapes.py"): _OTHER_LAWS,
}

# What says in words what is guaranteed. No guarantee rests on it, and readers do, so it is trusted
# and counted by itself.
WORDS = ("accounting/event_words.py", "differences.py")
STATEMENTS = "releasing/statements/"
_STATEMENT_OF = {
    "with density bounds": "private_selection",
    "pilots": "pilots_then_selection",
    "with a budget": "budgeted_runs",
    "choice among utilities": "utility_choice",
    "doubling": "utility_choice",
    "votes": "vote",
}

# What nobody relies on: it may be wrong, and no released epsilon is smaller for it.
UNTRUSTED = (
    "accounting/attacks/",
    "accounting/comparisons/",
    "accounting/discretisation.py",
    "accounting/reading_points.py",
    "callbacks.py",
    "cli/",
    "dashboard.py",
    "describing.py",
    "digits.py",
    "exact_values.py",
    "federated/",
    "notebook.py",
    "planning/",
    "protocol/retries.py",
    "publishing.py",
    "registry.py",
    "releasing/openness.py",
    "reminders.py",
    "testing/",
    "verification.py",
    "visualization/",
)

# What a budget pays for: data, which the release reads and the accounting judges.
PLANS_OF_STUDIES = ("planning/budget_plan.py", "planning/fidelity.py")
# The guarantee of a vote rests on what the clients send, so these are its own.
OF_VOTES = "federated/"


def is_untrusted(file: str, procedure: str) -> bool:
    """Whether nobody relies on a file."""
    if file in PLANS_OF_STUDIES:
        return False
    return file.startswith(UNTRUSTED) and not (procedure == "votes" and file.startswith(OF_VOTES))


def statement(procedure: str) -> list[str]:
    """The files that its statement rests on besides the guarantee's."""
    words = _STATEMENT_OF.get(procedure, "private_selection")
    start = (f"{STATEMENTS}{words}.py", f"{STATEMENTS}of_release.py")
    return sorted(set(_closure(procedure, start, words=True)) - set(trusted(procedure)))


def trusted(procedure: str) -> list[str]:
    """The files that a guarantee of this procedure rests on.

    Untrusted files are left out here, with whatever they import: that there is none to leave out
    is another test.
    """
    return sorted(_closure(procedure))


def _closure(procedure: str, more: tuple[str, ...] = (), *, words: bool = False) -> set[str]:
    found: set[str] = set()
    waiting = [*STARTS[procedure], *more]
    while waiting:
        file = waiting.pop()
        if file not in found and not is_untrusted(file, procedure):
            found.add(file)
            waiting += _taken(file, procedure, words=words)
    return found


def is_for_readers(file: str) -> bool:
    """Whether a file only says in words what is guaranteed."""
    return file in WORDS or file.startswith(STATEMENTS)


def _taken(file: str, procedure: str, *, words: bool = True) -> list[str]:
    """What a file imports when this procedure runs, for the statement too or not."""
    return sorted(
        target
        for target in neighbours(file)
        if not {procedure, *([IN_WORDS] if words else [])}.isdisjoint(
            DOORS.get((file, target), (procedure,))
        )
        and (words or not is_for_readers(target))
    )


def words_loaded_at_once() -> list[str]:
    """Arrows from a file of a guarantee to words that are loaded though nobody asks for them."""
    return [
        f"{file}: {item.name}"
        for procedure in STARTS
        for file in trusted(procedure)
        for item in imports(file)
        if is_for_readers(file_of(item.name) or "") and not item.inside
    ]


def untrusted_imports(procedure: str) -> list[str]:
    """Arrows from a trusted file to one that nobody relies on."""
    return [
        f"{file}: {target}"
        for file in [*trusted(procedure), *statement(procedure)]
        for target in _taken(file, procedure)
        if is_untrusted(target, procedure)
    ]


def lines(files: Iterable[str]) -> int:
    """Code lines: not blank, not only a comment, not a docstring."""
    return sum(code_lines(file) for file in files)


def write_counts() -> None:
    """Brings the counts in the page up to date; its rows are written by hand."""
    text = PAGE.read_text()
    for procedure in STARTS:
        files = trusted(procedure)
        more = lines(statement(procedure))
        row = f"| {procedure} | {len(files)} | {lines(files):,} | {more:,} |"
        old = rf"^\| {procedure} \| \d+ \| [\d,]+ \|( [\d,]+ \|)?$"
        text = re.sub(old, row, text, flags=re.MULTILINE)
    PAGE.write_text(text)


def main() -> None:
    first = trusted("private selection")
    for procedure in STARTS:
        files = trusted(procedure)
        more = files if procedure == "private selection" else sorted(set(files) - set(first))
        print(f"\n{procedure}: {len(files)} files, {lines(files)} lines of code")
        for file in more:
            print(f"{code_lines(file):6}  {file}")
        said = statement(procedure)
        print(f"        and for its statement {len(said)} files, {lines(said)} lines")
        for arrow in untrusted_imports(procedure):
            print(f"        untrusted import: {arrow}")
    if "--write" in sys.argv[1:]:
        write_counts()


if __name__ == "__main__":
    main()
