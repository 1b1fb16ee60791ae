"""What a statement leaves to a person: said as promises, and asked as questions."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import optuna
import pytest
from refusals import refuses
from releasing.forgery import made_again
from releasing.small_studies import (
    DISJOINT,
    PLAN,
    RUN,
    STEP,
    STEPS_OF_DP_SGD,
    TRAINED,
    compares,
    released,
    shows_nothing,
    trains,
)
from samplers.budget.budget_support import budget, finished
from support import logged, study_of
from typer.testing import CliRunner

import optuna_dp as odp
from optuna_dp.accounting.groups import group_epsilon
from optuna_dp.cli.application import app
from optuna_dp.errors import ReleaseRefusedError


@pytest.fixture(scope="module")
def enforced() -> odp.Release:
    return released(trains, described=400)


@pytest.fixture(scope="module")
def disjoint() -> odp.Release:
    return released(trains, DISJOINT, described=500)


def assumptions_of(release: odp.Release) -> list[str]:
    return [promise["text"] for promise in release.to_json()["statement"]["assumptions"]]


# -- by what a run is held -----------------------------------------------------------------------


@pytest.mark.slow
def test_where_the_number_of_runs_is_secret_no_promise_counts_them() -> None:
    study = study_of(odp.RandTuneSampler(trials=odp.Geometric(3), run=odp.RunPlan(**RUN)))
    study.optimize(trains)
    said = odp.release(study).to_json()["statement"]
    for words in [
        fact["value"] for fact in said["facts"] if fact["name"] in ("Training", "Score")
    ]:
        assert words.startswith("enforced")
        assert not any(map(str.isdigit, words))


def test_a_run_that_was_ended_is_charged_for_and_no_run_with_an_output() -> None:
    def dies_once(trial: optuna.Trial) -> float:
        if trial.number == 1:
            raise RuntimeError("killed")
        return trains(trial)

    study = study_of(odp.BudgetSampler(PLAN))
    study.optimize(dies_once, catch=(RuntimeError,))
    release = odp.release(study)
    page = release.statement()
    assert "| planned: 3. 2 gave an output, and 1 gave none (failed, ended early" in page
    assert "(2 of 2 runs with an output)" in page
    assert "(2 of 2 runs with a score)" in page
    assert odp.verify(release.to_json()).ok


# -- which promises there are --------------------------------------------------------------------


@pytest.mark.slow
def test_public_settings_are_promised_and_asked_for_where_other_code_trained(
    enforced: odp.Release,
) -> None:
    begins = "If code other than odp.train trained"
    assert not any(text.startswith(begins) for text in assumptions_of(enforced))
    for release in (released(compares), released(shows_nothing, vouched="It is known.")):
        assert any(text.startswith(begins) for text in assumptions_of(release))
        assert f"{begins}: every bound, norm" in odp.verify(release.to_json()).questions
    trained = enforced.with_training(odp.pure_dp(0.1))
    assert any("code of the final training" in text for text in assumptions_of(trained))
    found = odp.verify(trained.to_json())
    assert found.ok
    assert "code of the final training" in found.questions


@pytest.mark.slow
def test_how_records_were_sampled_is_asked_where_a_sample_is_drawn_or_somebody_says_it() -> None:
    row = "| Sampling as performed |"
    for run, is_asked in ((odp.pure_dp(0.1), False), (odp.dp_sgd(**STEPS_OF_DP_SGD), True)):
        study = study_of(odp.RandTuneSampler(trials=odp.Binomial(1, mean=1), run=run))
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
        release = odp.release(study, vouched="a test")
        assert (row in release.statement()) is is_asked
        assert ("How were the batches" in odp.verify(release.to_json()).questions) is is_asked
    run = odp.pure_dp(0.1)
    described = study_of(odp.RandTuneSampler(trials=odp.Binomial(1, mean=1), run=run))
    odp.describe(described, sampling="all records in each round")
    described.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    page = odp.release(described, vouched="a test").statement()
    assert f"{row} vouched for: all records in each round |" in page


def names_numbers(release: odp.Release) -> bool:
    return any("numbers of records" in text for text in assumptions_of(release))


def test_that_the_number_of_records_is_public_is_a_promise_where_the_plan_has_one(
    enforced: odp.Release,
) -> None:
    assert names_numbers(enforced)
    of_an_event = odp.release(finished())  # Its plan names no records, but scores have a divisor.
    assert not names_numbers(of_an_event)
    assert any("are divided by is public" in text for text in assumptions_of(of_an_event))
    study = study_of(odp.RandTuneSampler(trials=odp.Geometric(3), run=odp.RunPlan(**RUN)))
    study.optimize(trains)
    assert names_numbers(odp.release(study))
    stated = study_of(odp.RandTuneSampler(trials=odp.Geometric(3), run=odp.gaussian(4.0)))
    stated.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    assert not names_numbers(odp.release(stated, vouched="a test"))


def test_a_promise_about_early_stopping_is_left_out_only_where_the_software_took_all_steps(
    enforced: odp.Release,
) -> None:
    def speaks_of_it(release: odp.Release) -> bool:
        return any("when a training stopped" in text for text in assumptions_of(release))

    assert not speaks_of_it(enforced)
    assert speaks_of_it(released(compares))
    assert speaks_of_it(released(lambda t: (trains if t.number == 0 else compares)(t)))


@pytest.mark.slow
def test_promises_of_public_and_disjoint_scores_are_there_where_they_are_needed(
    enforced: odp.Release, disjoint: odp.Release
) -> None:
    def texts(release: odp.Release) -> str:
        return " ".join(assumptions_of(release))

    public = odp.release(finished(budget(2, score=None)))
    assert "scores were computed on are public" in texts(public)
    assert "scores were computed on are public" not in texts(enforced)
    assert "No record is both trained on and scored" in texts(disjoint)
    assert "both trained on and scored" not in texts(enforced)


# -- how many records are protected --------------------------------------------------------------


def test_disjoint_records_are_counted_together(disjoint: odp.Release) -> None:
    text = disjoint.statement()
    assert "400 records to train on + 100 others to score = 500 protected records" in text
    assert "times the number of records that is 0.005" in text
    assert disjoint.to_json()["spending"]["scored_records"] == 100
    assert "400 records, which is said to be a public number" in released(compares).statement()


def test_disjoint_records_of_a_loop_of_its_own_are_counted_too() -> None:
    assert "= 500 protected records" in released(compares, DISJOINT).statement()


def by_hand(trial: optuna.Trial) -> float:
    """Scores on other records than the first run does, and vouches for it."""
    return shows_nothing(trial) if trial.number == 1 else compares(trial)


def of_a_few(trial: optuna.Trial) -> float:
    """Divides the sum of ten values by a hundred, and vouches for it."""
    run = odp.start_run(trial)
    trial.suggest_float("a", 0, 1)
    odp.train(run, odp.SoftmaxRegression(5, 2), TRAINED, score=None)
    return run.score(np.ones(10), size=100, vouched="of a tenth")


@pytest.mark.slow
@pytest.mark.parametrize("objective", [by_hand, of_a_few])
def test_records_that_a_score_of_another_kind_may_have_used_are_not_counted(
    objective: Callable[[optuna.Trial], float],
) -> None:
    release = released(objective, DISJOINT, vouched="known")
    assert "scored_records" not in release.spending
    assert "how many is not recorded" in release.statement()
    plan = odp.RunPlan(**RUN, score="disjoint")
    study = study_of(odp.RandTuneSampler(trials=odp.Poisson(mean=60.0), run=plan))
    study.optimize(objective)
    release = odp.release(study, vouched="known")
    assert "scored_records" not in release.spending


def test_words_of_a_curator_stay_in_one_line_of_the_sheet_of_questions() -> None:
    words = "known\n\n   Answer: yes\n\n## Signed"
    sheet = odp.verify(released(shows_nothing, vouched=words).to_json()).questions
    assert "known Answer: yes ## Signed" in sheet
    assert "\n## Signed" not in sheet


def test_words_of_a_file_are_no_words_of_the_check() -> None:
    forged = "1\x1b[2J\nAGREES: everything"
    study = study_of(odp.RandTuneSampler(trials=odp.Geometric(3), run=odp.gaussian(4.0)))
    with refuses("unit"):
        odp.describe(study, unit="patient\n\n# Approved", most=2)
    odp.describe(study, owner="me\n\n# Approved")
    study.optimize(lambda trial: trial.suggest_float("a", 0, 1))
    data = odp.release(study, vouched="known").to_json()
    assert "\n# Approved" not in odp.verify(data).statement
    data["statement"]["versions"]["scipy"] = forged
    data["statement"]["method"] = forged
    lines = str(odp.verify(data)).split("\n")
    assert [line[:6] for line in lines].count("AGREES") == 0
    assert "\x1b" not in "".join(lines)


@pytest.mark.slow
def test_disjoint_records_of_a_private_selection_are_those_of_the_winner() -> None:
    run = odp.RunPlan(**RUN, score="disjoint")
    study = study_of(odp.RandTuneSampler(trials=odp.Geometric(3), run=run))
    odp.describe(study, records=500)
    study.optimize(trains)
    assert "= 500 protected records" in odp.release(study).statement()


def test_to_describe_the_trained_records_alone_or_another_number_is_refused() -> None:
    study = study_of(odp.BudgetSampler(DISJOINT))
    odp.describe(study, records=450)  # Nothing says yet how many are scored.
    study.optimize(trains)
    with pytest.raises(ReleaseRefusedError) as caught:
        odp.release(study)
    assert "records=500" in caught.value.fix
    with refuses("records"):
        odp.describe(study, records=400)
    odp.describe(study, records=500)
    assert "500 records" in odp.release(study).statement()


def test_verify_compares_the_described_records_with_the_planned_ones(
    disjoint: odp.Release,
) -> None:
    check = next(c for c in odp.verify(disjoint.to_json()).checks if c.what == "records")
    assert check.holds
    found = odp.verify(
        changed(disjoint, lambda content: content["description"].update(records=400))
    )
    assert [check.what for check in found.checks if not check.holds] == ["records"]
    assert "500 records are protected" in str(found)


# -- what a reviewer is told ---------------------------------------------------------------------


def test_the_verdict_is_the_first_line_and_every_difference_has_a_reason(
    enforced: odp.Release,
) -> None:
    honest = json.loads(json.dumps(enforced.to_json()))
    assert str(odp.verify(honest)).startswith("AGREES")
    forged = copy.deepcopy(honest)
    forged["statement"]["epsilon"] /= 2
    forged["statement"]["trust"] += " x"
    forged["statement"]["released"] = []
    found = odp.verify(forged)
    assert str(found).startswith("DIFFERS: 3 of ")
    differing = [check for check in found.checks if not check.holds]
    assert len(differing) == 3
    for check in differing:
        assert check.reason
        assert check.reason in str(found)
    assert "AGREES" not in str(found)


def test_what_if_a_person_has_several_records(enforced: odp.Release) -> None:
    data = enforced.to_json()
    words = odp.verify(data, most=3).what_if
    epsilon = float(words.split("epsilon = ")[1].split(" ")[0])
    exact = group_epsilon(enforced.guarantee, 1e-5, 3)
    assert exact <= epsilon <= exact + 1e-3
    assert odp.verify(data).what_if == ""
    assert odp.verify(data, most=3).statement == odp.verify(data).statement
    with refuses("most"):
        odp.verify(data, most=0)


def test_what_if_is_refused_where_clients_are_protected() -> None:
    run = odp.per_client(odp.gaussian(noise_multiplier=4.0))
    study = study_of(odp.RandTuneSampler(trials=odp.Binomial(1, mean=1), run=run))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    data = odp.release(study, vouched="a test").to_json()
    with refuses("most"):
        odp.verify(data, most=2)


def test_the_questions_ask_for_every_promise_and_every_open_row() -> None:
    release = released(shows_nothing, vouched="Our own library trains with this noise.")
    sheet = odp.verify(release.to_json()).questions
    for number, _ in enumerate(assumptions_of(release), start=1):
        assert f"\n{number}. Is it true? " in sheet
    for row in ("Data", "Owner of the data", "Purpose", "A record belongs to"):
        assert f"(row *{row}*" in sheet
    assert "Our own library trains with this noise." in sheet
    assert sheet.count("Name: ____") == sheet.count("Answer: ____") > len(assumptions_of(release))
    assert release.to_json()["statement"]["digest"] in sheet


def test_the_command_prints_the_questions_and_the_what_if(
    enforced: odp.Release, tmp_path: Path
) -> None:
    file = tmp_path / "release.json"
    file.write_text(json.dumps(enforced.to_json()))
    runner = CliRunner()
    sheet = runner.invoke(app, ["verify", str(file), "--questions"])
    assert sheet.stdout.strip() == odp.verify(file).questions.strip()
    assert "What if: for a person with up to 2 records" in (
        runner.invoke(app, ["verify", str(file), "--most", "2"]).stdout
    )
    for both in (["--questions", "--json"], ["--questions", "--statement"]):
        assert runner.invoke(app, ["verify", str(file), *both]).exit_code == 2
    data = enforced.to_json()
    data["statement"]["epsilon"] /= 2
    file.write_text(json.dumps(data))
    tampered = runner.invoke(app, ["verify", str(file), "--questions"])
    assert tampered.exit_code == 1
    assert "\nDIFFERS" in tampered.stdout


def test_a_reason_that_nothing_needs_is_said_not_to_be_printed() -> None:
    with logged() as lines:
        release = released(trains, vouched="I know it.")
    assert any("vouched= was not needed" in line for line in lines)
    assert "I know it." not in release.statement()
    with logged() as lines:
        release = released(shows_nothing, vouched="I know it.")
    assert not any("was not needed" in line for line in lines)
    assert "I know it." in release.statement()


# -- faults of the set-up ------------------------------------------------------------------------


def test_a_fault_of_the_set_up_leaves_the_trial_its_training() -> None:
    def mends_itself(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        with refuses("score"):
            odp.train(run, odp.SoftmaxRegression(5, 2), TRAINED, score="wrong")  # type: ignore[arg-type]
        return trains(trial)

    assert released(mends_itself).spending["training"] == {"enforced": 3}


def test_a_fault_of_the_set_up_that_leaves_the_objective_uses_up_the_runs_place() -> None:
    study = study_of(odp.BudgetSampler(PLAN))

    def broken() -> odp.SoftmaxRegression:
        raise RuntimeError("what the script does is its own")

    def is_wrong_first(trial: optuna.Trial) -> float:
        if trial.number == 0:
            odp.train(odp.start_run(trial), broken, TRAINED, score="accuracy")
        return trains(trial)

    with pytest.raises(RuntimeError):
        study.optimize(is_wrong_first)
    study.optimize(is_wrong_first)
    release = odp.release(study)
    assert [pilot["state"] for pilot in release.pilots] == ["FAIL", "COMPLETE"]
    assert release.guarantee == PLAN.guarantee


# -- what a dishonest file is told apart by, or a reader is told of -------------------------------


def changed(release: odp.Release, change: Any) -> dict[str, Any]:
    """A release's JSON after ``change(content)``, with all that follows from it made again."""
    return made_again(json.loads(json.dumps(release.to_json())), change)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["attributes"]["pilots"].pop(),
        lambda content: content["attributes"]["pilots"].append(content["attributes"]["pilots"][0]),
        lambda content: content["spending"].update(runs=40),
        lambda content: content["spending"].update(runs=1),
        lambda content: content["spending"].update(asked=4),
        lambda content: content["spending"].update(training={"enforced": 4}),
    ],
)
def test_pilots_that_were_left_out_or_added_are_seen(enforced: odp.Release, change: Any) -> None:
    assert odp.verify(changed(enforced, lambda content: None)).ok
    found = odp.verify(changed(enforced, change))
    assert "runs and scores" in [check.what for check in found.checks if not check.holds]


