"""A run begins anew: with no weights, and no memory, that another run of its study has trained."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.errors import InvalidArgumentError  # noqa: E402

N, FEATURES, CLASSES = 20, 12, 3
X, Y = torch.randn(N, FEATURES), torch.randint(0, CLASSES, (N,))


def study(runs: float = 1000.0) -> optuna.Study:
    plan = odp.RunPlan(records=N, batch_size=10, steps=2, noise_multiplier=2.0, score=None)
    sampler = odp.RandTuneSampler(trials=odp.Poisson(mean=runs), run=plan)
    return optuna.create_study(direction="maximize", sampler=sampler)


def train(of: optuna.Study, model: Any, rate: float = 0.1) -> None:
    """A whole trial."""
    numpy = isinstance(model, odp.SoftmaxRegression)
    loss = {} if numpy else {"loss": nn.functional.cross_entropy}
    trial = of.ask()
    odp.train(odp.fidelity(trial), model, (X.numpy(), Y.numpy()), learning_rate=rate, **loss)
    of.tell(trial, 0.0)


def linear(outputs: int = CLASSES) -> nn.Linear:
    return nn.Linear(FEATURES, outputs)


def with_weight(weight: Any, outputs: int = CLASSES) -> nn.Module:
    model = linear(outputs)
    model.weight = nn.Parameter(weight)
    return model


def assigned(earlier: nn.Module) -> nn.Module:
    model = linear()
    model.load_state_dict(earlier.state_dict(), assign=True)
    return model


def a_new_parameter(earlier: nn.Module) -> nn.Module:
    return with_weight(earlier.weight.data)


def a_view_of_a_part(earlier: nn.Module) -> nn.Module:
    later = nn.Linear(FEATURES, 2)
    later.weight = nn.Parameter(earlier.weight.data[1:])
    return nn.Sequential(later, nn.Linear(2, CLASSES))


def by_numpy(earlier: nn.Module) -> nn.Module:
    return with_weight(torch.from_numpy(earlier.weight.detach().numpy()))


def frozen_memory(earlier: nn.Module) -> nn.Module:
    part = with_weight(earlier.weight.data[:, :6]).requires_grad_(False)
    part.in_features = 6
    return nn.Sequential(nn.Linear(FEATURES, 6), part)


def a_deep_copy(earlier: nn.Module) -> nn.Module:
    return copy.deepcopy(earlier)


def loaded(earlier: nn.Module) -> nn.Module:
    model = linear()
    model.load_state_dict(earlier.state_dict())
    return model


def a_frozen_copy(earlier: nn.Module) -> nn.Module:
    part = with_weight(earlier.weight.detach().clone()).requires_grad_(False)
    return nn.Sequential(part, nn.Linear(CLASSES, CLASSES))


@pytest.mark.parametrize(
    "carry",
    [
        assigned,
        a_new_parameter,
        a_view_of_a_part,
        by_numpy,
        frozen_memory,
        a_deep_copy,
        loaded,
        a_frozen_copy,
    ],
)
def test_weights_of_an_earlier_run_are_refused(carry: Callable[[nn.Module], nn.Module]) -> None:
    of, earlier = study(), linear()
    train(of, earlier)
    with pytest.raises(InvalidArgumentError, match="has to begin anew"):
        train(of, carry(earlier))
    train(of, linear())


def test_memory_is_refused_after_it_was_changed_and_in_another_study() -> None:
    earlier = linear()
    train(study(), earlier)
    earlier.weight.data *= 0.9
    with pytest.raises(InvalidArgumentError, match="has to begin anew"):
        train(study(), a_new_parameter(earlier))


@pytest.mark.parametrize("carried", [lambda w: w, lambda w: w[:, ::-1], lambda w: w.copy()])
def test_arrays_of_an_earlier_run_are_refused(carried: Callable[[Any], Any]) -> None:
    of, earlier = study(), odp.SoftmaxRegression(FEATURES, CLASSES)
    train(of, earlier)
    later = odp.SoftmaxRegression(FEATURES, CLASSES)
    later.weights = carried(earlier.weights)
    with pytest.raises(InvalidArgumentError, match="has to begin anew"):
        train(of, later)
    train(of, odp.SoftmaxRegression(FEATURES, CLASSES))


@pytest.mark.slow
def test_new_models_are_welcome_in_memory_that_was_used_before() -> None:
    of = study()
    for _ in range(50):  # The allocator gives the same memory again and again.
        train(of, linear())
        train(of, odp.SoftmaxRegression(FEATURES, CLASSES))


def test_models_that_are_kept_and_begin_alike_are_welcome() -> None:
    of, start, kept = study(), linear().state_dict(), []
    for _ in range(5):
        model = linear()
        model.load_state_dict(start)
        train(of, model)
        kept.append(model)
    weights = [model.weight.detach().numpy() for model in kept]
    assert not any(np.array_equal(weights[0], other) for other in weights[1:])


def test_steps_that_are_too_small_for_the_weights_precision_are_no_copies() -> None:
    of, start = study(), linear().state_dict()
    for _ in range(2):
        model = linear()
        model.load_state_dict(start)
        train(of, model, rate=1e-12)
        assert torch.equal(model.weight, start["weight"])


def test_a_released_model_may_be_trained_further_in_another_study() -> None:
    """Its own study has paid for it."""
    earlier = linear()
    train(study(), earlier)
    train(study(), loaded(earlier))


def test_layers_that_share_their_weights_are_welcome() -> None:
    shared = nn.Linear(FEATURES, FEATURES)
    tied = nn.Linear(FEATURES, FEATURES)
    tied.weight = shared.weight
    viewed = nn.Linear(FEATURES, FEATURES)
    viewed.weight = nn.Parameter(torch.randn(2 * FEATURES, FEATURES)[:FEATURES])
    train(study(), nn.Sequential(shared, tied, viewed, linear()))
