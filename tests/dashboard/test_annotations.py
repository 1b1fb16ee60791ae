"""What is written for Optuna Dashboard, and what is not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import optuna
import pytest
from support import RUN, exactly, finished_study, logged, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import PlanError

pytest.importorskip("optuna_dashboard")
pytest.importorskip("plotly")

from optuna_dp import dashboard

CURATOR = {"privacy-profile", "epsilon-by-trials", "sampling-density", "scores"}
PUBLIC = {"privacy-profile", "epsilon-by-trials"}


def attrs(study: optuna.Study) -> dict[str, Any]:
    return dict(study._storage.get_study_system_attrs(study._study_id))


def note(study: optuna.Study) -> str:
    parts = {k: v for k, v in attrs(study).items() if k.startswith("dashboard:note_str")}
    return "".join(parts[key] for key in sorted(parts, key=lambda k: int(k.split(":")[-1])))


def plots(study: optuna.Study) -> set[str]:
    found = [re.match(r"dashboard:plot_data:optuna-dp-([a-z-]+):", key) for key in attrs(study)]
    return {match.group(1) for match in found if match is not None}


def private_study(sampler: Any = None, **kwargs: Any) -> optuna.Study:
    study = study_of(sampler or odp.RandTuneSampler(trials=exactly(5)), **kwargs)
    study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])
    return study


def test_the_curators_page() -> None:
    study = private_study()
    dashboard.annotate(study, attack=False)
    text = note(study)
    assert "For the curator only" in text
    assert "Do not share this page" in text
    assert "5 of 5" in text
    assert "yes: `odp.release(study)`" in text
    epsilon = odp.selection_guarantee(RUN, exactly(5)).epsilon(1e-5)
    (shown,) = re.findall(r"epsilon = ([0-9.]+) at delta", text)
    assert 0 <= float(shown) - epsilon < 0.01
    assert plots(study) == CURATOR


def test_a_study_that_cannot_be_released_says_why() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5)))
    study.optimize(objective, n_trials=2, callbacks=[odp.PrivacyCallback(RUN)])
    dashboard.annotate(study, attack=False)
    assert "2 of 5" in note(study)
    assert "not yet: 3 of its runs have not ended" in note(study)
    seeded = private_study(odp.RandTuneSampler(trials=exactly(2), seed=1))
    dashboard.annotate(seeded, attack=False)
    assert "NO: Its sampler was given a seed" in note(seeded)


def test_annotating_changes_nothing_that_is_released() -> None:
    study = private_study()
    before = odp.release(study).to_json()
    dashboard.annotate(study, attack=False)
    dashboard.annotate(study, attack=False)
    assert odp.release(study).to_json() == before
    assert study.user_attrs == {}
    assert all(trial.user_attrs == {} for trial in study.trials)


def test_the_callback_annotates_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, bool]] = []

    def listen(study: optuna.Study, *, attack: bool) -> None:
        calls.append((sum(t.state.is_finished() for t in study.trials), attack))

    monkeypatch.setattr(dashboard, "annotate", listen)
    private_study(
        odp.RandTuneSampler(trials=exactly(11)), storage=f"sqlite:///{tmp_path / 'a.db'}"
    )
    assert calls == [(1, False), (2, False), (4, False), (8, False), (11, True)]
    calls.clear()
    private_study()  # in memory
    assert calls == []


def test_a_picture_that_cannot_be_drawn_does_not_end_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(study: optuna.Study, *, attack: bool) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr(dashboard, "annotate", fail)
    with logged() as lines:
        study = private_study(storage=f"sqlite:///{tmp_path / 'a.db'}")
    assert len(study.trials) == 5
    assert any("could not be written" in line for line in lines)


def test_the_published_page_is_a_function_of_the_release() -> None:
    """Two studies that release the same from another number of runs publish the same page."""
    pages = []
    for count in (1, 6):
        law = odp.Geometric(mean=4)
        sampler = odp.RandTuneSampler(trials=law)
        sampler._draw_slots = lambda bits, count=count: count  # type: ignore[method-assign]
        study = study_of(sampler)
        study.optimize(
            lambda trial: trial.suggest_categorical("x", [1.0]),
            callbacks=[odp.PrivacyCallback(RUN)],
        )
        assert len(study.trials) == count
        public = odp.release(study).publish(optuna.storages.InMemoryStorage(), "result")
        pages.append(attrs(public))
        assert plots(public) == PUBLIC
        assert "Safe to show" in note(public)
        assert "curator only" not in json.dumps(attrs(public))
    assert pages[0] == pages[1]


def test_a_published_study_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "available", lambda: False)
    public = odp.release(private_study()).publish(optuna.storages.InMemoryStorage(), "result")
    assert attrs(public) == {}
    assert "privacy statement" in public.user_attrs


def test_without_a_plan_or_a_cost() -> None:
    with pytest.raises(PlanError, match="no plan"):
        dashboard.annotate(optuna.create_study())
    with pytest.raises(PlanError, match="PrivacyCallback"):
        dashboard.annotate(finished_study())
