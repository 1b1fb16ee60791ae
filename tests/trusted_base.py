"""The files that a guarantee depends on. ``python tests/trusted_base.py`` lists them with sizes.

They are found by following imports, those inside functions included, from the sampler that draws
the runs and from the release. What stands in UNTRUSTED is left out: tests/test_sabotage.py breaks
these files one by one and finds every guarantee true.
"""

from __future__ import annotations

from collections.abc import Iterable

from import_graph import code_lines, neighbours

_RELEASE = "releasing/make_release.py"
_SELECTION = (
    "samplers/selection/procedure.py",
    # Loaded by the name that a record holds.
    "selection/event.py",
    "selection/laws/negative_binomial.py",
    _RELEASE,
)
_CHOICE = ("accounting/kinds/approximate.py", "samplers/choice/procedure.py", _RELEASE)

# Where each procedure begins. What runs cost is in the plan, so the callback records nothing that
# the release uses; unless the sampler of a selection was not told.
STARTS: dict[str, tuple[str, ...]] = {
    "budget": (
        "samplers/budget/sampler.py",
        "evidence/start.py",
        "samplers/budget/procedure.py",
        _RELEASE,
    ),
    "private selection": ("samplers/selection/rand_tune.py", *_SELECTION),
    "with density bounds": (
        "samplers/selection/dp_hypo.py",
        "selection/bounds/pointwise_bound.py",
        *_SELECTION,
    ),
    "choice among utilities": (
        "samplers/choice/noisy_max_sampler.py",
        "accounting/kinds/bounded_range.py",
        *_CHOICE,
    ),
    "doubling": ("samplers/choice/propose_test_sampler.py", *_CHOICE),
    "votes": (
        "federated/client.py",
        "federated/server.py",
        "accounting/kinds/per_client.py",
        "accounting/kinds/skellam.py",
        "releasing/release.py",
    ),
}

# Imports inside functions that only some procedures come to: a file, what it imports, and the
# procedures that do. A test runs each procedure and looks at what was loaded.
_RARE: tuple[str, ...] = ()  # Other events, other distributions of T, refusals, dead workers.
DOORS: dict[tuple[str, str], tuple[str, ...]] = {
    ("accounting/epsilon_methods.py", "accounting/run_rdp.py"): ("choice among utilities",),
    ("accounting/guarantee.py", "accounting/attack_risks.py"): _RARE,
    ("accounting/guarantee.py", "accounting/gaussian_dp.py"): _RARE,
    ("accounting/guarantee.py", "accounting/rdp_curves.py"): _RARE,
    ("accounting/guarantee.py", "accounting/run_rdp.py"): _RARE,
    ("accounting/guarantee.py", "accounting/kinds/per_client.py"): ("votes",),
    ("accounting/run_profile.py", "accounting/run_rdp.py"): _RARE,
    ("accounting/kinds/foreign.py", "accounting/kinds/approximate.py"): _RARE,
    ("accounting/run_profile.py", "accounting/kinds/bounded_range.py"): (
        "choice among utilities",
    ),
    ("runs/run_events.py", "accounting/kinds/worst_case.py"): _RARE,
    ("runs/spending.py", "accounting/opacus.py"): _RARE,
    ("runs/spending.py", "accounting/run_rdp.py"): _RARE,
    ("selection/event.py", "selection/bounds/as_part.py"): _RARE,
    (
        "samplers/selection/procedure.py",
        "selection/laws/binomial.py",
    ): _RARE,
    (
        "selection/laws/negative_binomial.py",
        "selection/laws/other_shapes.py",
    ): _RARE,
    ("selection/laws/base.py", "accounting/rdp_curves.py"): _RARE,
    ("selection/laws/negative_binomial.py", "accounting/rdp_curves.py"): _RARE,
}

