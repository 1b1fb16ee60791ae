"""Ordinary programs train, or are refused in one sentence that names what to write instead."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from refusals import refuses

torch = pytest.importorskip("torch")

from started import claimed, started  # noqa: E402
from torch import nn  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.study.entries import TRAININGS  # noqa: E402

N = 24
X, Y = torch.randn(N, 4), torch.randint(0, 3, (N,))
INPUTS = odp.made_up_inputs(*[(-1, 1)] * 4, rows=32)
cross_entropy = nn.functional.cross_entropy


def train(model: Any, records: Any = (X, Y), **arguments: Any) -> Any:
    if "record_loss" not in arguments:
        arguments.setdefault("loss", cross_entropy)
    return odp.train(started(N, steps=3), model, records, **arguments)


def refused(
    argument: str, remedy: str, model: Any, records: Any = (X, Y), **arguments: Any
) -> None:
    """The training is refused for this argument, with this piece of code as the remedy."""
    run = started(N)
    with refuses(argument) as caught:
        odp.train(run, model, records, **{"loss": cross_entropy, **arguments})
    assert remedy in caught.value.fix
    assert claimed(run, TRAININGS) == []


def test_a_mapping_may_be_the_target() -> None:
    targets = {"kind": Y, "size": torch.rand(N)}

    def loss(output: Any, target: Any) -> Any:
        size = (output.mean(1) - target["size"]).square().mean()
        return cross_entropy(output, target["kind"]) + size

    train(nn.Linear(4, 3), (X, targets), loss=loss)


def test_a_mapping_may_be_the_input() -> None:
    class TwoInputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, x: Any) -> Any:
            return self.layer(torch.cat([x["table"], x["age"][:, None]], 1))

    records = {"table": X, "age": torch.rand(N)}, Y
    train(TwoInputs(), records, learning_rate=0.1, score="accuracy")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_half_precision_takes_records_in_single(dtype: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16), nn.Linear(16, 3)).to(dtype)
    assert train(model, learning_rate=0.1, score="accuracy").score is not None


@pytest.mark.filterwarnings("ignore:Records are computed")  # vmap takes no norms in autocast.
def test_autocast_around_a_training_with_norms_and_a_rehearsal() -> None:
    model = nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        trained = train(model, inputs=torch.tensor(INPUTS, dtype=torch.float32), score="accuracy")
    assert trained.rehearsal is not None


def test_a_rate_is_found_for_an_lstm_and_a_normed_model_with_inputs() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.layer(x)[0][:, -1])

    series = torch.randn(N, 5, 4)
    assert train(Recurrent, (series, Y), inputs=torch.rand(16, 5, 4)).rehearsal is not None
    normed = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 8))
    model = nn.Sequential(normed, nn.ReLU(), nn.Linear(8, 3))
    assert train(model, inputs=torch.rand(16, 4)).rehearsal is not None


def test_another_default_device_or_precision_and_no_gradients_around_a_training() -> None:
    """As after ``torch.set_default_device("cuda")`` with a model on the processor."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 3))
    with torch.device("meta"):
        assert train(model, score="accuracy").score is not None
    with torch.no_grad():
        assert train(model, (X.numpy(), Y.numpy()), score="accuracy").score is not None
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert train(model, score="accuracy").score is not None
    finally:
        torch.set_default_dtype(before)


def test_settings_in_a_dictionary_are_no_records() -> None:
    settings = {"width": 8, "weights": torch.ones(3), "data": "adult"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(
            lambda: nn.Sequential(
                nn.Linear(4, settings["width"]), nn.Linear(settings["width"], 3)
            ),
            loss=lambda output, target: cross_entropy(output, target, weight=settings["weights"]),
            learning_rate=0.1,
        )


class Tuple(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x), x


class Table:
    """What is known of a table of pandas."""

    iloc = None

    def __init__(self, values: Any) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def to_numpy(self) -> Any:
        return self.values


def test_what_cannot_be_trained_as_it_is_names_what_to_write() -> None:
    model = nn.Linear(4, 3)
    refused("loss", "output[0]", Tuple())
    refused("records", "x[:, None]", nn.Linear(1, 3), (X[:, 0], Y))
    texts = np.array(["yes", "no"] * (N // 2))
    refused("records", "odp.Schema(y=['no', 'yes']", model, (X, texts))
    refused("records", "odp.Schema(y=['no', 'yes']", model, (X, texts.astype(object)))
    refused("records", "odp.Schema(", model, (Table(X.numpy()), Y))
    refused("records", "schema.encode(table)", model, Table(X.numpy()))
    logistic = nn.functional.binary_cross_entropy_with_logits
    refused("learning_rate", "learning_rate=", nn.Linear(4, 1), (X, torch.ones(N)), loss=logistic)
    refused("records", "record_loss=", model, (X, torch.rand(N), Y))
    refused(
        "model", "GroupNorm", nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    )


def test_a_model_whose_output_noise_cannot_move_is_told_to_give_a_rate() -> None:
    class Bounded(nn.Module):
        """Logits that stay within a hundredth, whatever the weights are."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return 0.01 * torch.tanh(self.layer(x))

    refused("learning_rate", "learning_rate=", Bounded(), inputs=INPUTS)
    train(Bounded(), learning_rate=0.1)
