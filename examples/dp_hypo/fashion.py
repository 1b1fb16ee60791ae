"""Measures a landscape on Fashion-MNIST with the paper's network, by odp.train.

DP-HyPO's Setting E.1 (arXiv 2306.05734v2): the ConvNet of appendix E.1, batches of 256 of 60,000
records, noise 0.71 and 0.64, the 16 learning rates from 1e-4 to 10. Reduced to what two cores can
do: Fashion-MNIST in place of MNIST, 4 of the 20 clipping norms, one epoch in place of ten, one
run of each setting in place of five::

    python examples/dp_hypo/fashion.py             # what fashion.npz lacks; 17 minutes of one core
    python examples/dp_hypo/fashion.py --quick     # four settings for ten steps, into a new file

It needs Debian's ``dataset-fashion-mnist`` and PyTorch. The file holds the number of right
predictions on the 10,000 test records. The measurement itself is not private.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from landscapes import LEARNING_RATES
from torch import nn

import optuna_dp as odp

sys.path.append(str(Path(__file__).parents[1] / "compare"))

from by_train import started
from idx_files import load, scaled

FILE = Path(__file__).with_name("fashion.npz")
CLIPPING_NORMS = (0.3, 1.5, 3.0, 6.0)
NOISE_MULTIPLIERS = (0.64, 0.71)
BATCH, EPOCHS, RUNS = 256, 1, 1
CHUNK = 2000  # test records at a time


def network() -> nn.Module:
    """The ConvNet of appendix E.1."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


class Trainings:
    """Trainings on Fashion-MNIST's training records.

    Args:
        steps: Steps of one training; None for one epoch.
        records: The first so many of the 60,000; None for all.
    """

    def __init__(self, steps: int | None = None, records: int | None = None) -> None:
        images = load()
        self.records = (
            torch.tensor(scaled(images.train_images[:records]))[:, None],
            torch.tensor(images.train_labels[:records].astype(np.int64)),
        )
        self.test_images = torch.tensor(scaled(images.test_images))[:, None]
        self.test_labels = torch.tensor(images.test_labels.astype(np.int64))
        self.count = len(self.records[1])
        self.steps = steps or -(-EPOCHS * self.count // BATCH)

    def right(self, noise: float, rate: float, norm: float) -> int:
        """Trains once; the number of right predictions on the test records."""
        model = network()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the study that is never released
            odp.train(
                started(noise, self.steps, BATCH, self.count),
                model,
                self.records,
                loss=nn.functional.cross_entropy,
                optimizer="sgd",
                learning_rate=rate,
                schedule=odp.Schedule("constant"),
                clipping_norm=norm,
                score=None,
            )
        with torch.no_grad():
            logits = torch.cat([model(part) for part in self.test_images.split(CHUNK)])
        return int((logits.argmax(1) == self.test_labels).sum())


def read(path: Path = FILE) -> dict[str, np.ndarray]:
    """Right predictions by noise and run, each (learning rates, clipping norms)."""
    if not path.exists():
        return {}
    with np.load(path) as file:
        return dict(file)


def key(noise: float, run: int) -> str:
    return f"noise {noise:g}, run {run}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="four settings, ten steps, a new file"
    )
    quick = parser.parse_args().quick
    path = Path(tempfile.mkdtemp()) / "fashion.npz" if quick else FILE
    rates = LEARNING_RATES[9:11] if quick else LEARNING_RATES
    norms = CLIPPING_NORMS[:2] if quick else CLIPPING_NORMS
    trainings, stored = Trainings(10 if quick else None), read(path)
    for run, noise in itertools.product(range(1 if quick else RUNS), NOISE_MULTIPLIERS):
        if key(noise, run) in stored:
            continue
        start = time.process_time()
        found = [[trainings.right(noise, float(rate), norm) for norm in norms] for rate in rates]
        stored[key(noise, run)] = np.array(found, dtype=np.int16)
        np.savez_compressed(path, **stored)
        print(f"{key(noise, run)}: {time.process_time() - start:.0f} s", flush=True)
    best = max(array.max() for array in stored.values()) / len(trainings.test_labels)
    print(f"{path}: at best {best:.3f}")


if __name__ == "__main__":
    main()
