"""``trained.predict`` says of new records what the model does, in the words of the schema."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from refusals import refuses
from started import started

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import optuna_dp as odp  # noqa: E402

N = 300
rng = np.random.default_rng(0)
AGE = rng.uniform(20, 80, N)
SEX = rng.choice(["F", "M"], N)
ROWS = {"age": AGE, "sex": SEX}


def trained(model: Any, records: Any, **arguments: Any) -> odp.Trained:
    run = started(N, batch_size=100.0, steps=40, noise_multiplier=0.5)
    return odp.train(run, model, records, **{"score": None, **arguments})


def test_classes_are_given_their_names_and_the_target_may_be_missing() -> None:
    schema = odp.Schema(
        age=(20, 80), sex=["F", "M"], died=["no", "yes"], target="died", unit="who", most=1
    )
    died = np.where(AGE > 50, "yes", "no")
    records = schema.encode({**ROWS, "died": died, "who": [str(i) for i in range(N)]})
    model = nn.Sequential(
        nn.Linear(schema.width, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, schema.outputs)
    )
    outcome = trained(model, records)
    outcome.model.train()
    predicted = outcome.predict(ROWS)
    assert (predicted == died).mean() > 0.9
    assert np.array_equal(predicted, outcome.predict(ROWS))  # Without dropout.
    assert np.array_equal(predicted, outcome.predict(records))
    assert outcome.model.training
    by_softmax = trained(odp.SoftmaxRegression(schema.width, 2), records)
    assert set(by_softmax.predict({"age": [22, 78], "sex": ["F", "M"]})) <= {"no", "yes"}


def test_numbers_are_given_in_their_units() -> None:
    schema = odp.Schema(age=(20, 80), pressure=(0, 200), target="pressure")
    rows = {"age": AGE, "pressure": 2 * AGE}
    predicted = trained(nn.Linear(schema.width, 1), schema.encode(rows)).predict({"age": AGE})
    assert predicted.shape == (N,)
    assert np.abs(predicted - 2 * AGE).mean() < 20


def test_without_a_schema_it_is_what_the_model_returns() -> None:
    x = rng.normal(size=(N, 3))
    y = (x[:, 0] > 0).astype(int)
    outcome = trained(nn.Linear(3, 2), (x, y), loss=nn.functional.cross_entropy, score=None)
    expected = outcome.model(torch.as_tensor(x, dtype=torch.float32)).detach().numpy()
    many = np.concatenate(10 * [x])
    assert np.allclose(outcome.predict(many), np.concatenate(10 * [expected]), atol=1e-6)
    assert outcome.predict(x[:0]).shape == (0, 2)
    assert (outcome.predict(torch.tensor(x)).argmax(axis=1) == y).mean() > 0.9
    softmax = trained(odp.SoftmaxRegression(3, 2), (x, y), score=None)
    assert (softmax.predict(x) == y).mean() > 0.9
    with refuses("records"):
        outcome.predict("a text")


def test_arguments_by_name() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return self.layer(torch.stack([a, b], dim=-1))

    a, b = rng.normal(size=(2, N)).astype(np.float32)
    outcome = trained(
        Sum(),
        {"a": a, "b": b},
        record_loss=lambda model, record: (model(**record) - record["a"]).square().sum(),
        learning_rate=0.1,
    )
    by_name, by_place = outcome.predict({"a": a, "b": b}), outcome.predict((a, b))
    assert np.array_equal(by_name, by_place)
    assert by_name.shape == (N, 1)


OWN = odp.Schema(age=(20, 80), sex=["F", "M"], died=bool, target="died", unit="who", most=1)
OF_AGE = odp.Schema(decade=(2, 8), dead=["alive", "dead"], target="dead")
WHO = {**ROWS, "died": AGE > 50, "who": [str(i // 2) for i in range(N)]}


def by_decade(rows: Any) -> odp.PreparedRecords:
    dead = np.where(np.asarray(rows["died"]).astype(bool), "dead", "alive")
    return OF_AGE.encode({"decade": np.asarray(rows["age"]) / 10, "dead": dead})


def test_new_rows_go_through_the_function_that_prepared_the_records() -> None:
    """All of them do, those of one person too, and their targets may be missing."""
    records = OWN.encode(WHO, prepare=by_decade)
    assert len(records) == N / 2
    outcome = trained(nn.Linear(OF_AGE.width, 2), records)
    predicted = outcome.predict(WHO)
    assert predicted.shape == (N,)
    assert (predicted == np.where(AGE > 50, "dead", "alive")).mean() > 0.9
    assert np.array_equal(outcome.predict(ROWS), predicted)
    pandas = pytest.importorskip("pandas")
    assert np.array_equal(outcome.predict(pandas.DataFrame(ROWS)), predicted)
    assert outcome.predict({"age": [22], "sex": ["F"]}).tolist() == ["alive"]
    with refuses("rows"):
        outcome.predict({"sex": ["F"]})


def test_a_function_that_leaves_rows_out_predicts_none_in_silence() -> None:
    schema = odp.Schema(age=(20, 80), died=bool, target="died")

    def adults(rows: Any) -> Any:
        age = np.asarray(rows["age"], dtype=float)
        kept = age > 30
        return (age[kept, None] - 50) / 30, np.asarray(rows["died"])[kept].astype(int)

    records = schema.encode({"age": AGE, "died": AGE > 50}, prepare=adults)
    outcome = trained(nn.Linear(1, 2), records)
    assert outcome.predict({"age": [40.0, 70.0]}).shape == (2, 2)  # No schema has the targets.
    with refuses("records"):
        outcome.predict({"age": [25.0, 70.0]})


def test_a_stored_training_predicts_what_was_encoded() -> None:
    records = OWN.encode(WHO, prepare=by_decade)
    outcome = pickle.loads(pickle.dumps(trained(nn.Linear(OF_AGE.width, 2), records)))
    with refuses("records"):
        outcome.predict(ROWS)
    assert len(outcome.predict(OF_AGE.encode({"decade": AGE / 10}))) == N


def test_rows_without_targets_are_not_left_out_in_silence() -> None:
    rows = {"age": [30, 40], "sex": ["F", "M"], "who": ["a", "a"]}
    with pytest.warns(UserWarning, match=r"trained\.predict\(rows\)"):
        assert len(OWN.encode(rows)) == 1