# What says in words what is guaranteed. No number of a guarantee depends on it. A reader does, so
# it is counted by itself.
WORDS = (
    "accounting/event_words.py",
    "accounting/groups.py",
    "samplers/budget/statement.py",
    "core/differences.py",
    "evidence/data_description.py",
    "evidence/facts.py",
    "evidence/layout.py",
    "releasing/markdown.py",
    "evidence/preparation.py",
    "evidence/assumptions.py",
    "evidence/record_counts.py",
    "evidence/run_assumptions.py",
    "evidence/shown_scores.py",
    "evidence/statement.py",
    "releasing/statement_data.py",
    "core/numbers_shown.py",
    "samplers/selection/statement.py",
    "samplers/choice/statement.py",
    "voting/statement.py",
)
# What the words on trainings import. A choice among utilities has no training that the package
# does, and loads them all the same.
OF_TRAININGS = (
    "runs/judgement.py",
    "training/prepared.py",
    "runs/spending.py",
    "runs/trial_notes.py",
    "training/exact_step.py",
)
_STATEMENT_OF = {
    "budget": "samplers/budget",
    "choice among utilities": "samplers/choice",
    "doubling": "samplers/choice",
    "votes": "voting",
}

# What may be wrong without harm to a guarantee. tests/test_sabotage.py breaks each of them.
UNTRUSTED = (
    "accounting/discretisation.py",  # How fine a grid is: any is sound.
    "accounting/reading_points.py",
    "attacks/",
    "samplers/budget/choice.py",  # Any function of the pilots' outputs.
    "cli/",
    "dashboard/",
    "digits.py",
    "core/exact_values.py",
    "federated/",
    "priors/encoding.py",
    "priors/given_points.py",
    "priors/scores.py",
    "priors/surrogate.py",
    "planning/",
    "priors/densities/convex_projection.py",  # shares.enforce has the last word.
    "releasing/callbacks.py",  # Of samplers that were told what a run costs.
    "releasing/describing.py",
    "releasing/publishing.py",
    "releasing/reminders.py",
    "releasing/comparison.py",
    "releasing/statement_file.py",
    "releasing/verification.py",
    "check/",
    # Advice: any learning rate costs the same, whether it falls or not.
    "training/learning_rate.py",
    "runs/rehearsal.py",
    "training/made_up.py",
    "training/schedules.py",
    "visualization/",
)
# The guarantee of a vote depends on what the clients send, so these are its own.
OF_VOTES = "federated/"


def is_untrusted(file: str, procedure: str) -> bool:
    """Whether no guarantee of a procedure depends on a file."""
    return file.startswith(UNTRUSTED) and not (procedure == "votes" and file.startswith(OF_VOTES))


def trusted(procedure: str) -> list[str]:
    """The files that a guarantee of this procedure depends on."""
    return sorted(_closure(procedure, STARTS[procedure], words=False))


def statement(procedure: str) -> list[str]:
    """The files that its statement depends on besides."""
    package = _STATEMENT_OF.get(procedure, "samplers/selection")
    starts = (*STARTS[procedure], f"{package}/statement.py")
    return sorted(_closure(procedure, starts, words=True) - set(trusted(procedure)))


def _closure(procedure: str, starts: Iterable[str], *, words: bool) -> set[str]:
    found: set[str] = set()
    waiting = [*starts]
    while waiting:
        file = waiting.pop()
        if file in found or is_untrusted(file, procedure) or (file in WORDS and not words):
            continue
        found.add(file)
        waiting += [
            target
            for target in neighbours(file)
            if procedure in DOORS.get((file, target), (procedure,))
        ]
    return found


def lines(files: Iterable[str]) -> int:
    """Code lines: not blank, not only a comment, not a docstring."""
    return sum(code_lines(file) for file in files)


def main() -> None:
    for procedure in STARTS:
        files, words = trusted(procedure), statement(procedure)
        print(f"\n{procedure}: {len(files)} files, {lines(files)} lines of code")
        for file in files:
            print(f"{code_lines(file):6}  {file}")
        print(f"        and for its statement {len(words)} files, {lines(words)} lines")


if __name__ == "__main__":
    main()
