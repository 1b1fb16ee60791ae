"""A run asks what it may spend, says what it spent, and shows nothing that is not paid for."""

from __future__ import annotations

import copy
import dataclasses
import re
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import NormalDist
from typing import Any

import dp_accounting
import numpy as np
import optuna
import pytest
from budget_support import budget, sampler
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from refusals import refuses
from support import RUN, exactly, logged, recorded, rewrite, study_of

import optuna_dp as odp
from optuna_dp.core.optuna_internals import storage_of
from optuna_dp.errors import InvalidArgumentError, PlanError, ReleaseRefusedError
from optuna_dp.runs import judgement
from optuna_dp.runs.spending import costs_no_more
from optuna_dp.study.entries import JUDGEMENT

PLAN = odp.plan_budget(epsilon=3.0, records=1000, batch_size=64, epochs=5, pilots=3)
ONE_RUN = odp.plan_budget(epsilon=3.0, records=1000, batch_size=64, epochs=5, pilots=0)
CORRECT = np.arange(1000) < 900
FOUR_HUNDRED_PILOTS = odp.plan_budget(
    epsilon=30.0, records=1000, batch_size=64, epochs=1, pilots=400
)


def started(plan: odp.BudgetPlan = ONE_RUN) -> odp.Run:
    """What the first trial of a study with this plan may spend."""
    return odp.start_run(study_of(sampler(plan)).ask())


def trained(run: odp.Run, noise: float = 1.0, steps: float = 1.0) -> Any:
    """What a training costs that has so many times the noise and the steps of the plan."""
    assert run.sample_rate is not None
    return odp.dp_sgd(
        noise_multiplier=noise * run.noise_multiplier,
        sample_rate=run.sample_rate,
        steps=int(steps * run.steps),
    )


def honest(trial: optuna.Trial) -> float:
    run = odp.start_run(trial)
    trial.suggest_float("x", 0.0, 1.0)
    run.spent(recorded(trained(run)))
    return run.score(CORRECT)


def study_with(
    objective: Callable[[optuna.Trial], Any], plan: odp.BudgetPlan = PLAN, **settings: Any
) -> optuna.Study:
    study = study_of(sampler(plan))
    study.optimize(objective, **settings)
    return study


def only_in(number: int, other: Callable[[optuna.Trial], Any]) -> Callable[[optuna.Trial], Any]:
    """An honest objective but for one run."""
    return lambda trial: other(trial) if trial.number == number else honest(trial)


@pytest.mark.slow
def test_the_statement_says_what_was_checked() -> None:
    release = odp.release(study_with(honest, callbacks=[odp.PrivacyCallback()]))
    # Which tests were loaded decides which files there are.
    assert {name: fact for name, fact in release.spending.items() if name != "script"} == {
        "runs": 4,
        "asked": 4,
        "training": {"compared": 4},
        "score": {"compared": 4},
        "preparation": {"as given": 4},
        "prepared": {"word": "as given"},
    }
    statement = release.statement()
    assert re.search(r"\| Training \| compared: .* \(4 of 4 runs with an output\)", statement)
    assert re.search(r"\| Score \| compared: .* \(4 of 4 runs with a score\) \|", statement)
    assert release.to_json()["spending"] == release.spending
    assert odp.verify(release.to_json()).ok


