"""A check, on made-up records, that what is computed of one depends on no other.

``torch.func`` computes a function of one record for many at once, and each record by itself. Code
that reaches behind it can mix them: a rule of its own for an operation, the printed form of a
tensor, draws that are known and depend on the place in the batch. No private record is used here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from optuna_dp.training.records import mapped
from optuna_dp.training.secret_draws import (
    generator_states,
    restore_generators,
    seed_generators,
    shared_states,
    while_no_training_computes,
)

# Of numbers that are computed in the same place of equal batches, and in two places of a batch.
_TOLERANCE, _TOLERANCE_OF_PLACES = 1e-4, 1e-2
# The same of models in half precision.
_TOLERANCE_OF_HALF, _TOLERANCE_OF_HALF_PLACES = 1e-2, 0.1
# So many that what is drawn once, such as whether a layer is left out, is not the same with all.
_SEEDS = range(1, 33)
# What is wrong is wrong each time. Another thread that draws or seeds meanwhile is not.
_TIMES = 3

Rows = Callable[[tuple[Any, ...]], torch.Tensor]


@dataclass(frozen=True)
class Reliance:
    """What made-up records show of a function of one record.

    Attributes:
        fault: What is wrong and its remedy; None if nothing is wrong, and if the function does not
            repeat itself or cannot be computed of such records.
        draws_are_shared: Whether it draws from Python's or numpy's generator, the same for all
            records that are computed together.
    """

    fault: tuple[str, str] | None
    draws_are_shared: bool


def reliance(
    rows: Rows, shapes: tuple[Any, ...], device: torch.device, *, is_half: bool = False
) -> Reliance:
    """Returns what made-up records show of a function of one record.

    Args:
        rows: From the parts of records to numbers, shape (records, numbers).
        shapes: The parts of one record of zeros.
        device: Where it is computed.
        is_half: Whether it is computed in half precision.
    """
    result = Reliance(None, False)
    for _ in range(_TIMES):
        with while_no_training_computes():
            states = generator_states(device)
            try:
                result = _Trial(rows, shapes, device, is_half).result()
            except Exception:
                result = Reliance(None, True)  # Who computes it next says what is wrong.
            finally:
                restore_generators(states)
        if result.fault is None:
            break
    return result


class _Trial:
    """One round of calls of a function with made-up records."""

    def __init__(
        self, rows: Rows, shapes: tuple[Any, ...], device: torch.device, is_half: bool
    ) -> None:
        self._rows, self._shapes, self._device = rows, shapes, device
        self._tolerance = _TOLERANCE_OF_HALF if is_half else _TOLERANCE
        self._of_places = _TOLERANCE_OF_HALF_PLACES if is_half else _TOLERANCE_OF_PLACES
        self._seeds_kept: list[bool] = []
        self._draws_are_shared = False
        self._is_drawn = False  # By the function, or by another thread.

    def result(self) -> Reliance:
        fault = self._fault()
        return Reliance(fault, self._draws_are_shared)

    def _seeded(self, record: Any, companion: Any, seed: int = _SEEDS[0]) -> torch.Tensor:
        seed_generators(self._device, seed, seed)
        python_states, torch_states = shared_states(), generator_states(self._device)[1]
        numbers = self._rows(_stacked(record, companion)).detach().cpu()
        self._seeds_kept.append(torch.initial_seed() == seed)
        self._draws_are_shared |= repr(python_states) != repr(shared_states())
        self._is_drawn |= self._draws_are_shared or any(
            not torch.equal(state, generator.get_state()) for generator, state in torch_states
        )
        return numbers

    def _fault(self) -> tuple[str, str] | None:
        numbers = torch.Generator().manual_seed(0)
        record, other_record = (_made_up(self._shapes, numbers, 0) for _ in range(2))
        beside_zeros = self._seeded(record, self._shapes)
        if not _equal(beside_zeros, self._seeded(record, self._shapes), self._tolerance):
            if self._is_drawn:
                return None
            return (
                "what is computed of a record is not the same when it is computed again",
                "A loss or a score must keep nothing, and draw from the generators of Python, "
                "numpy or PyTorch only.",
            )
        # A whole number may be no class and no token, and an index out of range stops a GPU.
        companions = [other_record]
        if self._device.type != "cuda":
            companions.append(_made_up(self._shapes, numbers, 1))
        for companion in companions:
            try:
                numbers_beside = self._seeded(record, companion)
            except Exception:
                continue
            if not _equal(beside_zeros[0], numbers_beside[0], self._tolerance):
                return (
                    "what is computed of a record changes with the records beside it",
                    "A loss or a score must use its own record only.",
                )
        twin_numbers = self._seeded(record, record)
        repetitions = (
            _equal(twin_numbers, self._seeded(record, record, seed), self._tolerance)
            for seed in _SEEDS[1:]
        )
        twins_differ = not _equal(twin_numbers[0], twin_numbers[1], self._of_places)
        is_by_place = twins_differ and all(repetitions)
        if is_by_place or not any(self._seeds_kept):
            return (
                "it sets a seed, so that its draws, as for dropout, are known and differ by the "
                "place of a record in a batch",
                "Call torch.manual_seed before the training, and not in a model or a loss.",
            )
        return None


def _made_up(
    shapes: tuple[Any, ...], generator: torch.Generator, whole_number: int
) -> tuple[Any, ...]:
    """Returns a record: numbers in [0, 1), and ``whole_number`` for all that is whole."""

    def values(zeros: torch.Tensor) -> torch.Tensor:
        if not zeros.is_floating_point():
            return (
                zeros + whole_number if zeros.dtype != torch.bool else zeros | bool(whole_number)
            )
        return torch.rand(zeros.shape, generator=generator, device="cpu").to(zeros)

    return tuple(mapped(values, part) for part in shapes)


def _stacked(record: tuple[Any, ...], companion: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns two records as the parts of a batch."""
    leaves: list[torch.Tensor] = []
    mapped(leaves.append, companion)
    following = iter(leaves)
    return tuple(mapped(lambda part: torch.cat([part, next(following)]), part) for part in record)


def _equal(numbers: torch.Tensor, repeated_numbers: torch.Tensor, tolerance: float) -> bool:
    scale = float(numbers.nan_to_num(0.0, 0.0, 0.0).abs().max()) if numbers.numel() else 0.0
    absolute_tolerance = tolerance * scale
    is_equal = torch.allclose(
        numbers, repeated_numbers, rtol=tolerance, atol=absolute_tolerance, equal_nan=True
    )
    return bool(is_equal)
