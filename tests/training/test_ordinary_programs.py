"""Ordinary programs train, or are refused in one sentence that names what to write instead."""

from __future__ import annotations

import logging
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
    return odp.train(started(N, steps=3), model, records, **{"score": None, **arguments})


def refused(
    argument: str, remedy: str, model: Any, records: Any = (X, Y), **arguments: Any
) -> None:
    """The training is refused for this argument, with this piece of code as the remedy."""
    run = started(N)
    with refuses(argument) as caught:
        odp.train(run, model, records, **{"score": None, "loss": cross_entropy, **arguments})
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
    inputs = {"table": INPUTS, "age": np.ones(len(INPUTS))}  # As the loss calls the model.
    assert train(TwoInputs(), records, inputs=inputs).rehearsal is not None


class InOne(nn.Module):
    """A model that gets two inputs as one argument."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, inputs: Any) -> Any:
        values = inputs.values() if isinstance(inputs, dict) else inputs
        return self.layer(torch.cat(list(values), 1))


class Apart(InOne):
    """A model that gets two inputs as two arguments."""

    def forward(self, a: Any, b: Any) -> Any:
        return super().forward((a, b))


@pytest.mark.parametrize("kind", [InOne, Apart])
def test_several_inputs_are_one_part_of_the_records(kind: Any) -> None:
    for pair in (lambda x: (x, x), lambda x: {"a": x, "b": x}):
        trained = train(kind(), (pair(X), Y), inputs=pair(INPUTS), score="accuracy")
        assert trained.rehearsal is not None
        refused("inputs", "odp.made_up_inputs(*[(-1, 1)] * 4, rows=64)", kind(), (pair(X), Y))


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
            loss=lambda output, target: cross_entropy(
                output, target, weight=settings["weights"], reduction="sum"
            ),
            learning_rate=0.1,
        )


class Experiment:
    """A class that has the data, and losses."""

    smoothing = 0.1

    def __init__(self) -> None:
        self.x, self.y = X, Y

    def loss(self, output: Any, target: Any) -> Any:
        return cross_entropy(output, target, label_smoothing=self.smoothing)

    def shares(self) -> Any:
        return self.y.bincount(minlength=3) / len(self.y)

    def loss_of_shares(self, output: Any, target: Any) -> Any:
        return cross_entropy(output, target, weight=self.shares(), reduction="sum")


def test_a_method_names_the_records_where_its_code_does() -> None:
    """Class weights from the labels move the sum by more than one record's gradient."""
    experiment = Experiment()
    records = experiment.x, experiment.y
    model = nn.Linear(4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, records, loss=experiment.loss, learning_rate=0.1)
    with pytest.warns(UserWarning, match=r"self\.y"):
        train(model, records, loss=experiment.loss_of_shares, learning_rate=0.1)


class Plateau(torch.optim.SGD):
    """Halves its rate where the accuracy is low, without noise."""

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        weight, bias = self.param_groups[0]["params"]
        if (X @ weight.T + bias).argmax(1).eq(Y).double().mean() < 0.5:
            self.param_groups[0]["lr"] /= 2


def test_an_optimizer_that_looks_at_the_records_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="names all the records"):
        train(nn.Linear(4, 3), optimizer=lambda p, lr: Plateau(p, lr=lr), learning_rate=0.1)


