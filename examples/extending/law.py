"""A distribution of T of your own: whole-number weights of T = 1, 2, 3, ..."""

from dataclasses import dataclass
from typing import Any, ClassVar

import optuna_dp as odp


@dataclass(frozen=True)
class Weighted(odp.TrialCount):
    weights: tuple[int, ...]
    law: ClassVar[str] = (
        "weighted"  # its name in stored plans; import this file before reading one
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(self.weights))  # a list, out of JSON
        if not all(isinstance(w, int) and w > 0 for w in self.weights) or not self.weights:
            raise odp.errors.InvalidArgumentError(
                "weights", self.weights, allowed="they must be whole and positive"
            )

    @property
    def mean(self) -> float:
        return sum(k * w for k, w in enumerate(self.weights, 1)) / sum(self.weights)

    @property
    def maximum(self) -> int:
        return len(self.weights)

    def exact_tail(self, ctx: Any, n: int) -> Any:  # P[T > n] in arbitrary precision
        return ctx.mpf(sum(self.weights[n:])) / sum(self.weights)


if __name__ == "__main__":
    law = Weighted((3, 2, 1))
    assert odp.TrialCount.from_json(law.to_json()) == law
    guarantee = odp.selection_guarantee(odp.gaussian(4.0), law)
    attack, bound = guarantee.bounds(1e-5)
    print(f"{law}: T = {law.sample()} this time; epsilon from {attack:.3f} to {bound:.3f}")
