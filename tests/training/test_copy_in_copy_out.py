"""A training computes with a copy: noisy weights come out, and state of the model stays in."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from refusals import refuses
from started import NO_NOISE, claimed, started
from support import exactly, study_of

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.errors import InvalidArgumentError  # noqa: E402
from optuna_dp.study.entries import TRAININGS  # noqa: E402

N = 24
X, Y = torch.randn(N, 4), torch.randint(0, 3, (N,))
SERIES = torch.randn(N, 6, 4)
cross_entropy = nn.functional.cross_entropy


def train(model: Any, records: Any = (X, Y), run: Any = None, **arguments: Any) -> Any:
    arguments = {"loss": cross_entropy, "learning_rate": 0.1, **arguments}
    return odp.train(run or started(N, steps=3), model, records, **{"score": None, **arguments})


def dropped_out() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.9), nn.Linear(8, 3))


# -- what comes out -------------------------------------------------------------------------------


def test_a_module_gets_its_trained_weights_and_is_in_evaluation_mode() -> None:
    module = dropped_out()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    weights = [id(parameter) for parameter in module.parameters()]
    trained = train(module, score="accuracy")
    assert trained.model is module
    assert not any(part.training for part in module.modules())
    assert [id(parameter) for parameter in module.parameters()] == weights
    assert all(not torch.equal(value, before[n]) for n, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert torch.equal(module(X), module(X))


@pytest.mark.parametrize("make", [dropped_out, lambda: odp.SoftmaxRegression(4, 3)])
def test_a_function_makes_the_model_of_each_run(make: Callable[[], Any]) -> None:
    is_softmax = isinstance(make(), odp.SoftmaxRegression)
    arguments = {"loss": None} if is_softmax else {}
    records = (X.numpy(), Y.numpy()) if is_softmax else (X, Y)
    models = [train(make, records, **arguments).model for _ in range(2)]
    assert models[0] is not models[1]
    weights = [model.weights if is_softmax else model[0].weight for model in models]
    assert not np.array_equal(*[np.asarray(w.data) for w in weights])


def test_a_model_is_trained_in_the_mode_that_its_parts_are_in() -> None:
    """All gradients are zero under a dropout of everything."""
    moved = {}
    for is_training in (True, False):
        module = nn.Sequential(nn.Dropout(1.0), nn.Linear(4, 3, bias=False)).train(is_training)
        before = module[1].weight.detach().clone()
        train(module, run=started(N, noise_multiplier=NO_NOISE))
        moved[is_training] = float((module[1].weight - before).norm().detach())
    assert moved[True] == 0.0
    assert moved[False] > 1e-4


def test_frozen_parts_and_buffers_are_as_before() -> None:
    norm = nn.BatchNorm1d(4).eval().requires_grad_(False)
    norm.running_mean.fill_(0.3)
    module = nn.Sequential(norm, nn.Linear(4, 5), nn.Linear(5, 3))
    module[1].requires_grad_(False)
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    train(module, score="accuracy")
    moved = {name for name, t in module.state_dict().items() if not torch.equal(t, state[name])}
    assert moved == {"2.weight", "2.bias"}


def test_a_training_that_fails_leaves_the_model_as_it_was() -> None:
    class Failing(torch.optim.SGD):
        left = 3

        def step(self, closure: Any = None) -> None:
            super().step()
            Failing.left -= 1
            if not Failing.left:
                raise RuntimeError("out of disk")

    module = dropped_out()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(RuntimeError, match="out of disk"):
        train(module, optimizer=lambda weights, rate: Failing(weights, lr=rate))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(part.training for part in module.modules())


class Keeping(nn.Module):
    """A model that keeps something of what it was called with."""

    def __init__(self, keep: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.layer, self.keep = nn.Linear(4, 3), keep
        self.kept: list[Any] = []
        self.last: Any = None
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.keep(self, x)
        return self.layer(x)


@pytest.mark.promise("gradients")
@pytest.mark.parametrize(
    "keep",
    [
        lambda model, x: model.kept.append(x),
        lambda model, x: setattr(model, "last", x),
        lambda model, x: setattr(model, "calls", model.calls + 1),
    ],
)
def test_what_a_model_keeps_of_records_stays_in_the_training(keep: Any) -> None:
    model = Keeping(keep)
    train(model, score="accuracy")
    assert (model.kept, model.last, model.calls) == ([], None, 0)


def test_a_model_that_was_called_before_can_be_trained() -> None:
    """PyTorch does not copy what a call has computed."""
    model = Keeping(lambda model, x: setattr(model, "last", model.layer(x)))
    model(X)
    train(model)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize(
    "normed",
    [
        lambda layer: nn.utils.parametrizations.spectral_norm(layer),
        lambda layer: nn.utils.spectral_norm(layer),
        lambda layer: nn.utils.weight_norm(layer),
        lambda layer: nn.utils.parametrizations.weight_norm(layer),
    ],
)
def test_normed_weights_are_trained(normed: Any) -> None:
    model = nn.Sequential(normed(nn.Linear(4, 7)), nn.ReLU(), nn.Linear(7, 3))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    train(model, run=started(N, steps=20), score="accuracy")
    assert all(torch.isfinite(model(X)).flatten())
    changed = {name for name, t in model.state_dict().items() if not torch.equal(t, state[name])}
    # The vectors of a spectral norm follow the noisy weights.
    assert {"2.weight", "2.bias"} < changed
    assert all(name in changed for name in state if name.endswith(("_u", "_v")))


@pytest.mark.parametrize("inputs", [None, odp.made_up_inputs(*[(-1, 1)] * 4, rows=32)])
def test_a_recurrent_model_is_trained_and_works_afterwards(inputs: Any) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.layer(x)[0][:, -1])

    model = Recurrent()
    made_up = None if inputs is None else torch.rand(32, 6, 4)
    rate = 0.1 if inputs is None else None
    train(model, (SERIES, Y), inputs=made_up, learning_rate=rate, score="accuracy")
    again = Recurrent()
    again.load_state_dict(model.state_dict())
    assert torch.equal(model(SERIES), again(SERIES))


def test_what_is_done_with_a_trained_model_is_no_part_of_the_training() -> None:
    plan = odp.RunPlan(
        records=N, batch_size=10, steps=2, noise_multiplier=2.0, score_noise_multiplier=9.0
    )

    def objective(trial: Any) -> float:
        trained = train(dropped_out, run=odp.start_run(trial), score="accuracy")
        trained.model.half()
        return float(trained.score)

    study = study_of(odp.RandTuneSampler(trials=exactly(1), run=plan))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    assert odp.release(study).spending["training"] == "enforced"


# -- records in the model -------------------------------------------------------------------------


class Project(nn.Module):
    """A class with data, loss and network, as ported scripts have them."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.y = X, Y
        self.layer = nn.Linear(self.x.shape[1], 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x)

    def loss(self, output: Any, target: Any) -> Any:
        return cross_entropy(output, target, weight=torch.ones(3))


