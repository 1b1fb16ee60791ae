"""Fashion-MNIST at epsilon 2.7 with the whole search inside it: scattering features, one layer.

::

    python examples/fashion_mnist/benchmark.py --epsilons 1 2.7 8 --searches 3
    python examples/fashion_mnist/benchmark.py --quick   # 600 images made up, no result is kept

It needs PyTorch for the features, and Debian's ``dataset-fashion-mnist``. All 60,000 training
images are private, and all 10,000 test images judge. Three arms:

``list``       a short list of three feature maps, ``plan_budget(candidates=3)``: three pilots,
               their scores and the last run cost epsilon together
``plain``      one run on scattering features, as published
``whitened``   one run on the same features, whitened by public photographs
``default``    the same without another word: a constant rate, the last quarter averaged

A softmax regression by ``odp.train``: the rate is rehearsed, falls linearly to zero (but in the
last arm), and the clipping norm is 1. Batches of 8,192 for 40 epochs are what one core can do in
two minutes. Features are computed in three minutes and are kept in a temporary folder.
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import scattering
import torch

import optuna_dp as odp

RESULTS = Path(__file__).with_name("results.json")
CACHE = Path(tempfile.gettempdir()) / "optuna-dp-fashion-mnist"
DELTA = 1e-5
BATCH, EPOCHS = 8192, 40
CLASSES, COLUMNS = 10, 81 * 7 * 7
# Maps are normalised in groups of three, or each by itself.
TOGETHER, ALONE = 27, 81
ARMS = ("list", "plain", "whitened", "default")
FEATURES = ("plain", "whitened", "each map by itself")


class Images:
    """Features and labels.

    Args:
        quick: A few hundred images made up, whose label is where they are bright.
    """

    def __init__(self, quick: bool = False) -> None:
        self._quick = quick
        self.train_labels, self.test_labels = (self._labels(part) for part in ("train", "test"))
        self._features: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def features(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Features of the training and of the test images, (n, 3969) each."""
        if name not in self._features:
            whitening = scattering.PhotographWhitening() if name == "whitened" else None

            def of(maps: np.ndarray) -> np.ndarray:
                found = np.empty((len(maps), COLUMNS), dtype=np.float32)
                for start in range(0, len(maps), 5000):
                    chunk = torch.tensor(maps[start : start + 5000].astype(np.float32))
                    rows = scattering.normalised(chunk, _groups(name))
                    found[start : start + 5000] = rows if whitening is None else whitening(rows)
                return found

            self._features[name] = of(self._maps("train")), of(self._maps("test"))
        return self._features[name]

    def _made_up(self, part: str) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(part == "test")
        labels = rng.integers(CLASSES, size=600)
        images = rng.uniform(0.0, 0.2, size=(600, 28, 28)).astype(np.float32)
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 6, 5:23] += 0.8
        return images, labels

    def _published(self, part: str) -> tuple[np.ndarray, np.ndarray]:
        import sys

        sys.path.append(str(Path(__file__).parents[1] / "compare"))
        from idx_files import load, scaled

        images = load()
        return scaled(getattr(images, f"{part}_images")), getattr(images, f"{part}_labels")

    def _labels(self, part: str) -> np.ndarray:
        _, labels = self._made_up(part) if self._quick else self._published(part)
        return labels.astype(np.int64)

    def _maps(self, part: str) -> np.ndarray:
        """Scattering coefficients, (n, 81, 7, 7), in half precision."""
        if self._quick:
            return scattering.maps(self._made_up(part)[0])
        path = CACHE / f"{part}.npy"
        if not path.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            np.save(path, scattering.maps(self._published(part)[0]))
        return np.load(path, mmap_mode="r")


@functools.cache
def public_features(name: str) -> np.ndarray:
    """The same features of patches of public photographs, for the rehearsal of the rate."""
    patches = scattering.maps(scattering.patches())[::8].astype(np.float32)
    rows = scattering.normalised(torch.tensor(patches), _groups(name))
    return (scattering.PhotographWhitening()(rows) if name == "whitened" else rows).numpy()


def _groups(name: str) -> int:
    return ALONE if name == "each map by itself" else TOGETHER


def search(images: Images, epsilon: float, arm: str, quick: bool) -> dict[str, Any]:
    """One search within epsilon; what came of it."""
    records = len(images.train_labels)
    size = {"batch_size": 100, "epochs": 5} if quick else {"batch_size": BATCH, "epochs": EPOCHS}
    own = "whitened" if arm == "default" else arm
    several = {"candidates": len(FEATURES)} if arm == "list" else {"pilots": 0}
    plan = odp.plan_budget(
        epsilon=epsilon, delta=DELTA, records=records, score_final=False, **size, **several
    )
    candidates = [{"features": name} for name in (FEATURES if arm == "list" else (own,))]
    study = optuna.create_study(
        direction="maximize",
        sampler=odp.BudgetSampler(plan, candidates=candidates if arm == "list" else None),
    )
    last: dict[str, Any] = {}
    chosen = {} if arm == "default" else {"optimizer": "sgd", "schedule": odp.Schedule("linear")}

    def objective(trial: optuna.Trial) -> float:
        name = trial.suggest_categorical("features", FEATURES) if arm == "list" else own
        run = odp.start_run(trial)
        features, _ = images.features(name)
        trained = odp.train(
            run,
            odp.SoftmaxRegression(COLUMNS, CLASSES),
            (features, images.train_labels),
            score="accuracy" if run.is_pilot else None,
            inputs=public_features(name),
            **chosen,
        )
        last.update(features=name, model=trained.model)
        return trained.score

    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    _, test = images.features(last["features"])
    right = last["model"].predict(test) == images.test_labels
    return {
        "arm": arm,
        "epsilon": epsilon,
        "spent": release.guarantee.epsilon(DELTA),
        "features": last["features"],
        "accuracy": round(100.0 * float(right.mean()), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[2.7])
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--searches", type=int, default=1, help="of each kind")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    torch.set_num_threads(1)
    images = Images(options.quick)
    for _ in range(options.searches):
        for arm in options.arms:
            for epsilon in options.epsilons:
                start = time.process_time()
                found = search(images, epsilon, arm, options.quick)
                found["seconds"] = round(time.process_time() - start)
                print(json.dumps(found), flush=True)
                if not options.quick:
                    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
                    RESULTS.write_text(json.dumps([*kept, found], indent=0) + "\n")


if __name__ == "__main__":
    main()
