"""What counts as right: the loss says how outputs are read, and which targets count."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
from refusals import refuses
from started import NO_NOISE, claimed, started

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.study.entries import TRAININGS  # noqa: E402

functional = nn.functional
REPEATS = 50  # The noise of a score has the standard deviation 0.05 over the number of records.


def accuracy(outputs: Any, targets: Any, loss: Any, last: nn.Module | None = None) -> float:
    """The score of a model that answers each record with numbers that were fixed beforehand."""
    outputs, targets = (
        torch.as_tensor(value).repeat(REPEATS, *(1 for _ in torch.as_tensor(value).shape[1:]))
        for value in (outputs, targets)
    )
    layer = nn.Linear(outputs.shape[-1], outputs.shape[-1], bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(outputs.shape[-1]))
    run = started(
        len(outputs), noise_multiplier=NO_NOISE, score_noise_multiplier=0.1, batch_size=1.0
    )
    trained = odp.train(
        run,
        nn.Sequential(layer, *(() if last is None else (last,))),
        (outputs, targets),
        loss=loss,
        score="accuracy",
        optimizer="sgd",
        learning_rate=1e-9,
    )
    assert trained.score is not None
    return trained.score


def clipped_entropy(output: Any, target: Any) -> Any:
    share = output.clamp(1e-6, 1.0 - 1e-6)
    return -(target * share.log() + (1.0 - target) * (1.0 - share).log()).mean()


def focal(output: Any, target: Any) -> Any:
    share = torch.sigmoid(output)
    right = share * target + (1.0 - share) * (1.0 - target)
    return (-((1.0 - right) ** 2) * right.log()).mean()


SHARES = {
    "BCELoss": nn.BCELoss(),
    "function": functional.binary_cross_entropy,
    "weighted": lambda o, t: functional.binary_cross_entropy(o, t, weight=1.0 + 4.0 * t),
    "clipped": clipped_entropy,
}
LOGITS = {
    "BCEWithLogitsLoss": nn.BCEWithLogitsLoss(),
    "weighted": nn.BCEWithLogitsLoss(pos_weight=torch.tensor([5.0])),
    "focal": focal,
    "smoothed": lambda o, t: functional.binary_cross_entropy_with_logits(o, 0.9 * t + 0.05),
    "several": nn.MultiLabelSoftMarginLoss(),
}
# Logits of the shares 0.73, 0.27, 0.62 and 0.88: the last one is wrong.
ANSWERS, RIGHT = [[1.0], [-1.0], [0.5], [2.0]], [[1.0], [0.0], [1.0], [0.0]]


@pytest.mark.parametrize("loss", SHARES.values(), ids=SHARES)
def test_a_probability_is_a_yes_above_one_half(loss: Any) -> None:
    assert accuracy(ANSWERS, RIGHT, loss, nn.Sigmoid()) == pytest.approx(3 / 4, abs=0.01)


@pytest.mark.parametrize("loss", LOGITS.values(), ids=LOGITS)
def test_a_logit_is_a_yes_above_zero(loss: Any) -> None:
    assert accuracy(ANSWERS, RIGHT, loss) == pytest.approx(3 / 4, abs=0.01)


def test_the_axis_of_a_single_output_may_be_taken_away_by_the_model_or_the_loss() -> None:
    def squeezed(output: Any, target: Any) -> Any:
        return functional.binary_cross_entropy(output.squeeze(1), target)

    targets = [row[0] for row in RIGHT]
    assert accuracy(ANSWERS, targets, squeezed, nn.Sigmoid()) == pytest.approx(3 / 4, abs=0.01)
    last = nn.Sequential(nn.Sigmoid(), nn.Flatten(0))
    assert accuracy(ANSWERS, targets, nn.BCELoss(), last) == pytest.approx(3 / 4, abs=0.01)


def test_signs_are_read_at_zero() -> None:
    targets = [[1.0], [-1.0], [1.0], [-1.0]]
    for loss in (nn.SoftMarginLoss(), lambda o, t: torch.relu(1.0 - t * o).mean()):
        assert accuracy(ANSWERS, targets, loss) == pytest.approx(3 / 4, abs=0.01)


def test_several_labels_of_a_record_are_averaged() -> None:
    outputs = [[1.0, -1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    targets = [[1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    for loss, last in ((nn.BCEWithLogitsLoss(), None), (nn.BCELoss(), nn.Sigmoid())):
        assert accuracy(outputs, targets, loss, last) == pytest.approx((3 + 1) / 8, abs=0.01)


@pytest.mark.parametrize(
    ("loss", "last"),
    [(functional.cross_entropy, None), (nn.NLLLoss(), nn.LogSoftmax(dim=1))],
    ids=["logits", "log-probabilities"],
)
def test_of_several_classes_the_largest_output_is_the_answer(loss: Any, last: Any) -> None:
    outputs = [[-3.0, -1.0, -2.0], [2.0, 1.0, 3.0], [0.5, 0.4, 0.1]]
    assert accuracy(outputs, [1, 2, 1], loss, last) == pytest.approx(2 / 3, abs=0.01)


def test_of_shares_of_classes_the_largest_is_asked_for() -> None:
    outputs = [[-3.0, -1.0, -2.0], [2.0, 1.0, 3.0]]
    shares = [[0.1, 0.8, 0.1], [0.5, 0.2, 0.3]]
    assert accuracy(outputs, shares, nn.CrossEntropyLoss()) == pytest.approx(1 / 2, abs=0.01)


@pytest.mark.parametrize("ignored", [-100, 0])
def test_targets_that_the_loss_leaves_out_do_not_count(ignored: int) -> None:
    """Of three records of four tokens: two of three right, one of one, and none to be right at."""
    answers = torch.tensor([[1, 2, 1, 1], [2, 2, 2, 2], [1, 1, 1, 1]])
    targets = torch.tensor([[1, 2, 2, 0], [0, 2, 0, 0], [0, 0, 0, 0]])
    targets[targets == 0] = ignored
    module = nn.CrossEntropyLoss(ignore_index=ignored)
    function = partial(functional.cross_entropy, ignore_index=ignored)
    for loss in (module, function):
        score = accuracy(
            functional.one_hot(answers, 3).float(),
            targets,
            loss,
            Transposed(),
        )
        assert score == pytest.approx((2 / 3 + 1.0 + 0.0) / 3, abs=0.01)


class Transposed(nn.Module):
    """Puts the axis of classes where torch's cross entropy has it."""

    def forward(self, logits: Any) -> Any:
        return logits.transpose(1, 2)


