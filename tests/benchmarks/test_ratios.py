"""Regression guard: ratios of CPU times within one process; never absolute times.

A neighbour on the machine can make any one measurement wrong, a slow library makes all of them
wrong: each ratio has five attempts, with generous margins, and the first good one ends it.
"""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import optuna
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "benchmarks"))

import projection_speed
import storage_traffic
from sampler_speed import compare, prepared, ratio, samplers, spaces, trials_ms

from optuna_dp.adaptive_selection.densities.projection import project_log


@pytest.fixture(autouse=True)
def _quiet() -> object:
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    optuna.logging.set_verbosity(level)


def at_most(bound: float, ratio: Callable[[], float], attempts: int = 5) -> None:
    found: list[float] = []
    while not found or (found[-1] >= bound and len(found) < attempts):
        found.append(ratio())
    assert found[-1] < bound, found


def test_rand_tune_costs_about_what_random_search_costs() -> None:
    def measured() -> float:
        found = compare(spaces()["2-D"], 100, ("RandomSampler", "RandTune"), turns=9, repeats=2)
        return ratio(found, "RandTune", "RandomSampler")

    at_most(4.0, measured)  # measured: 1.2


@pytest.mark.slow
def test_dp_hypo_costs_about_what_tpe_costs() -> None:
    def measured() -> float:
        found = compare(spaces()["2-D"], 300, ("TPESampler", "DP-HyPO"), turns=5, repeats=2)
        return ratio(found, "DP-HyPO", "TPESampler")

    at_most(6.0, measured)  # measured: 1.5


@pytest.mark.slow
def test_dp_hypo_does_not_grow_faster_than_the_history() -> None:
    space = spaces()["2-D"]
    studies = {n: prepared(samplers(space)["DP-HyPO"], space, n) for n in (400, 1600)}
    for study in studies.values():
        trials_ms(study, space, 2)

    def ratio() -> float:
        times = {n: min(trials_ms(s, space, 2) for _ in range(3)) for n, s in studies.items()}
        return times[1600] / times[400]

    at_most(6.0, ratio)  # measured: 1.2


@pytest.mark.slow
def test_a_million_weights_cost_little_more_per_weight_than_a_thousand() -> None:
    def ratio() -> float:
        times = projection_speed.measure((20_000, 200_000), repeats=3)
        return times["kl 200000"] / times["kl 20000"]

    at_most(40.0, ratio)


@pytest.mark.slow
def test_the_exact_projection_is_far_faster_than_convex_programming() -> None:
    pytest.importorskip("cvxpy")

    def ratio() -> float:
        found = projection_speed.against_cvxpy(2500, repeats=2)
        assert found["largest difference of the two densities"] < 0.01
        return 1.0 / found["cvxpy as used / exact at 2500"]

    at_most(1.0 / 15.0, ratio)  # measured: about 1 / 100


@pytest.mark.parametrize("name", storage_traffic.samplers())
def test_storage_calls_per_trial_do_not_grow(name: str) -> None:
    """Counted, not timed: what 10 trials ask of the storage after 20 and after 40."""
    few, many = storage_traffic.traffic(name, (20, 40), optuna.storages.InMemoryStorage())
    assert few.calls == many.calls
    assert sum(many.calls.values()) <= 30 * storage_traffic.BLOCK


@pytest.mark.slow
@pytest.mark.parametrize("name", ["RandTune", "RandTune, define-by-run"])
def test_rand_tune_sends_a_database_a_claim_and_one_write_more_than_random_search(
    name: str, tmp_path: Path
) -> None:
    """The record of the slot, from which all draws follow; a claim is 3 writes and 2 reads."""
    calls, statements = [], []
    for i, sampler in enumerate(("RandomSampler", name)):
        storage = optuna.storages.get_storage(f"sqlite:///{tmp_path}/{i}.db")
        found = storage_traffic.traffic(sampler, (4, 12), storage, block=5)
        assert found[0].calls == found[1].calls
        assert found[0].statements == found[1].statements
        calls.append(found[0].calls)
        statements.append(found[0].statements)
    assert calls[1] - calls[0] == {"set_trial_system_attr": 20, "get_trial": 10}
    assert not calls[0] - calls[1]
    assert statements[1] - statements[0] <= 5 * 20


def test_the_simulated_density_is_the_library_s() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "dp_hypo"))
    from optuna.distributions import FloatDistribution
    from simulate import log_weights

    from optuna_dp.adaptive_selection.densities.adaptive_density import AdaptiveDensity
    from optuna_dp.adaptive_selection.densities.informed import FixedCandidates
    from optuna_dp.models.scores import RunOutcome

    rng = np.random.default_rng(0)
    points, known = rng.random((40, 2)), rng.random((9, 2))
    y = [float(v) for v in known.sum(axis=1)]
    space = {name: FloatDistribution(0.0, 1.0) for name in ("a", "b")}
    fixed = FixedCandidates([{"a": float(a), "b": float(b)} for a, b in points])
    adaptive = AdaptiveDensity(prior=fixed)
    history = [
        RunOutcome({"a": float(a), "b": float(b)}, v) for (a, b), v in zip(known, y, strict=True)
    ]
    proposal = adaptive.propose(history, space, np.random.default_rng(5))
    density = project_log(
        log_weights(adaptive, known, y, points), adaptive.bounds, adaptive.projection
    )
    i = density.draw(np.random.default_rng(5))
    assert proposal.params == fixed.params_list[i]
    assert proposal.ratio == pytest.approx(density.ratios[i])
