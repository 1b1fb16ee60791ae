"""Gradients of tables, such as embeddings, in the rows that a record looks up.

A record looks up a few rows of a table, and its gradient is zero in all others. Here only the rows
that are looked up are computed. The table is held fixed, and what is found in it is moved by
zeros: the gradient of these zeros is that of the rows. A row that a record looks up several times
has the sum of their gradients. All of this is of one record, whatever the other records look up.

It is done for tables that are looked up in by ``torch.nn.functional.embedding``, or by
``embedding_bag`` for bags of one length, and are used nowhere else. A table that also scores
tokens (a tied weight) has a dense gradient.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from optuna_dp.training.record_arrays import Parts
from optuna_dp.training.record_functions import OfRecords, Scope, Tensors, vmapped

# The shapes of the indices of each lookup that one record makes, in their order, by the table.
Tables = Mapping[str, list[torch.Size]]
# A table has so many times more rows than a record looks up, or its dense gradient is as good.
_FEWEST_TIMES = 4
_embedding, _bag = torch.nn.functional.embedding, torch.nn.functional.embedding_bag
_ARGUMENTS = {function: inspect.signature(function) for function in (_embedding, _bag)}
# What a lookup may not ask for, and a bag neither.
_MORE = ("max_norm", "scale_grad_by_freq", "sparse")
_MORE_OF_BAG = (*_MORE, "offsets", "per_sample_weights")


class RowsOfTable(NamedTuple):
    """Gradients of a table in the rows that each record looks up.

    Attributes:
        indices: Which rows of the table, shape (records, lookups).
        values: The gradients of these rows, shape (records, lookups, width). Of a row that is
            looked up several times the first place has the gradient, and the others have zeros.
    """

    indices: torch.Tensor
    values: torch.Tensor


class Lookups(TorchFunctionMode):
    """Takes the place of lookups in some tables, which are held fixed.

    Args:
        tables: The tables, by name.
        moves: What is added to what each lookup finds, by the table; None for nothing.

    Attributes:
        indices: What was looked up, in order, by the table.
    """

    def __init__(
        self, tables: Tensors, moves: Mapping[str, list[torch.Tensor]] | None = None
    ) -> None:
        super().__init__()
        self._tables, self._moves = tables, moves
        self._names = {id(table): name for name, table in tables.items()}
        self.indices: dict[str, list[torch.Tensor]] = {name: [] for name in tables}

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: Collection[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        keywords = kwargs or {}
        if function not in _ARGUMENTS:
            return function(*args, **keywords)
        given = _ARGUMENTS[function].bind(*args, **keywords).arguments
        name, padding = self._names.get(id(given["weight"])), given.get("padding_idx")
        more = _MORE if function is _embedding else _MORE_OF_BAG
        is_plain = all(given.get(each) is None or given[each] is False for each in more)
        if name is not None and is_plain:
            if function is _embedding:
                return self._looked_up(name, given["input"], padding)
            mode = given.get("mode", "mean")
            if given["input"].ndim == 2 and padding is None and mode in ("mean", "sum"):
                rows = self._looked_up(name, given["input"])
                return rows.mean(1) if mode == "mean" else rows.sum(1)
        return function(*args, **keywords)

    def _looked_up(
        self, name: str, indices: torch.Tensor, padding: int | None = None
    ) -> torch.Tensor:
        table, number = self._tables[name], len(self.indices[name])
        self.indices[name].append(indices)
        rows = _embedding(indices, table.detach())
        if self._moves is None:
            return rows
        move = self._moves[name][number]
        if padding is not None:  # A row that is not trained.
            is_padding = indices == padding % len(table)
            move = torch.where(is_padding[..., None], torch.zeros_like(move), move)
        return rows + move


def tables_of(scope: Scope, weights: Tensors, buffers: Tensors, record: Parts) -> Tables:
    """Returns the tables whose gradients are computed by rows.

    Args:
        scope: The function of one record.
        weights: The trained weights, by name.
        buffers: Copies of the buffers.
        record: A made-up record.
    """
    leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
    with torch.enable_grad(), Lookups(leaves) as lookups:
        number = scope.with_tensors(leaves, buffers, record)
    shapes = {name: [each.shape for each in found] for name, found in lookups.indices.items()}
    large = [
        name
        for name, of_table in shapes.items()
        if 0 < _FEWEST_TIMES * sum(shape.numel() for shape in of_table) <= len(leaves[name])
    ]
    elsewhere: tuple[torch.Tensor | None, ...] = (None,) * len(large)
    if large and number.requires_grad:
        elsewhere = torch.autograd.grad(
            number, [leaves[name] for name in large], allow_unused=True
        )
    # A table without a gradient now has one through its lookups only.
    pairs = zip(large, elsewhere, strict=True)
    return {name: shapes[name] for name, gradient in pairs if gradient is None}


def at_once_by_rows(scope: Scope, tables: Tables, *, draws: str = "different") -> OfRecords:
    """Returns what computes many records' gradients at once, of some tables by rows.

    It returns a tensor for each weight, and :class:`RowsOfTable` for each of the tables.

    Args:
        scope: The function of one record.
        tables: What :func:`tables_of` returned.
        draws: Whether the records' draws are "different" or the "same".
    """

    def of_record(weights: Tensors, buffers: Tensors, *record: Any) -> Any:
        fixed = {name: weights[name] for name in tables}
        others = {name: weight for name, weight in weights.items() if name not in tables}
        moves = {
            name: [weights[name].new_zeros(*shape, weights[name].shape[1]) for shape in shapes]
            for name, shapes in tables.items()
        }

        def number(others: Tensors, moves: Mapping[str, list[torch.Tensor]]) -> Any:
            with Lookups(fixed, moves) as lookups:
                return scope.with_tensors({**others, **fixed}, buffers, record), lookups.indices

        return torch.func.grad(number, argnums=(0, 1), has_aux=True)(others, moves)

    of_all = vmapped(of_record, draws)

    def of_records(weights: Tensors, buffers: Tensors, *records: Any) -> Any:
        (by_weight, by_move), indices = of_all(weights, buffers, *records)
        by_table = {name: _merged(indices[name], by_move[name]) for name in tables}
        return {**by_weight, **by_table}

    return of_records


def _merged(indices: list[torch.Tensor], values: list[torch.Tensor]) -> RowsOfTable:
    """Returns the lookups of each record in one row, and equal ones added.

    Args:
        indices: For each lookup the rows of the table, shape (records, ...).
        values: For each lookup the gradients of these rows, shape (records, ..., width).
    """
    found = torch.cat([each.flatten(1) for each in indices], 1).long()
    rows = torch.cat([each.flatten(1, -2) for each in values], 1)
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    count, lookups, width = rows.shape
    # The first place of an equal index: a stable sort keeps equal ones in order.
    in_order, order = found.sort(dim=1, stable=True)
    places = torch.arange(lookups, device=found.device)
    is_first = torch.ones_like(in_order, dtype=torch.bool)
    is_first[:, 1:] = in_order[:, 1:] != in_order[:, :-1]
    begins = torch.where(is_first, places, 0).cummax(1).values
    first = torch.empty_like(order).scatter_(1, order, order.gather(1, begins))
    first += lookups * torch.arange(count, device=found.device)[:, None]
    merged = rows.new_zeros(count * lookups, width)
    merged.index_add_(0, first.flatten(), rows.reshape(-1, width))
    return RowsOfTable(found, merged.reshape(count, lookups, width))
