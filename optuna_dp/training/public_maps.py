"""Public feature maps: from a table or images to the features that a model is trained on.

A map is made of public numbers alone and transforms every record by itself. So it costs nothing,
and one record changes its own features only. Which map suits the data is what a short list of
candidates asks (``docs/explanation/searches.md``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError, Text
from optuna_dp.training.record_arrays import Array

# From inputs (n, ...) to features (n, columns), or (n, ...), which are flattened.
FeatureMap: TypeAlias = Callable[[Array], Array]

_COSINES = 128


def public_maps(made_up_inputs: npt.ArrayLike) -> dict[str, FeatureMap]:
    """Returns feature maps for a table or for images, made of public numbers only, by name.

    =============  ================================================================================
    name           features
    =============  ================================================================================
    ``raw``        the columns, standardised by the made-up inputs and cut off at 3; pixels, flat
    ``squares``    of a table: the columns and their squares
    ``signs``      of a table: 1 above the column's middle, -1 below
    ``bins``       of a table: whether a column is low, and whether it is high
    ``pooled``     of images: means over two by two pixels
    ``gradients``  of images: differences to the neighbouring pixel, down and across
    ``cosines``    128 cosines of random directions (Rahimi and Recht, 2007), the same each time
    ``joined``     all of these side by side, each scaled to the same norm on the made-up inputs
    =============  ================================================================================

    Candidates of :func:`optuna_dp.short_list` name them. A model on ``joined`` need not choose
    among the others, so nothing is paid for the choice.

    Guarantees:
        No record is read, and every record is transformed by itself.

    Args:
        made_up_inputs: Inputs that look like the public description of the records:
            :func:`optuna_dp.made_up_inputs`, :func:`optuna_dp.made_up_images`. A table (rows,
            columns), or images (rows, channels, height, width), two pixels or more high and wide;
            at least two of them. **No private records.**

    Raises:
        InvalidArgumentError: If the inputs are neither.

    Example:
        >>> import optuna_dp as odp
        >>> made_up = odp.made_up_inputs(*[(0, 1)] * 10)
        >>> maps = odp.public_maps(made_up)
        >>> maps["squares"](made_up).shape
        (256, 20)
    """
    inputs = np.asarray(made_up_inputs, dtype=np.float64)
    image = inputs.ndim == 4 and min(inputs.shape[2:]) >= 2
    if len(inputs) < 2 or not (image or inputs.ndim == 2):
        raise InvalidArgumentError(
            "made_up_inputs",
            Text(f"inputs of shape {inputs.shape}"),
            allowed="it must be a table, (rows, columns), or images, (rows, channels, height, "
            "width)",
        )
    rows = inputs.reshape(len(inputs), -1)
    middle = rows.mean(axis=0)
    deviation = np.where(rows.std(axis=0) > 0.0, rows.std(axis=0), 1.0)
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((rows.shape[1], _COSINES)) / math.sqrt(rows.shape[1])
    shifts = rng.uniform(0.0, 2.0 * math.pi, _COSINES)

    def raw(x: Array) -> FloatArray:
        standardized = (np.asarray(x, dtype=np.float64).reshape(len(x), -1) - middle) / deviation
        features: FloatArray = np.clip(standardized, -3.0, 3.0)
        return features

    def squares(x: Array) -> FloatArray:
        values = raw(x)
        return np.hstack([values, (values * values - 1.0) / math.sqrt(2.0)])

    def bins(x: Array) -> npt.NDArray[np.bool_]:
        return np.hstack([raw(x) < -0.5, raw(x) > 0.5])

    def pooled(x: Array) -> Array:
        even_pixels = np.asarray(x)[:, :, : inputs.shape[2] // 2 * 2, : inputs.shape[3] // 2 * 2]
        row_sums = even_pixels[:, :, ::2] + even_pixels[:, :, 1::2]
        return (row_sums[..., ::2] + row_sums[..., 1::2]) / 4.0

    def gradients(x: Array) -> FloatArray:
        pixels = np.asarray(x, dtype=np.float64)
        parts = [np.diff(pixels, axis=axis).reshape(len(pixels), -1) for axis in (2, 3)]
        return np.hstack(parts)

    def cosines(x: Array) -> FloatArray:
        return np.cos(raw(x) @ directions + shifts)

    maps_of_kind: dict[str, FeatureMap] = (
        {"pooled": pooled, "gradients": gradients}
        if image
        else {"squares": squares, "signs": lambda x: np.sign(raw(x)), "bins": bins}
    )
    maps: dict[str, FeatureMap] = {"raw": raw, **maps_of_kind, "cosines": cosines}
    return maps | {"joined": side_by_side(maps, made_up_inputs)}


def side_by_side(maps: Mapping[str, FeatureMap], made_up_inputs: Array) -> FeatureMap:
    """Returns public feature maps as one, whose features are theirs side by side.

    The features of each map are scaled to the same norm on the made-up inputs (the root of the
    mean square over rows), whatever their number of columns, so that no map drowns the others. It
    is the norm with which all features have mean square 1, as learning rates expect.

    Args:
        maps: Public maps that transform each record by itself, and are not zero.
        made_up_inputs: As for :func:`public_maps`.
    """
    blocks = [_flat(feature_map(made_up_inputs)) for feature_map in maps.values()]
    norms = [math.sqrt(np.square(block, dtype=np.float64).sum(axis=1).mean()) for block in blocks]
    shared_norm = math.sqrt(sum(block.shape[1] for block in blocks) / len(blocks))
    factors = [np.float32(shared_norm / norm) for norm in norms]

    def joined(inputs: Array) -> npt.NDArray[np.float32]:
        return np.hstack(
            [
                _flat(feature_map(inputs)) * factor
                for feature_map, factor in zip(maps.values(), factors, strict=True)
            ]
        )

    return joined


def _flat(features: Array) -> npt.NDArray[np.float32]:
    values = np.asarray(features, dtype=np.float32)
    return values.reshape(len(values), -1)
