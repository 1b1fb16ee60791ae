"""The sum and the score of a training, to the last bit: no order, chunk or company matters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch_models  # noqa: E402
from started import NO_NOISE, claimed, started  # noqa: E402
from support import exactly, study_of  # noqa: E402
from torch import nn  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.study.entries import TRAININGS  # noqa: E402
from optuna_dp.training import chunks, each_record  # noqa: E402

cross_entropy = nn.functional.cross_entropy
RULE: dict[str, Any] = {
    "optimizer": "sgd", "learning_rate": 1.0, "schedule": odp.Schedule("constant"),
}  # fmt: skip


def sums(model: nn.Module, records: Any, count: int, **arguments: Any) -> Any:
    """The sum of clipped gradients of all records, to the last bit, as a vector of doubles.

    A step of SGD at rate one from weights of zero in double precision is the sum, over the count.
    """
    model = model.double()
    arguments = {"loss": cross_entropy, **RULE, **arguments}
    before = torch_models.values(model)
    odp.train(
        started(count, noise_multiplier=NO_NOISE), model, records, **{"score": None, **arguments}
    )
    return (before - torch_models.values(model)) * count


# -- the reviewer's data: each record is near the clipping norm -----------------------------------


def in_single_precision(values: Any, chunk: int) -> float:
    """Sums of chunks, added up in single precision."""
    total = np.float32(0.0)
    for start in range(0, len(values), chunk):
        total += np.float32(values[start : start + chunk].sum())
    return float(total)


def adversarial(records: int, chunk: int) -> Any:
    """Records, so that one more in front moves a sum in single precision by much more than one.

    Sums of chunks are chosen so that each is rounded down, and with one record more rounded up.
    """
    values, total, before = np.full(records, 0.9999), np.float32(0.0), 0.9999
    for start in range(0, records - chunk + 1, chunk):
        unit = float(np.spacing(total))
        last = before - 2e-5
        values[start + chunk - 1] = last
        part = values[start : start + chunk]
        if unit > 1e-4:
            part[0] = 0.95
            share = (float(total) + part.sum()) / unit % 1.0
            part[0] += ((0.5 - 1e-5 / unit) - share) * unit
            part[0] -= unit if part[0] > 0.9999 else 0.0
        before = last
        total += np.float32(part.sum())
    return values


class Sum(nn.Module):
    """A model whose gradient is its record."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x: Any) -> Any:
        return (self.weight * x).sum()


@pytest.mark.promise("gradients")
@pytest.mark.parametrize("records", [20_000, 60_000])
def test_one_record_more_moves_the_sum_by_one_clipping_norm_at_most(records: int) -> None:
    values = adversarial(records, 64)
    more = np.concatenate([[0.9999], values])
    moved = in_single_precision(more, 64) - in_single_precision(values, 64)
    assert moved > (1.2 if records == 20_000 else 2.0)  # What the data are made for.
    totals = [
        float(
            sums(
                Sum(),
                torch.tensor(each)[:, None],
                records,
                loss=None,
                record_loss=lambda model, x: model(x),
                physical_batch_size=64,
            )
        )
        for each in (values, more)
    ]
    assert 0.999 < totals[1] - totals[0] <= 1.0


# -- order and chunks -----------------------------------------------------------------------------

MODELS = {
    **torch_models.MODELS,
    # Rows that begin at odd places in memory: there a processor adds in another order.
    "odd": (
        lambda: nn.Sequential(nn.Linear(5, 13), nn.ReLU(), nn.Linear(13, 3)),
        lambda n: torch.randn(n, 5),
        3,
    ),
    # Gradients have 8 bits, and their sum is one of whole numbers all the same.
    "bfloat16": (
        lambda: nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 3)).bfloat16(),
        lambda n: torch.randn(n, 5).bfloat16(),
        3,
    ),
}


