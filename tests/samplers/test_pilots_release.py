"""The release of a study with pilots."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import optuna
import pytest
from pilot_support import X, pilot_sampler, slots_of
from support import RUN, objective, study_of

import optuna_dp as odp
from optuna_dp.releasing.callbacks import PROGRESS_KEY


def scored(values: Sequence[float], **kwargs: Any) -> optuna.Study:
    """Two pilots and selection runs that end as told, under a law whose cost is quickly known."""

    def ends(trial: optuna.Trial) -> float:
        trial.suggest_float("x", -1.0, 1.0)
        trial.set_user_attr("secret", 0.777)
        return values[trial.number]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(odp.Geometric, "sample", lambda law, bits: len(values) - 2)
        study = study_of(pilot_sampler(X, pilots=2, trials=odp.Geometric(mean=3), **kwargs))
        study.optimize(ends)
    return study


def test_a_pilot_never_wins() -> None:
    study = scored([0.9, 0.8, 0.1, 0.5, 0.3])
    release = odp.release(study, RUN)
    assert release.value == 0.5
    assert release.params == study.trials[3].params


def test_pilots_are_shown_only_if_the_plan_says_so() -> None:
    values = [0.9, 0.125, 0.1, 0.5, 0.3]
    hidden = odp.release(scored(values), RUN)
    assert hidden.attributes == {}
    assert "0.125" not in json.dumps(hidden.to_json()) + hidden.statement()
    assert "kept by the curator" in hidden.statement()
    study = scored(values, release_pilots=True)
    shown = odp.release(study, RUN)
    assert shown.attributes == {
        "pilots": [{"params": t.params, "value": t.value} for t in study.trials[:2]]
    }
    text = json.dumps(shown.to_json()) + shown.statement()
    assert "0.777" not in text
    assert "0.3" not in [str(leaf) for leaf in shown.attributes["pilots"]]
    for trial in study.trials[2:]:
        if trial.params != shown.params:
            assert str(trial.params["x"]) not in text
    published = odp.publish(shown, optuna.storages.InMemoryStorage(), "result")
    assert published.trials[0].user_attrs == shown.attributes
    assert hidden.guarantee.epsilon(1e-5) == shown.guarantee.epsilon(1e-5)


def test_the_statement_says_what_was_done() -> None:
    text = odp.release(scored([0.9, 0.1, 0.5]), RUN).statement()
    for words in (
        "2 pilot runs",
        "TPESampler",
        "frozen when all pilots had ended",
        "Gaussian noise of 16",
        "Gaussian noise of 4",
        "before the first pilot",
    ):
        assert words in text


def test_the_books_count_pilots_with_their_own_event() -> None:
    study = study_of(pilot_sampler(X, pilots=2, trials=odp.Geometric(mean=3)))
    study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])
    books = study._storage.get_study_system_attrs(study._study_id)[PROGRESS_KEY]
    runs = slots_of(study)
    assert books["every run"]["runs"] == runs
    # Gaussians compose by adding precisions.
    precision = 2 / 16.0**2 + (runs - 2) / 4.0**2
    expected = odp.Guarantee(odp.gaussian(precision**-0.5)).by_method(1e-5)["rdp"]
    found = books["every run"]["epsilon_by_naive_composition"]
    assert found == pytest.approx(expected, rel=1e-6)
    assert books["epsilon"] == odp.release(study).guarantee.epsilon(1e-5)
