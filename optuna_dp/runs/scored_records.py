"""The records that are scored, and the public number that their sum is divided by.

Where a plan scores on other records than the training's, those must be others. What can be seen
of a slip is refused: views of the trained records, and copies as a mask or an index makes them.
Copies are no inputs of a rehearsal either, and no part of a model.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError, Text, type_of
from optuna_dp.runs.run import Run, SgdRun
from optuna_dp.training.data_sets import origins
from optuna_dp.training.record_arrays import Part, is_array, leaves, overlap
from optuna_dp.training.records import (
    ArrayRecords,
    DataSetRecords,
    Records,
    private_inputs,
    read_records,
    warn_of_number,
)

if TYPE_CHECKING:
    import torch

_SAMPLE = 200  # Rows that are looked for among the trained records, evenly spaced.
_FEWEST = 20
# Of the sample: how many have to be the one and only copy of one trained record. Tables of few
# different rows have equal rows by chance, but hardly ever exactly one on either side.
_LARGEST_SHARE = 0.9
# From here on the log says so.
_REMARKABLE_SHARE = 0.1

_logger = logging.getLogger("optuna_dp")


@dataclass(frozen=True)
class ScoredRecords:
    """The records that are scored.

    Attributes:
        records: The records.
        size: The public number that their sum is divided by.
        noise_multiplier: Noise of the score; None if the records are public.
        is_disjoint: Whether they are private, and others than the training's.
    """

    records: Records
    size: int
    noise_multiplier: float | None
    is_disjoint: bool = False


def scored_records(
    run: Run,
    numbers: SgdRun,
    records: Records,
    has_score: bool,
    score_records: object,
    score_size: int | None,
) -> ScoredRecords | None:
    """Returns the records that the plan charges a score of; None if there is no score.

    Args:
        run: What the trial was given.
        numbers: Its numbers.
        records: The training's records.
        has_score: Whether a score is asked for.
        score_records: Other records to score, as the user gave them; None if there are none.
        score_size: Their public number; None if none was given.

    Raises:
        InvalidArgumentError: If they are not what the plan scores on.
    """
    if not has_score or run.scored_on is None:
        return None
    if run.scored_on == "training":
        return ScoredRecords(records, max(1, round(numbers.records)), run.score_noise_multiplier)
    scored = read_records(score_records, "score_records")
    check_disjoint(records, scored)
    if run.scored_on == "public":
        return ScoredRecords(scored, len(scored), None)
    size = validation.whole("score_size", score_size, 1)
    warn_of_number(scored, size, "score_records")
    return ScoredRecords(scored, size, run.score_noise_multiplier, is_disjoint=True)


def check_arguments(
    run: Run, has_score: bool, score_records: object, score_size: int | None
) -> None:
    """Refuses records to score, or their number, that do not fit the plan: no record is read.

    Args:
        run: What the trial was given.
        has_score: Whether a score is asked for.
        score_records: Other records to score, as the user gave them; None if there are none.
        score_size: Their public number; None if none was given.

    Raises:
        InvalidArgumentError: If the plan has no use for them, or needs others.
    """
    is_of_others = has_score and run.scored_on in ("disjoint", "public")
    if score_records is not None and not is_of_others:
        problem = "no score is computed on them"
        if has_score and run.scored_on == "training":
            problem = "the plan charges for a score on the training records"
        raise InvalidArgumentError(
            "score_records",
            type_of(score_records),
            problem=problem,
            fix="For a score on other private records plan with score='disjoint', on public ones "
            "with score=None. Otherwise take score_records= away.",
        )
    if score_size is not None and not (has_score and run.scored_on == "disjoint"):
        raise InvalidArgumentError(
            "score_size", score_size, problem="it is for scores on disjoint private records only"
        )
    if is_of_others and score_records is None:
        raise InvalidArgumentError(
            "score_records",
            None,
            problem=f"the plan scores on {run.scored_on} records",
            fix="Give them, in the form of records=.",
        )
    if is_of_others and run.scored_on == "disjoint":
        if score_size is None:
            raise InvalidArgumentError(
                "score_size",
                None,
                problem="the plan does not know how many records are scored",
                fix="Give their public number, fixed beforehand and not their exact number.",
            )
        validation.whole("score_size", score_size, 1)


def check_disjoint(records: Records, scored: Records) -> None:
    """Refuses records to score that are among those that are trained on, where that can be seen.

    Where some of them are equal to records that are trained on, the log says so: two persons may
    have the same row.

    Args:
        records: The training's records.
        scored: The records to score.

    Raises:
        InvalidArgumentError: If some of them are the same.
    """
    if _has_some_of(records, scored):
        raise InvalidArgumentError(
            "score_records",
            Text("some of the training's records"),
            problem="the plan scores on public records, or on private ones that are never "
            "trained on, and one of these shares memory with the training's",
            fix="Give other records, or plan with score='training'.",
        )
    if not isinstance(records, ArrayRecords) or not isinstance(scored, ArrayRecords):
        return
    share = _share_of_copies(records.holders()[0], scored.holders()[0])
    if share > _LARGEST_SHARE:
        raise InvalidArgumentError(
            "score_records",
            Text("copies of the training's records"),
            problem="the plan scores on public records, or on private ones that are never "
            "trained on, and almost all of these are equal to records that are trained on",
            fix="Train on the others only, for example x[~is_held_out], or plan with "
            "score='training'.",
        )
    if share > _REMARKABLE_SHARE:
        _logger.warning(
            "Many of the records to score are equal to one record each that is trained on. If "
            "they are the same records, the plan charges too little: it scores on others than the "
            "training's. Train on the others only, for example x[~is_held_out]."
        )


def refuse_copied_inputs(inputs: Part, *private: Records | None) -> None:
    """Refuses inputs of a rehearsal of which almost all are copies of a private record each.

    Only if each part of them is: numbers of rows may be public, and equal to private ones.

    Args:
        inputs: What the model would be called with; None for nothing.
        private: Records that the rate must not depend on; None for none.

    Raises:
        InvalidArgumentError: If they are.
    """
    parts = leaves(tuple(inputs) if isinstance(inputs, list) else inputs)
    for records in private:
        holders = [] if records is None else [*filter(is_array, records.holders())]
        if parts and all(
            is_array(part)
            and any(_share_of_copies(holder, part) > _LARGEST_SHARE for holder in holders)
            for part in parts
        ):
            raise private_inputs("copies of the private records")


def refuse_copies_in_model(model: torch.nn.Module, *private: Records | None) -> None:
    """Refuses a model with a table of which almost all rows are copies of a record each.

    Centres of radial functions, inducing points and memories of neighbours are often taken from
    the records. They leave with the model.

    Args:
        model: The user's model.
        private: Records that it must not hold; None for none.

    Raises:
        InvalidArgumentError: If it has one.
    """
    for records in private:
        holders = [] if records is None else [*filter(is_array, records.holders())]
        for name, tensor in (*model.named_buffers(), *model.named_parameters()):
            width = math.prod(tensor.shape[1:])  # One number may be equal by chance.
            alike = [holder for holder in holders if math.prod(holder.shape[1:]) == width > 1]
            if any(_share_of_copies(holder, tensor) > _LARGEST_SHARE for holder in alike):
                raise InvalidArgumentError(
                    "model",
                    model,
                    problem=f"its {name!r} holds copies of the records, without noise, and they "
                    "leave with the model",
                    fix="Begin with public or made-up rows, such as odp.made_up_inputs(...).",
                )


def _has_some_of(records: Records, scored: Records) -> bool:
    """Returns whether some records are the same in both, by their memory or their index."""
    if isinstance(records, DataSetRecords) and isinstance(scored, DataSetRecords):
        numbers: dict[Any, int] = {}
        trained_items, scored_items = (
            origins(some_records.data_set, numbers) for some_records in (records, scored)
        )
        return bool(np.isin(trained_items, scored_items).any())
    trained_arrays, scored_arrays = records.first_arrays(), scored.first_arrays()
    return any(overlap(a, b) for a in trained_arrays for b in scored_arrays)


def _share_of_copies(trained_array: object, other_array: object) -> float:
    """Returns how many of other rows are equal to one trained record each, a share.

    Args:
        trained_array: A part of the trained records, an array of numpy or PyTorch; the first axis
            is that of the records.
        other_array: That part of the records to score, or inputs of a rehearsal; as above.
    """
    trained_rows, other_rows = _rows(trained_array), _rows(other_array)
    if trained_rows is None or other_rows is None or len(other_rows) < _FEWEST:
        return 0.0
    types = trained_rows.dtype, other_rows.dtype
    are_floats = all(one.kind == "f" for one in types)
    if trained_rows.shape[1] != other_rows.shape[1] or not (types[0] == types[1] or are_floats):
        return 0.0
    # Records in double precision are often copied into the precision of the model.
    common_type = min(types, key=lambda one: one.itemsize)
    places = np.unique(np.linspace(0, len(other_rows) - 1, _SAMPLE).astype(np.int64))
    sample_rows = other_rows[places].astype(common_type, copy=False)
    # One number of each record sorts out most: that of which the sample has most values.
    column = max(range(sample_rows.shape[1]), key=lambda i: np.unique(sample_rows[:, i]).size)
    counts = [_counts(rows, sample_rows, column) for rows in (trained_rows, other_rows)]
    single_copies = sum(
        counts[0].get(row.tobytes(), 0) == 1 == counts[1][row.tobytes()] for row in sample_rows
    )
    return single_copies / len(sample_rows)


def _rows(array: object) -> npt.NDArray[Any] | None:
    """Returns records as rows of numbers, without a copy; None if they are not in this memory."""
    try:
        values = np.asarray(array.detach() if hasattr(array, "detach") else array)
    except (RuntimeError, TypeError):  # On a GPU, or of a type that numpy does not have.
        return None
    if values.ndim == 0 or values.dtype.kind not in "biuf" or not values.size:
        return None
    return values.reshape(len(values), -1)


def _counts(
    rows: npt.NDArray[Any], sample_rows: npt.NDArray[Any], column: int
) -> dict[bytes, int]:
    """Returns how many rows are equal to a row of the sample, by their bytes."""
    counts: dict[bytes, int] = {}
    numbers = rows[:, column].astype(sample_rows.dtype, copy=False)
    for index in np.flatnonzero(np.isin(numbers, sample_rows[:, column])):
        row = rows[index].astype(sample_rows.dtype, copy=False).tobytes()
        counts[row] = counts.get(row, 0) + 1
    return counts
