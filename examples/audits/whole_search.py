"""A lower bound on epsilon, from outputs of a whole search on two neighbouring data sets.

If a procedure is (epsilon, delta)-DP, then P(E) <= e^epsilon P'(E) + delta for every event E. The
audit picks an event on one half of the outputs and bounds its probabilities on the other half, so
that the choice does not bias the bound (Jagielski et al. 2020, arXiv 2006.07709; Clopper & Pearson
1934). What comes out above a claim refutes it; what stays below proves nothing.

    python examples/audits/whole_search.py --runs 2000

audits the best of a random number of runs, each of which answers one bit with noise. It does so
once with the noise that is stated, and once with half of it. To audit a search of your own,
give :func:`audit_procedure` a function that runs it and returns what would be public.
"""

from __future__ import annotations

import argparse
import logging
import math
import secrets
import warnings
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import optuna
from scipy.stats import beta

import optuna_dp as odp

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Data = TypeVar("Data")

_BINS = 400


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        epsilon: With the stated confidence, the procedure is not (epsilon', delta)-DP for any
            epsilon' below this. 0 if nothing was found.
        delta: At this delta.
        confidence: 1 minus the probability that ``epsilon`` is too large, for a procedure audited
            once.
        runs: Outputs in each of the two worlds.
        lower: Lower bound on the probability of the event in the world where it is likelier.
        upper: Upper bound on its probability in the other world.
        swapped: Whether the event is likelier on the neighbour.
        event: Some of the outputs that make the event (bins' lower edges for real outputs).
    """

    epsilon: float
    delta: float
    confidence: float
    runs: int
    lower: float
    upper: float
    swapped: bool
    event: tuple[Any, ...]

    def refutes(self, claim: float) -> bool:
        """Returns whether (claim, delta)-DP is refuted, with the stated confidence."""
        return self.epsilon > claim


def audit(
    outputs: Iterable[Hashable] | npt.NDArray[Any],
    neighbour_outputs: Iterable[Hashable] | npt.NDArray[Any],
    *,
    delta: float = 0.0,
    confidence: float = 0.99,
) -> Audit:
    """Returns a lower bound on epsilon at ``delta``.

    Guarantees:
        * For a procedure that is (epsilon, delta)-DP and outputs that are independent runs, the
          result exceeds epsilon with probability at most ``1 - confidence``.
        * The event is chosen on the first half of the outputs, its probabilities are bounded on
          the second; both directions are tried, each with a quarter of the error for each bound.

    Args:
        outputs: Outputs on one data set: anything hashable, or a one-dimensional array (real
            numbers are sorted into bins made from the first halves).
        neighbour_outputs: Outputs on the neighbouring data set.
        delta: In [0, 1).
        confidence: In (0, 1).

    Raises:
        ValueError: If an argument is not allowed, or there are fewer than four outputs of either.
    """
    if not 0.0 <= delta < 1.0:
        raise ValueError(f"delta={delta}: it must be in [0, 1)")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence={confidence}: it must be in (0, 1)")
    codes, neighbour_codes, names = _coded(outputs, neighbour_outputs)
    n = min(len(codes), len(neighbour_codes))
    if n < 4:
        raise ValueError(f"{n} outputs: at least four of each are needed")
    tables = [
        (_counts(x[: len(x) // 2], len(names)), _counts(x[len(x) // 2 :], len(names)))
        for x in (codes, neighbour_codes)
    ]
    slack = (1.0 - confidence) / 4.0
    audits = []
    for swapped, (on, off) in enumerate((tables, tables[::-1])):
        order = _most_incriminating_first(on[0], off[0])
        guess = _certified(np.cumsum(on[0][order]), on[0].sum(),
                           np.cumsum(off[0][order]), off[0].sum(), delta, slack)  # fmt: skip
        event = order[: int(np.argmax(guess[0])) + 1]
        epsilon, lower, upper = _certified(
            on[1][event].sum(keepdims=True), on[1].sum(),
            off[1][event].sum(keepdims=True), off[1].sum(), delta, slack,
        )  # fmt: skip
        audits.append(
            Audit(
                max(0.0, float(epsilon[0])),
                delta,
                confidence,
                n,
                float(lower[0]),
                float(upper[0]),
                bool(swapped),
                tuple(names[i] for i in event[:20]),
            )
        )
    return max(audits, key=lambda result: result.epsilon)


def audit_procedure(
    procedure: Callable[[Data], Hashable],
    data: Data,
    neighbour: Data,
    *,
    runs: int,
    delta: float = 0.0,
    confidence: float = 0.99,
) -> Audit:
    """Runs a whole procedure many times on two neighbouring inputs and audits what it returns.

    Args:
        procedure: Takes the data and returns what would be made public (for a release its
            parameters and score, say, as a tuple). Its randomness must be fresh in every call.
        data: One data set.
        neighbour: A data set that differs in one record.
        runs: Calls on each, at least 4.
        delta: In [0, 1).
        confidence: In (0, 1).

    Raises:
        ValueError: If an argument is not allowed.
    """
    return audit(
        [procedure(data) for _ in range(runs)],
        [procedure(neighbour) for _ in range(runs)],
        delta=delta,
        confidence=confidence,
    )


def clopper_pearson(
    successes: npt.ArrayLike, trials: float, slack: float
) -> tuple[FloatArray, FloatArray]:
    """Returns lower and upper confidence bounds, each wrong with probability at most ``slack``."""
    k = np.asarray(successes, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        low = np.where(k > 0, beta.ppf(slack, k, trials - k + 1), 0.0)
        high = np.where(k < trials, beta.ppf(1.0 - slack, k + 1, trials - k), 1.0)
    return np.nan_to_num(low, nan=0.0), np.nan_to_num(high, nan=1.0)


def _certified(
    on: FloatArray, n_on: float, off: FloatArray, n_off: float, delta: float, slack: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    lower, _ = clopper_pearson(on, n_on, slack)
    _, upper = clopper_pearson(off, n_off, slack)
    with np.errstate(divide="ignore", invalid="ignore"):
        epsilon = np.where(lower > delta, np.log((lower - delta) / upper), -math.inf)
    return epsilon, lower, upper


def _most_incriminating_first(on: FloatArray, off: FloatArray) -> IntArray:
    # Half a count each, so that outputs seen once do not come first.
    ratio = (on + 0.5) / (off + 0.5)
    # Among equal ratios the frequent ones first.
    return np.lexsort((-on, -ratio))


def _counts(codes: IntArray, size: int) -> FloatArray:
    return np.bincount(codes, minlength=size).astype(np.float64)


def _coded(outputs: Any, neighbour_outputs: Any) -> tuple[IntArray, IntArray, list[Any]]:
    """Numbers the outputs from 0."""
    if isinstance(outputs, np.ndarray) and isinstance(neighbour_outputs, np.ndarray):
        if outputs.ndim != 1 or neighbour_outputs.ndim != 1:
            raise ValueError(f"shape {outputs.shape}: an array must be one-dimensional")
        if outputs.dtype.kind == "f":
            first_halves = np.concatenate(
                [
                    outputs[: len(outputs) // 2],
                    neighbour_outputs[: len(neighbour_outputs) // 2],
                ]
            )
            edges = np.unique(np.quantile(first_halves, np.linspace(0.0, 1.0, _BINS + 1)[1:-1]))
            names: list[Any] = [-math.inf, *edges.tolist()]
            return np.digitize(outputs, edges), np.digitize(neighbour_outputs, edges), names
        values, codes = np.unique(
            np.concatenate([outputs, neighbour_outputs]), return_inverse=True
        )
        return codes[: len(outputs)], codes[len(outputs) :], values.tolist()
    number: dict[Hashable, int] = {}
    coded = [
        np.array([number.setdefault(x, len(number)) for x in sample], dtype=np.int64)
        for sample in (outputs, neighbour_outputs)
    ]
    return coded[0], coded[1], list(number)


EPSILON, DELTA = 1.0, 1e-3
TRIALS = odp.Geometric(mean=3)


def tune_and_release(bit: int, noise: float = 1.0) -> float | None:
    """Runs a search whose runs answer ``bit`` by a coin, and returns what the release says.

    Args:
        bit: The data: 0 or 1.
        noise: Share of the stated noise that is used; 1 is honest.
    """
    flips = 1.0 / (1.0 + math.exp(EPSILON / noise))

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_float("x", 0.0, 1.0)
        return float(bit ^ (secrets.SystemRandom().random() < flips))

    sampler = odp.RandTuneSampler(trials=TRIALS, run=odp.pure_dp(EPSILON))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective)
    return odp.release(study, vouched="each run answers by a coin").value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=2000, help="searches on each data set")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("optuna_dp").setLevel(logging.ERROR)
    # Many of these studies have one run, or runs of one score.
    warnings.simplefilter("ignore", odp.errors.ExactScoreWarning)
    claimed = odp.selection_guarantee(odp.pure_dp(EPSILON), TRIALS).epsilon(DELTA)
    print("| noise used | epsilon at least | claimed | refuted |")
    print("|---|---|---|---|")
    for noise in (1.0, 0.5):
        result = audit_procedure(
            lambda bit, noise=noise: tune_and_release(bit, noise),
            0, 1, runs=arguments.runs, delta=DELTA,
        )  # fmt: skip
        refuted = "yes" if result.refutes(claimed) else "no"
        print(f"| {noise:.0%} | {result.epsilon:.2f} | {claimed:.2f} | {refuted} |", flush=True)


if __name__ == "__main__":
    main()
