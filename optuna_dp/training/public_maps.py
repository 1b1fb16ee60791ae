"""Public feature maps: from records as they are to the features that a model is trained on.

A map is made of public numbers alone and transforms every record by itself. So it costs nothing,
and one record changes its own features only. Which map suits the data is what a short list of
candidates asks (``docs/explanation/searches.md``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from optuna_dp.errors import InvalidArgumentError

Features: TypeAlias = npt.NDArray[np.float32]
# From inputs (n, ...) to features (n, columns).
FeatureMap: TypeAlias = Callable[[Any], Any]

# By how much the features of a record may differ when it is transformed alone: rounding.
_ROUNDING = 1e-4


@dataclass(frozen=True)
class JoinedMaps:
    """Feature maps side by side; see :func:`joined_maps`.

    Calling it returns the features of inputs, shape (n, ``columns``), 32-bit floats.

    Attributes:
        maps: The maps, by name, in the order of their blocks.
        factors: What each block is multiplied with, by name: public numbers.
        columns: How many features there are.
    """

    maps: Mapping[str, FeatureMap]
    factors: Mapping[str, float]
    columns: int

    def __call__(self, inputs: Any) -> Features:
        """Returns the features of inputs, (n, columns)."""
        blocks = [
            features_of(name, feature_map, inputs) * np.float32(self.factors[name])
            for name, feature_map in self.maps.items()
        ]
        return np.hstack(blocks)


def joined_maps(maps: Mapping[str, FeatureMap], made_up_inputs: Any) -> JoinedMaps:
    """Returns public feature maps side by side, as one map.

    A model on all maps need not choose among them, so nothing is paid for the choice. All blocks
    of features are scaled to the same norm on the made-up inputs (the root of the mean square over
    rows), whatever their number of columns, so that no map drowns the others. It is the norm with
    which the joined features have mean square 1, as learning rates expect.

    Guarantees:
        * No record is read: the factors come from the made-up inputs, once.
        * The features of a record depend on that record only, if this is so of each map. A map
          that treats the made-up inputs differently one by one, such as one that standardises by
          the inputs' own mean, is refused.

    Args:
        maps: By name, functions from inputs (n, ...) to features (n, columns) or (n, ...), which
            are flattened. At least one. They must be public, and transform each record by itself.
        made_up_inputs: Inputs that look like the public description of the records, at least
            two: :func:`optuna_dp.made_up_inputs`, :func:`optuna_dp.made_up_images`. **No private
            records.**

    Raises:
        InvalidArgumentError: If an argument is not allowed, or a map is zero or not finite on all
            made-up inputs, or does not transform each of them by itself.

    Example:
        >>> import numpy as np, optuna_dp as odp
        >>> made_up = odp.made_up_inputs((0, 1), (0, 1), (-1.73, 1.73))
        >>> joined = odp.joined_maps({"raw": lambda x: x, "squares": np.square}, made_up)
        >>> joined(made_up[:5]).shape
        (5, 6)
    """
    if not isinstance(maps, Mapping) or not maps:
        raise InvalidArgumentError(
            "maps", maps, "it must be a dictionary from names to functions of inputs"
        )
    if np.ndim(made_up_inputs) < 2 or len(made_up_inputs) < 2:
        raise InvalidArgumentError(
            "made_up_inputs",
            f"of shape {np.shape(made_up_inputs)}",
            "it must have shape (rows, ...), with two rows or more",
            "For example odp.made_up_inputs(*[(0, 1)] * 10).",
        )
    norms, columns = {}, 0
    for name, feature_map in maps.items():
        if not callable(feature_map):
            raise InvalidArgumentError(
                f"maps[{name!r}]", feature_map, "it must be a function of inputs"
            )
        block = features_of(name, feature_map, made_up_inputs)
        norm = math.sqrt(float(np.square(block, dtype=np.float64).sum(axis=1).mean()))
        if not 0.0 < norm < math.inf:
            raise InvalidArgumentError(
                f"maps[{name!r}]",
                feature_map,
                "its features of the made-up inputs must be finite, and not all of them zero",
            )
        _check_records_alone(name, feature_map, made_up_inputs, block)
        norms[name] = norm
        columns += block.shape[1]
    shared = math.sqrt(columns / len(norms))
    return JoinedMaps(dict(maps), {name: shared / norms[name] for name in norms}, columns)


def features_of(name: str, feature_map: FeatureMap, inputs: Any) -> Features:
    """Returns a map's features of inputs, (n, columns)."""
    features = np.asarray(feature_map(inputs), dtype=np.float32)
    if features.ndim < 1 or len(features) != len(inputs):
        raise InvalidArgumentError(
            f"maps[{name!r}]",
            feature_map,
            f"it must return one row for each of the {len(inputs)} inputs, and returned shape "
            f"{features.shape}",
        )
    return features.reshape(len(features), -1)


