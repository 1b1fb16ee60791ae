"""The callback: what it records and says, the stop, and that T does not show."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable

import optuna
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant
from refusals import refuses
from support import RUN, exactly, logged, objective, study_of

import optuna_dp as odp
from optuna_dp.accounting.rdp_curves import DEFAULT_ORDERS
from optuna_dp.core.numbers_shown import rounded_up
from optuna_dp.errors import (
    PlanError,
    ReleaseRefusedError,
    UnsupportedEventError,
)
from optuna_dp.releasing.callbacks import OPTUNA_LOG, renyi_in_words


def losses(lines: list[str]) -> list[str]:
    """The lines about the guarantee; others say what to do next, and what runs add."""
    return [line for line in lines if "guaranteed" in line]


def test_optunas_own_log_shows_the_guarantee_after_the_first_run_and_after_the_last() -> None:
    law = odp.Geometric(mean=5)
    study = study_of(odp.RandTuneSampler(trials=law, run=RUN))
    with logged(OPTUNA_LOG) as lines:
        study.optimize(objective, callbacks=[odp.PrivacyCallback(delta=1e-6)])
    epsilon = odp.selection_guarantee(RUN, law).epsilon(1e-6)
    said = f"guaranteed epsilon {rounded_up(epsilon, 3)} at delta 1e-06 (Renyi divergence at most"
    assert [line[:17] for line in losses(lines)] == ["INFO: A run has e", "INFO: The last ru"]
    assert all(said in line for line in losses(lines))
    assert sum("Further runs add nothing" in line for line in lines) == 1


@pytest.mark.slow
def test_the_line_is_shown_and_hidden_as_optunas_own_lines_are() -> None:
    code = """
import sys, optuna, optuna_dp as odp
for level in (optuna.logging.INFO, optuna.logging.WARNING):
    optuna.logging.set_verbosity(level)
    sampler = odp.RandTuneSampler(trials=odp.Geometric(mean=2), run=odp.gaussian(4.0))
    study = optuna.create_study(sampler=sampler)
    study.optimize(
        lambda trial: trial.suggest_float("x", 0, 1), callbacks=[odp.PrivacyCallback()]
    )
    print("end of a study", file=sys.stderr)
"""
    script = [sys.executable, "-c", code]
    lines = subprocess.run(script, capture_output=True, text=True, check=True).stderr
    shown, hidden, _ = lines.split("end of a study")
    assert shown.count("The release is guaranteed epsilon") == 2, lines
    assert hidden.count("The release is guaranteed epsilon") == 0, lines


def test_the_divergence_that_is_shown_is_the_one_that_implies_the_smallest_epsilon() -> None:
    guarantee = odp.selection_guarantee(RUN, odp.Geometric(mean=5))
    ((shown, order),) = re.findall(
        r"at most ([\d.]+) at order ([\d.]+)$", renyi_in_words(guarantee, 1e-6)
    )
    curve = guarantee.rdp()
    _, best = rdp_privacy_accountant.compute_epsilon(DEFAULT_ORDERS, curve, 1e-6)
    assert 0 <= best - float(order) < 0.01
    assert float(shown) == pytest.approx(curve[DEFAULT_ORDERS.index(best)], rel=1e-3)
    assert float(shown) >= curve[DEFAULT_ORDERS.index(best)]


MADE = {
    "rand_tune": lambda: odp.RandTuneSampler(trials=odp.Geometric(mean=5), run=RUN),
    "dp_hypo": lambda: odp.DPHyPOSampler(trials=odp.Geometric(mean=5), candidates=4, run=RUN),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_what_the_callback_says_is_the_same_whatever_the_number_of_runs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every number that it shows is a function of the design, so T cannot be learnt from it."""
    said, guarantees, counts = [], [], []
    for count in (1, 2, 23):
        monkeypatch.setattr(
            odp.TrialCount, "sample", lambda law, uniform_bits=None, count=count: count
        )
        study, callback = study_of(MADE[name]()), odp.PrivacyCallback()
        with logged(OPTUNA_LOG) as lines:
            study.optimize(objective, n_trials=1, callbacks=[callback])
            guarantees.append(callback.guarantee(study))
            study.optimize(objective, callbacks=[callback])
        guarantees.append(callback.guarantee(study))
        guarantees.append(odp.release(study, vouched="a test").guarantee)
        said.append([line.partition("has ended.")[2] for line in losses(lines)])
        counts.append(len(lines))
    assert all(guarantee == guarantees[0] for guarantee in guarantees)
    assert len({line for lines in said for line in lines}) == 1
    assert [len(lines) for lines in said] == [2, 2, 2]
    assert len(set(counts)) == 1


