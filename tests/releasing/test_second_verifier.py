"""examples/verify_independently.py agrees with releases and sees changes, by itself.

Releases here are made by the package. The program that checks them has no line of it.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from releasing.small_studies import DISJOINT, STEP, compares, released
from slow_cases import slow_if
from support import exactly, study_of

import optuna_dp as odp
from optuna_dp.accounting.event_json import event_to_json

PATH = Path(__file__).parents[2] / "examples" / "verify_independently.py"
AGREES, DIFFERS, CANNOT_JUDGE = 0, 1, 2

SGD = odp.dp_sgd(noise_multiplier=1.5, sample_rate=0.05, steps=40)
SCORED = odp.compose(SGD, odp.gaussian(noise_multiplier=12.0))
GAUSSIAN = odp.gaussian(noise_multiplier=4.0)
PLAN: Any = {"records": 400, "batch_size": 40, "steps": 20}
PLANNED = odp.RunPlan(**PLAN, noise_multiplier=2.0, score_noise_multiplier=20.0)
FULL = odp.RunPlan(
    records=400, batch_size=400, steps=20, noise_multiplier=20.0, score_noise_multiplier=20.0
)
APART = odp.RunPlan(**PLAN, noise_multiplier=2.0, score_noise_multiplier=4.0, score="disjoint")
REPLACED = odp.RunPlan(
    **PLAN,
    noise_multiplier=4.0,
    score_noise_multiplier=20.0,
    neighboring_relation="replace_one",
)


@functools.cache
def program() -> Any:
    spec = importlib.util.spec_from_file_location("verify_independently", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def selected(run: Any, law: odp.TrialCount, **described: Any) -> odp.Release:
    study = study_of(odp.RandTuneSampler(trials=law, run=run))
    if described:
        odp.describe(study, **described)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    return odp.release(study, vouched="a test")


def adapted(**options: Any) -> odp.Release:
    law = options.pop("law", odp.Geometric(mean=3))
    study = study_of(odp.DPHyPOSampler(trials=law, candidates=4, run=GAUSSIAN, **options))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    return odp.release(study, vouched="a test")


def chosen(sampler: Any) -> odp.Release:
    study = study_of(sampler)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    return odp.release(study)


def budget(**options: Any) -> odp.Release:
    plan = odp.plan_budget(**{"epsilon": 2.0, "records": 400, "batch_size": 40, **options})

    def objective(trial: Any) -> float:
        odp.start_run(trial)
        score: float = trial.suggest_float("x", 0, 1)
        return score

    return released(objective, plan, vouched="a test")


def runs_lost() -> odp.Release:
    study = study_of(odp.RandTuneSampler(trials=exactly(40), run=GAUSSIAN))

    def objective(trial: Any) -> float:
        if trial.number >= 3:
            raise ZeroDivisionError
        score: float = trial.suggest_float("x", 0, 1)
        return score

    study.optimize(objective, catch=ZeroDivisionError)
    return odp.release(study, vouched="a test", failures="lost")


def short_list() -> odp.Release:
    plan = odp.plan_budget(epsilon=2.0, **STEP, epochs=1, candidates=3)
    candidates = [{"x": 0.1}, {"x": 0.2}, {"x": 0.3}]
    study = study_of(odp.BudgetSampler(plan, candidates=candidates))
    study.optimize(lambda trial: odp.start_run(trial) and trial.suggest_float("x", 0, 1))
    return odp.release(study, vouched="a test")


def noisy_max(training: Any = None) -> odp.NoisyMaxSampler:
    return odp.NoisyMaxSampler(candidates=2, n_partitions=900, epsilon=1.0, training=training)


def propose_test() -> odp.ProposeTestSampler:
    return odp.ProposeTestSampler(
        candidates=2, n_partitions=30_000, epsilon=0.2, granularity=0.2, resolve=0.3
    )


JUDGED: dict[str, Callable[[], odp.Release]] = {
    "budget of full batches": lambda: released(compares),
    "budget, disjoint records": lambda: released(compares, DISJOINT),
    "budget of two rungs": lambda: budget(epochs=2, pilots=(4, 2)),
    "budget of two rungs, full batches": lambda: budget(batch_size=400, epochs=4, pilots=(4, 2)),
    "budget, disjoint batches": lambda: budget(epochs=2, pilots=2, score="disjoint"),
    "budget, public score": lambda: budget(epochs=1, pilots=2, score=None),
    "budget, replace one": lambda: budget(epochs=1, pilots=2, neighboring_relation="replace_one"),
    "short list": short_list,
    "budget and a training": lambda: released(compares).with_training(SGD),
    "geometric": lambda: selected(SCORED, odp.Geometric(mean=10)),
    "geometric, planned": lambda: selected(PLANNED, odp.Geometric(mean=10)),
    "geometric, full batches": lambda: selected(FULL, odp.Geometric(mean=10)),
    "geometric, planned apart": lambda: selected(APART, odp.Geometric(mean=10)),
    "geometric, replace one": lambda: selected(REPLACED, odp.Geometric(mean=10)),
    "geometric, capped": lambda: selected(GAUSSIAN, odp.Geometric(mean=10).capped(30)),
    "geometric, pure runs": lambda: selected(odp.pure_dp(0.5), odp.Geometric(mean=10)),
    "geometric, clients": lambda: selected(odp.per_client(GAUSSIAN), odp.Geometric(mean=3)),
    "geometric and a training": lambda: selected(GAUSSIAN, odp.Geometric(mean=10)).with_training(
        GAUSSIAN
    ),
    "logarithmic": lambda: selected(GAUSSIAN, odp.Logarithmic(mean=10)),
    "negative binomial": lambda: selected(SCORED, odp.NegativeBinomial(shape=-0.5, mean=10)),
    "Poisson": lambda: selected(GAUSSIAN, odp.Poisson(mean=10)),
    "Poisson of a large mean": lambda: selected(SCORED, odp.Poisson(mean=60)),
    "binomial": lambda: selected(GAUSSIAN, odp.Binomial(20, mean=5)),
    "exactly 12 runs": lambda: selected(GAUSSIAN, odp.Binomial(12, mean=12)),
    "exactly 4 runs": lambda: selected(GAUSSIAN, exactly(4)),
    "persons with records": lambda: selected(
        GAUSSIAN, odp.Geometric(mean=3), unit="patient", most=3
    ),
    "runs lost": runs_lost,
    "adaptive, the data seen": lambda: adapted(schedule="any"),
    "noisy max": lambda: chosen(noisy_max()),
    "noisy max and a training": lambda: chosen(noisy_max()).with_training(GAUSSIAN),
    "bounded range": lambda: chosen(noisy_max(SGD)),
    "bounded range and a training": lambda: chosen(noisy_max(SGD)).with_training(SGD),
    "propose-test": lambda: chosen(propose_test()),
}
QUICK = {
    "budget of full batches",
    "budget of two rungs, full batches",
    "budget, disjoint records",
    "budget of two rungs",
    "short list",
    "geometric, full batches",
    "geometric",
    "geometric, pure runs",
    "Poisson",
    "adaptive, the data seen",
    "noisy max and a training",
    "bounded range and a training",
    "propose-test",
}
# Where the two differ by more, the bounds themselves do: Theorem 12 is below the profile bound.
LARGEST_DIFFERENCE = 0.003
PURE_DIFFERENCE = 0.01


@functools.cache
def text_of(kind: str) -> str:
    return json.dumps(JUDGED[kind]().to_json())


def judged(data: Any, tmp_path: Path, capsys: Any) -> tuple[int, str]:
    file = tmp_path / "release.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    code: int = program().main(str(file))
    return code, capsys.readouterr().out


@pytest.mark.parametrize("kind", slow_if(lambda kind: kind not in QUICK, JUDGED))
def test_it_agrees_with_a_release_of_every_kind(kind: str, tmp_path: Path, capsys: Any) -> None:
    code, said = judged(text_of(kind), tmp_path, capsys)
    assert code == AGREES, said
    line = next(line for line in said.splitlines() if " epsilon at delta " in line)
    difference = float(line.split("(")[1].split()[0]) / 100
    allowed = PURE_DIFFERENCE if "pure" in kind else LARGEST_DIFFERENCE
    assert abs(difference) < allowed, line


def test_the_group_of_a_person_is_computed_too(tmp_path: Path, capsys: Any) -> None:
    code, said = judged(text_of("persons with records"), tmp_path, capsys)
    assert "3 records" in said
    data = json.loads(text_of("persons with records"))
    data["statement"]["unit_with_several_records"]["epsilon"] *= 0.9
    assert judged(data, tmp_path, capsys)[0] == DIFFERS
    assert code == AGREES


def changed(data: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Returns a release after ``change(statement)``, with a digest that fits."""
    forged = copy.deepcopy(data)
    statement = forged["statement"]
    change(statement)
    forged = {**forged, **statement["content"]}
    tied = {name: statement[name] for name in ("guarantee", "design", "content")}
    text = json.dumps(tied, sort_keys=True, separators=(",", ":"))
    statement["digest"] = hashlib.sha256(text.encode()).hexdigest()
    return forged