def test_a_label_that_is_missing_does_not_count() -> None:
    def of_known(output: Any, target: Any) -> Any:
        known = ~target.isnan()
        filled = torch.where(known, target, torch.zeros_like(target))
        losses = functional.binary_cross_entropy_with_logits(output, filled, reduction="none")
        return (losses * known).sum() / known.sum().clamp(min=1)

    outputs = [[1.0, -1.0], [1.0, 1.0]]
    targets = [[1.0, math.nan], [math.nan, 0.0]]
    assert accuracy(outputs, targets, of_known) == pytest.approx(1 / 2, abs=0.01)


@pytest.mark.parametrize("loss", [functional.mse_loss, nn.L1Loss()], ids=["squares", "L1"])
def test_a_loss_that_does_not_tell_is_refused_before_anything_is_trained(loss: Any) -> None:
    run = started(4)
    x, y = torch.tensor(ANSWERS), torch.tensor(RIGHT)
    with refuses("score"):
        odp.train(run, nn.Linear(1, 1), (x, y), loss=loss, score="accuracy", learning_rate=0.1)
    assert claimed(run, TRAININGS) == []
    # As the refusal advises.
    odp.train(
        run,
        nn.Linear(1, 1),
        (x, y),
        loss=loss,
        learning_rate=0.1,
        record_score=lambda model, x, y: (
            ((model(x[None]).flatten() > 0.5) == (y.flatten() > 0.5)).double().mean()
        ),
    )


def test_one_record_moves_the_sum_of_the_score_by_one_at_most_whatever_its_targets() -> None:
    outputs = torch.ones(6, 3)
    targets = torch.ones(6, 3)
    targets[0] = -100.0
    targets[1, 1:] = math.nan
    loss = functional.binary_cross_entropy_with_logits
    whole = accuracy(outputs, targets, loss) * len(outputs) * REPEATS
    fewer = accuracy(outputs[1:], targets[1:], loss) * (len(outputs) - 1) * REPEATS
    assert whole == pytest.approx(fewer, abs=0.5)  # The record with no targets counts as 0.