def test_a_choice_over_partitions_shows_what_its_plan_costs() -> None:
    candidates = [{"x": 0.1}, {"x": 0.5}, {"x": 0.9}]
    samplers = [
        odp.NoisyMaxSampler(candidates=candidates, n_partitions=500, epsilon=1.0),
        odp.ProposeTestSampler(
            candidates=candidates, n_partitions=30_000, epsilon=0.5, granularity=0.2, resolve=0.4
        ),
    ]
    for sampler in samplers:
        study, callback = study_of(sampler), odp.PrivacyCallback(delta=1e-6)
        with logged(OPTUNA_LOG) as lines:
            study.optimize(lambda trial: trial.suggest_float("x", 0, 1), callbacks=[callback])
        released = odp.release(study)
        assert callback.guarantee(study) == released.guarantee
        shown = f"epsilon {rounded_up(released.guarantee.epsilon(1e-6), 3)} at delta 1e-06"
        assert len(losses(lines)) == 2
        assert all(f"The choice is guaranteed {shown}" in line for line in losses(lines))


def test_a_choice_over_partitions_has_no_other_cost() -> None:
    sampler = odp.NoisyMaxSampler(candidates=[{"x": 0.5}], n_partitions=500, epsilon=1.0)
    with pytest.raises(PlanError, match="NoisyMaxSampler"):
        study_of(sampler).optimize(
            lambda trial: trial.suggest_float("x", 0, 1), callbacks=[odp.PrivacyCallback(RUN)]
        )


def test_the_guarantee_of_a_budget_is_its_plans() -> None:
    plan = odp.plan_budget(epsilon=3.0, records=1355, batch_size=1355, epochs=1, pilots=(1, 1))
    study, callback = study_of(odp.BudgetSampler(plan)), odp.PrivacyCallback()
    with pytest.raises(PlanError):
        callback.guarantee(study)
    study.optimize(objective, n_trials=1, callbacks=[callback])
    assert callback.guarantee(study) == plan.guarantee


@pytest.mark.slow
def test_a_callback_of_another_cost_gives_no_guarantee() -> None:
    study = study_of(untold(3))
    study.optimize(objective, n_trials=1, callbacks=[odp.PrivacyCallback(RUN)])
    with pytest.raises(PlanError, match="noise of 9"):
        odp.PrivacyCallback(odp.gaussian(9.0)).guarantee(study)
    with pytest.raises(PlanError, match="run="):
        odp.PrivacyCallback().guarantee(study)
    with refuses("study"):
        odp.PrivacyCallback(RUN).guarantee("sqlite:///a.db")


# -- a sampler that was told, and a callback that is told too -------------------------------------


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (odp.PrivacyCallback(odp.gaussian(9.0)), ["Gaussian noise of 9", "Gaussian noise of 4"]),
        (odp.PrivacyCallback(odp.gaussian(4.0 + 1e-9)), ["4.000000001", "noise_multiplier=4.0"]),
        (
            odp.PrivacyCallback(RUN, neighboring_relation="replace_one"),
            ["'replace_one'", "'add_or_remove_one'"],
        ),
        (odp.PrivacyCallback(RUN, output_attributes=["a"]), ["output_attributes", "('a',)"]),
    ],
)
def test_a_callback_that_says_another_cost_than_the_sampler_is_refused(
    other: odp.PrivacyCallback, words: list[str]
) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3), run=RUN))
    with pytest.raises(PlanError, match=r"PrivacyCallback\(\)") as caught:
        study.optimize(objective, callbacks=[other])
    assert all(word in str(caught.value) for word in words)
    with pytest.raises(PlanError, match=r"PrivacyCallback\(\)"):
        other.guarantee(study)
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])  # Nothing is spoilt.
    assert odp.release(study, vouched="a test").guarantee.event.run == RUN


