"""Faults of randomness: seeds that are fixed, and what one run leaves to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from optuna_dp.testing import draws
from optuna_dp.testing.checked_run import CheckedRun
from optuna_dp.testing.finding import Finding
from optuna_dp.testing.stage import Stage


def of_seeds(runs: Sequence[CheckedRun], stage: Stage) -> Iterator[Finding]:
    """Yields seeds that make two runs draw the same."""
    a, b = runs
    repeated_states = [name for name in a.states if a.states[name] == b.states.get(name)]
    fixed_generators = draws.fixed(a.draws, b.draws)
    steps = stage.steps
    # Fewer draws may be a split or first weights, which need no noise.
    certain = bool(repeated_states) or a.opacus.has_noise_of(b.opacus)
    if repeated_states:
        problem = (
            f"Two runs leave the generator of {' and '.join(repeated_states)} in the same state."
        )
    elif certain:
        problem = "Opacus has added the very same noise in two runs."
    elif fixed_generators:
        busiest = max(fixed_generators, key=lambda generator: generator.changes)
        certain = 0 < steps <= busiest.changes
        problem = (
            f"The generator {busiest.name!r} has a fixed seed, and a run draws from it at "
            f"{busiest.changes} moments."
        )
    else:
        return
    yield Finding(
        "fixed seed",
        problem,
        "Take the seed out (torch.manual_seed, np.random.seed, default_rng(0), seed_everything, "
        "generator=): noise that repeats is no noise. Draw a split or first weights with another "
        "generator than noise and batches.",
        certain=certain,
    )


def of_seeds_at_the_top(names: Sequence[str]) -> Finding:
    """Returns what a script does that seeds global generators when it is imported."""
    return Finding(
        "seed at the top",
        f"Importing the script seeds {' and '.join(names)}.",
        "Take the seed out, unless neither noise nor batches come from there: everybody who reads "
        "the script can repeat and subtract them.",
        certain=False,
    )


def of_what_is_left() -> Finding:
    """Returns what runs were seen to take over from earlier ones."""
    return Finding(
        "shared state",
        "A run that is repeated with the same randomness gives something else than before.",
        "A run may use nothing of another run: no cache, no file, no model of an earlier run. If "
        "only the data are kept, load them before the search.",
    )