def everywhere(value: Any, change: Callable[[dict[str, Any]], object]) -> None:
    """Calls ``change`` with every object within a JSON value."""
    if isinstance(value, dict):
        change(value)
    for part in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        everywhere(part, change)


def times(name: str, factor: float) -> Callable[[dict[str, Any]], None]:
    def change(record: dict[str, Any]) -> None:
        if isinstance(record.get(name), int | float):
            record[name] = type(record[name])(record[name] * factor)

    return change


def epsilon(statement: dict[str, Any]) -> None:
    statement["epsilon"] *= 0.9


def noise_of_the_plan(statement: dict[str, Any]) -> None:
    everywhere(statement["design"], times("noise_multiplier", 2.0))


def noise_of_the_event(statement: dict[str, Any]) -> None:
    everywhere(statement["guarantee"], times("noise_multiplier", 2.0))


def noise_in_both(statement: dict[str, Any]) -> None:
    noise_of_the_plan(statement)
    noise_of_the_event(statement)


def less_noise_in_both(statement: dict[str, Any]) -> None:
    everywhere([statement["design"], statement["guarantee"]], times("noise_multiplier", 0.9))


def half_the_steps(statement: dict[str, Any]) -> None:
    everywhere(statement["design"], times("steps", 0.5))


def score_noise(statement: dict[str, Any]) -> None:
    everywhere(statement["design"], times("score_noise_multiplier", 2.0))