@pytest.mark.parametrize("noise", [0.1, 8.0])
def test_a_score_that_is_mostly_noise_is_said_to_be(noise: float, caplog: Any) -> None:
    """Of 24 records, noise of 8 halves of a record is a standard deviation of 0.17."""
    run = started(N, score_noise_multiplier=noise)
    with caplog.at_level(logging.WARNING, logger="optuna_dp"):
        odp.train(run, odp.SoftmaxRegression(4, 3), (X.numpy(), Y.numpy()), score="accuracy")
    assert ("noise" in caplog.text) == (noise > 1.0)


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
    first = {"loss": lambda output, target: cross_entropy(output[0], target)}
    refused("learning_rate", "learning_rate=", Tuple(), inputs=INPUTS, **first)
    refused("records", "x[:, None]", nn.Linear(1, 3), (X[:, 0], Y))
    refused("records", "y[:, 0]", model, (X, Y[:, None]))
    refused("model", "y.argmax(1)", model, (X, nn.functional.one_hot(Y, 3)))
    texts = np.array(["yes", "no"] * (N // 2))
    refused("records", "odp.Schema(y=['no', 'yes']", model, (X, texts))
    refused("records", "odp.Schema(y=['no', 'yes']", model, (X, texts.astype(object)))
    refused("records", "odp.Schema(", model, (Table(X.numpy()), Y))
    refused("records", "schema.encode(table)", model, Table(X.numpy()))
    refused(
        "learning_rate",
        "BCEWithLogitsLoss",
        nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()),
        (X, torch.ones(N)),
        loss=nn.BCELoss(),
        score="accuracy",
    )
    refused("records", "record_loss=", model, (X, torch.rand(N), Y))
    refused(
        "model", "GroupNorm", nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    )


@pytest.mark.parametrize(
    ("model", "record", "example"),
    [
        (lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, 3)),
         torch.rand(1, 6, 6), lambda: odp.made_up_images(1, 6, 6)),
        (lambda: nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(28, 3)),
         torch.randint(0, 9, (7,)), lambda: odp.made_up_tokens(9, 7)),
        (lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.Flatten(), nn.Linear(12, 3)),
         torch.rand(2, 5), lambda: torch.rand(64, 2, 5)),
    ],
)  # fmt: skip
def test_without_inputs_the_error_makes_some_of_the_shape_of_a_record(
    model: Any, record: Any, example: Any
) -> None:
    records = torch.stack([record] * N), Y
    sizes = ", ".join(map(str, record.shape))
    refused("inputs", f"{sizes})", model, records)
    assert train(model, records, inputs=example()).rehearsal is not None


class TextAndSeries(nn.Module):
    """A classifier of seven tokens and of a series of two columns and five days."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.days = nn.Embedding(9, 4), nn.Conv1d(2, 4, 3)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Any, series: Any) -> Any:
        return self.head(torch.cat([self.words(tokens).mean(1), self.days(series).mean(2)], 1))


def test_the_example_of_several_inputs_makes_as_many_rows_of_each() -> None:
    records = (torch.randint(0, 9, (N, 7)), torch.rand(N, 2, 5)), Y
    with refuses("inputs") as caught:
        train(TextAndSeries, records)
    example = caught.value.fix.partition("For example inputs=")[2].partition(". Or")[0]
    inputs = eval(example, {"odp": odp, "torch": torch, "vocabulary": 9})
    assert train(TextAndSeries, records, inputs=inputs).rehearsal is not None


@pytest.mark.parametrize("name", ["spectral_norm", "weight_norm"])
def test_features_are_made_up_for_dense_models_with_normed_weights(name: str) -> None:
    norm = getattr(nn.utils.parametrizations, name)
    model = nn.Sequential(norm(nn.Linear(4, 8)), nn.ReLU(), nn.Linear(8, 3))
    assert train(model).rehearsal is not None


def test_a_model_whose_output_noise_cannot_move_far_is_trained_with_a_warning() -> None:
    class Bounded(nn.Module):
        """Logits that stay within a hundredth, whatever the weights are."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return 0.01 * torch.tanh(self.layer(x))

    with pytest.warns(UserWarning, match="learning_rate="):
        train(Bounded(), inputs=INPUTS)
    train(Bounded(), learning_rate=0.1)


