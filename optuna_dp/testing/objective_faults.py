"""What is wrong with an objective, judged by what its runs were seen to do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from optuna_dp.testing import watched_opacus as opacus
from optuna_dp.testing.checked_run import CheckedRun, Stage
from optuna_dp.testing.stated_training import StatedTraining, alternatives, answers_in

_ADD_NOISE = (
    "If it is made of private records, add noise and pay for it (odp.scoring.private_accuracy); "
    "if they are public, say public_score=True."
)


@dataclass(frozen=True)
class Finding:
    """Something that an objective does and should not.

    Attributes:
        name: Of the kind of fault, two or three words.
        what: What was seen.
        change: What to change.
        certain: Whether it has to be changed; otherwise it is a hint to look at.
        about: What it is about, where there may be several of a kind.
    """

    name: str
    what: str
    change: str
    certain: bool = True
    about: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.what} {self.change}"


def of_pair(runs: Sequence[CheckedRun], stage: Stage, *, public_score: bool) -> Iterator[Finding]:
    """Yields what two runs with the same hyperparameters show."""
    yield from _of_seeds(runs)
    yield from _of_reads(runs)
    for run in runs:
        if run.failure and not run.reads:
            yield Finding(
                "failure",
                f"A run fails ({run.failure}).",
                "Whether a run fails is released with it, so it must not depend on the data.",
            )
    if not public_score:
        # What other trials are made of says nothing about this one's score.
        if not any(run.reads for run in runs):
            yield from _of_scores(runs)
        yield from _of_reports(runs, stage)
    if stage.event is not None:
        yield from _of_opacus(runs, stage)


def _of_seeds(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    a, b = runs
    same = [name for name in a.states if a.states[name] == b.states.get(name)]
    if same:
        what = f"Two runs leave the generator of {' and '.join(same)} in the same state."
    elif a.opacus.has_noise_of(b.opacus):
        what = "Opacus has added the very same noise in two runs."
    else:
        return
    yield Finding(
        "fixed seed",
        what,
        "Take the seed out (torch.manual_seed, np.random.seed, seed_everything, generator=): "
        "noise that repeats is no noise.",
    )


def _of_reads(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    reads = sorted({name for run in runs for name in run.reads})
    if reads:
        yield Finding(
            "other trials",
            f"A run reads other trials of its study ({', '.join(reads)}).",
            "Use nothing in the objective but its own trial: no best value so far, no warm start.",
        )


def _of_scores(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    values = [run.value for run in runs if run.value is not None]
    if len(values) == 2 and values[0] == values[1]:
        yield Finding(
            "repeated score", f"Two runs have the very same score, {values[0]!r}.", _ADD_NOISE
        )
    if len(values) == 2 and all(map(_is_a_share, values)):
        yield Finding(
            "exact score",
            f"The scores {values[0]!r} and {values[1]!r} are shares of a number of records.",
            _ADD_NOISE,
        )


def _is_a_share(value: float) -> bool:
    """Whether a score is a fraction with a denominator too small to be chance."""
    if not math.isfinite(value):
        return False
    single = np.float32(value)
    if float(single) != value:
        return float(_nearest(value, float(np.spacing(value)), 1e-6, 100_000)) == value
    # Single precision has fewer numbers, so chance is likelier: one in six hundred, two in 3e5.
    near = _nearest(value, float(np.spacing(single)), 1.6e-3, 300)
    return bool(np.float32(float(near)) == single)


def _nearest(value: float, gap: float, chance: float, most: int) -> Fraction:
    """Returns the nearest fraction among so few that a random number is one only by chance.

    That chance is at most ``chance``; ``gap`` is between the value and the next number that its
    precision has; ``most`` is the largest denominator in any case.

    There are about 0.3 m^2 fractions between two whole numbers with denominators up to m.
    """
    return Fraction(value).limit_denominator(
        max(1, min(most, int(math.sqrt(chance / max(0.3 * abs(gap), 1e-300)))))
    )


def _of_reports(runs: Sequence[CheckedRun], stage: Stage) -> Iterator[Finding]:
    for run in runs:
        # The score itself may be reported: it is released anyway.
        values = [value for value in run.reports.values() if value != run.value]
        paid = 0 if stage.event is None else max(0, answers_in(stage.event) - 1)
        if len(values) > paid:
            yield Finding(
                "reported values",
                f"A run reports {len(values)} values for pruning, and its event pays for {paid} "
                "beside the score.",
                "Report what is computed on public records (public_score=True), or add noise to "
                "each and compose its cost into the event.",
            )
            return


def _of_opacus(runs: Sequence[CheckedRun], stage: Stage) -> Iterator[Finding]:
    seen = [run.opacus for run in runs if run.opacus.steps]
    stated = alternatives(stage.event)
    if not seen or not stated:
        return
    # A worst case holds for whichever of its trainings this one is.
    judged = [list(_beside(seen, one)) for one in stated]
    yield from min(judged, key=len)


def _beside(seen: Sequence[opacus.OpacusRun], stated: StatedTraining) -> Iterator[Finding]:
    """Yields each kind of fault once, though several runs may have it."""
    kinds: dict[str, Finding] = {}
    for run in seen:
        for found in _of_training(run, stated):
            kinds.setdefault(found.name, found)
    yield from kinds.values()


def _of_training(run: opacus.OpacusRun, stated: StatedTraining) -> Iterator[Finding]:
    low = opacus.too_little_noise(run, stated)
    if low is not None:
        yield Finding(
            "too little noise",
            f"Opacus adds noise of {low:.4g} clipping norms, and the event says "
            f"{stated.noise_multiplier:.4g}.",
            "State the noise that is added, or add what is stated (look for "
            "optimizer.noise_multiplier and for schedulers of it).",
        )
    if run.steps > stated.steps:
        yield Finding(
            "too many steps",
            f"The training takes {run.steps} noisy steps, and the event says {stated.steps}.",
            "Count steps and not epochs: len(data_loader) times epochs.",
        )
    rate = opacus.batches_too_large(run, stated)
    if rate is not None:
        yield Finding(
            "sampling rate",
            f"Batches are sampled at rate {rate:.6g}, and the event says "
            f"{stated.sample_rate:.6g}.",
            "Opacus samples at rate 1 / len(data_loader): state that.",
        )
    if opacus.not_poisson(run, stated.sample_rate):
        yield Finding(
            "batches not Poisson",
            f"Most batches have one size ({max(run.batch_sizes)} at most), which Poisson "
            "sampling hardly ever gives.",
            "Train on the loader that make_private returns, with poisson_sampling=True: "
            "shuffled batches are another mechanism and cost more.",
        )


def may_be_frozen(runs: Sequence[CheckedRun], found: Sequence[Finding]) -> bool:
    """Whether it is worth asking for a score that is a function of the model alone."""
    asked = {"repeated score", "exact score", "fixed seed"}
    scored = all(run.value is not None and not run.reads for run in runs)
    return scored and all(r.opacus.steps for r in runs) and not any(f.name in asked for f in found)


def of_frozen(one: CheckedRun, other: CheckedRun) -> Iterator[Finding]:
    """Yields what two runs show whose randomness is the same until training has ended."""
    same_training = one.opacus.is_training_of(other.opacus)
    if same_training and one.value is not None and one.value == other.value:
        yield Finding(
            "exact score",
            "The same model has the very same score twice: nothing random is in it.",
            _ADD_NOISE,
        )


def of_other_data(words: str, run: CheckedRun, first: CheckedRun) -> Iterator[Finding]:
    """Yields what a run on made-up data shows."""
    if run.failure and not first.failure:
        yield Finding(
            "failure on data",
            f"A run fails if {words} ({run.failure}).",
            "Whether a run fails is released with it: handle such data, or exclude them by a rule "
            "fixed beforehand.",
            about=words,
        )


def of_what_is_left(files: Sequence[str], variables: Sequence[str]) -> Iterator[Finding]:
    """Yields what runs were seen to take over from earlier ones."""
    advice = (
        "A run may use nothing of another run. If only the data are kept there, load them before "
        "the search."
    )
    for kind, names in (("shared file", files), ("shared state", variables)):
        for name in names:
            what = f"A run reads {name}, as an earlier run left it."
            yield Finding(kind, what, advice, about=name)


def not_checked(
    event: Any, plan: Any, runs: Sequence[CheckedRun], others: Sequence[Any]
) -> Iterator[str]:
    """Yields what could not be looked at."""
    if event is None and plan is None:
        yield "what a run costs: give its event, or the plan."
    elif not any(run.opacus.steps for run in runs):
        yield (
            "noise, steps and batches: no Opacus optimizer was seen. Audit the training "
            "(optuna_dp.testing.audit_training)."
        )
    if not others:
        yield "failures on other data: give data=."
