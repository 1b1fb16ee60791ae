"""Norms of gradients of single records, right to many digits however many weights there are."""

from __future__ import annotations

import torch

# Squares are added up in runs of so many numbers in single precision, and those sums in double.
# PyTorch's own norm of 40 million equal numbers is off by 2 %.
_NORM_RUN = 1024


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
    return norms.double().square().sum(1)


def at_least_single(dtype: torch.dtype) -> torch.dtype:
    """Returns the type in which numbers of a type are added up."""
    return torch.promote_types(dtype, torch.float32)