def a_pilot_dropped_from_the_plan(statement: dict[str, Any]) -> None:
    statement["design"]["settings"]["plan"]["rungs"][0]["count"] -= 1
    del statement["content"]["attributes"]["pilots"][0]


def a_pilot_more_than_paid_for(statement: dict[str, Any]) -> None:
    pilots = statement["content"]["attributes"]["pilots"]
    pilots.append(pilots[0])


def more_runs_than_paid_for(statement: dict[str, Any]) -> None:
    statement["content"]["spending"]["runs"] += 1


def a_planned_epsilon_below(statement: dict[str, Any]) -> None:
    statement["design"]["settings"]["plan"]["epsilon"] *= 0.9


def other_records(statement: dict[str, Any]) -> None:
    statement["protected_records"] *= 2


def another_relation(statement: dict[str, Any]) -> None:
    statement["guarantee"]["neighboring_relation"] = "replace_one"


def smaller_delta(statement: dict[str, Any]) -> None:
    statement["delta"] /= 100


def seeded(statement: dict[str, Any]) -> None:
    statement["design"]["seeded"] = True


def law(**changes: float) -> Callable[[dict[str, Any]], None]:
    def change(record: dict[str, Any]) -> None:
        if "law" in record:
            record.update(changes)

    return change


def mean_alone(statement: dict[str, Any]) -> None:
    everywhere(statement, law(mean=2.0))


def law_of_the_plan(statement: dict[str, Any]) -> None:
    everywhere(statement["design"], law(mean=2.0, gamma=0.5))


def larger_law_in_both(statement: dict[str, Any]) -> None:
    everywhere(statement, law(mean=40.0, gamma=1 / 40))


def smaller_law_in_both(statement: dict[str, Any]) -> None:
    everywhere(statement, law(mean=2.0, gamma=0.5))


def runs_that_are_shown(statement: dict[str, Any]) -> None:
    statement["content"]["disclosed_runs"] = 2


def other_runs_that_are_shown(statement: dict[str, Any]) -> None:
    statement["content"]["disclosed_runs"] += 1


def records_of_a_person_left_out(statement: dict[str, Any]) -> None:
    statement["unit_with_several_records"] = None


def records_of_a_person(statement: dict[str, Any]) -> None:
    statement["unit_with_several_records"].update(records=1, epsilon=statement["epsilon"])


def epsilon_of_the_choice(statement: dict[str, Any]) -> None:
    everywhere(statement["design"], times("epsilon", 0.5))


CHANGES: dict[str, tuple[Any, ...]] = {
    "budget of two rungs, full batches": (
        epsilon,
        noise_of_the_plan,
        noise_of_the_event,
        noise_in_both,
        less_noise_in_both,
        half_the_steps,
        score_noise,
        a_pilot_dropped_from_the_plan,
        a_pilot_more_than_paid_for,
        more_runs_than_paid_for,
        a_planned_epsilon_below,
        other_records,
        another_relation,
        smaller_delta,
    ),
    "geometric, full batches": (
        epsilon,
        noise_of_the_plan,
        noise_in_both,
        less_noise_in_both,
        half_the_steps,
        score_noise,
        mean_alone,
        law_of_the_plan,
        larger_law_in_both,
        smaller_law_in_both,
        seeded,
        another_relation,
        smaller_delta,
        other_records,
        runs_that_are_shown,
    ),
    "runs lost": (other_runs_that_are_shown, smaller_law_in_both),
    "persons with records": (records_of_a_person_left_out, records_of_a_person),
    "noisy max": (epsilon, epsilon_of_the_choice, seeded),
    "bounded range and a training": (epsilon, noise_of_the_event),
}


