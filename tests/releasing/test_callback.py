"""The callback: what it records and says, the stop, and that T does not show."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import optuna
import pytest
from dp_accounting import dp_event
from support import RUN, exactly, logged, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import (
    InvalidArgumentError,
    PlanError,
    ReleaseRefusedError,
    UnsupportedEventError,
)


def test_the_guarantee_that_is_logged_is_the_accountants_and_does_not_depend_on_progress() -> None:
    law = odp.Geometric(mean=5)
    study = study_of(odp.RandTuneSampler(trials=law))
    with logged() as lines:
        study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN, delta=1e-6)])
    expected = f"epsilon {odp.selection_guarantee(RUN, law).epsilon(1e-6):.3f} at delta 1e-06"
    said = [line for line in lines if "The release is guaranteed" in line]
    assert len(said) == len(study.trials)
    assert all(expected in line for line in said)
    assert [line for line in said if "The last run has ended" in line] == said[-1:]


def test_it_writes_what_a_run_costs_once() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(9)))
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


def test_the_record_is_plain_json_and_no_user_attribute() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(2)))
    study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])
    attrs = study._storage.get_study_system_attrs(study._study_id)
    assert len(attrs) == 1
    json.dumps(attrs, allow_nan=False)
    assert study.user_attrs == {}
    assert all(t.user_attrs == {} for t in study.trials)


def test_an_infinite_guarantee_is_said_to_be_one() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(2)))
    with logged() as lines:
        study.optimize(objective, callbacks=[odp.PrivacyCallback(odp.approximate_dp(1.0, 1e-3))])
    assert any("no finite epsilon" in line for line in lines)


def test_progress_tells_t_at_the_curators_own_level_only() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(13)))
    with logged() as lines:
        study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])
    shown = [line for line in lines if not line.startswith("DEBUG")]
    assert len(shown) == 2, "lines can be counted"
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
        patch.setattr(
            "optuna_dp.protocol.slots.SlotSampler.stop", staticmethod(lambda study: None)
        )
        study.optimize(objective, n_trials=50, callbacks=[callback])
    assert len(study.trials) == 5


def test_a_study_of_another_sampler_is_refused() -> None:
    study = optuna.create_study(direction="maximize")
    with pytest.raises(PlanError, match="a sampler of optuna-dp"):
        study.optimize(objective, n_trials=1, callbacks=[odp.PrivacyCallback(RUN)])


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (odp.PrivacyCallback(odp.gaussian(9.0)), ["Gaussian noise of 9", "Gaussian noise of 4"]),
        (odp.PrivacyCallback(odp.gaussian(4.0 + 1e-9)), ["4.000000001", "noise_multiplier=4.0"]),
        (
            odp.PrivacyCallback(RUN, neighboring_relation="replace_one"),
            ["'replace_one' here and 'add_or_remove_one'"],
        ),
        (odp.PrivacyCallback(RUN, output_attributes=["a"]), ["('a',) here and ()"]),
    ],
)
def test_another_cost_of_a_run_is_noticed_at_its_first_call(
    other: odp.PrivacyCallback, words: list[str]
) -> None:
    first = odp.PrivacyCallback(RUN)
    study = study_of(odp.RandTuneSampler(trials=exactly(9)))
    study.optimize(objective, n_trials=1, callbacks=[first])
    with pytest.raises(PlanError, match=r"another cost of a run.*worst_case") as caught:
        study.optimize(objective, callbacks=[other])
    assert all(word in str(caught.value) for word in words)
    assert len(study.trials) == 2
    # A run has taken place under each: the first worker stops too, and nothing is released.
    with pytest.raises(PlanError, match="another cost of a run"):
        study.optimize(objective, callbacks=[first])
    study.optimize(objective)
    with pytest.raises(ReleaseRefusedError, match="different costs"):
        odp.release(study)


def test_another_cost_stated_after_the_last_run_spoils_nothing() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(2)))
    study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])
    with pytest.raises(PlanError, match="another cost of a run"):
        study.optimize(objective, callbacks=[odp.PrivacyCallback(odp.gaussian(9.0))])
    assert odp.release(study).guarantee.event.run == RUN


def test_an_enqueued_trial_ends_the_next_optimize_too() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(9)))
    callback = odp.PrivacyCallback(RUN)
    study.optimize(objective, n_trials=2, callbacks=[callback])
    study.enqueue_trial({"x": 0.5})
    with pytest.raises(PlanError, match="enqueued"):
        study.optimize(objective, callbacks=[callback])
    with pytest.raises(ReleaseRefusedError, match="enqueued") as caught:
        study.optimize(objective, callbacks=[callback])
    assert caught.value.trial_number == 2
    assert len(study.trials) == 4


def exchanges(study: optuna.Study) -> None:
    study.sampler = optuna.samplers.RandomSampler()


def wraps(study: optuna.Study) -> None:
    study.sampler = optuna.samplers.PartialFixedSampler({"x": 0.3}, study.sampler)


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize(
    ("change", "runs", "words"),
    [
        (exchanges, 1, "another sampler"),
        (exchanges, 2, "another sampler"),
        (wraps, 1, "PartialFixedSampler"),
    ],
)
def test_what_release_would_refuse_is_said_after_the_trial_at_fault(
    change: Callable[[optuna.Study], None], runs: int, words: str
) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3)))
    callback = odp.PrivacyCallback(RUN)
    study.optimize(objective, n_trials=runs, callbacks=[callback])
    change(study)
    with pytest.raises(ReleaseRefusedError, match=words) as caught:
        study.optimize(objective, n_trials=9, callbacks=[callback])
    assert caught.value.trial_number == runs
    assert len(study.trials) == runs + 1
    study.sampler = odp.RandTuneSampler(trials=exactly(3))
    study.optimize(objective)
    with pytest.raises(ReleaseRefusedError, match=words):
        odp.release(study)


def test_other_ranges_than_those_of_search_space_are_said_after_the_first_run() -> None:
    space = {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}
    study = study_of(odp.DPHyPOSampler(space, trials=exactly(5), candidates=8))
    with pytest.raises(ReleaseRefusedError, match="but the sampler drew it from"):
        study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])
    assert len(study.trials) == 1


def test_a_composition_is_the_same_cost_when_it_is_read_again() -> None:
    """dp-accounting's composed events may hold tuples, and JSON knows lists only."""
    run = dp_event.ComposedDpEvent((odp.gaussian(4.0), odp.gaussian(9)))
    study = study_of(odp.RandTuneSampler(trials=exactly(3)))
    study.optimize(objective, callbacks=[odp.PrivacyCallback(run)])
    assert odp.release(study, run) == odp.release(study)


def test_bad_arguments() -> None:
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
