"""Short lists of candidates to begin with, from what was best on other tasks.

The ranked kinds of models are in ``short_lists.json``, which
``python examples/compare/kinds.py`` makes from the trainings behind
``docs/explanation/searches.md``.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Literal, TypedDict, get_args

from optuna_dp.errors import InvalidArgumentError

Records = Literal["table", "image", "fine-tuning"]
# Maps of public_maps that only tables have.
_OF_TABLES = ("squares", "signs", "bins")
_HAVE = {
    "table": ("joined", "raw", *_OF_TABLES, "cosines"),
    "image": ("joined", "raw", "pooled", "gradients", "cosines"),
}
# All maps side by side, and the best four kinds.
_LENGTH = 5
_HIDDEN_UNITS = 32
_FINE_TUNING: tuple[dict[str, str | int], ...] = (
    {"trained": "last layer", "width": 0, "rank": 0},
    {"trained": "last layer", "width": 64, "rank": 0},
    {"trained": "lora", "width": 0, "rank": 4},
    {"trained": "lora", "width": 0, "rank": 16},
    {"trained": "all", "width": 0, "rank": 0},
)


class RankedKind(TypedDict):
    """A kind of models: :func:`ranked_kinds` says what its entries are."""

    features: str
    hidden: bool
    points_behind: float
    tasks: int


def short_list(records: Records) -> list[dict[str, str | int]]:
    """Returns candidates that are good guesses by public knowledge, best first.

    For ``plan_budget(candidates=len(...))`` and ``BudgetSampler(candidates=...)``. Put your own
    first guess in front of it.

    For a table or images a candidate has ``features``, a name of :func:`optuna_dp.public_maps`,
    and ``width``, the units of one hidden layer; 0 is a softmax regression. First come all maps
    side by side, then the four kinds of models that were best on twelve other tasks, of those that
    such records have. For fine-tuning it has ``trained`` ("last layer", "lora" or "all"),
    ``width`` (of a hidden layer in front of the last one; 0 is none) and ``rank`` (of LoRA; 0 is
    none). That list was not ranked by experiments; one text task judged it
    (``docs/explanation/searches.md``). No private record was looked at.

    Args:
        records: "table", "image" or "fine-tuning".

    Raises:
        InvalidArgumentError: If it is none of them.

    Example:
        >>> import optuna_dp as odp
        >>> odp.short_list("table")[:2]
        [{'features': 'joined', 'width': 0}, {'features': 'squares', 'width': 0}]
        >>> len(odp.short_list("fine-tuning"))
        5
    """
    if records not in get_args(Records):
        raise InvalidArgumentError(
            "records",
            records,
            allowed=f"it must be one of {', '.join(map(repr, get_args(Records)))}",
        )
    if records == "fine-tuning":
        return [dict(candidate) for candidate in _FINE_TUNING]
    kinds: list[dict[str, str | int]] = [
        {"features": kind["features"], "width": _HIDDEN_UNITS if kind["hidden"] else 0}
        for kind in ranked_kinds()
        if kind["features"] in _HAVE[records]
    ]
    # In a list of five it matters less which is first than that it is there.
    joined_kinds = [kind for kind in kinds if kind["features"] == "joined"]
    return [*joined_kinds, *(kind for kind in kinds if kind not in joined_kinds)][:_LENGTH]


def ranked_kinds() -> list[RankedKind]:
    """Returns kinds of models by how far they were behind the best of a task, least first.

    Returns:
        For each kind ``features``, ``hidden`` (whether there is a hidden layer), ``points_behind``
        (points of test score, the mean over tasks and epsilons) and ``tasks`` (how many have it).
    """
    text = files("optuna_dp.planning").joinpath("short_lists.json").read_text(encoding="utf-8")
    kinds: list[RankedKind] = json.loads(text)["kinds"]
    return kinds
