"""Numbers by which one sees that a tensor has changed, without a copy of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

# Elements that are summed at once: memory is bounded whatever the tensor's size.
_CHUNK = 2**20
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# Where Opacus' hooks keep a layer's inputs between its forward and its backward pass.
_OF_OPACUS = {"activations", "autograd_grad_sample_hooks"}
_LAYERS_OF_CONTAINERS = 2


def fingerprint(tensor: torch.Tensor) -> tuple[str, tuple[int, ...], int]:
    """Returns a tensor's type, shape, and a sum over its bits in which places count.

    The tensor's device does not matter, so moving a model changes nothing.
    """
    values = tensor.detach()
    if values.layout is not torch.strided:
        values = values.to_dense()
    if values.is_complex():
        values = torch.view_as_real(values)
    kind, shape = str(values.dtype), tuple(values.shape)
    if values.is_meta or not values.numel():
        return kind, shape, 0
    bits = values.contiguous().reshape(-1).view(_INTEGERS[values.element_size()])
    total = 0
    for chunk in bits.split(_CHUNK):
        # Odd, so that no bit is lost when 64 bits overflow.
        weights = torch.arange(len(chunk), device=chunk.device, dtype=torch.int64) * 2 + 1
        mixed = (chunk.to(torch.int64) + weights) * weights
        total = (total * 1_000_003 + int(((mixed ^ (mixed >> 29)) * weights).sum())) % 2**64
    return kind, shape, total


def fingerprints(tensors: dict[str, torch.Tensor]) -> dict[str, tuple[str, tuple[int, ...], int]]:
    """Returns the fingerprint of each of several tensors."""
    return {name: fingerprint(tensor) for name, tensor in tensors.items()}


def other_tensors(module: torch.nn.Module, trained_ids: set[int]) -> dict[str, torch.Tensor]:
    """Returns what a module holds besides the weights that are trained.

    Args:
        module: The module.
        trained_ids: The ``id`` of each weight that is trained.

    Returns:
        Buffers, frozen weights and tensors in plain attributes, by name. What stands deeper in an
        attribute than a list in a list is not found, nor is what is no tensor.
    """
    tensors = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    for prefix, part in module.named_modules():
        for attribute, value in vars(part).items():
            if attribute in ("_parameters", "_buffers", "_modules") or attribute in _OF_OPACUS:
                continue
            for path, tensor in _tensors_in(value, _LAYERS_OF_CONTAINERS):
                tensors[f"{prefix}.{attribute}{path}".lstrip(".")] = tensor
    return {name: tensor for name, tensor in tensors.items() if id(tensor) not in trained_ids}


def _tensors_in(value: Any, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield "", value
    elif depth and isinstance(value, dict):
        for key, item in value.items():
            for path, tensor in _tensors_in(item, depth - 1):
                yield f"[{key!r}]{path}", tensor
    elif depth and isinstance(value, list | tuple):
        for place, item in enumerate(value):
            for path, tensor in _tensors_in(item, depth - 1):
                yield f"[{place}]{path}", tensor