@pytest.mark.parametrize(
    ("kind", "change"),
    [(kind, change) for kind, changes in CHANGES.items() for change in changes],
)
def test_it_sees_what_was_changed(
    kind: str, change: Callable[[dict[str, Any]], object], tmp_path: Path, capsys: Any
) -> None:
    data = changed(json.loads(text_of(kind)), change)
    code, said = judged(data, tmp_path, capsys)
    assert code == DIFFERS, said
    assert "agrees      SHA-256" in said


def test_it_sees_what_was_changed_without_a_new_digest(tmp_path: Path, capsys: Any) -> None:
    data = json.loads(text_of("noisy max"))
    data["statement"]["design"]["settings"]["n_partitions"] += 1
    assert judged(data, tmp_path, capsys)[0] == DIFFERS


def test_a_choice_after_a_gaussian_is_not_taken_for_one_before_it(
    tmp_path: Path, capsys: Any
) -> None:
    # What came before may decide how the losses of a choice lie, so it costs more.
    choice = chosen(noisy_max(SGD)).guarantee.event
    large = odp.gaussian(noise_multiplier=1.0)
    first, second = (
        selected(odp.compose(*run), exactly(1)).to_json()
        for run in ((choice, large), (large, choice))
    )
    assert judged(first, tmp_path, capsys)[0] == AGREES
    assert judged(second, tmp_path, capsys)[0] == AGREES
    claimed = first["statement"]["epsilon"]
    assert claimed < 0.994 * second["statement"]["epsilon"]
    second["statement"] |= {"epsilon": claimed, "attack": first["statement"]["attack"]}
    assert judged(second, tmp_path, capsys)[0] != AGREES


def test_the_order_in_a_worst_case_is_that_of_the_event(tmp_path: Path, capsys: Any) -> None:
    choice = chosen(noisy_max(SGD)).guarantee.event
    run = odp.worst_case(odp.compose(choice, odp.gaussian(noise_multiplier=1.0)), GAUSSIAN)
    code, said = judged(selected(run, exactly(1)).to_json(), tmp_path, capsys)
    assert code == AGREES, said


def test_it_has_no_judgement_of_the_history_bound(tmp_path: Path, capsys: Any) -> None:
    data = adapted().to_json()
    code, said = judged(data, tmp_path, capsys)
    assert code == CANNOT_JUDGE
    assert "no second verifier of the history bound" in said.splitlines()[-1]
    # What is below the cost of a search that never adapts is wrong all the same.
    data["statement"]["epsilon"] = data["statement"]["attack"] = 1.0
    assert judged(data, tmp_path, capsys)[0] == DIFFERS


def test_it_judges_an_adaptive_search_whose_runs_are_all_charged(
    tmp_path: Path, capsys: Any
) -> None:
    code, said = judged(adapted(law=odp.Binomial(2, mean=2)).to_json(), tmp_path, capsys)
    assert code == AGREES, said
    assert "composition of all runs" in said


def test_an_attack_that_meets_the_bound_is_no_difference(tmp_path: Path, capsys: Any) -> None:
    """Its last digits are those of a Fourier transform: 199 pure runs, 7e-12 above the bound."""
    sampler = odp.ProposeTestSampler(candidates=2, n_partitions=300, epsilon=1.0, resolve=0.9)
    data = chosen(sampler).to_json()
    data["statement"]["attack"] = data["statement"]["epsilon"] * (1 + 1e-11)
    assert judged(data, tmp_path, capsys)[0] == CANNOT_JUDGE


def test_what_it_cannot_prove_and_no_attack_refutes_is_not_judged(
    tmp_path: Path, capsys: Any
) -> None:
    def a_little(statement: dict[str, Any]) -> None:
        statement["epsilon"] *= 0.99
        statement["attack"] *= 0.98

    data = changed(json.loads(text_of("adaptive, the data seen")), a_little)
    code, said = judged(data, tmp_path, capsys)
    assert code == CANNOT_JUDGE, said
    assert "a little below what this program can prove" in said


