"""Models with one output: their rate without data, and what they learn."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from refusals import refuses
from started import started

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import optuna_dp as odp  # noqa: E402

FEATURES, RECORDS = 6, 400
INPUTS = odp.made_up_inputs(*[(-1.0, 1.0)] * 64)
PLAN: dict[str, Any] = {"noise_multiplier": 2.0, "batch_size": 64.0, "steps": 60}
squared, logistic = nn.functional.mse_loss, nn.functional.binary_cross_entropy_with_logits


def records() -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(0)
    x = 2.0 * torch.rand(RECORDS, FEATURES, generator=generator) - 1.0
    return x, 0.8 * x[:, 0] - 0.1


def network(width: int = 16) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, width), nn.Tanh(), nn.Linear(width, 1))


def rehearsal(module: nn.Module, **arguments: Any) -> odp.Rehearsal:
    return odp.rehearse_module(started(RECORDS, **PLAN), module, INPUTS, **arguments)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.filterwarnings("ignore:The noise allows SGD steps")
def test_of_a_linear_model_the_rate_is_known_in_closed_form(optimizer: str) -> None:
    found = rehearsal(nn.Linear(64, 1, bias=False), optimizer=optimizer)
    assert found.size == pytest.approx(0.5, rel=0.06)
    # The output is a sum of independent noises, one for each feature.
    wanted = 0.5 / math.sqrt(np.mean(np.sum(INPUTS**2, axis=1)))
    assert found.noise_per_weight == pytest.approx(wanted, rel=0.2)
    exact = odp.learning_rate(
        optimizer, noise_per_weight=wanted, schedule=odp.Schedule("constant", 0.25), **PLAN
    )
    assert found.learning_rate == pytest.approx(exact, rel=0.3)


def test_a_size_of_ones_own_is_reached() -> None:
    assert rehearsal(network(), size=0.2).size == pytest.approx(0.2, rel=0.06)


@pytest.mark.parametrize("make", [lambda: nn.Linear(64, 1), network])
def test_it_is_trained_with_adam_without_a_word(make: Any) -> None:
    torch.manual_seed(0)
    module = make()
    expected = rehearsal(module, optimizer="adam")
    some_records = torch.zeros(RECORDS, 64), torch.zeros(RECORDS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained = odp.train(
            started(RECORDS, **PLAN), module, some_records, loss=squared, inputs=INPUTS, score=None
        )
    assert trained.rehearsal == expected


def test_steps_of_sgd_that_a_squared_error_may_not_bear_are_warned_of() -> None:
    little_noise = started(RECORDS, **{**PLAN, "noise_multiplier": 0.5})
    with pytest.warns(UserWarning, match="optimizer='adam'"):
        found = odp.rehearse_module(little_noise, network(), INPUTS, optimizer="sgd")
    assert found.learning_rate > 0.5


@pytest.mark.parametrize("after", [[], [nn.Flatten(0)]], ids=["(1, 1)", "(1,)"])
def test_a_regression_is_learned_and_scored_without_a_rate(after: list[nn.Module]) -> None:
    x, y = records()
    torch.manual_seed(0)
    trained = odp.train(
        started(RECORDS, noise_multiplier=1.0, batch_size=200.0, steps=100),
        nn.Sequential(nn.Linear(FEATURES, 1), *after),
        (x, y),
        loss=squared,
        record_score=lambda model, x, y: 1.0 - (model(x[None]).sum() - y).abs() / 2.0,
    )
    with torch.no_grad():
        errors = trained.model(x).reshape(-1) - y
    # The gradient draws back what the noise moves: it was 0.00025 at most in 40 trainings.
    assert float(errors.square().mean()) < 0.5 * float(y.var())
    # The score's noise has the standard deviation 0.1 / 400.
    assert trained.score == pytest.approx(1.0 - float(errors.abs().mean()) / 2.0, abs=0.01)


@pytest.mark.parametrize(
    "arguments",
    [
        {"loss": logistic},
        {"loss": nn.BCEWithLogitsLoss()},
        {"loss": lambda output, target: logistic(output.squeeze(), target.squeeze())},
    ],
    ids=["logistic", "module", "function"],
)
def test_a_single_logit_is_no_regression(arguments: dict[str, Any]) -> None:
    x, y = records()
    trained = odp.train(
        started(RECORDS, **PLAN),
        nn.Linear(FEATURES, 1),
        (x, (y > 0).float()),
        score=None,
        **arguments,
    )
    assert trained.rehearsal is not None
    assert trained.rehearsal.aim == 1.7


def test_a_model_that_answers_no_input_by_itself_is_refused() -> None:
    with refuses("learning_rate") as refused:
        rehearsal(nn.Sequential(nn.Linear(64, 1), Mean()))
    assert "()" in refused.value.why


class Mean(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.mean()