def _check_records_alone(
    name: str, feature_map: FeatureMap, inputs: Any, features: Features
) -> None:
    """Refuses a map whose features of an input depend on the inputs beside it."""
    half_length = len(inputs) // 2
    for rows in (slice(0, half_length), slice(0, 1)):
        own_features = features_of(name, feature_map, inputs[rows])
        has_equal_width = own_features.shape[1] == features.shape[1]
        scale = float(np.abs(features).max(initial=0.0)) * _ROUNDING
        if not has_equal_width or not np.allclose(
            own_features, features[rows], rtol=0.0, atol=scale, equal_nan=True
        ):
            raise InvalidArgumentError(
                f"maps[{name!r}]",
                feature_map,
                "it must transform each input by itself, and its features change with the inputs "
                "beside them",
                "Use public numbers, such as a range, in place of the inputs' own mean or spread.",
            )


# -- maps to begin with ---------------------------------------------------------------------------

_COSINES = 128
JOINED = "joined"


def public_maps(made_up_inputs: Any) -> dict[str, FeatureMap]:
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
    ``joined``     all of these side by side: :func:`joined_maps`
    =============  ================================================================================

    Candidates of :func:`optuna_dp.short_list` name them.

    Guarantees:
        No record is read, and every record is transformed by itself.

    Args:
        made_up_inputs: As for :func:`joined_maps`: a table (rows, columns), or images (rows,
            channels, height, width), two pixels or more high and wide.

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
            f"of shape {inputs.shape}",
            "it must be a table, (rows, columns), or images, (rows, channels, height, width)",
        )
    rows = inputs.reshape(len(inputs), -1)
    middle = rows.mean(axis=0)
    deviation = np.where(rows.std(axis=0) > 0.0, rows.std(axis=0), 1.0)
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((rows.shape[1], _COSINES)) / math.sqrt(rows.shape[1])
    shifts = rng.uniform(0.0, 2.0 * math.pi, _COSINES)

    def raw(x: Any) -> Any:
        standardized = (np.asarray(x, dtype=np.float64).reshape(len(x), -1) - middle) / deviation
        return np.clip(standardized, -3.0, 3.0)

    def squares(x: Any) -> Any:
        values = raw(x)
        return np.hstack([values, (values * values - 1.0) / math.sqrt(2.0)])

    def bins(x: Any) -> Any:
        return np.hstack([raw(x) < -0.5, raw(x) > 0.5])

    def pooled(x: Any) -> Any:
        even_pixels = np.asarray(x)[:, :, : inputs.shape[2] // 2 * 2, : inputs.shape[3] // 2 * 2]
        row_sums = even_pixels[:, :, ::2] + even_pixels[:, :, 1::2]
        return (row_sums[..., ::2] + row_sums[..., 1::2]) / 4.0

    def gradients(x: Any) -> Any:
        pixels = np.asarray(x, dtype=np.float64)
        parts = [np.diff(pixels, axis=axis).reshape(len(pixels), -1) for axis in (2, 3)]
        return np.hstack(parts)

    def cosines(x: Any) -> Any:
        return np.cos(raw(x) @ directions + shifts)

    maps_of_kind: dict[str, FeatureMap] = (
        {"pooled": pooled, "gradients": gradients}
        if image
        else {"squares": squares, "signs": lambda x: np.sign(raw(x)), "bins": bins}
    )
    maps: dict[str, FeatureMap] = {"raw": raw, **maps_of_kind, "cosines": cosines}
    return maps | {JOINED: joined_maps(maps, made_up_inputs)}
