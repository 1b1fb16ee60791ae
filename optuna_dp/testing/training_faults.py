"""Faults of the steps and batches of a DP-SGD training, beside what its event states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from optuna_dp.testing import data_reads
from optuna_dp.testing import gradient_steps as gradients
from optuna_dp.testing import watched_opacus as opacus
from optuna_dp.testing.checked_run import CheckedRun
from optuna_dp.testing.finding import Finding
from optuna_dp.testing.stage import Stage
from optuna_dp.testing.stated_training import StatedTraining, alternatives


def of_lengths(runs: Sequence[CheckedRun], stage: Stage) -> Iterator[Finding]:
    """Yields early stops that nothing charges for, seen by runs of unequal length."""
    lengths = [length(run) for run in runs]
    if (
        any(run.kind or run.value is None for run in runs)
        or stage.answers_beside_score
        or stage.event is None
    ):
        return
    if min(lengths) and len(set(lengths)) > 1:
        yield Finding(
            "early stop",
            f"Runs with the same hyperparameters take {min(lengths)} and {max(lengths)} steps, "
            "and the event charges for nothing but the training and the score.",
            "Take a fixed number of steps, or stop by noisy values and compose their cost into "
            "the event; add noise in a step whose batch is empty, too.",
        )


def length(run: CheckedRun) -> int:
    """Returns how many steps a run took, or batches it read; 0 if neither was seen."""
    return run.steps.count or run.batches.count


def may_have_stopped(runs: Sequence[CheckedRun], stage: Stage) -> bool:
    """Whether runs of equal length were shorter than the event states, perhaps by chance."""
    return 0 < length(runs[0]) == length(runs[1]) < stage.steps


def of_opacus(runs: Sequence[CheckedRun], stage: Stage) -> Iterator[Finding]:
    """Yields what Opacus did beside what the event says."""
    opacus_runs = [run.opacus for run in runs if run.opacus.steps]
    trainings = alternatives(stage.event)
    if not opacus_runs or not trainings:
        return
    # A worst case holds for whichever of its trainings this one is.
    judged = [list(_beside(opacus_runs, training)) for training in trainings]
    yield from min(judged, key=len)


def _beside(
    opacus_runs: Sequence[opacus.OpacusRun], training: StatedTraining
) -> Iterator[Finding]:
    """Yields each kind of fault once, though several runs may have it."""
    kinds: dict[str, Finding] = {}
    for run in opacus_runs:
        for fault in _of_training(run, training):
            kinds.setdefault(fault.name, fault)
    yield from kinds.values()


def _of_training(run: opacus.OpacusRun, training: StatedTraining) -> Iterator[Finding]:
    low = opacus.too_little_noise(run, training)
    if low is not None:
        yield Finding(
            "too little noise",
            f"Opacus adds noise of {low:.4g} clipping norms, and the event says "
            f"{training.noise_multiplier:.4g}.",
            "State the noise that is added, or add what is stated (look for "
            "optimizer.noise_multiplier and for schedulers of it).",
        )
    if run.steps > training.steps:
        yield Finding(
            "too many steps",
            f"The training takes {run.steps} noisy steps, and the event says {training.steps}.",
            "Count steps and not epochs: len(data_loader) times epochs.",
        )
    rate = opacus.batches_too_large(run, training)
    if rate is not None:
        yield Finding(
            "sampling rate",
            f"Batches are sampled at rate {rate:.6g}, and the event says "
            f"{training.sample_rate:.6g}.",
            "Opacus samples at rate 1 / len(data_loader): state that.",
        )
    if opacus.not_poisson(run.batch_sizes, training.sample_rate):
        yield _not_poisson(
            f"most batches have one size ({max(run.batch_sizes)} at most), which Poisson sampling "
            "hardly ever gives."
        )


def of_neighbour(run: CheckedRun, odd: CheckedRun, stage: Stage) -> Finding | None:
    """Returns what a run shows of which one record was replaced, with the same randomness."""
    trainings = alternatives(stage.event)
    if not trainings:
        return None
    noise = min(training.noise_multiplier for training in trainings)
    move = gradients.first_move(run.steps, odd.steps, noise)
    if move is None or not gradients.too_far(*move):
        return None
    times = 2.0 * move[0] / move[1]
    return Finding(
        "sensitivity",
        f"One record moves the sum of a step by {times:.3g} clipping norms, where 2 are allowed.",
        "Clip the gradient of each record over all layers, not their mean; use no BatchNorm and "
        "no mean, scale or selection made of private records before the training.",
        # Noisy statistics that the event charges for move a sum a little as well.
        certain=not stage.answers_beside_score,
    )


def is_same_training(run: CheckedRun, odd: CheckedRun) -> bool:
    """Returns whether two runs took the very same steps, and gave trainers the very same."""
    if odd.value is None or not (run.steps.count or run.fits):
        return False
    steps = run.steps.sums, odd.steps.sums
    return (
        run.fits == odd.fits
        and run.steps.count == odd.steps.count == len(steps[0]) == len(steps[1])
        and all(map(np.array_equal, *steps))
    )


def batches_seen(runs: Sequence[CheckedRun], stage: Stage, records: int) -> bool:
    """Returns whether as many batches were seen as are needed to tell how they are drawn."""
    rates = [training.sample_rate for training in alternatives(stage.event)]
    return bool(rates) and any(
        data_reads.shows_steps(run.batches, max(rates), records) or run.opacus.batch_sizes
        for run in runs
    )


def of_batches(runs: Sequence[CheckedRun], stage: Stage, records: int) -> Iterator[Finding]:
    """Yields how batches are drawn, if that is not by a coin for each record."""
    trainings = alternatives(stage.event)
    for run in runs:
        words = [
            data_reads.not_poisson(run.batches, training.sample_rate, training.steps, records)
            or (opacus.not_poisson([len(b) for b in run.batches.sets], training.sample_rate)
                and "most batches have one size")
            for training in trainings
        ]  # fmt: skip
        if words and all(words):
            yield _not_poisson(f"{words[0]}, which Poisson sampling hardly ever does.")
            return


def _not_poisson(problem: str) -> Finding:
    return Finding(
        "batches not Poisson",
        f"{problem[0].upper()}{problem[1:]}",
        "Draw each batch by a coin for each record (rng.random(n) < rate), or train on the loader "
        "that Opacus' make_private returns, with poisson_sampling=True: shuffled batches are "
        "another mechanism and cost more.",
    )
