"""joined_maps: blocks of one norm, nothing of the records, each record by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError

MADE_UP = odp.made_up_inputs(*[(-1.73, 1.73)] * 6)
MAPS: dict[str, Any] = {
    "raw": lambda x: x,
    "large": lambda x: 1000.0 * x[:, :2],
    "squares": lambda x: np.hstack([x, x * x]),
}


def norms(features: np.ndarray) -> list[float]:
    blocks = (features[:, :6], features[:, 6:8], features[:, 8:])
    return [float(np.sqrt((block.astype(float) ** 2).sum(axis=1).mean())) for block in blocks]


def test_blocks_have_the_same_norm_on_the_made_up_inputs_and_features_order_one() -> None:
    joined = odp.joined_maps(MAPS, MADE_UP)
    features = joined(MADE_UP)
    assert (features.shape, features.dtype) == ((len(MADE_UP), 20), np.float32)
    assert joined.columns == 20
    assert norms(features) == pytest.approx([norms(features)[0]] * 3, rel=1e-5)
    assert float(np.square(features).mean()) == pytest.approx(1.0, rel=1e-5)
    assert list(joined.factors) == list(MAPS)


def test_no_record_moves_the_features_of_another() -> None:
    """The factors are those of the made-up inputs, whatever is transformed."""
    joined, rng = odp.joined_maps(MAPS, MADE_UP), np.random.default_rng(0)
    records = 50.0 * rng.normal(size=(40, 6))
    features = joined(records)
    changed = records.copy()
    changed[3] *= 1e6
    moved = (joined(changed) != features).any(axis=1)
    assert list(np.flatnonzero(moved)) == [3]
    assert joined(records[7:8]) == pytest.approx(features[7:8], rel=1e-6)


def test_images_are_flattened() -> None:
    images = odp.made_up_images(1, 8, 8)
    joined = odp.joined_maps({"raw": lambda x: x, "half": lambda x: x[:, :, ::2, ::2]}, images)
    assert joined(images[:3]).shape == (3, 64 + 16)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (lambda x: x - x.mean(axis=0), "each input by itself"),
        (lambda x: x / len(x), "each input by itself"),
        (lambda x: np.sort(x, axis=0), "each input by itself"),
        (lambda x: x[:1], "one row for each"),
        (lambda x: 0.0 * x, "not all of them zero"),
        (lambda x: np.full_like(x, np.nan), "finite"),
        ("raw", "a function of inputs"),
    ],
)
def test_a_map_that_is_none_is_refused_by_name(one: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        odp.joined_maps({"raw": lambda x: x, "that": one}, MADE_UP)
    assert "maps['that']" in str(caught.value)


@pytest.mark.parametrize("given", [({}, MADE_UP), ([], MADE_UP), (MAPS, MADE_UP[:1]), (MAPS, 3)])
def test_what_is_no_argument(given: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        odp.joined_maps(*given)