def test_it_judges_no_event_and_no_law_that_it_does_not_know(tmp_path: Path, capsys: Any) -> None:
    known_by_a_curve = odp.zcdp(0.01)
    code, said = judged(selected(known_by_a_curve, odp.Geometric(3)).to_json(), tmp_path, capsys)
    assert (code, "ZCDpEvent" in said) == (CANNOT_JUDGE, True)

    def unknown(statement: dict[str, Any]) -> None:
        everywhere(statement, lambda record: "law" in record and record.update(law="zeta"))

    data = changed(json.loads(text_of("geometric, full batches")), unknown)
    code, said = judged(data, tmp_path, capsys)
    assert (code, "'zeta'" in said) == (CANNOT_JUDGE, True)


@pytest.mark.parametrize("text", ["", "{", "3", "{}", '{"statement": 1}', '{"a": 1, "a": 2}'])
def test_what_is_no_release_is_not_judged(text: str, tmp_path: Path, capsys: Any) -> None:
    assert judged(text, tmp_path, capsys)[0] == CANNOT_JUDGE


@pytest.mark.parametrize("value", [float("nan"), -1.0, 0.0, True, "2", None, 1e300])
def test_numbers_that_make_no_sense_are_never_agreed_to(
    value: Any, tmp_path: Path, capsys: Any
) -> None:
    def change(statement: dict[str, Any]) -> None:
        everywhere(
            [statement["design"], statement["guarantee"]],
            lambda record: "noise_multiplier" in record and record.update(noise_multiplier=value),
        )

    data = changed(json.loads(text_of("geometric, full batches")), change)
    assert judged(data, tmp_path, capsys)[0] != AGREES


def test_it_imports_nothing_of_ours(tmp_path: Path) -> None:
    """In a process of its own, in which the package and Optuna cannot be found at all."""
    (tmp_path / "release.json").write_text(text_of("geometric, full batches"))
    code = (
        "import runpy, sys\n"
        "sys.modules['optuna'] = sys.modules['optuna_dp'] = None\n"
        f"sys.argv = ['', 'release.json']\nrunpy.run_path({str(PATH)!r}, run_name='__main__')"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == AGREES, ended.stderr
    assert ended.stdout.splitlines()[-1].startswith("AGREES")


# -- Its mathematics, beside other people's ----------------------------------------------------


@pytest.mark.parametrize(("rate", "noise"), [(0.01, 0.8), (0.3, 2.0), (0.9, 1.0)])
def test_one_step_is_as_dp_accounting_has_it(rate: float, noise: float) -> None:
    eps = np.linspace(0.0, 3.0, 40)
    pair = program().sampled_pair(rate, noise)
    replaced = program().sampled_pair_replaced(rate, noise)
    for stick, adjacency in (
        (pair.of[0], AdjacencyType.REMOVE),
        (pair.of[1], AdjacencyType.ADD),
        (replaced.of[0], AdjacencyType.REPLACE),
    ):
        theirs = GaussianPrivacyLoss(noise, sampling_prob=rate, adjacency_type=adjacency)
        expected = [theirs.get_delta_for_epsilon(float(e)) for e in eps]
        np.testing.assert_allclose(stick(eps), expected, rtol=1e-7, atol=1e-14)


def test_compositions_are_read_as_dp_accounting_reads_them() -> None:
    pair = program().sampled_pair(0.1, 1.0)
    at = np.arange(-4000, 4001)
    sticks = np.minimum.accumulate(np.clip(pair.at(at * 2e-3, 0), 0, 1))
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(2e-3, at, sticks).self_compose(30)
    read = program().read(pmf.to_dense_pmf(), 0.0)
    for epsilon_at in (0.0, 0.37, 1.0, 2.5):
        expected = pmf.get_delta_for_epsilon(epsilon_at)
        assert read(np.array([epsilon_at]))[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "trials",
    [odp.Geometric(3), odp.Poisson(4.0), odp.Binomial(6, 3.0), odp.Logarithmic(5.0)],
    ids=repr,
)
def test_the_upper_bound_is_above_the_attack_and_the_laws_are_right(trials: Any) -> None:
    own = program().Law(trials.to_json())
    for p in (0.0, 0.1, 0.7, 1.0):
        assert own.miss(p) == pytest.approx(trials.pgf(1.0 - p), rel=1e-9)
        assert own.slope(p) == pytest.approx(trials.pgf_derivative(1.0 - p), rel=1e-9)
    event = event_to_json(odp.selection_guarantee(GAUSSIAN, trials).event)
    ((part, _),) = program().cost_of_event(event).items()
    selection = program().Selection(part, False)
    for eps in (0.0, 0.5, 1.0, 2.0):
        assert selection.attack(eps) <= selection.larger(eps)