def test_a_model_may_hold_the_records_which_are_not_copied() -> None:
    project = Project()
    train(project, (project.x, project.y), loss=project.loss, score="accuracy")


def no_warning_of_names(**arguments: Any) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(nn.Linear(4, 3), **arguments)


@pytest.mark.promise("gradients")
def test_a_loss_that_names_the_records_is_warned_of() -> None:
    centre = X.mean(0)
    for loss in (
        lambda output, target: cross_entropy(output - X.mean(), target),
        lambda output, target, of_all=Y: cross_entropy(output, target) * of_all.max(),
        (lambda x: lambda output, target: cross_entropy(output - x.sum(), target))(X[3:]),
    ):
        with pytest.warns(UserWarning, match="names"):
            train(nn.Linear(4, 3), loss=loss)
    no_warning_of_names(loss=lambda output, target: cross_entropy(output - centre[:3], target))
    # An attribute with the name of the records is not the records.
    no_warning_of_names(loss=lambda output, target: cross_entropy(output, target) * one.X)


class one:
    X = 1.0


# -- what cannot be copied, and what would be lost ------------------------------------------------


def refused(model: Any, **arguments: Any) -> InvalidArgumentError:
    run = started(N, steps=3)
    with refuses("model") as caught:
        train(model, run=run, **arguments)
    assert claimed(run, TRAININGS) == []
    return caught.value


class Lazily(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        if not hasattr(self, "second"):
            self.second = nn.Linear(3, 3)
        return self.second(self.first(x))


class Clamped(nn.Linear):
    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            self.weight.clamp_(-0.01, 0.01)
        return super().forward(x)


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 5, max_norm=0.1), nn.Linear(5, 3)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.embedding(tokens).mean(1))


@pytest.mark.promise("gradients")
def test_models_that_change_themselves_are_refused() -> None:
    assert "__init__" in refused(Lazily()).fix
    assert "'weight'" in refused(Clamped(4, 3)).why
    tokens = torch.randint(0, 9, (N, 6))
    assert "'embedding.weight'" in refused(Embedded(), records=(tokens, Y)).why


def test_a_model_that_cannot_be_copied_is_refused() -> None:
    model = nn.Linear(4, 3)
    model.lock = threading.Lock()
    assert "lock" in refused(model).why


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_a_scripted_module_is_refused() -> None:
    refused(torch.jit.script(nn.Linear(4, 3)))


@pytest.mark.parametrize("model", [3, "a model", lambda: 3, nn.ReLU])
def test_what_is_no_model_is_refused(model: Any) -> None:
    refused(model)


# -- runs that must not know of each other --------------------------------------------------------


def two_runs(sampler: Any, make: Callable[[], Any]) -> None:
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(
        lambda trial: train(make(), run=odp.start_run(trial), score="accuracy").score, n_trials=2
    )


def private_selection() -> Any:
    plan = odp.RunPlan(
        records=N, batch_size=10, steps=2, noise_multiplier=2.0, score_noise_multiplier=9.0
    )
    return odp.RandTuneSampler(trials=odp.Binomial(n=4, mean=3.999999), run=plan)


@pytest.mark.promise("independent-runs")
def test_a_private_selection_of_runs_with_one_model_is_refused() -> None:
    module, body = dropped_out(), nn.Linear(4, 8)
    with pytest.raises(InvalidArgumentError) as refusal:
        two_runs(private_selection(), lambda: module)
    assert refusal.value.argument == "model"
    # Weights that two models share, too.
    with pytest.raises(InvalidArgumentError) as refusal:
        two_runs(private_selection(), lambda: nn.Sequential(body, nn.Linear(8, 3)))
    assert refusal.value.argument == "model"


def test_a_private_selection_of_runs_with_models_of_their_own_is_not() -> None:
    base = nn.Linear(4, 8).requires_grad_(False)
    template = nn.Linear(8, 3)
    two_runs(private_selection(), dropped_out)
    two_runs(private_selection(), lambda: nn.Sequential(base, copy.deepcopy(template)))


def test_the_runs_of_a_budget_may_share_a_model() -> None:
    plan = odp.plan_budget(epsilon=3.0, records=N, batch_size=10, epochs=5, pilots=1)
    module = dropped_out()
    two_runs(odp.BudgetSampler(plan), lambda: module)
