"""examples/headline/engine.py: clipping, sampling and steps, against plain arithmetic."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "headline"))

import engine
from engine import Model
from partitions import utilities, utilities_in_batches

RNG = np.random.default_rng(4)
X = np.hstack([RNG.normal(size=(12, 3)), np.ones((12, 1))]).astype(np.float32)
Y = RNG.integers(0, 3, 12)


def loss(layers: list[np.ndarray], x: np.ndarray, label: int) -> float:
    inner = x if len(layers) == 1 else np.append(np.tanh(x @ layers[0]), 1.0)
    logits = inner @ layers[-1]
    return float(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[label])


def gradient(layers: list[np.ndarray], x: np.ndarray, label: int) -> list[np.ndarray]:
    """By differences."""
    found = []
    for layer in layers:
        slopes = np.empty_like(layer)
        for place in np.ndindex(layer.shape):
            kept, ends = layer[place], []
            for shift in (1e-5, -1e-5):
                layer[place] = kept + shift
                ends.append(loss(layers, x, label))
            layer[place] = kept
            slopes[place] = (ends[0] - ends[1]) / 2e-5
        found.append(slopes)
    return found


@pytest.mark.parametrize("hidden", [0, 5])
@pytest.mark.parametrize("norm", [0.3, 1e6])
def test_one_step_is_minus_the_sum_of_the_clipped_gradients(hidden: int, norm: float) -> None:
    model = Model(3, hidden)
    rng = np.random.default_rng(1)
    start = model.start(1, X.shape[1], np.random.default_rng(1))
    start = [layer + rng.normal(size=layer.shape).astype(np.float32) for layer in start]

    class Started(Model):
        def start(self, models, features, rng):  # type: ignore[no-untyped-def]
            return [layer.copy() for layer in start]

    ended = engine.train(
        Started(3, hidden),
        X,
        Y,
        [0.5],
        [norm],
        noise_multiplier=0.0,
        sample_rate=1.0 - 1e-12,
        steps=1,
        batch=8,
    )
    wide = [layer[0].astype(np.float64) for layer in start]
    total = [np.zeros_like(layer) for layer in wide]
    for x, label in zip(X.astype(np.float64), Y, strict=True):
        slopes = gradient(wide, x, int(label))
        length = np.sqrt(sum(float((slope**2).sum()) for slope in slopes))
        for kept, slope in zip(total, slopes, strict=True):
            kept += slope * min(1.0, norm / length)
    for after, before, kept in zip(ended, wide, total, strict=True):
        np.testing.assert_allclose(after[0], before - 0.5 * kept / 8, rtol=2e-4, atol=2e-5)


def test_batches_are_poisson_samples_of_each_models_own_number_of_records() -> None:
    rng = np.random.default_rng(2)
    counts = np.array([50, 200])
    sizes, first = [], 0
    for _ in range(4000):
        index, used = engine._batches(rng, 0.1, counts)
        for row, real, count in zip(index, used, counts, strict=True):
            kept = row[real]
            assert len(set(kept.tolist())) == len(kept)
            assert kept.size == 0 or kept.max() < count
        sizes.append(used.sum(axis=1))
        first += int((index[0, 0] == 0) and used[0, 0])
    means, spreads = np.mean(sizes, axis=0), np.var(sizes, axis=0)
    np.testing.assert_allclose(means, 0.1 * counts, rtol=0.03)
    np.testing.assert_allclose(spreads, 0.09 * counts, rtol=0.15)
    assert abs(first / 4000 - 0.1) < 0.03


def test_the_noise_has_the_stated_size_and_models_learn_from_their_own_records_only() -> None:
    blank = np.zeros((12, 200), dtype=np.float32)
    records = np.array([[0, 1, 2], [3, 4, -1]])
    found = engine.train(
        Model(3),
        blank,
        Y,
        [1.0, 2.0],
        [0.5, 0.5],
        noise_multiplier=[4.0, 8.0],
        sample_rate=0.5,
        steps=9,
        batch=2,
        records=records,
        rng=np.random.default_rng(3),
    )[0]
    # rate * noise * norm * sqrt(steps) / batch
    np.testing.assert_allclose(found.std(axis=(1, 2)), [3.0, 12.0], rtol=0.15)
    marked = np.zeros((12, 12), dtype=np.float32)
    np.fill_diagonal(marked, 1.0)
    moved = engine.train(
        Model(3),
        marked,
        Y,
        [1.0, 1.0],
        [1.0, 1.0],
        noise_multiplier=0.0,
        sample_rate=0.9,
        steps=20,
        batch=2,
        records=records,
    )[0]
    used = np.abs(moved).sum(axis=2) > 0
    assert set(np.flatnonzero(used[0])) == {0, 1, 2}
    assert set(np.flatnonzero(used[1])) == {3, 4}


def on_partitions(
    make: Callable[..., np.ndarray], part_of: np.ndarray, **given: Any
) -> np.ndarray:
    how = {"partitions": 12, "noise": 0.0, "steps": 7, **given}
    many = np.random.default_rng(6).normal(size=(999, 4)).astype(np.float32)
    return make(
        valid=(many, np.arange(999) % 3),
        part_of=part_of,
        rates=[0.5, 2.0],
        norms=[0.3, 3.0],
        **how,
    )


def test_batches_of_a_partition_with_one_record_are_that_record() -> None:
    each = np.arange(12)
    full = on_partitions(lambda **k: utilities(X, Y, classes=3, **k), each)
    drawn = on_partitions(lambda **k: utilities_in_batches(Model(3), X, Y, batch=5, **k), each)
    np.testing.assert_allclose(drawn, full)
    assert len(np.unique(full)) > 2


@pytest.mark.parametrize("hidden", [0, 5])
def test_records_move_the_utilities_of_their_partition_only(hidden: int) -> None:
    def found(x: np.ndarray, parts: np.ndarray) -> np.ndarray:
        return on_partitions(
            lambda **k: utilities_in_batches(
                Model(3, hidden), x, Y, batch=5, rng=np.random.default_rng(5), **k
            ),
            parts,
            partitions=4,
            noise=0.1,
        )

    parts = np.array([0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2])
    before = found(X, parts)
    assert np.isnan(before[:, 3]).all()
    changed = found(np.concatenate([-X[:2], X[2:]]), parts)
    np.testing.assert_array_equal(before[:, 1:3], changed[:, 1:3])
    # In another partition: the first is empty now, and the last is not.
    moved = found(X, np.concatenate([[3, 3], parts[2:]]))
    np.testing.assert_array_equal(before[:, 1:3], moved[:, 1:3])
    assert np.isnan(moved[:, 0]).all()
    assert not np.isnan(moved[:, 3]).any()


def test_momentum_and_adam_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    slopes = [np.full((1, 2, 2), value, dtype=np.float32) for value in (1.0, -0.5, 2.0, 0.25)]
    for name, made in (
        ("momentum", lambda w: torch.optim.SGD([w], lr=0.1, momentum=0.9)),
        ("adam", lambda w: torch.optim.Adam([w], lr=0.1)),
    ):
        weights = [np.zeros((1, 2, 2), dtype=np.float32)]
        step = engine._Steps(name, np.array([[[0.1]]], dtype=np.float32))  # type: ignore[arg-type]
        theirs = torch.zeros(1, 2, 2)
        optimiser = made(theirs)
        for slope in slopes:
            step(weights, [slope])
            theirs.grad = torch.tensor(slope)
            optimiser.step()
        np.testing.assert_allclose(weights[0], theirs.numpy(), rtol=1e-4)