@pytest.mark.slow
@pytest.mark.parametrize(
    "run",
    [
        RUN,
        dp_event.ComposedDpEvent(
            (odp.gaussian(4.0), odp.gaussian(9.0))
        ),  # A tuple, in JSON a list.
    ],
)
def test_a_callback_may_repeat_what_the_sampler_was_told(run: dp_event.DpEvent) -> None:
    sampler = odp.RandTuneSampler(
        trials=exactly(3), run=run, neighboring_relation="replace_one", output_attributes=["a"]
    )
    study = study_of(sampler)
    again = odp.PrivacyCallback(run, neighboring_relation="replace_one", output_attributes=["a"])
    study.optimize(objective, callbacks=[again])
    released = odp.release(study, vouched="a test")
    assert released.guarantee == again.guarantee(study)
    assert released.guarantee.neighboring_relation == "replace_one"


@pytest.mark.slow
def test_beside_a_sampler_that_was_told_it_writes_nothing() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3), run=RUN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])
    assert study._storage.get_study_system_attrs(study._study_id) == {}


# -- a sampler that was not told, and a callback that says what a run costs -----------------------


def untold(runs: int) -> odp.RandTuneSampler:
    return odp.RandTuneSampler(trials=exactly(runs))


@pytest.mark.slow
def test_what_the_callback_says_is_as_if_the_sampler_had_been_told() -> None:
    def with_attribute(trial: optuna.Trial) -> float:
        trial.set_user_attr("a", 0.25)
        return objective(trial)

    said = {"neighboring_relation": "replace_one", "output_attributes": ["a"]}
    study, told = (
        study_of(untold(3)),
        study_of(odp.RandTuneSampler(trials=exactly(3), run=RUN, **said)),
    )
    study.optimize(with_attribute, callbacks=[odp.PrivacyCallback(RUN, **said)])
    told.optimize(with_attribute, callbacks=[odp.PrivacyCallback()])
    released, told_release = (odp.release(s, vouched="a test") for s in (study, told))
    assert released.design == told_release.design
    assert released.guarantee == told_release.guarantee
    assert released.attributes == told_release.attributes == {"a": 0.25}
    assert odp.verify(released.to_json()).ok


def test_a_study_whose_cost_nobody_said_is_not_released_until_somebody_does() -> None:
    study = study_of(untold(3))
    study.optimize(objective)
    with pytest.raises(ReleaseRefusedError, match="run="):
        odp.release(study, vouched="a test")
    study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])  # As the error advises.
    assert [trial.params != {} for trial in study.trials] == [True, True, True, False]
    assert odp.release(study, vouched="a test").guarantee.event.run == RUN


@pytest.mark.slow
def test_it_writes_what_a_run_costs_once() -> None:
    study = study_of(untold(9))
    written = []
    storage = study._storage
    write = storage.set_study_system_attr
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            storage,
            "set_study_system_attr",
            lambda study_id, key, value: (
                written.append((len(study.trials), key)),
                write(study_id, key, value),
            ),
        )
        study.optimize(objective, n_trials=20, callbacks=[odp.PrivacyCallback(RUN)])
    assert [runs for runs, _ in written] == [1]


@pytest.mark.slow
def test_the_record_is_plain_json_and_no_user_attribute() -> None:
    study = study_of(untold(2))
    study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])
    attrs = study._storage.get_study_system_attrs(study._study_id)
    assert len(attrs) == 1
    json.dumps(attrs, allow_nan=False)
    assert study.user_attrs == {}
    assert all(t.user_attrs == {} for t in study.trials)