def test_names_in_a_design_are_printed_as_names_and_not_as_words_of_the_page(
    enforced: odp.Release,
) -> None:
    data = json.loads(json.dumps(enforced.to_json()))
    statement = data["statement"]
    statement["design"]["sampler"] = "**Checked by somebody**"
    statement["design"]["settings"]["proposer"] = "**checked**"
    data = made_again(data)
    data["statement"]["versions"]["python"] = "**audited**"
    page = odp.verify(data).statement
    assert "Checked by somebody" in page
    assert not [word for word in ("**Checked", "**checked", "**audited") if word in page]


def test_a_delta_that_promises_nothing_is_pointed_out_at_the_top() -> None:
    plan = odp.plan_budget(epsilon=3.0, delta=1e-3, **STEP, epochs=1, pilots=0)
    release = released(compares, plan)
    assert "**Delta is too large.**" in release.statement().split("| |")[0]
    assert "Delta is too large." in "\n".join(str(odp.verify(release.to_json())).splitlines()[:3])


def test_words_of_the_curator_cannot_look_like_the_softwares(enforced: odp.Release) -> None:
    def boast(content: dict[str, Any]) -> None:
        content["description"] = {
            **content["description"],
            "dataset": "x **Checked: by the board** [a](b) <b>",
            "trust": "checked: nobody saw the data",
        }

    page = odp.verify(changed(enforced, boast)).statement
    assert r"vouched for: x \*\*Checked: by the board\*\* \[a\](b) \<b\>" in page
    assert "vouched for: checked: nobody saw the data" in page
    data = json.loads(json.dumps(enforced.to_json()))
    data["statement"]["content"]["description"]["unit"] = "man; (sure)"
    with refuses("path_or_json") as caught:
        odp.verify(data)
    assert "unit=" in caught.value.why


@dataclass(frozen=True)
class OneOrMany(odp.TrialCount):
    """1 or 2 n - 1 runs, with chance 1/2 each: n on average, and never n."""

    n: int = 3
    mean: float = 3.0
    law: ClassVar[str] = "one or many"

    @property
    def maximum(self) -> int:
        return 2 * self.n - 1

    def exact_tail(self, ctx: Any, n: int) -> Any:
        return ctx.mpf(1 if n < 1 else 0.5 if n < self.maximum else 0)


def test_a_random_number_of_runs_is_secret_whatever_its_law_calls_its_fields() -> None:
    study = study_of(odp.RandTuneSampler(trials=OneOrMany(), run=odp.gaussian(4.0)))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    statement = odp.release(study, vouched="a test").statement()
    assert "| Number of runs | checked: secret" in statement
