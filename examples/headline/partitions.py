"""Trainings WITHOUT privacy on partitions, for the arms that choose among utilities."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from engine import Model, accuracies, clipped_sums

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


def utilities_in_batches(
    model: Model,
    x: Floats,
    y: Labels,
    part_of: npt.NDArray[np.int64],
    valid: tuple[Floats, Labels],
    rates: npt.ArrayLike,
    norms: npt.ArrayLike,
    *,
    partitions: int,
    noise: float,
    steps: int,
    batch: int,
    rng: np.random.Generator | None = None,
) -> npt.NDArray[np.float64]:
    """The same for any model, in batches: ``batch`` records of the partition, with replacement.

    All candidates of a partition meet the same batches; all partitions, the same noise and the
    same weights to begin with. Each partition draws its batches by itself: were there one
    generator for all, a record in one of them would move the batches of the next.
    """
    given = np.random.default_rng() if rng is None else rng
    rng, *of_partitions = given.spawn(1 + partitions)
    clip = np.asarray(norms, dtype=np.float32)
    rate = np.asarray(rates, dtype=np.float32)[:, None, None]
    one_hot, squares = np.eye(model.classes, dtype=np.float32)[y], np.einsum("nf,nf->n", x, x)
    start = model.start(1, x.shape[1], rng)
    drawn = [
        rng.standard_normal((steps, len(clip), *layer.shape[1:]), dtype=np.float32)
        for layer in start
    ]
    for layer in drawn:
        layer *= np.float32(noise) * clip[:, None, None]
    found = np.full((len(clip), partitions), np.nan)
    used = np.ones((len(clip), batch), dtype=bool)
    for part, draws in enumerate(of_partitions):
        own = np.flatnonzero(part_of == part)
        if not own.size:
            continue
        weights = [np.repeat(layer, len(clip), axis=0) for layer in start]
        for step in range(steps):
            index = own[draws.integers(own.size, size=(1, batch))]
            sums = clipped_sums(weights, x[index], one_hot[index], squares[index], clip, used)
            for layer, total, shift in zip(weights, sums, drawn, strict=True):
                layer -= rate * (total / np.float32(batch) + shift[step])
        found[:, part] = accuracies(weights, *valid)
    return found


def _softmax(logits: Floats) -> Floats:
    result = np.exp(logits - logits.max(axis=-1, keepdims=True))
    result /= result.sum(axis=-1, keepdims=True)
    return result
