"""How long T runs take on many workers: a simulation of waiting, without any training.

    python many_workers.py

Run times are lognormal with mean 1 (their spread is ``--spread``, the standard deviation of the
logarithm). Three shapes: T independent runs (RandTune), T runs in batches as large as the number
of workers (DP-HyPO), and 64 pilots in two rungs (64, 16) before one run (a budget). For each the
time until the release, in mean run times, and the share of the workers' time that was work. Then
how often runs of a length end per second, which is what a storage has to bear.
"""

from __future__ import annotations

import argparse
import heapq
import json

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]


def independent(times: Times, workers: int) -> float:
    """When the last of these runs ends, each starting as soon as a worker is free."""
    free = [0.0] * workers
    for time in times:
        heapq.heapreplace(free, free[0] + time)
    return max(free)


def batches(times: Times, workers: int) -> float:
    """The same if a run begins only when all batches before its own have ended."""
    return float(
        sum(times[first : first + workers].max() for first in range(0, len(times), workers))
    )


def rungs(draw: np.random.Generator, sizes: tuple[int, ...], workers: int, spread: float) -> float:
    """Rungs of pilots, each waiting for the one before, then one run."""
    return sum(independent(run_times(draw, size, spread), workers) for size in (*sizes, 1))


def run_times(draw: np.random.Generator, count: int, spread: float) -> Times:
    return draw.lognormal(-(spread**2) / 2, spread, count)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mean", type=int, default=100, help="of T")
    parser.add_argument("--spread", type=float, default=0.5)
    parser.add_argument("--repeat", type=int, default=400)
    arguments = parser.parse_args()
    mean, spread = arguments.mean, arguments.spread
    for workers in (1, 8, 64, 1000):
        draw = np.random.default_rng(workers)
        shapes: dict[str, list[tuple[float, float]]] = {}
        for _ in range(arguments.repeat):
            times = run_times(draw, int(draw.geometric(1 / mean)), spread)
            work = float(times.sum())
            shapes.setdefault("independent runs", []).append((independent(times, workers), work))
            shapes.setdefault("batches", []).append((batches(times, workers), work))
            shapes.setdefault("rungs (64, 16) and one run", []).append(
                (rungs(draw, (64, 16), workers, spread), 81.0)
            )
        found = {
            shape: {
                "time, mean": round(float(np.mean([t for t, _ in pairs])), 1),
                "time, 95 %": round(float(np.quantile([t for t, _ in pairs], 0.95)), 1),
                "work": round(sum(w for _, w in pairs) / sum(t for t, _ in pairs) / workers, 3),
            }
            for shape, pairs in shapes.items()
        }
        print(json.dumps({"workers": workers, **found}))
    for seconds in (1, 60, 3600):
        rate = {workers: round(workers / seconds, 2) for workers in (8, 64, 1000)}
        print(json.dumps({"runs of seconds": seconds, "runs per second with workers": rate}))


if __name__ == "__main__":
    main()