@pytest.fixture
def same_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the bits of a record depend on its place, it draws the remainder of that by itself.

    Here all records draw the same one.
    """
    monkeypatch.setattr(chunks.secrets, "token_bytes", bytes)


@pytest.mark.promise("gradients")
@pytest.mark.usefixtures("same_places")
@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind != "double precision"])
def test_every_order_gives_the_same_bits(kind: str) -> None:
    torch.manual_seed(0)
    make, inputs, classes = MODELS[kind]
    model, n = make(), 90
    x, y = inputs(n), torch.randint(0, classes, (n,))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    orders = torch.arange(n), torch.randperm(n), torch.arange(n).flip(0)
    for size in (8, 24, 64, None):
        found = set()
        for order in orders:
            model.load_state_dict(state)
            total = whole_sum(model, (x[order], y[order]), size)
            found.add(tuple(total.tolist()))
        assert len(found) == 1


def whole_sum(model: nn.Module, records: Any, size: int | None) -> Any:
    """The sum in units of the grid."""
    from optuna_dp.training.exact_step import ExactStep
    from optuna_dp.training.record_functions import loss_of_pair
    from optuna_dp.training.records import read_records
    from optuna_dp.training.torch_learner import TorchLearner

    trained = TorchLearner(
        model,
        loss=loss_of_pair(cross_entropy),
        loss_argument="loss",
        score=None,
        score_argument="score",
        chunk_size=size,
        device=None,
    )
    all_records = read_records(records)
    trained.try_out(all_records, None)
    step = ExactStep(0.7, 1.0, trained.weights)
    return torch.cat(trained.clipped_sum(all_records, np.arange(len(all_records)), step))


@pytest.mark.promise("gradients")
@pytest.mark.usefixtures("same_places")
@pytest.mark.parametrize("kind", ["mlp", "odd", "convolutions", "LSTM", "transformer", "bfloat16"])
def test_one_record_more_moves_the_sum_by_its_own_row_alone(kind: str) -> None:
    torch.manual_seed(0)
    make, inputs, classes = MODELS[kind]
    model, n = make(), 70
    x, y = inputs(n), torch.randint(0, classes, (n,))
    every = whole_sum(model, (x, y), None)
    for left_out in (0, 1, 33, n - 1):
        others = [i for i in range(n) if i != left_out]
        without = whole_sum(model, (x[others], y[others]), None)
        alone = whole_sum(model, (x[[left_out]], y[[left_out]]), None)
        assert torch.equal(every, without + alone)
        assert float(alone.norm()) <= 2**18


def test_each_record_draws_its_place_by_itself_where_that_has_an_effect() -> None:
    indices = np.arange(1_000)
    made = list(chunks.chunks_of(indices, 64, 4))
    assert sorted(np.concatenate([chunk.indices for chunk in made])) == list(indices)
    remainders = np.empty(1_000, dtype=int)
    for chunk in made:
        assert len(set(chunk.places)) == len(chunk)
        assert chunk.places.max() < 64
        remainders[chunk.indices] = chunk.places % 4
    # Each number of a remainder within 5.2 standard deviations.
    assert np.abs(np.bincount(remainders) - 250).max() < 5.2 * math.sqrt(1_000 * 3 / 16)
    assert len(made) <= 20  # Not many rows are left over.


def test_chunks_of_one_row_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without padding, and places of their own, a record's bits depend on its company."""
    monkeypatch.setattr(chunks, "BLOCK", 1)
    monkeypatch.setattr(each_record, "BLOCK", 1)
    monkeypatch.setattr(each_record, "placed", lambda parts, places, block: parts)
    monkeypatch.setattr(each_record.EachRecord, "finds_places", lambda self: True)
    torch.manual_seed(0)
    found = set()
    for kind in ("odd", "convolutions", "LSTM", "transformer", "mlp", "wide"):
        make, inputs, classes = MODELS[kind]
        model, x, y = make(), inputs(9), torch.randint(0, classes, (9,))
        together = whole_sum(model, (x, y), None)
        alone = sum(whole_sum(model, (x[[i]], y[[i]]), None) for i in range(9))
        found.add(torch.equal(together, alone))
    assert False in found


def test_a_step_of_a_softmax_regression_is_exact() -> None:
    rng = np.random.default_rng(0)
    x, y = 3.0 * rng.normal(size=(70, 5)), rng.integers(0, 3, 70)

    def moved(order: Any, size: int | None) -> Any:
        model = odp.SoftmaxRegression(5, 3)
        run = started(70, noise_multiplier=NO_NOISE)
        odp.train(
            run, model, (x[order], y[order]), physical_batch_size=size, **{"score": None, **RULE}
        )
        return tuple(model.weights.reshape(-1).tolist())

    orders = np.arange(70), rng.permutation(70)
    assert len({moved(order, size) for order in orders for size in (8, 64, None)}) == 1
    others = np.arange(1, 70)
    difference = 70 * (np.array(moved(np.arange(70), 8)) - np.array(moved(others, 8)))
    assert 0.99 < np.linalg.norm(difference) <= 1.0 + 1e-12


