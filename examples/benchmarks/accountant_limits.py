"""Whether the accountant answers for every law it accepts: within 5 s and 1 GB, and finitely.

Run it with ``python examples/benchmarks/accountant_limits.py``. Every selection is judged in
a process of its own; seconds are CPU time of one thread without start-up, megabytes the peak.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time

DELTA = 1e-5
SLOWEST = 5.0
LARGEST = 1024.0

# Laws as expressions, so that a row of the table is the code that makes it.
LAWS = [
    *(f"odp.NegativeBinomial(shape={s}, mean={m})" for s in (-0.9, -0.5, 0.5) for m in (20, 1e4)),
    "odp.NegativeBinomial(shape=-0.5, mean=1e6)",
    "odp.NegativeBinomial(shape=0.5, mean=1e6)",
    "odp.NegativeBinomial(shape=30.0, mean=1e6)",
    "odp.NegativeBinomial(shape=1e6, mean=1e6)",
    "odp.Logarithmic(20)",
    "odp.Logarithmic(1e6)",
    "odp.Geometric(20)",
    "odp.Geometric(1e6)",
    "odp.Poisson(1e4)",
    "odp.Poisson(1e6)",
    "odp.Binomial(2 * 10**6, 1e6)",
    "odp.Geometric(1000).capped(10**5)",
    "odp.Geometric(1e6).capped(10**6)",
    "odp.Geometric(1e6).capped(2 * 10**6)",
    "odp.Poisson(1e6).capped(10**6)",
    "odp.NegativeBinomial(shape=-0.9, mean=20).capped(2 * 10**6)",
]
RUNS = ["odp.gaussian(4.0)", "odp.pure_dp(0.01)", "odp.approximate_dp(30.0, 1 - 6e-14)"]
BOUNDS = [(1.0, 1.0), (0.75, 2.0), (0.5, 2.0)]


def judge(law: str, run: str, bounds: tuple[float, float]) -> dict[str, object]:
    """Returns seconds, megabytes and epsilon by method of one selection, in this process."""
    import optuna_dp as odp

    names = {"odp": odp}
    trials, event = eval(law, names), eval(run, names)
    odp.Guarantee(odp.gaussian(1.0)).epsilon(DELTA)  # What is imported late is imported now.
    start = time.process_time()
    guarantee = odp.selection_guarantee(event, trials, density_bounds=bounds)
    guarantee.epsilon(DELTA)
    seconds = time.process_time() - start
    found = {k: v for k, v in guarantee.by_method(DELTA).items() if v < math.inf}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "megabytes": peak, "epsilons": found}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", nargs=3)
    parser.add_argument("--patience", type=int, default=60, help="CPU seconds before giving up")
    parser.add_argument("--runs", nargs="*", default=RUNS[:1])
    arguments = parser.parse_args()
    if arguments.one is not None:
        law, run, bounds = arguments.one
        # Of the processor, not of the clock: a busy machine makes nobody give up.
        resource.setrlimit(resource.RLIMIT_CPU, (arguments.patience, arguments.patience))
        print(json.dumps(judge(law, run, tuple(json.loads(bounds)))))
        return
    for run in arguments.runs:
        for law in LAWS:
            for bounds in BOUNDS[:2]:
                patience = ["--patience", str(arguments.patience)]
                one = ["--one", law, run, json.dumps(bounds)]
                command = [sys.executable, __file__, *patience, *one]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    said = done.stderr.splitlines()[-1:] or ["gave up"]
                    print(f"{law} {run} {bounds}: {said[0]}", flush=True)
                    continue
                row = json.loads(done.stdout)
                over = row["seconds"] > SLOWEST or row["megabytes"] > LARGEST
                values = ", ".join(f"{k} {v:.4g}" for k, v in row["epsilons"].items()) or "inf"
                print(
                    f"{law} {run} {bounds}: {row['seconds']:.1f} s, {row['megabytes']:.0f} MB, "
                    f"{values}{'  <- OVER' if over else ''}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
