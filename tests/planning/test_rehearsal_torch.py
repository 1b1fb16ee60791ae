"""The rehearsal of a PyTorch module; needs the extra ``opacus``, which brings PyTorch."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.training.rehearsal import LINEAR_SIZE

torch = pytest.importorskip("torch")

PUBLIC: dict[str, Any] = {"noise_multiplier": 2.0, "steps": 60, "batch_size": 64}
INPUTS = odp.made_up_inputs(*[(0.0, 1.0)] * 64)


def sgd(parameters: Any, rate: float) -> Any:
    return torch.optim.SGD(parameters, lr=rate)


def softmax() -> Any:
    module = torch.nn.Linear(64, 10, bias=False)
    torch.nn.init.zeros_(module.weight)
    return module


@pytest.mark.parametrize(
    ("optimizer", "name"),
    [
        (sgd, "sgd"),
        (lambda p, rate: torch.optim.SGD(p, lr=rate, momentum=0.9), "momentum"),
        (lambda p, rate: torch.optim.Adam(p, lr=rate), "adam"),
        (lambda p, rate: torch.optim.AdamW(p, lr=rate, weight_decay=0.0), "adamw"),
    ],
)
def test_it_agrees_with_numpy(optimizer: Any, name: Any) -> None:
    found = odp.rehearse_module(softmax(), INPUTS, optimizer=optimizer, **PUBLIC)
    other = odp.rehearse_arrays(
        lambda weights, inputs: inputs @ weights[0],
        [np.zeros((64, 10))],
        INPUTS,
        optimizer=name,
        **PUBLIC,
    )
    assert found.size == pytest.approx(LINEAR_SIZE, rel=0.06)
    # 640 weights with other noise each.
    assert found.learning_rate == pytest.approx(other.learning_rate, rel=0.2)


def test_a_schedule_is_rehearsed() -> None:
    def cosine(optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, PUBLIC["steps"])

    constant = odp.rehearse_module(softmax(), INPUTS, optimizer=sgd, **PUBLIC)
    falling = odp.rehearse_module(softmax(), INPUTS, optimizer=sgd, scheduler=cosine, **PUBLIC)
    # The mean of the squared cosine schedule is 3/8.
    assert falling.learning_rate / constant.learning_rate == pytest.approx(1.63, rel=0.15)


def test_any_other_optimizer_will_do() -> None:
    found = odp.rehearse_module(
        softmax(), INPUTS, optimizer=lambda p, rate: torch.optim.RMSprop(p, lr=rate), **PUBLIC
    )
    assert found.size == pytest.approx(LINEAR_SIZE, rel=0.06)


def test_frozen_parameters_and_the_module_itself_stay_as_they_are() -> None:
    module = torch.nn.Sequential(
        torch.nn.Linear(64, 32), torch.nn.Dropout(0.5), torch.nn.Tanh(), torch.nn.Linear(32, 10)
    )
    module[0].requires_grad_(False)
    before = copy.deepcopy(module.state_dict())
    state = torch.random.get_rng_state()
    found = odp.rehearse_module(module, INPUTS, optimizer=sgd, **PUBLIC)
    assert found.learning_rate > 0.0
    assert module.training
    assert all(p.grad is None for p in module.parameters())
    assert torch.equal(state, torch.random.get_rng_state())
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    module.requires_grad_(False)
    with pytest.raises(InvalidArgumentError, match="parameters to train"):
        odp.rehearse_module(module, INPUTS, optimizer=sgd, **PUBLIC)


def test_images_go_through_a_convolution() -> None:
    module = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 10)
    )
    with pytest.warns(UserWarning, match="convolutions"):
        found = odp.rehearse_module(module, odp.made_up_images(1, 8, 8), optimizer=sgd, **PUBLIC)
    assert found.learning_rate > 0.0


def test_deep_layer_norm_is_remarked() -> None:
    block = [torch.nn.Linear(64, 64), torch.nn.LayerNorm(64), torch.nn.ReLU()]
    blocks = [part for _ in range(3) for part in copy.deepcopy(block)]
    module = torch.nn.Sequential(*blocks, torch.nn.Linear(64, 10))
    with pytest.warns(UserWarning, match="LayerNorm"):
        found = odp.rehearse_module(module, INPUTS, optimizer=sgd, **PUBLIC)
    assert len(found.remarks) == 1


def test_regression_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="regression"):
        odp.rehearse_module(torch.nn.Linear(64, 1), INPUTS, optimizer=sgd, **PUBLIC)
