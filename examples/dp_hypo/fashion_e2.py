"""Measures DP-HyPO's Setting E.2 on Fashion-MNIST: 50 and 30 runs, by odp.train.

The paper (arXiv 2306.05734v2, section 4.2.2 and appendix E.2) runs DP-SGD on CIFAR-10 50 times for
each noise, fits BoTorch's Gaussian process to the accuracies, and searches on its mean and
standard error. So does this script, with the paper's ConvNet, 50,000 records, batches of 256,
noise 0.6 and 0.65, and the paper's range of rates and clipping norms. Reduced to the processor
time that there was: Fashion-MNIST in place of CIFAR-10, one epoch in place of ten, and 30 of the
50 runs at noise 0.65::

    python examples/dp_hypo/fashion_e2.py          # what the file lacks; 10 minutes of one core
    python examples/dp_hypo/fashion_e2.py --quick  # two runs of each noise, ten steps, a new file

It needs Debian's ``dataset-fashion-mnist`` and PyTorch. ``simulate.fashion_e2`` fits the process.
The measurement itself is not private.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import qmc

FILE = Path(__file__).with_name("fashion_e2.json")
RUNS = {0.6: 50, 0.65: 30}  # By noise multiplier; both take the first of the same settings.
RECORDS = 50_000
# Logarithms of learning rates, and clipping norms: the 50 x 50 grid of Setting E.2. The paper's
# text starts at 1e-4, which gives 41 rates of its spacing, its Figure 2 at 1e-5, which gives 51.
# These are the 50 largest.
LOG_RATES = np.linspace(-4.9, 0.0, 50)
CLIPPING_NORMS = np.linspace(2.0, 100.0, 50)


def settings() -> list[tuple[float, float]]:
    """64 learning rates and clipping norms: spread evenly over the range, by Sobol."""
    low, high = (LOG_RATES[0], CLIPPING_NORMS[0]), (LOG_RATES[-1], CLIPPING_NORMS[-1])
    points = qmc.scale(qmc.Sobol(2, rng=0).random(64), low, high)
    return [(float(10**rate), float(norm)) for rate, norm in points]


def read(path: Path = FILE) -> dict[str, Any]:
    """The runs of each noise: learning rate, clipping norm, right predictions of 10,000."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two runs, ten steps, a new file")
    quick = parser.parse_args().quick
    import torch  # Lazy: who reads the runs needs no PyTorch.
    from fashion import Trainings

    path = Path(tempfile.mkdtemp()) / "fashion_e2.json" if quick else FILE
    trainings, stored = Trainings(10 if quick else None, RECORDS), read(path)
    for noise, runs in RUNS.items():
        rows = stored.setdefault(f"noise {noise:g}", [])
        for rate, norm in settings()[len(rows) : 2 if quick else runs]:
            start = time.process_time()
            torch.manual_seed(len(rows))
            right = trainings.right(noise, rate, norm)
            rows.append([rate, norm, right])
            path.write_text(json.dumps(stored, indent=0) + "\n")
            print(
                f"noise {noise:g}, rate {rate:.2g}, norm {norm:.0f}: {right / 1e4:.3f}, "
                f"{time.process_time() - start:.1f} s",
                flush=True,
            )
    print(path)


if __name__ == "__main__":
    main()