@pytest.mark.promise("own-loop")
def test_an_event_that_the_objective_wrote_is_not_compared() -> None:
    """Nothing recorded it: a training with a fiftieth of the noise would write the same."""

    def writes(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        run.spent(trained(run))
        return run.score(CORRECT)

    study = study_of(sampler(ONE_RUN))
    study.optimize(writes)
    with pytest.raises(ReleaseRefusedError):
        odp.release(study)
    release = odp.release(study, vouched="A colleague has read the code.")
    assert release.spending["training"] == {"not checked": 1}
    assert "A colleague has read the code." in release.statement()


@pytest.mark.promise("own-loop")
def test_what_an_accountant_recorded_is_compared() -> None:
    def with_accountant(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        run.spent(_of_dp_accounting(run))
        return run.score(CORRECT)

    study = study_of(sampler(ONE_RUN))
    study.optimize(with_accountant)
    assert odp.release(study).spending["training"] == {"compared": 1}


@pytest.mark.slow
def test_the_statement_says_whose_hyperparameters_the_last_run_took() -> None:
    release = odp.release(study_with(honest))
    same = [i for i, p in enumerate(release.pilots, start=1) if p["params"] == release.params]
    row = "| What the last run took | its hyperparameters are those of pilot {} (of 3) |"
    assert len(same) == 1
    assert row.format(same[0]) in release.statement()
    study = study_of(sampler(PLAN))
    study.optimize(honest, n_trials=3)
    study.enqueue_trial({"x": 0.123})
    study.optimize(honest)
    assert "its hyperparameters were no pilot's (of 3)" in odp.release(study).statement()


@pytest.mark.promise("all-steps")
@pytest.mark.slow
def test_trainings_that_stopped_early_are_warned_of_and_stand_in_the_statement() -> None:
    def stops(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        run.spent(recorded(trained(run, steps=0.5)))
        return run.score(CORRECT)

    with logged() as lines:
        release = odp.release(study_with(only_in(1, stops)))
    assert sum("fewer steps" in line for line in lines) == 1
    assert "1 of them took fewer steps than planned" in release.statement()
    assert odp.verify(release.to_json()).ok
    assert "fewer steps" not in odp.release(study_with(honest)).statement()


def test_what_is_said_of_spending_is_in_the_digest() -> None:
    shown = odp.release(study_with(honest)).to_json()
    shown["spending"]["training"]["compared"] = 3
    assert not odp.verify(shown).ok


def by_hand(trial: optuna.Trial) -> float:
    run = odp.start_run(trial)
    noise = run.score_noise_multiplier
    assert noise is not None
    return odp.scoring.private_accuracy(CORRECT, size=1000, noise_multiplier=noise)


@pytest.mark.promise("own-loop")
def test_what_is_not_compared_is_warned_of_once_and_vouched_for_or_refused() -> None:
    with logged() as lines:
        study = study_with(by_hand, callbacks=[odp.PrivacyCallback()])
    warnings_of_it = [line for line in lines if "Nothing shows that a run" in line]
    assert len(warnings_of_it) == 1
    assert "run.spent" in warnings_of_it[0]
    with pytest.raises(ReleaseRefusedError):
        odp.release(study)
    release = odp.release(study, vouched="Our own library trains with this noise.")
    assert release.spending["training"] == release.spending["score"] == {"not checked": 4}
    statement = release.statement()
    assert re.search(r"\| Training \| not checked: .* \(4 of 4 runs with an output\)", statement)
    assert "Our own library trains with this noise." in statement
    assert "**This is true only if the curator is right**" in statement
    assert "*Training*, *Score*, *Vouched for by the curator*." in statement
    assert re.search(
        r"\*\*Open for the curator:\*\* \d+ rows not stated \(\*.*Data, .*\*\), "
        r"4 rows not checked \(\*Preparation, Training, Score, Vouched for by the curator",
        statement,
    )
    assert odp.verify(release.to_json()).ok


def scored_by_hand(trial: optuna.Trial) -> float:
    run = odp.start_run(trial)
    run.spent(recorded(trained(run)))
    return by_hand(trial)


@pytest.mark.promise("noisy-score")
def test_a_score_that_the_objective_made_is_vouched_for_or_refused() -> None:
    study = study_with(scored_by_hand)
    with pytest.raises(ReleaseRefusedError):
        odp.release(study)
    release = odp.release(study, vouched="private_accuracy with the noise of the run.")
    assert release.spending["training"] == {"compared": 4}
    assert release.spending["score"] == {"not checked": 4}


def never_asks(trial: optuna.Trial) -> float:
    return trial.suggest_float("x", 0.0, 1.0)


@pytest.mark.promise("the objective never asked `odp.start_run`")
def test_the_callback_stops_a_study_whose_first_run_never_asked() -> None:
    study = study_of(sampler(PLAN))
    with pytest.raises(ReleaseRefusedError, match="start_run") as caught:
        study.optimize(never_asks, callbacks=[odp.PrivacyCallback()])
    assert caught.value.trial_number == 0
    assert len(study.trials) == 1


@pytest.mark.promise("the objective never asked `odp.start_run`")
def test_a_pilot_that_never_asked_is_vouched_for_or_refused() -> None:
    study = study_with(only_in(1, never_asks))
    with pytest.raises(ReleaseRefusedError, match="start_run") as caught:
        odp.release(study)
    assert caught.value.trial_number == 1
    with pytest.raises(ReleaseRefusedError):  # Later runs were made in view of it.
        odp.release(study, give_up_last_run=True)
    release = odp.release(study, vouched="Its noise is set by our own library.")
    assert release.spending["asked"] == 3
    assert "Its noise is set by our own library." in release.statement()


def test_a_last_run_that_never_asked_can_be_given_up(tmp_path: Path) -> None:
    study = study_with(only_in(3, never_asks))
    with pytest.raises(ReleaseRefusedError) as caught:
        odp.release(study)
    assert caught.value.trial_number == 3
    store = optuna.artifacts.FileSystemArtifactStore(str(tmp_path))
    release = odp.release(study, give_up_last_run=True, artifact_store=store)
    assert (release.value, release.artifact) == (None, None)
    assert release.params == study.trials[3].params
    assert "gave up its output" in release.statement()
    assert release.spending["training"] == {"compared": 3}
    with pytest.raises(ReleaseRefusedError):
        odp.release(study, vouched="I looked.")


def test_a_run_that_failed_before_it_asked_shows_nothing() -> None:
    def fails(trial: optuna.Trial) -> float:
        raise RuntimeError

    release = odp.release(study_with(only_in(1, fails), catch=(RuntimeError,)))
    assert release.spending["runs"] == 3


def test_a_note_that_was_copied_from_another_trial_counts_for_nothing() -> None:
    study = study_with(only_in(1, never_asks))
    asked = study.trials[0].system_attrs["optuna_dp:asked"]
    storage: Any = study._storage
    storage._get_trial(study.trials[1]._trial_id).system_attrs["optuna_dp:asked"] = asked
    with pytest.raises(ReleaseRefusedError, match="start_run"):
        odp.release(study)


@pytest.mark.parametrize("vouched", ["", " ", 3])
def test_to_vouch_takes_words(vouched: Any) -> None:
    with refuses("vouched"):
        odp.release(study_with(honest), vouched=vouched)


def test_only_budgets_give_up_a_last_run() -> None:
    study = study_of(odp.RandTuneSampler(trials=odp.Geometric(2), run=RUN))
    study.optimize(never_asks)
    with refuses("give_up_last_run"):
        odp.release(study, vouched="why", give_up_last_run=True)


def test_nobody_vouches_for_a_choice_over_partitions() -> None:
    candidates = [{"x": 0.0}, {"x": 1.0}]
    sampler = odp.NoisyMaxSampler(candidates=candidates, n_partitions=1000, epsilon=1.0)
    study = study_of(sampler)
    study.optimize(lambda t: odp.report_utilities(t, [t.suggest_float("x", 0, 1)] * 1000))
    with refuses("vouched"):
        odp.release(study, vouched="why")


# -- what was spent ---------------------------------------------------------------------------


def spends(**more: float) -> Callable[[optuna.Trial], float]:
    def objective(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        run.spent(recorded(trained(run, **more)))
        return run.score(CORRECT)

    return objective


@pytest.mark.promise("own-loop")
@pytest.mark.parametrize("more", [{"noise": 0.99}, {"steps": 1.1}])
def test_a_run_that_spent_too_much_ends_there(more: dict[str, float]) -> None:
    study = study_of(sampler(PLAN))
    with pytest.raises(PlanError):
        study.optimize(spends(**more))


@pytest.mark.parametrize("more", [{"noise": 1.01}, {"steps": 0.5}, {"noise": 0.97, "steps": 0.4}])
def test_a_run_may_spend_less(more: dict[str, float]) -> None:
    assert odp.release(study_with(spends(**more))).spending["training"] == {"compared": 4}


def hides(trial: optuna.Trial) -> float:
    run = odp.start_run(trial)
    with pytest.raises(PlanError):
        run.spent(recorded(trained(run, noise=0.9)))
    return run.score(CORRECT)


def test_release_refuses_what_an_objective_did_not_mind() -> None:
    study = study_with(only_in(2, hides))
    for way in ({}, {"vouched": "It is fine."}, {"give_up_last_run": True}):
        with pytest.raises(ReleaseRefusedError) as caught:
            odp.release(study, **way)
        assert caught.value.trial_number == 2
    last = study_with(only_in(3, hides))
    with pytest.raises(ReleaseRefusedError) as caught:
        odp.release(last, vouched="It is fine.")
    assert caught.value.trial_number == 3
    assert odp.release(last, give_up_last_run=True).value is None


class _WithAnEvent:
    def __init__(self, event: Any) -> None:
        self.dp_event = event


class _Opacus:
    """What Opacus' engines have."""

    def __init__(self, run: odp.Run) -> None:
        self.accountant = self
        self.history = [(run.noise_multiplier, run.sample_rate, run.steps)]


def _of_dp_accounting(run: odp.Run) -> Any:
    assert run.sample_rate is not None
    step = dp_accounting.PoissonSampledDpEvent(
        run.sample_rate, dp_accounting.GaussianDpEvent(run.noise_multiplier)
    )
    return RdpAccountant().compose(step, run.steps)


@pytest.mark.promise("other-library")
@pytest.mark.parametrize(
    "says", [trained, _of_dp_accounting, _Opacus, lambda run: _WithAnEvent(trained(run))]
)
def test_accountants_that_are_understood(says: Callable[[odp.Run], Any]) -> None:
    run = started()
    run.spent(says(run))
    run = started()
    half = says(run)
    with pytest.raises(PlanError):
        run.spent(half, half)


@pytest.mark.parametrize("what", [None, 3.0, "all", object()])
def test_anything_else_is_no_account(what: Any) -> None:
    with refuses("what"):
        started().spent(what)


def _accountant_without_a_step(run: odp.Run) -> Any:
    return RdpAccountant()


def _engine_without_a_step(run: odp.Run) -> Any:
    engine = _Opacus(run)
    engine.history = []
    return engine


@pytest.mark.parametrize(
    "says",
    [
        _accountant_without_a_step,
        _engine_without_a_step,
        lambda run: dp_event.NoOpDpEvent(),
        lambda run: dp_event.ComposedDpEvent([dp_event.NoOpDpEvent()]),
        lambda run: dp_event.SelfComposedDpEvent(trained(run), 0),
    ],
)
def test_an_accountant_that_recorded_nothing_is_no_account(
    says: Callable[[odp.Run], Any],
) -> None:
    run = started()
    with pytest.raises(InvalidArgumentError):
        run.spent(says(run))


def test_to_compare_the_plan_with_itself_shows_nothing() -> None:
    run = started()
    for what in (run.training, run.event):
        with refuses("what"):
            run.spent(what)


@pytest.mark.promise("own-loop")
def test_a_training_that_goes_on_after_it_was_recorded_is_refused() -> None:
    def goes_on(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        engine = _Opacus(run)
        engine.history = [(run.noise_multiplier, run.sample_rate, run.steps // 2)]
        run.spent(engine)
        engine.history.append((run.noise_multiplier, run.sample_rate, run.steps))
        return run.score(CORRECT)

    study = study_of(sampler(ONE_RUN))
    with pytest.raises(PlanError):
        study.optimize(goes_on)
    assert study.trials[0].values is not None  # Optuna stores it all the same.
    for way in ({}, {"vouched": "It is fine."}):
        with pytest.raises(ReleaseRefusedError):
            odp.release(study, **way)
    assert odp.release(study, give_up_last_run=True).value is None


def test_numbers_of_a_plan_cannot_score_or_spend() -> None:
    for run in (PLAN.pilot, PLAN.final):
        with pytest.raises(PlanError):
            run.score(CORRECT)
        with pytest.raises(PlanError):
            run.spent(recorded(trained(run)))


def test_a_run_whose_numbers_were_changed_is_not_released() -> None:
    def changes(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        run.spent(recorded(trained(run)))
        return dataclasses.replace(run, score_noise_multiplier=0.1).score(CORRECT)

    study = study_of(sampler(ONE_RUN))
    study.optimize(changes)
    with pytest.raises(ReleaseRefusedError, match=r"\b0\.1\b"):
        odp.release(study)


def test_a_run_of_an_earlier_trial_cannot_score_or_spend() -> None:
    runs: list[odp.Run] = []

    def keeps_the_first(trial: optuna.Trial) -> float:
        runs.append(odp.start_run(trial))
        runs[0].spent(recorded(trained(runs[0])))
        return runs[0].score(CORRECT)

    with pytest.raises(PlanError, match="ended"):
        study_with(keeps_the_first)


def test_spending_is_told_once() -> None:
    def twice(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        run.spent(recorded(trained(run)))
        run.spent(recorded(trained(run)))
        return 0.0

    with pytest.raises(PlanError, match="twice"):
        study_with(twice)


@pytest.mark.slow
@pytest.mark.parametrize("score", ["training", "disjoint", None])
def test_the_training_is_what_the_plan_says_of_it(score: str | None) -> None:
    plan = odp.plan_budget(
        epsilon=3.0, records=1000, batch_size=64, epochs=5, pilots=2, score=score
    )
    for run in (plan.pilot, plan.final):
        assert run.training == trained(run)


def test_a_plan_of_a_function_knows_its_training() -> None:
    assert budget(2).final.training == odp.gaussian(2.0)
    with pytest.raises(PlanError):
        started(budget()).spent(recorded(odp.gaussian(1.9)))


# -- scores -----------------------------------------------------------------------------------


@pytest.mark.promise("noisy-score")
@pytest.mark.slow
def test_a_score_has_the_noise_that_is_paid_for() -> None:
    study = study_of(sampler(FOUR_HUNDRED_PILOTS))
    runs = [odp.start_run(study.ask()) for _ in range(400)]
    run = runs[0]
    assert run.score_noise_multiplier is not None
    scores = [run.score(CORRECT) for run in runs]
    # The mean of 400 lies within 5.5 of its standard errors, but once in ten million times; their
    # spread is off by a fifth as seldom.
    spread = run.score_noise_multiplier / 2000
    assert abs(np.mean(scores) - 0.9) < 5.5 * spread / 20
    assert 0.8 < np.std(scores) / spread < 1.2


@pytest.mark.promise("noisy-score")
def test_a_run_has_one_score() -> None:
    def twice(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        return max(run.score(CORRECT), odp.start_run(trial).score(CORRECT))

    with pytest.raises(PlanError):
        study_with(twice)


def test_of_many_threads_one_gets_a_score_at_most() -> None:
    """Of four that ask at once; when two claim at the same moment, neither gets it."""
    run = started()

    def score(_: int) -> bool:
        try:
            run.score(CORRECT)
        except PlanError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(score, range(8))) <= 1


def test_a_record_with_several_values_counts_once() -> None:
    """Twenty tokens of each record are right; the noise of the score is that of 1,000 records."""
    tokens = np.broadcast_to(CORRECT[:, None, None], (1000, 5, 4))
    assert abs(started().score(tokens) - 0.9) < 1.0
    for size, argument in ((20_000, "size"), (None, "correct")):
        with refuses(argument):
            started().score(tokens.reshape(-1), size=size)


@pytest.mark.slow
def test_what_is_scored_on_other_records_is_vouched_for_in_the_statement() -> None:
    def scores_a_tenth(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        run.spent(recorded(trained(run)))
        return run.score(CORRECT[:100], vouched="The other records have no label.")

    release = odp.release(study_with(scores_a_tenth, ONE_RUN))
    assert release.spending["score"] == {"not checked": 1}
    assert "The other records have no label." in release.statement()
    assert odp.verify(release.to_json()).ok


def test_a_run_that_returns_another_number_than_its_score_is_not_counted() -> None:
    def exact(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        run.spent(recorded(trained(run)))
        run.score(CORRECT)
        return 0.9

    study = study_with(only_in(1, exact))
    with pytest.raises(ReleaseRefusedError) as caught:
        odp.release(study)
    assert caught.value.trial_number == 1


def test_public_scores_are_exact_and_unpaid_ones_are_not_computed() -> None:
    public = odp.plan_budget(
        epsilon=3.0, records=1000, batch_size=64, epochs=5, pilots=2, score=None
    )
    assert public.final.score(CORRECT) == 0.9
    unpaid = odp.plan_budget(
        epsilon=3.0, records=1000, batch_size=64, epochs=5, pilots=0, score_final=False
    )
    assert unpaid.final.score(CORRECT) == 0.0


def test_a_last_run_without_a_score_may_return_none() -> None:
    unpaid = odp.plan_budget(
        epsilon=3.0, records=1000, batch_size=64, epochs=5, pilots=0, score_final=False
    )

    def scoreless(trial: optuna.Trial) -> None:
        run = odp.start_run(trial)
        run.spent(recorded(trained(run)))

    release = odp.release(study_with(scoreless, unpaid))
    assert release.value is None
    assert release.spending["training"] == {"compared": 1}


def test_scores_on_other_records_need_their_public_number() -> None:
    plan = odp.plan_budget(
        epsilon=3.0, records=1000, batch_size=64, epochs=5, pilots=0, score="disjoint"
    )
    run = started(plan)
    with refuses("size"):
        run.score(CORRECT[:200])
    assert abs(run.score(np.ones(200, dtype=bool), size=200) - 1.0) < 1.0


@pytest.mark.parametrize("scored", [1000, 850, 1200])
def test_a_score_on_about_the_planned_records_is_computed(scored: int) -> None:
    assert abs(started().score(np.ones(scored, dtype=bool)) - scored / 1000) < 1.0


@pytest.mark.parametrize(
    ("scored", "size", "argument"),
    [
        (250, None, "correct"),
        (1500, None, "correct"),
        (250, 250, "size"),
        (20, 1000, "correct"),
    ],
)
def test_a_score_on_far_other_records_than_planned_for_is_refused(
    scored: int, size: int | None, argument: str
) -> None:
    with refuses(argument):
        started().score(np.ones(scored, dtype=bool), size=size)


# -- a run is judged once, when its trial ends ---------------------------------------------------


def loaded(study: optuna.Study, plan: odp.BudgetPlan | None = None) -> optuna.Study:
    """The same study, as another process loads it: with a sampler of this plan, or without."""
    return optuna.load_study(
        study_name=study.study_name,
        storage=storage_of(study),
        sampler=None if plan is None else sampler(plan),
    )


def test_a_release_reads_what_was_judged_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_with(honest, n_jobs=2)
    storage = optuna.storages.InMemoryStorage()
    optuna.copy_study(
        from_study_name=study.study_name,
        from_storage=storage_of(study),
        to_storage=storage,
        to_study_name="copy",
    )

    def refuse(*arguments: Any) -> None:
        raise AssertionError("judged once more")

    monkeypatch.setattr(judgement, "judge", refuse)
    copy = optuna.load_study(study_name="copy", storage=storage)
    for each in (study, copy):
        assert odp.release(each).spending["training"] == {"compared": 4}


@pytest.mark.parametrize("damaged", [None, 3, {"training": "enforced"}])
def test_a_run_whose_judgement_is_damaged_is_judged_by_what_its_trial_holds(damaged: Any) -> None:
    study = study_with(honest)
    entry = JUDGEMENT.of(study.trials[0])
    rewrite(study, 0, JUDGEMENT.key, {**entry, "judgement": damaged})
    assert odp.release(study).spending["training"] == {"compared": 4}


def test_a_result_that_was_told_without_the_sampler_is_not_compared() -> None:
    study = study_of(sampler(ONE_RUN))
    trial = study.ask()
    loaded(study).tell(trial, honest(trial))
    with pytest.raises(ReleaseRefusedError) as caught:
        odp.release(study)
    assert caught.value.trial_number == 0
    spending = odp.release(study, vouched="I have read the code.").spending
    assert spending["training"] == {"not checked": 1}


def test_a_run_may_hold_objects_in_memory_that_nothing_can_write_down() -> None:
    class Model:
        def __repr__(self) -> str:
            raise RuntimeError("it is not there any more")

    def keeps(trial: Any) -> float:
        trial.set_user_attr("model", Model())
        trial.set_user_attr(1, "a name that is a number")
        return honest(trial)

    assert odp.release(study_with(keeps)).spending["training"] == {"compared": 4}


@pytest.mark.promise("a worker is killed")
def test_a_worker_that_dies_between_judging_and_ending_leaves_no_judgement() -> None:
    study = study_of(sampler(ONE_RUN))
    trial = study.ask()
    score = honest(trial)
    complete = optuna.trial.TrialState.COMPLETE
    # It dies before Optuna stores the result.
    study.sampler.after_trial(study, study.trials[0], complete, [score])
    told, failed = copy.deepcopy(study), copy.deepcopy(study)
    loaded(told).tell(trial.number, score + 0.25)
    with pytest.raises(ReleaseRefusedError):
        odp.release(told)
    assert odp.release(told, vouched="a test").spending["score"] == {"not checked": 1}
    odp.recover(failed, fail=[0])
    assert odp.release(failed).spending["runs"] == 0


def test_a_run_is_judged_by_the_plan_of_its_study_whoever_ends_it() -> None:
    """Where scores are public, a run may report them."""
    public = odp.plan_budget(
        epsilon=3.0, records=1000, batch_size=64, epochs=5, pilots=0, score=None
    )
    study = study_of(sampler(ONE_RUN))
    trial = study.ask()
    loaded(study, public).tell(trial, reports(trial))
    with pytest.raises(ReleaseRefusedError, match=r"trial\.report"):
        odp.release(study)


# -- what else a run shows ---------------------------------------------------------------------


def reports(trial: optuna.Trial) -> float:
    trial.report(0.875, 1)
    return honest(trial)


@pytest.mark.promise("noisy-score")
def test_values_that_are_reported_and_not_paid_for() -> None:
    with pytest.raises(ReleaseRefusedError, match=r"trial\.report"):
        odp.release(study_with(reports))
    study = study_of(sampler(PLAN))
    with pytest.raises(ReleaseRefusedError, match=r"trial\.report"):
        study.optimize(reports, callbacks=[odp.PrivacyCallback()])
    # Public records cost nothing, and a plan of a function may include what is reported.
    public = odp.plan_budget(
        epsilon=3.0, records=1000, batch_size=64, epochs=5, pilots=2, score=None
    )
    assert odp.release(study_with(reports, public)).value == 0.9


def test_what_a_run_shows_too_much_is_said_before_the_second_run() -> None:
    study = study_of(sampler(PLAN))
    with logged() as lines:
        study.optimize(reports, n_trials=1)
        assert len(lines) == 1
        study.optimize(reports, n_trials=2)
    assert len(lines) == 1
    assert "trial.report" in lines[0]


@pytest.mark.parametrize("callbacks", [[odp.PrivacyCallback()], []], ids=["callback", "none"])
def test_attributes_that_the_sampler_names_are_released_if_somebody_vouches_for_them(
    callbacks: Any,
) -> None:
    """A plan of numbers charges for a training and a score: a threshold may be made of these."""

    def notes(trial: optuna.Trial) -> float:
        trial.set_user_attr("threshold", 0.875)
        return honest(trial)

    study = study_of(sampler(PLAN, output_attributes=["threshold"]))
    with logged() as lines:
        study.optimize(notes, callbacks=callbacks)
    assert sum("'threshold'" in line for line in lines) == 1
    with pytest.raises(ReleaseRefusedError):
        odp.release(study)
    release = odp.release(study, vouched="computed from the noisy model")
    assert release.attributes["threshold"] == 0.875
    assert "computed from the noisy model" in release.statement()
    assert "did everything itself" not in release.statement()


@pytest.mark.parametrize(
    ("text", "is_asked"),
    [('{"positives": 450}', True), ("accuracy 0.84", True), ("resnet18", False)],
)
def test_a_report_that_was_made_a_text_is_asked_about(text: str, is_asked: bool) -> None:
    def notes(trial: optuna.Trial) -> float:
        trial.set_user_attr("report", text)
        return honest(trial)

    study = study_of(sampler(PLAN, output_attributes=["report"]))
    study.optimize(notes)
    if is_asked:
        with pytest.raises(ReleaseRefusedError):
            odp.release(study)
    else:
        assert odp.release(study).attributes["report"] == text


def test_a_warning_of_secretly_many_runs_comes_once_whatever_the_attributes() -> None:
    run = odp.RunPlan(
        records=1000, batch_size=64, steps=10, noise_multiplier=1.0, score_noise_multiplier=4.0
    )
    study = study_of(odp.RandTuneSampler(trials=exactly(4), run=run))

    def notes(trial: optuna.Trial) -> float:
        trial.set_user_attr(f"exact {trial.number}", 0.875)
        return honest(trial)

    with logged() as lines:
        study.optimize(notes)
    assert sum("will refuse" in line for line in lines) == 1


@pytest.mark.parametrize("step", [0, 1, "all"])
def test_the_returned_score_may_be_reported_and_noted(step: Any) -> None:
    def shows_its_score(trial: optuna.Trial) -> float:
        score = honest(trial)
        trial.report(score, odp.start_run(trial).steps if step == "all" else step)
        trial.set_user_attr("score", score)
        return score

    study = study_of(sampler(PLAN))
    study.optimize(shows_its_score, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    assert release.value == study.trials[-1].value
    assert "score" not in release.attributes


def shows(what: str) -> Callable[[optuna.Trial], Any]:
    """An objective that shows its score in a way that tells more than the score does."""

    def objective(trial: optuna.Trial) -> Any:
        score = honest(trial)
        match what:
            case "a rounded report":
                trial.report(round(score, 3), 0)
            case "the next float":
                trial.report(float(np.nextafter(score, 2.0)), 0)
            case "another step":
                trial.report(score, 17)
            case "two reports":
                trial.report(score, 0)
                trial.report(score, 1)
            case "single precision":
                trial.set_user_attr("score", np.float32(score))
            case "several":
                trial.set_user_attr("score", [score, 1.0 - score])
            case "a pruned run":
                trial.report(score, 0)
                raise optuna.TrialPruned
            case "a failed run":
                trial.set_user_attr("score", score)
                return None
            case "a score that was made elsewhere":
                trial.report(0.5, 0)
                return 0.5
        return score

    return objective


@pytest.mark.parametrize(
    "what",
    [
        "a rounded report",
        "the next float",
        "another step",
        "two reports",
        "single precision",
        "several",
        "a pruned run",
        "a failed run",
        "a score that was made elsewhere",
    ],
)
def test_more_than_the_returned_score_is_refused_at_once(what: str) -> None:
    study = study_of(sampler(PLAN))
    refused = r"trial\.report|'score'"
    with pytest.raises(ReleaseRefusedError, match=refused):
        study.optimize(shows(what), callbacks=[odp.PrivacyCallback()])
    assert len(study.trials) == 1
    with pytest.raises(ReleaseRefusedError, match=refused):
        odp.release(study_with(shows(what), ONE_RUN))


@pytest.mark.promise("noisy-score")
@pytest.mark.parametrize("value", [0.875, {"accuracy": [0.875]}, True])
def test_numbers_in_attributes_that_nothing_pays_for(value: Any) -> None:
    def notes(trial: optuna.Trial) -> float:
        trial.set_user_attr("exact", value)
        trial.set_user_attr("model", "model.pt")
        return honest(trial)

    with pytest.raises(ReleaseRefusedError):
        odp.release(study_with(notes))
    vouched = odp.release(study_with(notes), vouched="It is made of public records.")
    assert "exact" not in vouched.attributes


# -- a person's mistakes -----------------------------------------------------------------------


def test_a_delta_that_would_allow_publishing_a_record() -> None:
    with pytest.warns(UserWarning, match="delta"):
        odp.plan_budget(epsilon=3.0, delta=0.002, records=569, batch_size=64, epochs=5, pilots=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        odp.plan_budget(epsilon=3.0, delta=0.001, records=569, batch_size=64, epochs=5, pilots=0)


def test_a_description_that_contradicts_the_plan() -> None:
    study = study_with(honest)
    with refuses("records"):
        odp.describe(study, records=20)
    odp.describe(study, records=1000)
    assert "1,000 records" in odp.release(study).statement()


def test_a_description_that_came_before_the_plan() -> None:
    study = study_of(sampler(PLAN))
    odp.describe(study, records=20)
    study.optimize(honest)
    with pytest.raises(ReleaseRefusedError):
        odp.release(study)
    odp.describe(study, records=1000)
    assert odp.release(study).value is not None


def test_nothing_is_granted_after_the_end() -> None:
    study = study_with(honest)
    ended = optuna.trial.Trial(study, study.trials[0]._trial_id)
    with pytest.raises(PlanError):
        odp.start_run(ended)


# -- what a reader of the statement learns -----------------------------------------------------


def test_a_statement_says_how_often_a_record_is_detected() -> None:
    """By a test of two normal distributions, which the plan of one noisy answer is."""
    plan = odp.plan_budget(epsilon=1.0, run=lambda noise, steps: odp.gaussian(noise), steps=1,
                           pilots=0, score=None)  # fmt: skip

    def answers(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        run.spent(recorded(odp.gaussian(run.noise_multiplier)))
        return 0.5

    statement = odp.release(study_with(answers, plan)).statement()
    mu = 1 / plan.final.noise_multiplier
    most = 100 * NormalDist().cdf(NormalDist().inv_cdf(0.05) + mu)
    found = re.search(r"detects a present one in at most ([\d.]+) % of cases", statement)
    assert found is not None
    assert most <= float(found[1]) <= most + 0.15
    assert "Sampling as performed" not in statement  # No batch is drawn.


def test_who_has_several_records_reads_it_at_the_top() -> None:
    study = study_with(honest)
    odp.describe(study, records=1000, unit="patient", most=3)
    statement = odp.release(study).statement()
    words = " ".join(statement.split())
    for_each = (
        r"epsilon = \S+ and delta = 1e-05 for each patient\*\* with up to 3 records, and with"
    )
    assert re.search(
        rf"differentially private with {for_each} epsilon = \S+ for a patient with one record",
        words,
    )
    assert "times the number of records that is 0.01" in statement


@pytest.mark.slow
def test_an_event_that_costs_less_at_small_deltas_and_more_at_large_ones_costs_more() -> None:
    """Laplace noise of 0.75 has a smaller epsilon than a Gaussian at every delta up to 0.1.

    A hundred of them cost more than a hundred Gaussians at deltas of 1e-6 and more.
    """
    laplace, gaussian = dp_event.LaplaceDpEvent(0.75), dp_event.GaussianDpEvent(1.0)

    def epsilon(event: Any, count: int, delta: float) -> float:
        return odp.Guarantee(dp_event.SelfComposedDpEvent(event, count)).epsilon(delta)

    for delta in (0.1, 1e-3, 1e-6, 1e-12):
        assert epsilon(laplace, 1, delta) < epsilon(gaussian, 1, delta)
    for delta in (0.1, 1e-3, 1e-6):
        assert epsilon(laplace, 100, delta) > epsilon(gaussian, 100, delta)
    assert not costs_no_more(laplace, gaussian, "add_or_remove_one")
    assert costs_no_more(dp_event.LaplaceDpEvent(1.5), gaussian, "add_or_remove_one")


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_the_same_cost_in_other_words_costs_no_more(relation: str) -> None:
    gaussian = dp_event.GaussianDpEvent(1.0)
    hundred = dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(10.0), 100)
    assert costs_no_more(hundred, gaussian, relation)
    assert costs_no_more(gaussian, hundred, relation)
    one_more = dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(10.0), 101)
    assert not costs_no_more(one_more, gaussian, relation)


@pytest.mark.slow
def test_a_pair_that_is_made_of_a_renyi_curve_says_nothing_about_sums_of_curves() -> None:
    """What the pair of one zCDP run dominates may cost more, a hundred times, than its curves."""
    allowed, laplace = odp.zcdp(0.01), odp.laplace(6.0)
    hundred = [odp.compose(*[event] * 100) for event in (laplace, allowed)]
    single = [odp.Guarantee(event).epsilon(1e-5) for event in (laplace, allowed)]
    whole = [odp.Guarantee(event).epsilon(1e-5) for event in hundred]
    assert single[0] < single[1]
    assert whole[0] > whole[1]
    assert not costs_no_more(laplace, allowed, "add_or_remove_one")
    assert costs_no_more(odp.zcdp(0.009), allowed, "add_or_remove_one")
    assert costs_no_more(odp.gaussian(7.1), allowed, "add_or_remove_one")  # rho 0.00992
    assert not costs_no_more(odp.gaussian(7.0), allowed, "add_or_remove_one")  # rho 0.0102


def test_of_parts_with_and_without_a_curve_none_may_be_exchanged() -> None:
    gaussian, curve = odp.gaussian(10.0), odp.zcdp(0.01)
    allowed = odp.compose(gaussian, curve, curve)
    assert costs_no_more(odp.compose(curve, gaussian), allowed, "add_or_remove_one")
    assert not costs_no_more(odp.compose(gaussian, gaussian), allowed, "add_or_remove_one")