# -- scores ---------------------------------------------------------------------------------------


def broken(n: int) -> Any:
    """A record whose label is no class, so that all of its chunk is computed one by one."""
    return torch.full((n,), 9)


@pytest.mark.parametrize("copies", [1, 7, 8, 63, 64, 65, 66, 130])
def test_a_broken_record_more_changes_the_score_of_no_other(copies: int) -> None:
    """Copies of a record on a tie scored 63, and 0 with one broken record beside them."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 2))
    one = torch.randn(1, 6)
    with torch.no_grad():  # A tie up to the last bits.
        model[2].weight[1] = model[2].weight[0]
        model[2].bias.zero_()
        model[2].weight[1] += 1e-9 * torch.randn(32)
    x, y = one.repeat(copies, 1), torch.zeros(copies, dtype=torch.long)

    def score(records: Any, count: int) -> float:
        state = {name: value.clone() for name, value in model.state_dict().items()}
        trained = odp.train(
            started(count, noise_multiplier=NO_NOISE, score=None),
            model,
            (torch.zeros(count, 6), torch.zeros(count, dtype=torch.long)),
            loss=lambda output, target: 0.0 * output.sum(),
            record_score=lambda m, x, y: (
                (m(x[None])[0].argmax() == y)
                * cross_entropy(torch.zeros(1, 2), y[None]).isfinite()
            ),
            score_records=records,
            **{**RULE, "learning_rate": 1e-12},
        )
        model.load_state_dict(state)
        return round(trained.score * len(records[0]))

    alone = score((x, y), copies)
    beside = (torch.cat([x, torch.zeros(1, 6)]), torch.cat([y, broken(1)]))
    assert score(beside, copies) == alone
    assert alone in (0, copies)  # All copies score alike.


# -- what is recorded -----------------------------------------------------------------------------


def test_a_trial_records_what_its_steps_were() -> None:
    run = started(40, batch_size=10.0, steps=2, noise_multiplier=1.5)
    x, y = torch.randn(40, 4), torch.randint(0, 2, (40,))
    odp.train(
        run, nn.Linear(4, 2), (x, y), loss=cross_entropy, learning_rate=0.1, clipping_norm=0.3,
        physical_batch_size=20,
    score=None)  # fmt: skip
    (training,) = claimed(run, TRAININGS)
    assert {name: training[name] for name in training if name not in ("number", "by")} == {
        "noise_multiplier": 1.5,
        "sample_rate": 0.25,
        "steps": 2,
        "clipping_norm": 0.3,
        "units": 2**18,
        "generator": "OpenSSL",
        "physical_batch": 24,
        "ranks": 1,
        "reproducible": True,
        "optimizer": "sgd",
        "rate": "given",
        "prepared": {"word": "as given"},
        "finished": True,
    }
    assert math.isclose(run.sample_rate or 0.0, 0.25)


@pytest.mark.parametrize("kind", ["budget", "selection"])
def test_a_statement_says_what_the_steps_were_and_whom_it_defends_against(kind: str) -> None:
    x, y = torch.randn(40, 4), torch.randint(0, 2, (40,))
    sampler: Any = odp.BudgetSampler(
        odp.plan_budget(epsilon=3.0, records=40, batch_size=10, epochs=5, pilots=1)
    )
    if kind == "selection":
        plan = odp.RunPlan(
            records=40, batch_size=10, steps=2, noise_multiplier=2.0, score_noise_multiplier=9.0
        )
        sampler = odp.RandTuneSampler(trials=exactly(2), run=plan)
    study = study_of(sampler)

    def objective(trial: Any) -> float:
        trained = odp.train(
            odp.start_run(trial), lambda: nn.Linear(4, 2), (x, y), loss=cross_entropy,
            learning_rate=0.1, clipping_norm=0.3, score="accuracy",
        )  # fmt: skip
        return float(trained.score)

    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    (row,) = [line for line in release.statement().splitlines() if "Sums and noise" in line]
    for words in ("norm 0.3 ", "262,144 units", "OpenSSL", "24 gradients at most"):
        assert words in row
    page = " ".join(release.statement().split())
    assert (
        "It does not defend against a program that goes around its interface on purpose." in page
    )
    assert odp.verify(release.to_json()).ok
