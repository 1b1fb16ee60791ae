"""What vmap cannot take is computed for one record after another, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from refusals import refuses

torch = pytest.importorskip("torch")

import torch_models  # noqa: E402
from started import NO_NOISE, claimed, started  # noqa: E402
from torch import nn  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.study.entries import TRAININGS  # noqa: E402

N, NORM = 9, 0.7
X, Y = torch.randn(N, 4), torch.randint(0, 3, (N,))
SERIES, TOKENS = torch.randn(N, 6, 4), torch.randint(0, 9, (N, 6))
cross_entropy = nn.functional.cross_entropy
SLOW = "minutes"  # How long it takes is said.


class Recurrent(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(5, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(x)[0][:, -1])


class Looking(nn.Module):
    """A model that does something with its outputs that vmap cannot."""

    def __init__(self, look: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer, self.look = nn.Linear(4, 3), look

    def forward(self, x: Any) -> Any:
        return self.look(self.layer(x))


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 5, sparse=True), nn.Linear(5, 3)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.embedding(tokens).mean(1))


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=False)


class OwnBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return 2.0 * ctx.saved_tensors[0] * gradient


def hooked() -> nn.Module:
    model = nn.Linear(4, 3)
    model.register_full_backward_hook(lambda module, before, after: None)
    return model


MODELS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "GRU": (lambda: Recurrent(nn.GRU(4, 5, batch_first=True)), SERIES),
    "RNN": (lambda: Recurrent(nn.RNN(4, 5, batch_first=True)), SERIES),
    "sparse gradients": (Embedded, TOKENS),
    "a number": (lambda: Looking(lambda z: z / (1.0 + z.abs().max().item())), X),
    "a branch": (lambda: Looking(lambda z: z * 2.0 if z.sum() > 0.0 else z), X),
    "a mask": (lambda: Looking(lambda z: z + z[z > 0.0].sum()), X),
    "numpy": (lambda: Looking(lambda z: z * float(z.detach().numpy().max())), X),
    "checkpoints": (Checkpointed, X),
    "a backward hook": (hooked, X),
    "a function of its own": (lambda: Looking(OwnBackward.apply), X),
}


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.filterwarnings("ignore:The model's output for an input depends on the other inputs")
@pytest.mark.parametrize("kind", MODELS)
def test_a_step_is_the_clipped_sum_of_single_gradients(kind: str) -> None:
    torch.manual_seed(0)
    make, x = MODELS[kind]
    model = make()
    expected, norms = torch_models.slow_clipped_sum(
        model,
        lambda m, i: cross_entropy(m(x[i : i + 1]), Y[i : i + 1]),
        list(range(N)),
        NORM,
    )
    assert max(norms) > NORM
    before, run = torch_models.values(model), started(N, noise_multiplier=NO_NOISE)
    with pytest.warns(UserWarning, match=SLOW):
        trained = odp.train(
            run, model, (x, Y), loss=cross_entropy, score="accuracy", optimizer="sgd",
            learning_rate=1.0, schedule=odp.Schedule("constant"), clipping_norm=NORM,
        )  # fmt: skip
    found = (before - torch_models.values(model)) * N
    assert float((found - expected).norm()) < 2e-4 * max(1.0, float(expected.norm()))
    assert trained.score is not None


def test_records_of_different_lengths_are_computed_one_by_one() -> None:
    series = [(torch.randn(2 + i, 4), Y[i]) for i in range(N)]
    model = Recurrent(nn.LSTM(4, 5, batch_first=True))
    with pytest.warns(UserWarning, match="shapes"):
        trained = odp.train(
            started(N), model, series, loss=cross_entropy, learning_rate=0.1, score="accuracy"
        )
    assert trained.score is not None


def test_a_model_that_vmap_takes_is_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recurrent = Recurrent(nn.LSTM(4, 5, batch_first=True))
        for model, x in ((nn.Linear(4, 3), X), (recurrent, SERIES)):
            odp.train(started(N), model, (x, Y), loss=cross_entropy, learning_rate=0.1, score=None)


def pointed_at(model: Any, table: Any, pointer: Any) -> Any:
    """The loss of a pointer network: it looks up a row of the record's own table."""
    return model(nn.functional.embedding(pointer, table)).square().sum()


@pytest.mark.promise("gradients")
@pytest.mark.filterwarnings("ignore:Records are computed")
@pytest.mark.parametrize("pointer", [-1, 5, 7])
def test_a_lookup_in_a_records_own_table_finds_no_other_record(pointer: int) -> None:
    """The record with a wrong pointer counts as zero, whatever the others are."""
    tables, pointers = torch.randn(3, 5, 4), torch.tensor([0, pointer, 4])
    weights = []
    for scale in (1.0, 3.0):
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        others = tables.clone()
        others[0, 1:] = scale  # Rows that nobody points to.
        others[2, :4] = scale
        odp.train(
            started(3, noise_multiplier=NO_NOISE), model, (others, pointers),
            record_loss=pointed_at, optimizer="sgd", learning_rate=0.1,
        score=None)  # fmt: skip
        weights.append(model.weight.detach().clone())
    assert torch.equal(*weights)


class Centred(nn.Module):
    """It keeps a running mean in an attribute, and uses it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.mean = nn.Linear(4, 3), torch.zeros(3)

    def forward(self, x: Any) -> Any:
        output = self.layer(x)
        self.mean = 0.9 * self.mean + 0.1 * output.detach().mean(0)
        return output - self.mean


class RunningMean:
    """A loss that divides by a running mean of itself."""

    mean: Any = 1.0

    def __call__(self, output: Any, target: Any) -> Any:
        loss = cross_entropy(output, target)
        self.mean = 0.9 * self.mean + 0.1 * loss.detach()
        return loss / self.mean


def kept_here(output: Any, target: Any, kept: list[Any] = [1.0]) -> Any:  # noqa: B006
    loss = cross_entropy(output, target)
    kept[0] = 0.9 * kept[0] + 0.1 * loss.item()
    return loss / kept[0]


@pytest.mark.promise("gradients")
@pytest.mark.parametrize(
    ("model", "loss"),
    [(Centred(), cross_entropy), (nn.Linear(4, 3), RunningMean()), (nn.Linear(4, 3), kept_here)],
)
def test_what_uses_something_of_earlier_records_is_refused(model: Any, loss: Any) -> None:
    run = started(N)
    with refuses("loss"):
        odp.train(run, model, (X, Y), loss=loss, learning_rate=0.1, score=None)
    assert claimed(run, TRAININGS) == []


def test_a_contrastive_loss_sees_one_record() -> None:
    """In a batch of one there is nothing to contrast with."""

    def loss(output: Any, target: Any) -> Any:
        assert len(output) > 1, "a contrastive loss needs other records"
        return output.sum()

    with refuses("loss") as caught:
        odp.train(started(N), nn.Linear(4, 3), (X, Y), loss=loss, learning_rate=0.1, score=None)
    assert "a contrastive loss needs other records" in caught.value.why
