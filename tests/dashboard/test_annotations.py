"""What is written for Optuna Dashboard, and what is not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState
from support import (
    RUN,
    exactly,
    finished_study,
    logged,
    objective,
    study_of,
)
from support import (
    release as released_by,
)

import optuna_dp as odp
from optuna_dp.errors import MissingExtraError, PlanError, ReleaseRefusedError

from .kinds import CANDIDATES, KINDS, PLAN, RUNS

pytest.importorskip("optuna_dashboard")
pytest.importorskip("plotly")

from optuna_dp import dashboard
from optuna_dp.dashboard import study_pages

PLOTS = {
    "dp_hypo": {
        "privacy-profile",
        "epsilon-by-trials",
        "density",
    },  # T is fixed: no finite divergence.
    "budget": {"privacy-profile", "renyi-divergence", "epsilon-by-trials"},
    "propose_test": {"privacy-profile", "renyi-divergence", "epsilon-by-trials"},
    "noisy_max": {"privacy-profile", "renyi-divergence"},
}


def attrs(study: optuna.Study) -> dict[str, Any]:
    return dict(study._storage.get_study_system_attrs(study._study_id))


def note(study: optuna.Study) -> str:
    parts = {k: v for k, v in attrs(study).items() if k.startswith("dashboard:note_str")}
    return "".join(parts[key] for key in sorted(parts, key=lambda k: int(k.split(":")[-1])))


def plots(study: optuna.Study) -> set[str]:
    found = [re.match(r"dashboard:plot_data:optuna-dp-([a-z-]+):", key) for key in attrs(study)]
    return {match.group(1) for match in found if match is not None}


def private_study(sampler: Any = None, **kwargs: Any) -> optuna.Study:
    study = study_of(sampler or odp.RandTuneSampler(trials=exactly(5), run=RUN), **kwargs)
    study.optimize(objective, callbacks=[odp.PrivacyCallback(), dashboard.DashboardCallback()])
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
    assert plots(study) == {"privacy-profile", "epsilon-by-trials"}


def test_a_study_that_cannot_be_released_says_why() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5), run=RUN))
    study.optimize(objective, n_trials=2, callbacks=[odp.PrivacyCallback()])
    dashboard.annotate(study, attack=False)
    assert "2 of 5" in note(study)
    assert "not yet: Some of its runs have not ended" in note(study)
    seeded = private_study(odp.RandTuneSampler(trials=exactly(2), seed=1, run=RUN))
    dashboard.annotate(seeded, attack=False)
    assert "NO: Its sampler has a seed" in note(seeded)


def test_annotating_changes_nothing_that_is_released() -> None:
    study = private_study()
    before = released_by(study).to_json()
    dashboard.annotate(study, attack=False)
    dashboard.annotate(study, attack=False)
    assert released_by(study).to_json() == before
    assert study.user_attrs == {}
    assert all(trial.user_attrs == {} for trial in study.trials)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_study_has_its_page(kind: str) -> None:
    study = KINDS[kind]()
    before = released_by(study).to_json()
    trials = study.get_trials()
    dashboard.annotate(study, attack=False)
    assert plots(study) == PLOTS[kind]
    text = note(study)
    head = "# All runs may be shown" if kind == "budget" else "# For the curator only"
    assert text.startswith(head)
    guarantee = released_by(study).guarantee
    epsilon = guarantee.epsilon(1e-5)
    (shown,) = re.findall(r"epsilon = ([0-9.]+) at delta", text)
    if "renyi-divergence" in PLOTS[kind]:
        ((value, order),) = re.findall(r"divergence at most ([\d.]+) at order ([\d.]+) ", text)
        assert 0 <= float(value) - guarantee.rdp([float(order)])[0] < 0.05 * float(value)
    else:
        assert "no finite Renyi divergence is known" in text
    assert 0 <= float(shown) - epsilon < 0.01
    assert "yes: `odp.release(study)`" in text
    assert released_by(study).to_json() == before
    assert study.get_trials() == trials


def test_how_studies_of_each_kind_stand() -> None:
    texts = {}
    for kind, make in KINDS.items():
        study = make()
        dashboard.annotate(study, attack=False)
        texts[kind] = note(study)
    assert f"Runs ended | {RUNS} of {RUNS} (secret)" in texts["dp_hypo"]
    assert f"Pilots ended | {PLAN.pilots} of {PLAN.pilots} |" in texts["budget"]
    assert "The last run | ended with a result" in texts["budget"]
    for kind in ("propose_test", "noisy_max"):
        assert f"Candidates evaluated | {len(CANDIDATES)} |" in texts[kind]
        assert "made: the candidate of trial 1" in texts[kind]
        assert "utilities that are not private" in texts[kind]
        assert "(secret)" not in texts[kind]


def test_annotating_makes_no_private_choice() -> None:
    sampler = odp.NoisyMaxSampler(candidates=CANDIDATES, n_partitions=1000, epsilon=2.0)
    study = study_of(sampler)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=len(CANDIDATES))
    dashboard.annotate(study, attack=False)
    assert len(study.trials) == len(CANDIDATES)
    assert "not made yet" in note(study)
    assert "yes: `odp.release(study)`" in note(study)


def test_a_candidate_without_a_utility_is_said_to_block_the_choice() -> None:
    def sometimes(trial: optuna.Trial) -> float:
        if trial.suggest_float("x", 0, 1) == 0.5:
            raise RuntimeError
        return 0.5

    sampler = odp.NoisyMaxSampler(candidates=CANDIDATES, n_partitions=1000, epsilon=2.0)
    study = study_of(sampler)
    study.optimize(sometimes, n_trials=len(CANDIDATES), catch=RuntimeError)
    dashboard.annotate(study, attack=False)
    assert "1 (each blocks the choice)" in note(study)
    assert "NO: Trial 1: it has no utility" in note(study)


def test_a_budget_that_is_not_over_says_how_far_it_is() -> None:
    study = study_of(odp.BudgetSampler(PLAN))
    study.optimize(objective, n_trials=2, callbacks=[odp.PrivacyCallback()])
    dashboard.annotate(study, attack=False)
    assert plots(study) == PLOTS["budget"]
    assert f"Pilots ended | 2 of {PLAN.pilots} |" in note(study)
    assert "The last run | not ended yet" in note(study)
    assert "not yet" in note(study)


def test_a_last_run_that_failed_is_counted() -> None:
    def fails_last(trial: optuna.Trial) -> float:
        if not odp.start_run(trial).is_pilot:
            raise RuntimeError
        return trial.suggest_float("x", 0, 1)

    study = study_of(odp.BudgetSampler(PLAN))
    study.optimize(fails_last, callbacks=[odp.PrivacyCallback()], catch=RuntimeError)
    dashboard.annotate(study, attack=False)
    assert "The last run | failed 1 of 1 times" in note(study)


@pytest.mark.parametrize("kind", KINDS)
def test_every_plot_of_a_page_has_a_title_of_its_own(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles: list[str] = []

    def keep(study: optuna.Study, figure: Any, *, graph_object_id: str) -> None:
        titles.append(figure.layout.title.text)

    study = KINDS[kind]()
    monkeypatch.setattr("optuna_dashboard.save_plotly_graph_object", keep)
    dashboard.annotate(study, attack=False)
    assert len(titles) == len(PLOTS[kind])
    assert len(set(titles)) == len(titles)
    titles.clear()
    odp.publish(released_by(study), optuna.storages.InMemoryStorage(), "result")
    assert len(titles) > 1
    assert len(set(titles)) == len(titles)
    assert not any("curator" in title for title in titles)


def test_a_study_that_is_loaded_with_another_sampler_has_its_other_plots() -> None:
    study = KINDS["dp_hypo"]()
    for sampler in (None, odp.DPHyPOSampler(trials=exactly(3), run=RUN)):
        loaded = optuna.load_study(
            study_name=study.study_name, storage=study._storage, sampler=sampler
        )
        dashboard.annotate(loaded, attack=False)
        assert plots(study) >= PLOTS["dp_hypo"] - {"density"}


def recorder(calls: list[tuple[int, bool]]) -> Any:
    def listen(study: optuna.Study, *, attack: bool) -> None:
        calls.append((sum(t.state == TrialState.COMPLETE for t in study.trials), attack))

    return listen


def test_the_books_are_kept_without_drawing(tmp_path: Path) -> None:
    """Drawing takes longer than many a run; whoever wants a page asks for it."""
    study = study_of(
        odp.RandTuneSampler(trials=exactly(3), run=RUN), storage=f"sqlite:///{tmp_path / 'a.db'}"
    )
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    assert not [key for key in attrs(study) if key.startswith("dashboard:")]


def test_the_callback_annotates_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, bool]] = []
    monkeypatch.setattr(study_pages, "annotate", recorder(calls))
    private_study(
        odp.RandTuneSampler(trials=exactly(11), run=RUN), storage=f"sqlite:///{tmp_path / 'a.db'}"
    )
    assert calls == [(1, False), (2, False), (4, False), (8, False), (11, True)]
    calls.clear()
    private_study()  # in memory
    assert calls == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_callbacks_annotate_studies_of_every_kind(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, bool]] = []
    monkeypatch.setattr(study_pages, "annotate", recorder(calls))
    KINDS[kind](storage=f"sqlite:///{tmp_path / 'a.db'}")
    last = {"dp_hypo": RUNS, "budget": PLAN.runs}.get(kind, len(CANDIDATES))
    assert calls[:2] == [(1, False), (2, False)]
    assert calls[-1] == (last, True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_that_cannot_be_drawn_does_not_end_a_search(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(study: optuna.Study, *, attack: bool) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr(study_pages, "annotate", fail)
    with logged() as lines:
        study = KINDS[kind](storage=f"sqlite:///{tmp_path / 'a.db'}")
    assert any("could not be written" in line for line in lines)
    released_by(study)  # It ran to its end.


def test_the_dashboards_callback_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_pages, "PACKAGES", ("no_such_package",))
    with pytest.raises(MissingExtraError) as caught:
        dashboard.DashboardCallback()
    assert caught.value.extra == "dashboard"


def test_a_published_study_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_pages, "available", lambda: False)
    public = odp.publish(released_by(private_study()), optuna.storages.InMemoryStorage(), "result")
    assert attrs(public) == {"optuna_dp:published": True}
    assert "privacy statement" in public.user_attrs


def test_a_published_page_says_which_trial_only_looks_pruned() -> None:
    def published(study: optuna.Study) -> str:
        return note(odp.publish(released_by(study), optuna.storages.InMemoryStorage(), "result"))

    for kind, make in KINDS.items():
        text = published(make())
        assert text.startswith("**Safe to show.**")
        assert ("shown as pruned" in text) == (kind in ("propose_test", "noisy_max"))


def test_without_a_plan_or_a_cost() -> None:
    with pytest.raises(PlanError):
        dashboard.annotate(optuna.create_study())
    with pytest.raises(ReleaseRefusedError, match="run="):
        dashboard.annotate(finished_study(odp.RandTuneSampler(trials=exactly(3))))
