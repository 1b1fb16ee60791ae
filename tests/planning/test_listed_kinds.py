"""short_list and public_maps: what is proposed can be trained, and nothing reads a record."""

from __future__ import annotations

from typing import Any

import numpy as np
import optuna
import pytest

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.planning.short_lists import ranked_kinds

TABLE = odp.made_up_inputs(*[(0, 1)] * 7, 3)
IMAGES = odp.made_up_images(1, 9, 8)


@pytest.mark.parametrize(("records", "inputs"), [("table", TABLE), ("image", IMAGES)])
def test_every_candidate_names_a_public_map(records: Any, inputs: Any) -> None:
    maps, candidates = odp.public_maps(inputs), odp.short_list(records)
    assert len(candidates) == 5
    assert candidates[0] == {"features": "joined", "width": 0}
    assert {candidate["width"] > 0 for candidate in candidates} == {False, True}
    for candidate in candidates:
        features = np.asarray(maps[candidate["features"]](inputs))
        assert len(features) == len(inputs)
        assert np.isfinite(features.astype(float)).all()
    assert len({str(candidate) for candidate in candidates}) == 5


def test_the_kinds_are_ranked_and_come_from_several_tasks() -> None:
    kinds = ranked_kinds()
    behind = [one["points_behind"] for one in kinds]
    assert behind == sorted(behind)
    assert all(one["tasks"] >= 3 for one in kinds)


def test_a_fine_tuning_list_has_what_is_trained_of_a_network() -> None:
    found = odp.short_list("fine-tuning")
    assert [one["trained"] for one in found] == ["last layer"] * 2 + ["lora"] * 2 + ["all"]
    assert {one["rank"] for one in found if one["trained"] == "lora"} == {4, 16}
    found[0]["width"] = 7
    assert odp.short_list("fine-tuning")[0]["width"] == 0


@pytest.mark.parametrize("records", ["text", None, 3])
def test_other_records_have_no_list(records: Any) -> None:
    with pytest.raises(InvalidArgumentError) as refusal:
        odp.short_list(records)
    assert refusal.value.argument == "records"


@pytest.mark.parametrize("inputs", [TABLE[:1], TABLE[0], IMAGES[:, 0], IMAGES[:, :, :1]])
def test_other_inputs_have_no_maps(inputs: Any) -> None:
    with pytest.raises(InvalidArgumentError) as refusal:
        odp.public_maps(inputs)
    assert refusal.value.argument == "made_up_inputs"


@pytest.mark.parametrize("inputs", [TABLE, IMAGES])
def test_a_map_transforms_each_record_by_itself(inputs: Any) -> None:
    records = np.random.default_rng(0).random((12, *inputs.shape[1:]))
    changed = records.copy()
    changed[3] += 5.0
    for one in odp.public_maps(inputs).values():
        before, after = (np.asarray(one(x)).reshape(12, -1) for x in (records, changed))
        assert list(np.flatnonzero((before != after).any(axis=1))) == [3]


@pytest.mark.parametrize("inputs", [TABLE, IMAGES])
def test_joined_maps_have_one_norm_and_features_of_order_one(inputs: Any) -> None:
    maps = odp.public_maps(inputs)
    joined = maps.pop("joined")(inputs)
    assert np.square(joined).mean() == pytest.approx(1.0, rel=1e-5)
    columns = [np.asarray(one(inputs)).reshape(len(inputs), -1).shape[1] for one in maps.values()]
    blocks = np.split(joined, np.cumsum(columns)[:-1], axis=1)
    norms = [float(np.square(block).sum(axis=1).mean()) for block in blocks]
    assert norms == pytest.approx([norms[0]] * len(maps), rel=1e-4)


@pytest.mark.slow
def test_a_table_is_searched_from_its_list() -> None:
    """What the pages show: the list, the maps, one call for a training."""
    rng = np.random.default_rng(0)
    x = rng.random((300, 10))
    y = (np.square(x[:, 0] - 0.5) > 0.06).astype(int)
    maps = odp.public_maps(odp.made_up_inputs(*[(0, 1)] * 10))
    candidates = [one for one in odp.short_list("table") if not one["width"]]
    plan = odp.plan_budget(
        epsilon=8.0, records=300, batch_size=100, epochs=20, candidates=len(candidates)
    )

    def objective(trial: optuna.Trial) -> float:
        run, names = odp.start_run(trial), [one["features"] for one in candidates]
        features = maps[trial.suggest_categorical("features", names)](x)
        features = np.hstack([features, np.ones((len(x), 1))])
        trial.suggest_int("width", 0, 32)
        model = odp.SoftmaxRegression(features.shape[1], 2)
        trained = odp.train(run, model, (features, y), score="accuracy")
        assert trained.score is not None
        return trained.score

    sampler = odp.BudgetSampler(plan, candidates=candidates)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    assert release.params in candidates
    assert [pilot["params"] for pilot in release.pilots] == candidates
    assert release.guarantee.epsilon(1e-5) <= 8.0
