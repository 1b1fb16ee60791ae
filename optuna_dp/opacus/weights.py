"""The weights of a module, by which the next runs know it again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import torch

from optuna_dp.training.trained_values import TrainedModel
from optuna_dp.training.unchanged import digest_of_values


class ModuleWeights(TrainedModel):
    """A module that Opacus trains.

    Args:
        trained: Its trained weights.
        used: All its weights and buffers.
    """

    def __init__(
        self, trained: Iterable[torch.nn.Parameter], used: Iterable[torch.Tensor]
    ) -> None:
        self.trained, self.used = list(trained), list(used)

    def trained_sizes(self) -> list[int]:
        return [weight.nbytes for weight in self.trained]

    def trained_digests(self, sizes: Collection[int]) -> Iterator[tuple[int, bytes]]:
        return _digests(self.trained, sizes)

    def used_digests(self, sizes: Collection[int]) -> Iterator[tuple[int, bytes]]:
        return _digests(self.used, sizes)


def _digests(
    tensors: Iterable[torch.Tensor], sizes: Collection[int]
) -> Iterator[tuple[int, bytes]]:
    for tensor in tensors:
        if tensor.nbytes in sizes:
            yield tensor.nbytes, digest_of_values([tensor])
