"""The callback: the books it keeps, the stop, and that T does not show."""

from __future__ import annotations

import json
import logging

import optuna
import pytest
from support import RUN, exactly, logged, objective, study_of

import optuna_dp as odp
from optuna_dp.callbacks import PROGRESS_KEY
from optuna_dp.errors import InvalidArgumentError, PlanError, UnsupportedEventError


def books(study: optuna.Study) -> dict[str, object]:
    found: dict[str, object] = study._storage.get_study_system_attrs(study._study_id)[PROGRESS_KEY]
    return found


def test_the_guarantee_on_record_is_the_accountants_and_does_not_depend_on_progress() -> None:
    law = odp.Geometric(mean=5)
    study = study_of(odp.RandTuneSampler(trials=law))
    recorded = []
    study.optimize(
        objective,
        callbacks=[odp.PrivacyCallback(RUN, delta=1e-6), lambda s, t: recorded.append(books(s))],
    )
    expected = odp.selection_guarantee(RUN, law).epsilon(1e-6)
    assert {entry["epsilon"] for entry in recorded} == {expected}
    assert [entry["finished"] for entry in recorded] == [False] * (len(recorded) - 1) + [True]


def test_naive_composition_of_the_runs_so_far_is_beside_it_and_marked() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(4)))
    naive = []
    study.optimize(
        objective,
        callbacks=[odp.PrivacyCallback(RUN), lambda s, t: naive.append(books(s)["so far"])],
    )
    assert [entry["runs"] for entry in naive] == [1, 2, 3, 4]
    values = [entry["epsilon_by_naive_composition"] for entry in naive]
    assert values == sorted(values)
    assert all("not the guarantee" in entry["note"] for entry in naive)
    # Four Gaussians of noise 4 are one of noise 2.
    one = odp.Guarantee(odp.gaussian(2.0)).by_method(1e-5)["rdp"]
    assert values[-1] == pytest.approx(one, rel=1e-6)


def test_the_books_are_plain_json_and_not_user_attributes() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(2)))
    study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])
    json.dumps(books(study), allow_nan=False)
    assert study.user_attrs == {}
    assert all(t.user_attrs == {} for t in study.trials)


def test_an_infinite_guarantee_is_recorded_as_such() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(2)))
    with logged() as lines:
        study.optimize(objective, callbacks=[odp.PrivacyCallback(odp.approximate_dp(1.0, 1e-3))])
    assert books(study)["epsilon"] is None
    assert any("no finite epsilon" in line for line in lines)


def test_progress_tells_t_at_the_curators_own_level_only() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(13)))
    with logged() as lines:
        study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])
    shown = [line for line in lines if not line.startswith("DEBUG")]
    assert len(shown) == 13
    assert not [line for line in shown if "13" in line]
    assert [line for line in lines if line.startswith("DEBUG") and "of 13" in line]


def test_quiet_by_default() -> None:
    assert logging.getLogger("optuna_dp").level == logging.NOTSET
    assert not logging.getLogger("optuna_dp").handlers


def test_it_stops_the_study_by_itself() -> None:
    """Even if the sampler's own stop were not there."""
    sampler = odp.RandTuneSampler(trials=exactly(5))
    study = study_of(sampler)
    callback = odp.PrivacyCallback(RUN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("optuna_dp.samplers.slots._stop", lambda study: None)
        study.optimize(objective, n_trials=50, callbacks=[callback])
    assert len(study.trials) == 5


def test_a_study_of_another_sampler_is_refused() -> None:
    study = optuna.create_study(direction="maximize")
    with pytest.raises(PlanError, match="optuna-dp's"):
        study.optimize(objective, n_trials=1, callbacks=[odp.PrivacyCallback(RUN)])


def test_bad_arguments() -> None:
    from dp_accounting import dp_event

    with pytest.raises(InvalidArgumentError, match="run="):
        odp.PrivacyCallback(1.0)
    with pytest.raises(InvalidArgumentError, match="delta="):
        odp.PrivacyCallback(RUN, delta=0.0)
    with pytest.raises(InvalidArgumentError, match="neighboring_relation"):
        odp.PrivacyCallback(RUN, neighboring_relation="friends")
    with pytest.raises(InvalidArgumentError, match="output_attributes"):
        odp.PrivacyCallback(RUN, output_attributes="threshold")
    with pytest.raises(UnsupportedEventError, match="UnsupportedDpEvent"):
        odp.PrivacyCallback(odp.compose(RUN, dp_event.UnsupportedDpEvent()))
