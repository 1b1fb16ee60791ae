"""How often a DP-EBM's model names a value that a single record has.

A model of (1, 1e-7)-differential privacy would name it with a probability of at most 1e-7 more
than the model of the same records without that one, which never names it. Needs interpret-core:
python examples/audits/dp_ebm_categories.py
"""

from __future__ import annotations

import numpy as np
from interpret.privacy import DPExplainableBoostingClassifier

PLACES, RARE, FITS = ["north", "south", "east"], "island", 60


def models_that_name(kind: str | list[str], count: int) -> int:
    """Returns how many of ``FITS`` models name the place of one of ``count`` records."""
    named = 0
    for seed in range(FITS):
        rng = np.random.default_rng(seed)
        age, place = rng.uniform(18, 90, count), rng.choice(PLACES, count).astype(object)
        place[0] = RARE
        model = DPExplainableBoostingClassifier(
            epsilon=1.0,
            delta=1e-7,
            max_rounds=5,
            feature_types=["continuous", kind],
            privacy_bounds=[(18, 90), None],
        ).fit(np.column_stack([age.astype(object), place]), (age > 50).astype(int))
        # The first feature's bins are cuts; the second's are a number for each named value.
        named += any(RARE in bins for bins in model.bins_[1])
    return named


def main() -> None:
    for words, kind in (("nominal", "nominal"), ("listed", [*PLACES, RARE])):
        for count in (500, 1000, 2000):
            print(f"{words}, {count} records: named in {models_that_name(kind, count)} of {FITS}")


if __name__ == "__main__":
    main()
