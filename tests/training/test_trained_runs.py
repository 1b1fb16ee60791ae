"""What a training leaves behind: its claims, its score, its model, and nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import threading
from typing import Any

import numpy as np
import optuna
import pytest
from refusals import refuses
from started import NO_NOISE, claimed, started
from support import logged, study_of

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import Subset, TensorDataset  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.errors import InvalidArgumentError, PlanError, ReleaseRefusedError  # noqa: E402
from optuna_dp.runs.trial_notes import BY_ENGINE  # noqa: E402
from optuna_dp.study.entries import SCORES, TRAININGS  # noqa: E402
from optuna_dp.training.schedules import Schedule  # noqa: E402

N = 60
X = torch.randn(N, 4)
Y = (X[:, 0] > 0).long()
cross_entropy = nn.functional.cross_entropy
EXACT = {"noise_multiplier": NO_NOISE, "score_noise_multiplier": 0.1}


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.2), nn.Linear(5, 2))


def train(run: odp.Run, module: Any = None, records: Any = (X, Y), **arguments: Any) -> Any:
    if "record_loss" not in arguments:
        arguments.setdefault("loss", cross_entropy)
    if module is not None:
        arguments.setdefault("learning_rate", 0.1)
    return odp.train(
        run, model() if module is None else module, records, **{"score": None, **arguments}
    )


def test_a_training_claims_its_trial_before_the_first_step_and_finishes_after_the_last() -> None:
    run = started(N, batch_size=10.0, steps=3)
    claims_at_steps = []

    class Watching(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            claims_at_steps.append([dict(training) for training in claimed(run, TRAININGS)])
            return super().step(closure)

    trained = train(
        run,
        optimizer=lambda weights, rate: Watching(weights, lr=rate),
        learning_rate=0.1,
        score="accuracy",
    )
    at_set_up, *at_steps = claims_at_steps
    assert at_set_up == []
    assert [len(claims) for claims in at_steps] == [1, 1, 1]
    assert all(not claims[0].get("finished") for claims in at_steps)
    ((training,), (score,)) = claimed(run, TRAININGS), claimed(run, SCORES)
    assert training["by"] == BY_ENGINE
    assert training["finished"]
    assert (score["by"], score["value"], score["finished"]) == (BY_ENGINE, trained.score, True)


@pytest.mark.promise("a training is begun twice in a trial")
def test_a_second_training_in_a_trial_is_refused_and_trains_nothing() -> None:
    run = started(N)
    train(run)
    module = model()
    before = [parameter.detach().clone() for parameter in module.parameters()]
    with pytest.raises(PlanError):
        train(run, module)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


@pytest.mark.promise("a training is begun twice in a trial")
def test_of_many_threads_one_trains_at_most() -> None:
    run = started(N, batch_size=5.0)
    trained, refused = [], []

    def work() -> None:
        try:
            trained.append(train(run))
        except PlanError as error:
            refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(trained) <= 1
    assert len(trained) + len(refused) == 6


def test_the_numbers_of_a_plan_cannot_train() -> None:
    plan = odp.plan_budget(epsilon=3.0, records=N, batch_size=20, epochs=10, pilots=0)
    with pytest.raises(PlanError):
        train(plan.final)


def test_a_plan_made_from_a_function_cannot_train() -> None:
    plan = odp.plan_budget(
        epsilon=3.0, run=lambda noise, steps: odp.gaussian(noise / math.sqrt(steps)), steps=10,
        pilots=0,
    )  # fmt: skip
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    with pytest.raises(InvalidArgumentError) as refusal:
        train(odp.start_run(study.ask()))
    assert refusal.value.argument == "run"


def test_nothing_of_the_records_is_shown_or_logged(capfd: pytest.CaptureFixture[str]) -> None:
    run = started(N, batch_size=10.0, steps=7)
    with logged() as lines, logged("optuna") as others:
        train(run, score="accuracy", show_progress=True)
    shown = capfd.readouterr()
    assert lines == others == []
    assert shown.out == ""
    lines_shown = [line for line in shown.err.replace("\r", "\n").split("\n") if line.strip()]
    assert " 7/7 " in lines_shown[-1]
    # The number of a step, the time and the pace, and nothing else.
    bar = re.compile(r"Private training: +\d+%\|.*\| \d/7 \[[\d:]+<[\d:?]+, +[\d.?]+step/s\]")
    assert all(bar.fullmatch(line.strip()) for line in lines_shown)
    train(started(N, batch_size=10.0), score="accuracy")
    assert capfd.readouterr() == ("", "")


def test_a_number_of_records_unlike_the_planned_one_is_warned_of() -> None:
    with logged() as lines:
        train(started(50, batch_size=10.0))
    assert ["more than 10 %" in line for line in lines] == [True]
    assert "60" not in lines[0]
    with logged() as lines:
        train(started(58, batch_size=10.0))
    assert lines == []


def exact_score(score: float, right: int, size: int) -> None:
    """Within the noise of a tenth of a contribution: 1e-9 at six deviations."""
    assert abs(score - right / size) < 6.2 * 0.1 / (2 * size)


def identity(classes: int = 2) -> nn.Module:
    """A model whose outputs are its inputs, with a weight that hardly moves."""
    layer = nn.Linear(classes, classes)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(classes))
        layer.bias.zero_()
    return layer


STILL: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 1e-12}


def test_the_score_is_the_share_of_right_records_with_the_noise_of_the_plan() -> None:
    x = torch.tensor([[2.0, 1.0]] * 30 + [[1.0, 2.0]] * 20)
    y = torch.tensor([0] * 50)
    run = started(50, **EXACT)
    exact_score(train(run, identity(), (x, y), score="accuracy", **STILL).score, 30, 50)
    # Divided by the public number, whatever the number of records.
    run = started(48, **EXACT)
    exact_score(train(run, identity(), (x, y), score="accuracy", **STILL).score, 24 + 5, 48)


@pytest.mark.promise("noise")
def test_the_noise_of_the_score_is_the_plans() -> None:
    x, y = torch.tensor([[2.0, 1.0]] * 8), torch.zeros(8, dtype=torch.long)
    scores = []
    for _ in range(60):
        run = started(8, noise_multiplier=NO_NOISE, score_noise_multiplier=40.0)
        module = odp.SoftmaxRegression(2, 2)
        scores.append(odp.train(run, module, (x, y), score="accuracy", learning_rate=0.1).score)
    # A deviation of 2.5; the bound is for 1e-6, and finds half the noise.
    assert 0.55 < np.std(scores) / (40.0 / 16.0) < 1.6


def test_a_score_is_clipped_and_what_is_no_number_counts_as_zero() -> None:
    values = torch.tensor([0.5, 7.0, -3.0, math.nan, math.inf, -math.inf, 1.0, 0.0])
    run = started(8, **EXACT)
    trained = train(
        run,
        nn.Linear(1, 1),
        (values,),
        record_loss=lambda m, value: m(torch.zeros(1)),
        record_score=lambda m, value: value + 0.0 * m(torch.zeros(1)).squeeze(),
        **STILL,
    )
    exact_score(trained.score, 3.5, 8)  # type: ignore[arg-type]


def test_a_record_with_many_targets_counts_once() -> None:
    pixels = torch.zeros(10, 2, 3, 3)
    pixels[:, 1] = 1.0
    targets = torch.zeros(10, 3, 3, dtype=torch.long)
    targets[:5, 0] = 1  # A third of the pixels of half the records.
    module = nn.Conv2d(2, 2, 1)
    with torch.no_grad():
        module.weight.copy_(torch.eye(2).reshape(2, 2, 1, 1))
        module.bias.zero_()
    run = started(10, **EXACT)
    score = train(run, module, (pixels, targets), score="accuracy", **STILL).score
    exact_score(score, 5 / 3, 10)


@pytest.mark.parametrize("shape", [(6,), (6, 1)])
def test_one_output_is_a_logit(shape: tuple[int, ...]) -> None:
    x = torch.tensor([[1.0], [2.0], [-1.0], [-2.0], [3.0], [-3.0]])
    y = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 1.0]).reshape(shape)
    module = identity(1)
    loss = nn.functional.binary_cross_entropy_with_logits
    run = started(6, **EXACT)
    trained = train(
        run, module, (x, y), loss=lambda o, t: loss(o.reshape(t.shape), t), score="accuracy",
        **STILL,
    )  # fmt: skip
    exact_score(trained.score, 4, 6)


def test_scoring_is_in_evaluation_mode_also_for_transformers() -> None:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.9)
            self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

        def forward(self, x: Any) -> Any:
            return self.encoder(x).mean(1)

    module = Classifier()
    x, y = torch.randn(20, 3, 4), torch.randint(0, 4, (20,))
    trained = train(started(20, **EXACT), module, (x, y), score="accuracy", **STILL)
    right = int((module(x).argmax(1) == y).sum())
    exact_score(trained.score, right, 20)


def test_a_plan_without_a_score_scores_nothing() -> None:
    plan = odp.plan_budget(
        epsilon=3.0, records=N, batch_size=20, epochs=10, pilots=1, score_final=False
    )
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    scores = []
    for _ in range(2):
        trial = study.ask()
        run = odp.start_run(trial)
        scores.append(train(run, score="accuracy").score)
        study.tell(trial, scores[-1])
    assert scores[0] != 0.0
    assert scores[1] == 0.0
    assert claimed(run, SCORES) == []
    assert train(started(N)).score is None


def test_disjoint_records_are_scored_by_their_public_number() -> None:
    x, y = torch.tensor([[2.0, 1.0]] * 21), torch.tensor([0] * 14 + [1] * 7)
    run = started(N, score="disjoint", **EXACT)
    records = torch.randn(N, 2), Y
    scored = {"score": "accuracy", "score_records": (x, y)}
    for arguments, argument in (
        ({"score": "accuracy"}, "score_records"),
        (scored, "score_size"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            train(run, identity(), records, **arguments)
        assert caught.value.argument == argument
    trained = train(run, identity(), records, **scored, score_size=20, **STILL)
    # Divided by 20, with the middle of the range for the record too many.
    assert abs(trained.score - (0.5 + (14 - 10.5) / 20)) < 0.01


@pytest.mark.promise("scored-records")
def test_training_records_are_no_disjoint_records() -> None:
    run = started(N, score="disjoint", **EXACT)
    with refuses("score_records"):
        train(run, score="accuracy", score_records=(X[10:], Y[10:]), score_size=50)


def test_public_records_are_scored_exactly() -> None:
    x, y = torch.tensor([[2.0, 1.0]] * 21), torch.tensor([0] * 14 + [1] * 7)
    run = started(N, score=None, noise_multiplier=NO_NOISE)
    records = torch.randn(N, 2), Y
    trained = train(run, identity(), records, score="accuracy", score_records=(x, y), **STILL)
    assert trained.score == pytest.approx(14 / 21, abs=1e-12)
    assert claimed(run, SCORES) == []


def test_data_sets_of_items_are_trained_on() -> None:
    whole = TensorDataset(X, Y)
    for records in (
        whole,
        Subset(whole, range(N)),
        [(X[i], int(Y[i])) for i in range(N)],
        (X.numpy().astype(np.float64), Y.numpy()),
    ):
        trained = train(started(N, **EXACT), None, records, score="accuracy")
        assert trained.score is not None


@pytest.mark.promise("noise")
def test_no_seed_of_torch_repeats_a_training() -> None:
    def weights() -> Any:
        torch.manual_seed(0)
        np.random.seed(0)
        module = nn.Linear(4, 2)
        train(started(N, batch_size=20.0), module)
        return module.weight.detach()

    assert not torch.equal(weights(), weights())


def test_the_noise_of_tensors_has_its_scale() -> None:
    module = nn.Linear(100, 100)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    run = started(N, noise_multiplier=3.0, steps=4, batch_size=12.0)
    train(
        run,
        module,
        (torch.zeros(N, 100), torch.zeros(N, 100)),
        loss=lambda output, target: 0.0 * output.sum(),
        optimizer="sgd",
        learning_rate=0.5,
        clipping_norm=2.0,
        schedule=Schedule("constant"),
    )
    deviation = 0.5 * 3.0 * 2.0 / 12.0 * math.sqrt(4)
    for values in (module.weight, module.bias):
        n = values.numel()
        variance = float(values.detach().double().square().mean())
        # 1e-6; finds a scale that is off by 7 % (weights).
        assert abs(variance / deviation**2 - 1.0) < 5.2 * math.sqrt(2.0 / n)


def test_the_default_rate_keeps_the_noise_of_the_logits_whatever_the_schedule() -> None:
    deviations = []
    for schedule in (Schedule("constant"), Schedule("linear"), Schedule("cosine")):
        module = odp.SoftmaxRegression(40, 50)
        run = started(20, steps=40, noise_multiplier=2.0, batch_size=4.0)
        odp.train(
            run,
            module,
            (np.zeros((20, 40)), np.zeros(20, dtype=int)),
            schedule=schedule,
            score=None,
        )
        deviations.append(module.weights.std())
    # Logits of size 1.7, of 40 features between -1 and 1.
    assert deviations == pytest.approx([1.7 * (40 / 3) ** -0.5] * 3, rel=0.15)


class Failing:
    """Records of which some raise an error when they are read."""

    def __init__(self, failing: set[int], inputs: Any = None) -> None:
        self.failing, self.inputs = failing, X if inputs is None else inputs

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        if index in self.failing:
            raise OSError("a broken file")
        return self.inputs[index], Y[index]


def of_another_shape() -> Any:
    return [(X[i] if i != 33 else X[i, :3], Y[i]) for i in range(N)]


BAD_LABEL = Y.clone()
BAD_LABEL[33] = 7


@pytest.mark.promise("failures")
@pytest.mark.parametrize("records", [(X, BAD_LABEL), Failing({33}), of_another_shape()])
@pytest.mark.parametrize("softmax", [False, True])
def test_a_record_that_raises_an_error_counts_as_zero_and_fails_no_run(
    records: Any, softmax: bool
) -> None:
    others = [i for i in range(N) if i != 33]
    moved, scores = [], []
    for present in (records, (X[others], Y[others])):
        module: Any = odp.SoftmaxRegression(4, 2) if softmax else nn.Linear(4, 2, bias=False)
        if not softmax:
            nn.init.zeros_(module.weight)
        trained = odp.train(
            started(N, **EXACT),
            module,
            present,
            loss=None if softmax else cross_entropy,
            score="accuracy",
            optimizer="sgd",
            learning_rate=1.0,
            schedule=Schedule("constant"),
        )
        moved.append(module.weights if softmax else module.weight.detach().numpy())
        scores.append(trained.score)
    assert np.abs(moved[0]).max() > 1e-3
    assert np.allclose(moved[0], moved[1], atol=1e-6)
    # A record too few counts for the middle of the range.
    assert abs(scores[0] - (scores[1] - 0.5 / N)) < 2 * 6.2 * 0.1 / (2 * N)


def test_how_a_run_ends_does_not_depend_on_a_record_under_anomaly_detection() -> None:
    x = X.clone()
    x[33] = math.nan
    with torch.autograd.set_detect_anomaly(True):
        trained = train(started(N, **EXACT), records=(x, Y), score="accuracy")
    assert trained.score is not None


def test_a_broken_first_record_does_not_refuse_a_training() -> None:
    run = started(N)
    train(run, model(), Failing({0, 5}))
    assert claimed(run, TRAININGS)[0]["finished"]


@pytest.mark.parametrize("softmax", [False, True])
def test_a_first_record_of_another_shape_does_not_refuse_a_training(softmax: bool) -> None:
    records = [(X[i] if i not in (0, 9) else X[i, :3], Y[i]) for i in range(N)]
    run = started(N)
    module, loss = (odp.SoftmaxRegression(4, 2), None) if softmax else (model(), cross_entropy)
    train(run, module, records, loss=loss)
    assert claimed(run, TRAININGS)[0]["finished"]


@pytest.mark.parametrize("kind", [torch.bool, torch.int64])
def test_a_score_may_be_a_truth_value_or_a_whole_number(kind: Any) -> None:
    def right(module: Any, x: Any, y: Any) -> Any:
        return (module(x[None])[0].argmax() == y).to(kind)

    module = identity()
    x = torch.tensor([[2.0, 1.0]] * 20)
    records = x, torch.tensor([0] * 14 + [1] * 6)
    trained = train(started(20, **EXACT), module, records, record_score=right, **STILL)
    exact_score(trained.score, 14, 20)


def test_an_lstm_is_scored() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.head = nn.LSTM(4, 5, 2, batch_first=True), nn.Linear(5, 2)

        def forward(self, x: Any) -> Any:
            return self.head(self.layers(x)[0][:, -1])

    module, x = Recurrent(), torch.randn(20, 6, 4)
    y = torch.randint(0, 2, (20,))
    trained = train(started(20, **EXACT), module, (x, y), score="accuracy", **STILL)
    exact_score(trained.score, int((module(x).argmax(1) == y).sum()), 20)


@pytest.mark.promise("scored-records")
def test_copies_of_trained_records_are_no_records_to_score() -> None:
    """What is left if ``x[~is_held_out]`` is forgotten: a mask copies, so no memory is shared."""
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((400, 5)), rng.integers(2, size=400)
    held_out = rng.random(400) < 0.2

    def train(records: Any, scored: Any) -> None:
        plan = odp.plan_budget(
            epsilon=3.0, records=320, batch_size=50, epochs=1, pilots=0, score="disjoint"
        )
        study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
        odp.train(
            odp.start_run(study.ask()),
            odp.SoftmaxRegression(5, 2),
            records,
            score="accuracy",
            score_records=scored,
            score_size=80,
        )

    with refuses("score_records"):
        train((x, y), (x[held_out], y[held_out]))
    train((x[~held_out], y[~held_out]), (x[held_out], y[held_out]))
    # Tables of few different rows have equal ones by chance.
    few = np.round(np.abs(x[:, :2]))
    coarse = np.concatenate([few, few, few[:, :1]], axis=1)
    train((coarse[~held_out], y[~held_out]), (coarse[held_out], y[held_out]))


def test_a_training_with_other_numbers_than_granted_is_not_released() -> None:
    plan = odp.plan_budget(epsilon=3.0, records=N, batch_size=20, epochs=10, pilots=0)
    study = study_of(odp.BudgetSampler(plan))

    def objective(trial: Any) -> float:
        shorter = dataclasses.replace(odp.start_run(trial), noise_multiplier=0.5)
        return float(train(shorter, score="accuracy").score)

    study.optimize(objective)
    with pytest.raises(ReleaseRefusedError, match="start_run") as caught:
        odp.release(study)
    assert caught.value.trial_number == 0


@pytest.mark.promise("a training is begun twice in a trial")
def test_a_training_that_was_interrupted_is_not_released_whatever_was_scored() -> None:
    plan = odp.plan_budget(epsilon=3.0, records=N, batch_size=20, epochs=10, pilots=0)
    study = study_of(odp.BudgetSampler(plan))

    class Failing(torch.optim.SGD):
        left = 3

        def step(self, closure: Any = None) -> None:
            Failing.left -= 1
            if not Failing.left:
                raise RuntimeError("out of disk")
            super().step()

    def objective(trial: Any) -> float:
        run = odp.start_run(trial)
        with contextlib.suppress(RuntimeError):
            train(run, model(), optimizer=lambda weights, rate: Failing(weights, lr=rate))
        return 0.5

    study.optimize(objective)
    assert Failing.left == 0
    with pytest.raises(ReleaseRefusedError):
        odp.release(study, vouched="it had nearly come to its end")