def test_an_infinite_guarantee_is_said_to_be_one() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(2), run=odp.approximate_dp(1.0, 1e-3)))
    with logged(OPTUNA_LOG) as lines:
        study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    assert losses(lines)
    for line in losses(lines):
        assert "no finite epsilon at delta 1e-05 (no finite Renyi divergence is known)" in line


@pytest.mark.promise("nothing-else")
@pytest.mark.slow
def test_progress_tells_t_at_the_curators_own_level_only() -> None:
    counts = []
    for count in (4, 13):
        study = study_of(odp.RandTuneSampler(trials=exactly(count), run=RUN))
        with logged(OPTUNA_LOG) as shown, logged() as lines:
            study.optimize(objective, callbacks=[odp.PrivacyCallback()])
        counts.append(len(shown))
    assert counts[0] == counts[1], "lines can be counted"
    assert not [line for line in shown if "13" in line]
    # That an event is the curator's word is said after the first run.
    assert [line for line in lines if not line.startswith("DEBUG")] == [
        line for line in lines if "given no plan of a run" in line
    ]
    assert [line for line in lines if "of 13" in line]


def test_our_own_logger_is_quiet_by_default() -> None:
    assert logging.getLogger("optuna_dp").level == logging.NOTSET
    assert not logging.getLogger("optuna_dp").handlers


@pytest.mark.slow
def test_it_stops_the_study_by_itself() -> None:
    """Even if the sampler's own stop were not there."""
    sampler = odp.RandTuneSampler(trials=exactly(5), run=RUN)
    study = study_of(sampler)
    callback = odp.PrivacyCallback()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("optuna_dp.study.slot_strategy.Slot.stop_loop", lambda slot: None)
        study.optimize(objective, n_trials=50, callbacks=[callback])
    assert len(study.trials) == 5


@pytest.mark.promise("another sampler for part of a study")
def test_a_study_of_another_sampler_is_refused() -> None:
    study = optuna.create_study(direction="maximize")
    with pytest.raises(PlanError):
        study.optimize(objective, n_trials=1, callbacks=[odp.PrivacyCallback()])


@pytest.mark.promise("cost-of-a-run")
@pytest.mark.parametrize(
    ("other", "words"),
    [
        (odp.PrivacyCallback(odp.gaussian(9.0)), ["Gaussian noise of 9", "Gaussian noise of 4"]),
        (odp.PrivacyCallback(odp.gaussian(4.0 + 1e-9)), ["4.000000001", "noise_multiplier=4.0"]),
        (
            odp.PrivacyCallback(RUN, neighboring_relation="replace_one"),
            ["'replace_one'", "'add_or_remove_one'"],
        ),
    ],
)
def test_another_cost_of_a_run_is_noticed_at_its_first_call(
    other: odp.PrivacyCallback, words: list[str]
) -> None:
    first = odp.PrivacyCallback(RUN)
    study = study_of(untold(9))
    study.optimize(objective, n_trials=1, callbacks=[first])
    with pytest.raises(PlanError, match="worst_case") as caught:
        study.optimize(objective, callbacks=[other])
    assert all(word in str(caught.value) for word in words)
    assert len(study.trials) == 2
    # A run has taken place under each: the first worker stops too, and nothing is released.
    with pytest.raises(PlanError, match="worst_case"):
        study.optimize(objective, callbacks=[first])
    study.optimize(objective)
    with pytest.raises(ReleaseRefusedError, match="worst_case"):
        odp.release(study)


def test_another_cost_stated_after_the_last_run_spoils_nothing() -> None:
    study = study_of(untold(2))
    study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])
    with pytest.raises(PlanError, match="noise of 9"):
        study.optimize(objective, callbacks=[odp.PrivacyCallback(odp.gaussian(9.0))])
    assert odp.release(study, vouched="a test").guarantee.event.run == RUN


