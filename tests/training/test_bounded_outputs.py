"""Models whose outputs noise cannot move far: trained with a warning, and not refused."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import refuses
from started import started

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import optuna_dp as odp  # noqa: E402

PLAN: dict[str, Any] = {"records": 200, "noise_multiplier": 2.0, "batch_size": 64.0, "steps": 60}
INPUTS = odp.made_up_inputs(*[(0.0, 1.0)] * 8)


def before_a_frozen_layer(spread: float) -> nn.Module:
    """A norm bounds what reaches the last layer, as in a language model that LoRA trains."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 16), nn.LayerNorm(16, elementwise_affine=False), nn.Linear(16, 5, bias=False)
    )
    nn.init.normal_(model[2].weight, std=spread)
    model[2].requires_grad_(False)
    return model


def test_the_rate_is_where_noise_moves_outputs_half_as_far_as_it_can() -> None:
    with pytest.warns(UserWarning, match="at most") as caught:
        found = odp.rehearse_module(started(**PLAN), before_a_frozen_layer(0.02), INPUTS)
    (warned,) = [str(one.message) for one in caught if "at most" in str(one.message)]
    largest = float(warned.split(" at most")[0].split()[-1])
    assert 0.01 < largest < 0.2
    assert found.size == pytest.approx(largest / 2.0, rel=0.1)
    assert found.learning_rate > 0.0


def test_outputs_that_depend_on_no_weight_are_still_refused() -> None:
    with refuses("learning_rate"):
        odp.rehearse_module(started(**PLAN), before_a_frozen_layer(0.0), INPUTS)