class Shifted(nn.Module):
    """A model that subtracts a mean over an axis of its input."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis, self.layer = axis, nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x - x.mean(self.axis, keepdim=True))


class LastStep(nn.Module):
    """A recurrent classifier of series."""

    def __init__(self, *, batch_first: bool) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(4, 8, batch_first=batch_first), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(x)[0][:, -1])


def contrastive(output: Any, target: Any) -> Any:
    """Outputs of one class should be nearer to each other than to those of other classes."""
    others = ~torch.eye(len(output), dtype=torch.bool)
    logits = nn.functional.log_softmax((output @ output.T).masked_fill(~others, -1e9), dim=1)
    pairs = others & (target[:, None] == target[None, :])
    return -(logits * pairs).sum() / len(output)


SERIES = torch.randn(N, 5, 4)


@pytest.mark.parametrize(
    ("compares", "model", "records", "arguments"),
    [
        (True, Shifted(0), (X, Y), {}),
        (False, Shifted(1), (X, Y), {}),
        (True, Shifted(0), (X, Y), {"record_loss": lambda model, x, y: model(x[None]).norm()}),
        (True, LastStep(batch_first=False), (SERIES, Y), {}),
        (False, LastStep(batch_first=True), (SERIES, Y), {}),
        (False, nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)), (X, Y), {}),
        (True, nn.Linear(4, 3), (X, Y), {"loss": contrastive}),
        # No gradient where the target is 0, which made-up targets are: it is ignored.
        (
            False,
            nn.Linear(4, 3),
            (X, Y),
            {"loss": lambda output, target: cross_entropy(output, target, ignore_index=0)},
        ),
    ],
)
def test_a_hint_says_that_a_model_or_a_loss_compares_the_records_of_a_batch(
    compares: bool, model: Any, records: Any, arguments: Any
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(model, records, learning_rate=0.1, **arguments)
    assert any("batch" in str(warning.message) for warning in caught) == compares


class Lengths(nn.Module):
    """A recurrent model that is called with texts and their lengths, which may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 4), nn.Linear(4, 2)
        self.recurrent = nn.LSTM(4, 4, batch_first=True)

    def forward(self, tokens: Any, lengths: Any = None) -> Any:
        states = self.recurrent(self.embedding(tokens))[0]
        last = (lengths - 1)[:, None, None].expand(-1, 1, 4)
        return self.head(states.gather(1, last)[:, 0])


class Packed(Lengths):
    def forward(self, tokens: Any, lengths: Any) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False
        )
        return self.head(self.recurrent(packed)[1][0][-1])


@pytest.mark.parametrize("model", [Lengths, Packed])
@pytest.mark.filterwarnings("ignore:Records are computed one after another")
def test_a_model_of_texts_may_take_their_lengths(model: Any) -> None:
    tokens, lengths = torch.randint(0, 9, (N, 5)), torch.randint(1, 6, (N,))
    train(model(), ((tokens, lengths), Y % 2), learning_rate=0.1)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0, 9.0])),
        lambda output, target: cross_entropy(output, target, torch.tensor([1.0, 1.0, 9.0])),
    ],
)
def test_class_weights_that_a_mean_forgets_are_warned_of(loss: Any) -> None:
    with pytest.warns(UserWarning, match="weights have no effect"):
        train(nn.Linear(4, 3), loss=loss, inputs=INPUTS)