def test_an_enqueued_trial_ends_the_next_optimize_too() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(9), run=RUN))
    callback = odp.PrivacyCallback()
    study.optimize(objective, n_trials=2, callbacks=[callback])
    study.enqueue_trial({"x": 0.5})
    with pytest.raises(PlanError, match="enqueued"):
        study.optimize(objective, callbacks=[callback])
    with pytest.raises(ReleaseRefusedError) as caught:
        study.optimize(objective, callbacks=[callback])
    assert caught.value.trial_number == 2
    assert len(study.trials) == 4


def exchanges(study: optuna.Study) -> None:
    study.sampler = optuna.samplers.RandomSampler()


def wraps(study: optuna.Study) -> None:
    study.sampler = optuna.samplers.PartialFixedSampler({"x": 0.3}, study.sampler)


@pytest.mark.promise("another sampler for part of a study")
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize(
    ("change", "runs", "word"),
    [
        (exchanges, 1, "load_study"),
        (exchanges, 2, "load_study"),
        (wraps, 1, "PartialFixedSampler"),
    ],
)
def test_what_release_would_refuse_is_said_after_the_trial_at_fault(
    change: Callable[[optuna.Study], None], runs: int, word: str
) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3), run=RUN))
    callback = odp.PrivacyCallback()
    study.optimize(objective, n_trials=runs, callbacks=[callback])
    change(study)
    with pytest.raises(ReleaseRefusedError, match=word) as caught:
        study.optimize(objective, n_trials=9, callbacks=[callback])
    assert caught.value.trial_number == runs
    assert len(study.trials) == runs + 1
    study.sampler = odp.RandTuneSampler(trials=exactly(3), run=RUN)
    study.optimize(objective)
    with pytest.raises(ReleaseRefusedError, match=word) as caught:
        odp.release(study)
    assert caught.value.trial_number == runs


@pytest.mark.promise("fixed-beforehand")
def test_other_ranges_than_those_of_search_space_are_said_after_the_first_run() -> None:
    space = {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}
    study = study_of(odp.DPHyPOSampler(space, trials=exactly(5), candidates=8, run=RUN))
    with pytest.raises(ReleaseRefusedError, match=r"low=-1\.0") as caught:
        study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    assert caught.value.trial_number == 0
    assert len(study.trials) == 1


def test_bad_arguments() -> None:
    with refuses("run"):
        odp.PrivacyCallback(1.0)
    with refuses("delta"):
        odp.PrivacyCallback(delta=0.0)
    with refuses("neighboring_relation"):
        odp.PrivacyCallback(RUN, neighboring_relation="friends")
    with refuses("output_attributes"):
        odp.PrivacyCallback(RUN, output_attributes="threshold")
    with pytest.raises(UnsupportedEventError) as caught:
        odp.PrivacyCallback(odp.compose(RUN, dp_event.UnsupportedDpEvent()))
    assert caught.value.event == dp_event.UnsupportedDpEvent()
    for said in ({"neighboring_relation": "replace_one"}, {"output_attributes": ["a"]}):
        with refuses(next(iter(said))):
            odp.PrivacyCallback(**said)  # type: ignore[arg-type]


# -- what a reviewer looks for first is asked of the curator before the release -------------------


def messages(caplog: pytest.LogCaptureFixture, **facts: str) -> list[str]:
    study = optuna.create_study(sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=2), run=RUN))
    if facts:
        odp.describe(study, **facts)
    optuna.logging.enable_propagation()
    with caplog.at_level(logging.INFO, logger="optuna.optuna_dp"):
        study.optimize(
            lambda trial: trial.suggest_float("x", 0, 1), callbacks=[odp.PrivacyCallback()]
        )
    optuna.logging.disable_propagation()
    return [text for text in caplog.messages if text.startswith("Before the release")]


def test_a_study_that_is_not_described_is_asked_for_data_owner_and_purpose(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (text,) = set(messages(caplog))
    for name in ("dataset", "owner", "purpose", "unit", "most", "earlier_releases"):
        assert f"{name}=..." in text


def test_a_described_study_is_asked_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    facts = {
        "dataset": "d",
        "owner": "o",
        "purpose": "p",
        "unit": "person",
        "most": 1,
        "earlier_releases": 0,
    }
    assert messages(caplog, **facts) == []
