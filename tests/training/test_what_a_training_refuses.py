"""What would make one record count for more, or leave without noise, is refused at set-up.

Nothing is charged then: the trial has not claimed its training, and may train after all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from refusals import refuses

torch = pytest.importorskip("torch")

from started import claimed, started  # noqa: E402
from support import logged  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import (  # noqa: E402
    ConcatDataset,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
)

import optuna_dp as odp  # noqa: E402
from optuna_dp.errors import InvalidArgumentError  # noqa: E402
from optuna_dp.study.entries import TRAININGS  # noqa: E402

N = 8
X, Y = torch.randn(N, 4), torch.randint(0, 3, (N,))
IMAGES = torch.randn(N, 2, 6, 6)
cross_entropy = nn.functional.cross_entropy


def linear() -> nn.Module:
    return nn.Linear(4, 3)


def refused(
    argument: str, model: Any = None, records: Any = None, *, planned: int = N, **arguments: Any
) -> InvalidArgumentError:
    """The training is refused for an argument, and nothing was claimed, moved or left behind."""
    model = linear() if model is None else model
    records = (X, Y) if records is None else records
    if "record_loss" not in arguments:
        arguments.setdefault("loss", cross_entropy)
    run = started(planned)
    is_module = isinstance(model, nn.Module)
    before = {k: v.clone() for k, v in model.state_dict().items()} if is_module else {}
    with refuses(argument) as caught:
        odp.train(run, model, records, **{"score": None, **arguments})
    assert claimed(run, TRAININGS) == []
    if is_module:
        after = model.state_dict()
        assert all(torch.equal(value, after[name]) for name, value in before.items())
        assert all(parameter.grad is None for parameter in model.parameters())
    return caught.value


def with_norm(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3), norm, nn.Flatten(), nn.Linear(48, 3))


class RunningMean(nn.Module):
    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self.layer, self.in_place = nn.Linear(4, 3), in_place
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        if self.in_place:
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        else:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()
        return self.layer(x - self.mean)


@pytest.mark.promise("gradients")
@pytest.mark.parametrize(
    "model",
    [
        with_norm(nn.BatchNorm2d(3)),
        with_norm(nn.BatchNorm2d(3, affine=False)),
        with_norm(nn.BatchNorm2d(3).requires_grad_(False)),
        with_norm(nn.InstanceNorm2d(3, track_running_stats=True)),
    ],
)
def test_running_statistics_are_refused_with_the_remedy(model: nn.Module) -> None:
    error = refused("model", model, (IMAGES, Y))
    assert "GroupNorm" in error.fix
    assert ".eval()" in error.fix


@pytest.mark.promise("gradients")
@pytest.mark.parametrize("in_place", [True, False])
def test_running_means_written_by_hand_are_refused(in_place: bool) -> None:
    assert "'mean'" in refused("model", RunningMean(in_place=in_place)).why


def test_a_loss_that_is_no_number_is_refused() -> None:
    refused("loss", loss=lambda output, target: output)
    refused("loss", loss=lambda output, target: 1.0)


def without_gradients(model: nn.Module, x: Any, y: Any) -> Any:
    with torch.no_grad():
        return cross_entropy(model(x), y)


@pytest.mark.parametrize(
    ("argument", "losses"),
    [
        ("loss", {"loss": lambda output, target: cross_entropy(output.detach(), target)}),
        ("loss", {"loss": lambda output, target: (output.argmax(1) != target).float().mean()}),
        ("record_loss", {"record_loss": without_gradients}),
    ],
)
def test_a_loss_that_is_cut_from_the_weights_is_refused(argument: str, losses: Any) -> None:
    """torch.func returns gradients of zero where loss.backward() would raise an error."""
    assert "noise alone" in refused(argument, **losses).why


def test_a_loss_without_gradients_for_some_records_is_none() -> None:
    def of_some(output: Any, target: Any) -> Any:
        return cross_entropy(output, target) if float(target) > 0 else torch.zeros(())

    with pytest.warns(UserWarning, match="one after another"):
        odp.train(started(N), linear(), (X, Y), loss=of_some, score=None)


def test_a_loss_that_fails_says_how_it_is_called() -> None:
    error = refused("loss", nn.Linear(5, 3))
    assert "RuntimeError" in error.why
    assert "loss(output, target)" in error.fix


@pytest.mark.promise("persons")
@pytest.mark.parametrize(
    "records",
    [
        DataLoader(TensorDataset(X, Y)),
        RandomSampler(X),
        ConcatDataset([TensorDataset(X[:4], Y[:4])] * 2),
        ConcatDataset([TensorDataset(X[:4], Y[:4]), TensorDataset(X[:4], Y[:4])]),
        Subset(TensorDataset(X, Y), [0, 1, 2, 3, 4, 5, 6, 6]),
        ConcatDataset([Subset(TensorDataset(X, Y), [0, 1, 2, 3]), TensorDataset(X[:4], Y[:4])]),
        [(X[0], Y[0])] * N,
        (X[:1].expand(N, 4), Y),
        (torch.randn(20).unfold(0, 4, 2)[:N], Y),
        (np.lib.stride_tricks.sliding_window_view(np.ones(11), 4), Y),
        (X.to_sparse(), Y),
        (X, Y[:5]),
        (X[:0], Y[:0]),
        (X, [0] * N),
        "records",
        iter([X, Y]),
    ],
)
def test_what_is_not_all_records_once_is_refused(records: Any) -> None:
    refused("records", records=records)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged, torch.sparse_csr])
def test_sparse_and_nested_tensors_are_refused(layout: Any) -> None:
    is_sparse = layout is torch.sparse_csr
    x = X.to_sparse_csr() if is_sparse else torch.nested.nested_tensor(list(X), layout=layout)
    refused("records", records=(x, Y))


def test_an_iterable_data_set_is_refused() -> None:
    class Stream(IterableDataset):
        def __iter__(self) -> Any:
            return iter(zip(X, Y, strict=True))

    refused("records", records=Stream())


@pytest.mark.promise("public-numbers")
@pytest.mark.parametrize("count", [1, 2 * N, 2 * N + 1, 40 * N])
def test_no_number_of_records_makes_a_run_fail(count: int) -> None:
    """It is private, so the log says what it means, and the score is a sum over the plan's number.

    A score that no plan's records can have would be refused at the release.
    """
    records = torch.randn(count, 4), torch.randint(0, 3, (count,))
    with logged() as lines:
        trained = odp.train(
            started(N), linear(), records, loss=cross_entropy, score="accuracy", learning_rate=0.1
        )
    is_far = count not in (2 * N,)
    assert any("Are these the right ones" in line for line in lines) == is_far
    assert -0.6 <= trained.score <= 1.6


@pytest.mark.parametrize(
    "optimizer",
    [
        "adagrad",
        torch.optim.SGD,
        torch.optim.SGD(linear().parameters(), lr=0.1),
        lambda weights, rate: None,
        lambda weights, rate: torch.optim.LBFGS(weights, lr=rate),
        lambda weights, rate: torch.optim.SGD(weights[:1], lr=rate),
        lambda weights, rate: torch.optim.SGD([*weights, *linear().parameters()], lr=rate),
        lambda weights, rate: torch.optim.SparseAdam(weights, lr=rate),
    ],
)
def test_optimizers_that_do_not_step_the_trained_weights_are_refused(optimizer: Any) -> None:
    refused("optimizer", optimizer=optimizer, learning_rate=0.1)


@pytest.mark.parametrize(
    "model",
    [
        linear().requires_grad_(False),
        nn.LazyLinear(3),
        nn.Linear(4, 3, dtype=torch.complex64),
        nn.DataParallel(linear()),
    ],
)
def test_models_without_weights_to_train_are_refused(model: Any) -> None:
    run = started(N)
    with refuses("model"):
        odp.train(run, model, (X, Y), loss=cross_entropy, score=None)
    assert claimed(run, TRAININGS) == []


def test_a_loss_with_parameters_of_its_own_is_refused() -> None:
    class Centres(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.centres = nn.Parameter(torch.zeros(3))

        def forward(self, output: Any, target: Any) -> Any:
            return (output - self.centres).square().sum()

    refused("loss", loss=Centres())


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"clipping_norm": 0.0}, "clipping_norm"),
        ({"physical_batch_size": 0}, "physical_batch_size"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"schedule": "linear"}, "schedule"),
        ({"device": "nowhere"}, "device"),
        ({"loss": None}, "loss"),
        ({"loss": 3}, "loss"),
        ({"loss": cross_entropy, "record_loss": cross_entropy}, "record_loss"),
        ({"score": "accuracy", "record_score": cross_entropy}, "record_score"),
        ({"score": "f1"}, "score"),
        ({"score": "accuracy", "score_records": (X, Y)}, "score_records"),
        ({"score_records": (X, Y)}, "score_records"),
        ({"score": "accuracy", "score_size": 5}, "score_size"),
    ],
)
def test_arguments_are_refused_by_their_name(arguments: dict[str, Any], argument: str) -> None:
    refused(argument, **{"loss": cross_entropy, **arguments})


class Held(torch.utils.data.Dataset[Any]):
    def __init__(self) -> None:
        self.x = X

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        return self.x[index], Y[index]


@pytest.mark.promise("public-numbers")
@pytest.mark.parametrize("inputs", [X, X[:2], (X[:, :4],), {"input": X[::2]}, X.numpy()])
@pytest.mark.parametrize("records", [(X, Y), (X.numpy(), Y.numpy()), TensorDataset(X, Y), Held()])
def test_a_rate_is_not_rehearsed_on_the_records(inputs: Any, records: Any) -> None:
    refused("inputs", records=records, inputs=inputs)


@pytest.mark.promise("public-numbers")
def test_a_softmax_regression_is_not_rehearsed_on_the_records() -> None:
    records = (X.numpy(), Y.numpy())
    with pytest.raises(InvalidArgumentError) as refusal:
        odp.train(
            started(N), odp.SoftmaxRegression(4, 3), records, inputs=records[0][:3], score=None
        )
    assert refusal.value.argument == "inputs"


@pytest.mark.parametrize(
    ("model", "records", "argument", "remedy"),
    [
        (linear(), (X, Y.to(torch.uint16)), "records", "y.long()"),
        (linear(), (np.array(["text"] * N), Y), "records", "odp.Schema"),
        (linear(), [torch.randn(50, 4), torch.zeros(50)], "records", "Give a tuple"),
    ],
)
def test_what_cannot_be_trained_is_told_with_the_remedy(
    model: nn.Module, records: Any, argument: str, remedy: str
) -> None:
    assert remedy in refused(argument, model, records).fix


def test_parameters_that_cannot_be_trained_are_refused_with_the_remedy() -> None:
    with torch.inference_mode():
        made_for_inference = linear()
    refused("model", made_for_inference)
    expanded = linear()
    expanded.weight = nn.Parameter(torch.randn(1, 4).expand(3, 4))
    assert "weight.data = weight.data.clone" in refused("model", expanded).fix
    expanded.weight.data = expanded.weight.data.clone()
    odp.train(started(N), expanded, (X, Y), loss=cross_entropy, score=None)


@pytest.mark.parametrize("dtype", [">f4", ">f8", "longdouble"])
@pytest.mark.parametrize("softmax", [False, True])
def test_arrays_of_another_byte_order_or_precision_are_records(dtype: str, softmax: bool) -> None:
    records = (X.numpy().astype(dtype), Y.numpy().astype(">i8"))
    models, loss = [linear(), linear()], {"loss": cross_entropy}
    models[1].load_state_dict(models[0].state_dict())
    if softmax:
        models, loss = [odp.SoftmaxRegression(4, 3) for _ in range(2)], {}
    rule = {"optimizer": "sgd", "learning_rate": 1.0, "schedule": odp.Schedule("constant")}
    for model, given in zip(models, (records, (X.numpy(), Y.numpy())), strict=True):
        odp.train(
            started(N, noise_multiplier=1e-9), model, given, **{"score": None, **loss}, **rule
        )
    weights = [m.weights if softmax else m.weight.detach().numpy() for m in models]
    np.testing.assert_allclose(*weights, atol=1e-6)


# -- slips ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "value", "remedy"),
    [
        ("loss", nn.CrossEntropyLoss, "loss=CrossEntropyLoss()"),
        ("loss", nn.MSELoss, "loss=MSELoss()"),
        ("loss", "cross_entropy", "loss=torch.nn.functional.cross_entropy"),
        ("loss", torch.tensor(0.72), "loss=torch.nn.functional.cross_entropy"),
        ("secure_noise", True, ""),
        ("optimizer", torch.optim.Adam, "optimizer='adam'"),
        ("optimizer", torch.optim.Adam(linear().parameters()), "optimizer='adam'"),
        ("schedule", "cosine", "schedule=optuna_dp.Schedule('cosine')"),
        ("records", X, "records=(x, y)"),
    ],
)
def test_a_slip_of_the_pen_is_answered_with_what_to_write(
    argument: str, value: Any, remedy: str
) -> None:
    error = refused(argument, **{argument: value})
    assert remedy in error.fix
    assert "attention" not in str(error)
    assert "0.72" not in str(error)


def test_labels_in_the_wrong_place_are_not_printed() -> None:
    with refuses("argument 4") as caught:
        odp.train(started(N), linear(), X, Y, loss=cross_entropy, score=None)
    assert repr(caught.value.value) == "<Tensor of shape (8,)>"


def test_what_stands_in_for_a_run_is_answered_with_how_to_get_one() -> None:
    run = started(N)
    with pytest.raises(InvalidArgumentError) as refusal:
        odp.train(run.trial, linear(), (X, Y), loss=cross_entropy, score=None)
    assert refusal.value.argument == "run"


def test_a_score_that_is_charged_for_and_that_nothing_names_is_refused_before_it_costs() -> None:
    run = started(N)
    with refuses("score"):
        odp.train(run, linear(), (X, Y), loss=cross_entropy)
    assert odp.train(run, linear(), (X, Y), loss=cross_entropy, score=None).score is None
    unscored = started(N, score=None)
    assert odp.train(unscored, linear(), (X, Y), loss=cross_entropy).score is None