def test_class_weights_in_a_sum_have_an_effect() -> None:
    loss = nn.CrossEntropyLoss(weight=torch.tensor([0.0, 0.0, 1.0]), reduction="sum")
    x = torch.ones(N, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained = odp.train(
            started(N, steps=60, noise_multiplier=0.01),
            nn.Linear(4, 3),
            (x, torch.arange(N) % 3),
            loss=loss,
            score=None,
            learning_rate=1.0,
        )
    assert set(trained.predict(x).argmax(axis=1)) == {2}


class Standardizing(nn.Module):
    """Scales its inputs by numbers that it is given."""

    def __init__(self, mean: Any, deviation: Any) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.layer((x - self.mean) / self.deviation)


class Shift(nn.Module):
    """Subtracts numbers that it keeps in a plain attribute."""

    def __init__(self, mean: Any) -> None:
        super().__init__()
        self.mean = mean

    def forward(self, x: Any) -> Any:
        return x - torch.as_tensor(self.mean)


def test_a_model_that_holds_the_mean_of_the_records_is_refused() -> None:
    refused("model", "LayerNorm", Standardizing(X.mean(0), torch.ones(4)))
    refused("model", "odp.Schema", Standardizing(torch.zeros(4), X.std(0)))
    refused("model", "odp.Schema", Standardizing(X.mean(), X.numpy().std() * torch.ones(())))
    for mean in (X.mean(0), X.numpy().mean(0)):
        refused("model", "LayerNorm", nn.Sequential(Shift(mean), nn.Linear(4, 3)))
    train(nn.Sequential(Shift(torch.randn(30, 4).mean(0)), nn.Linear(4, 3)), learning_rate=0.1)
    halves = X.bfloat16()
    model = Standardizing(halves.double().mean(0), torch.ones(4))
    refused("model", "LayerNorm", model, (halves, Y))


class Radial(nn.Module):
    """Distances to centres, and a layer on them."""

    def __init__(self, centres: Any, *, is_trained: bool) -> None:
        super().__init__()
        self.centres = nn.Parameter(centres, requires_grad=is_trained)
        self.layer = nn.Linear(len(centres), 3)

    def forward(self, x: Any) -> Any:
        return self.layer((-((x[:, None] - self.centres) ** 2).sum(-1)).exp())


@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize("records", [X, X.double().numpy()])
def test_a_model_that_holds_copies_of_records_is_refused(records: Any, is_trained: bool) -> None:
    copies = X[torch.randperm(N)[:20]]
    refused("model", "odp.made_up_inputs", Radial(copies, is_trained=is_trained), (records, Y))
    public = torch.cat([copies[:2], torch.randn(18, 4)])  # As where some persons are in both.
    train(Radial(public, is_trained=is_trained), (records, Y), learning_rate=0.1)


def test_a_model_that_holds_written_or_other_numbers_is_trained() -> None:
    balanced = torch.arange(N) % 2
    x = torch.cat([X[:, :3], balanced[:, None].float()], 1)
    public = torch.randn(100, 4)
    for mean, deviation in (
        (torch.tensor([0.4914, 0.4822, 0.4465, 0.5]), torch.full((4,), 0.2023)),
        (public.mean(0), public.std(0)),
        (torch.tensor(0.5), torch.tensor(0.5)),  # That of the last column.
    ):
        train(Standardizing(mean, deviation), (x, Y), learning_rate=0.1)


YES = torch.randint(0, 2, (N, 1)).float()
bce, bce_of_logits = nn.BCELoss(), nn.BCEWithLogitsLoss()


def ending(*last: nn.Module, outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, outputs), *last)


@pytest.mark.parametrize(
    ("is_squashed", "model", "target", "loss"),
    [
        (True, ending(nn.Sigmoid(), outputs=1), YES, bce_of_logits),
        (True, ending(nn.Softmax(dim=1)), Y, cross_entropy),
        (False, ending(nn.Sigmoid(), outputs=1), YES, bce),
        (False, ending(outputs=1), YES, bce_of_logits),
        (False, ending(nn.LogSoftmax(dim=1)), Y, cross_entropy),
        (False, ending(nn.LogSoftmax(dim=1)), Y, nn.functional.nll_loss),
        (False, ending(nn.ReLU()), Y, cross_entropy),
        (False, ending(), Y, cross_entropy),
    ],
)
def test_a_hint_says_that_a_loss_of_logits_has_probabilities(
    is_squashed: bool, model: Any, target: Any, loss: Any
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(model, (X, target), loss=loss, learning_rate=0.1)
    assert any("takes logits" in str(warning.message) for warning in caught) == is_squashed
