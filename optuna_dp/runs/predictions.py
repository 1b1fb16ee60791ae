"""What a model that was trained privately says of new records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import InvalidArgumentError, Text, type_of
from optuna_dp.training.prepared import BY_ROW, BY_SCHEMA, NewRows, PreparedRecords
from optuna_dp.training.record_arrays import Array, Part, is_array, leaves, mapped, rows_of
from optuna_dp.training.softmax_regression import SoftmaxRegression

if TYPE_CHECKING:
    import torch

    from optuna_dp.preparation.schema import Schema

_ROWS_AT_A_TIME = 1024


def predictions(
    model: Any, records: object, preparation: JsonObject, new_rows: NewRows
) -> npt.NDArray[Any]:
    """Returns predictions; see :meth:`optuna_dp.runs.train.Trained.predict`.

    Args:
        model: The trained model.
        records: The new records.
        preparation: How the training's records were prepared, as the statement says it.
        new_rows: How new rows are prepared, where a function prepared the training's.
    """
    word = preparation.get("word")
    if word == BY_SCHEMA:
        schema = _schema_of(preparation)
        decode = None if schema.outputs is None else schema.decode
        new_rows = NewRows(lambda rows: schema.encode(rows).x, decode)
    if isinstance(records, PreparedRecords):
        inputs: Part = records.x
    elif word in (BY_SCHEMA, BY_ROW):
        if new_rows.features is None:
            raise InvalidArgumentError(
                "records",
                type_of(records),
                problem="a function prepared the training's records, and what is stored of a "
                "training does not hold it",
                fix="Encode the rows first: schema.encode(rows, prepare=...), by the training's "
                "schema, but without unit= and most=.",
            )
        inputs = new_rows.features(records)
    else:
        inputs = tuple(records) if isinstance(records, list) else records
    if isinstance(model, SoftmaxRegression):
        outputs: npt.NDArray[Any] = model.logits(inputs)
        if new_rows.decode is None:
            return np.asarray(outputs.argmax(axis=1))
    else:
        outputs = _outputs(model, inputs)
    return outputs if new_rows.decode is None else new_rows.decode(outputs)


def _schema_of(preparation: JsonObject) -> Schema:
    """Returns the schema that alone prepared the training's records, without its person."""
    # Start-up time: most trainings predict nothing.
    from optuna_dp.preparation.schema import Schema

    # Nobody's rows are left out of a prediction, and a new row may have no person.
    return Schema.from_json({**preparation["schema"], "unit": None, "most": None})


def _outputs(model: torch.nn.Module, inputs: Part) -> npt.NDArray[np.float64]:
    """Returns what a module returns for rows of inputs, in evaluation mode."""
    import torch  # An extra.

    arrays = leaves(inputs)
    lengths = {len(array) if is_array(array) and array.ndim else -1 for array in arrays}
    if len(lengths) != 1 or -1 in lengths:
        raise InvalidArgumentError(
            "records",
            type_of(inputs),
            allowed="it must be what the model is called with: an array or a tensor with the "
            "records along its first axis, or a tuple or mapping of these",
        )
    length = lengths.pop()
    weight = next(model.parameters())
    modes = [(part, part.training) for part in model.modules()]
    model.eval()

    def of_chunk(start: int) -> npt.NDArray[np.float64]:
        places = np.arange(start, min(start + _ROWS_AT_A_TIME, length))
        return _called(model, mapped(lambda array: _as_input(array, places, weight), inputs))

    try:
        with torch.no_grad():
            rows = [of_chunk(start) for start in range(0, max(length, 1), _ROWS_AT_A_TIME)]
    finally:
        for part, mode in modes:
            part.training = mode
    return np.concatenate(rows)


def _as_input(array: Array, places: npt.NDArray[np.int64], weight: torch.Tensor) -> torch.Tensor:
    """Returns some rows where the model is, floating-point numbers in its precision."""
    import torch  # An extra.

    tensor = torch.as_tensor(rows_of(array, places), device=weight.device)
    return tensor.to(weight.dtype) if tensor.is_floating_point() else tensor


def _called(model: torch.nn.Module, inputs: Part) -> npt.NDArray[np.float64]:
    if isinstance(inputs, Mapping):
        output: Any = model(**inputs)
    elif isinstance(inputs, tuple):
        output = model(*inputs)
    else:
        output = model(inputs)
    output = getattr(output, "logits", output)
    if not hasattr(output, "detach"):
        raise InvalidArgumentError(
            "model",
            Text(f"a model that returns a {type(output).__name__}"),
            allowed="it must return a tensor, or something with a tensor of logits",
            fix="Call trained.model yourself.",
        )
    return np.asarray(output.detach().double().cpu().numpy())
