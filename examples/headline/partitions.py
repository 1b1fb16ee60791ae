"""Trainings WITHOUT privacy on partitions, for the arms that choose among utilities."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


def utilities(
    x: Floats,
    y: Labels,
    part_of: npt.NDArray[np.int64],
    valid: tuple[Floats, Labels],
    classes: int,
    rates: npt.ArrayLike,
    norms: npt.ArrayLike,
    *,
    partitions: int,
    noise: float,
    steps: int,
) -> npt.NDArray[np.float64]:
    """Validation accuracies of every candidate trained on every partition, WITHOUT privacy.

    The update is that of the final DP-SGD training in expectation: clipped gradients, averaged
    over the partition, plus Gaussian noise of ``noise`` clipping norms, so that candidates are
    judged under the noise that they will meet. The noise of a step is one draw for all partitions;
    it does not depend on the data.

    Returns:
        (candidates, partitions); NaN for an empty partition.
    """
    rng = np.random.default_rng()
    clip = np.asarray(norms, dtype=np.float32)
    step_size = np.repeat(np.asarray(rates, dtype=np.float32), classes)
    candidates, features = len(clip), x.shape[1]
    counts = np.bincount(part_of, minlength=partitions)
    order = np.argsort(part_of, kind="stable")
    width = max(1, int(counts.max()))
    place = np.arange(len(x)) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = np.zeros((partitions, width, features), dtype=np.float32)
    targets = np.zeros((partitions, width, 1, classes), dtype=np.float32)
    rows[part_of[order], place] = x[order]
    targets[part_of[order], place, 0] = np.eye(classes, dtype=np.float32)[y[order]]
    lengths = np.linalg.norm(rows, axis=2)[:, :, None]
    # Padded rows have no features, hence no gradient.
    share = (1.0 / np.maximum(counts, 1)).astype(np.float32)[:, None, None, None]
    weights = np.zeros((partitions, features, candidates * classes), dtype=np.float32)
    scale = np.repeat(noise * clip, classes).astype(np.float32)
    for _ in range(steps):
        logits = (rows @ weights).reshape(partitions, width, candidates, classes)
        errors = _softmax(logits) - targets
        size = lengths * np.linalg.norm(errors, axis=3)
        errors *= np.minimum(1.0, clip / np.maximum(size, 1e-12))[..., None] * share
        gradient = rows.transpose(0, 2, 1) @ errors.reshape(partitions, width, -1)
        gradient += scale * rng.standard_normal(weights.shape[1:], dtype=np.float32)
        weights -= step_size * gradient
    found = np.empty((candidates, partitions))
    for part in range(partitions):
        logits = (valid[0] @ weights[part]).reshape(-1, candidates, classes)
        found[:, part] = np.mean(np.argmax(logits, axis=2) == valid[1][:, None], axis=0)
    found[:, counts == 0] = np.nan
    return found


def _softmax(logits: Floats) -> Floats:
    result = np.exp(logits - logits.max(axis=-1, keepdims=True))
    result /= result.sum(axis=-1, keepdims=True)
    return result
