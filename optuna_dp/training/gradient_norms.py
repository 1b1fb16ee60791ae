"""Clipping of gradients of single records, right to many digits however many weights there are."""

from __future__ import annotations

import torch

# Squares are added up in runs of so many numbers in single precision, and those sums in double.
# PyTorch's own norm of 40 million equal numbers is off by 2 %.
_NORM_RUN = 1024
# Below it, squares in single precision may have vanished.
_SMALLEST_SQUARE = 1e-20
# A smaller factor would lose digits in single precision.
_SMALLEST_FACTOR = float(torch.finfo(torch.float32).tiny)


def squared_norms(gradients: torch.Tensor) -> torch.Tensor:
    """Returns the squared L2 norm of each row in double precision, shape (records,).

    Args:
        gradients: One gradient in each row. Half precision is converted to single.
    """
    dtype = at_least_single(gradients.dtype)
    runs = gradients.shape[1] // _NORM_RUN
    end = runs * _NORM_RUN
    head = gradients[:, :end].reshape(len(gradients), runs, _NORM_RUN)
    norms = torch.cat(
        [
            torch.linalg.vector_norm(head, dim=2, dtype=dtype),
            torch.linalg.vector_norm(gradients[:, end:], dim=1, keepdim=True, dtype=dtype),
        ],
        dim=1,
    )
    squares = norms.double().square().sum(1)
    is_small = squares < _SMALLEST_SQUARE
    if bool(is_small.any()):
        squares[is_small] = gradients[is_small].double().square().sum(1)
    return squares


def clipping_factors(squares: torch.Tensor, norm: float) -> torch.Tensor:
    """Returns what each gradient is multiplied by, in double precision, shape (records,).

    0.0 for a gradient that is not finite, or so long that its factor would be rounded.

    Args:
        squares: Squared norms of the gradients, shape (records,).
        norm: The largest norm that a gradient may have.
    """
    factors = (norm / squares.double().sqrt()).clamp(max=1.0)
    is_usable = torch.isfinite(squares) & (factors >= _SMALLEST_FACTOR)
    return torch.where(is_usable, factors, 0.0)


def weighted_sum(factors: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """Returns the sum of gradients times factors, in the precision of the gradients, shape (n,).

    Neither ``torch.autocast`` nor TF32 rounds it, whatever the script has set: a sum that is
    rounded to half precision can change by more than the clipping norm when a record is added.

    Args:
        factors: Of each gradient, shape (records,). One of 0.0 stands for a gradient that does
            not count, whatever is in it.
        gradients: One gradient in each row, shape (records, n).
    """
    if not bool(factors.all()):
        # Zero times infinity is no number.
        gradients = torch.where(factors.unsqueeze(1) > 0.0, gradients, 0.0)
    with torch.autocast(gradients.device.type, enabled=False):
        # A product with a vector: PyTorch computes those without TF32.
        return torch.mv(gradients.t(), factors.to(gradients.dtype))


def at_least_single(dtype: torch.dtype) -> torch.dtype:
    """Returns the type in which numbers of a type are added up."""
    return torch.promote_types(dtype, torch.float32)
