"""The memory of tensors that runs have trained in this process.

A parameter is known again by its mark, but another tensor over the same memory has none: a view, a
parameter that was assigned, an array of numpy. So the memory itself is kept, by weak references:
what nobody holds any more may be used again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch.multiprocessing.reductions import StorageWeakRef


@dataclass(frozen=True)
class _Block:
    """One piece of memory, from its first address to behind its last."""

    device: torch.device
    start: int
    end: int
    reference: StorageWeakRef

    def overlaps(self, block: _Block) -> bool:
        return self.device == block.device and self.start < block.end and block.start < self.end


_lock = threading.Lock()
_trained_blocks: list[_Block] = []


def claim_memory(trained: Iterable[torch.Tensor], used_tensors: Iterable[torch.Tensor]) -> bool:
    """Takes the memory of what is to be trained, once.

    Args:
        trained: The tensors that are to be trained.
        used_tensors: All tensors that the training uses, trained or not.

    Returns:
        False, and takes nothing, if memory of ``used_tensors`` was taken before and is in use.
    """
    blocks, looked_at = _blocks(trained), _blocks(used_tensors)
    with _lock:
        _trained_blocks[:] = [block for block in _trained_blocks if not block.reference.expired()]
        if any(
            block.overlaps(used_block) for block in _trained_blocks for used_block in looked_at
        ):
            return False
        _trained_blocks.extend(blocks)
        return True


def _blocks(tensors: Iterable[torch.Tensor]) -> list[_Block]:
    """Returns the memory of tensors, each piece once."""
    blocks: dict[tuple[torch.device, int], _Block] = {}
    for tensor in tensors:
        try:
            storage = tensor.untyped_storage()
            start, size = storage.data_ptr(), storage.nbytes()
        except (RuntimeError, NotImplementedError):  # It has no memory of its own.
            continue
        if start and (tensor.device, start) not in blocks:
            block = _Block(tensor.device, start, start + size, StorageWeakRef(storage))
            blocks[tensor.device, start] = block
    return list(blocks.values())
