"""Projections by cvxpy: the distance that was asked for, within the bounds whatever happens."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from refusals import refuses
from scipy.optimize import minimize
from support import RUN, exactly, study_of
from test_projection import assert_exact

import optuna_dp as odp
from optuna_dp.errors import (
    MissingExtraError,
    PlanError,
    ProjectionError,
    ReleaseRefusedError,
)
from optuna_dp.priors.densities.projection import project_log
from optuna_dp.priors.densities.shares import integer_masses, uniform_masses

sys.path.append(str(Path(__file__).parents[3] / "examples" / "benchmarks"))

from projection_accuracy import cases, exact_ratios

cp = pytest.importorskip("cvxpy")
BOUNDS = (0.6, 1.9)
SPACE: dict[str, Any] = {"x": optuna.distributions.FloatDistribution(-1.0, 1.0)}


def squared(f: Any, w: Any, prior: Any) -> Any:
    return cp.sum(cp.multiply(prior, cp.square(f - w)))


def hellinger(f: Any, w: Any, prior: Any) -> Any:
    return -cp.sum(cp.multiply(prior * np.sqrt(w), cp.sqrt(f)))


def logs_of(n: int, seed: int = 0) -> Any:
    return 2.0 * np.random.default_rng(seed).normal(size=n)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("nu", "limit"), [(0.0, "l2"), (1e-9, "l2"), (1e6, "kl"), (math.inf, "kl")]
)
def test_the_limits_of_equation_c1_are_l2_and_kl(nu: float, limit: Any, weighted: bool) -> None:
    logs = logs_of(50)
    masses = integer_masses(list(np.random.default_rng(1).random(50) + 0.05)) if weighted else None
    solved = project_log(logs, BOUNDS, odp.ConvexProjection(nu=nu), masses)
    exact = project_log(logs, BOUNDS, limit, masses)
    np.testing.assert_allclose(solved.ratios, exact.ratios, atol=2e-3)
    assert_exact(solved, BOUNDS)
    # The two limits differ by a hundred times as much.
    other = project_log(logs, BOUNDS, "kl" if limit == "l2" else "l2", masses)
    assert np.abs(solved.ratios - other.ratios).max() > 0.1


@pytest.mark.parametrize(("method", "nu"), [("l2", 0.0), ("kl", math.inf)])
def test_bisection_is_exact_and_cvxpy_is_near(method: Any, nu: float) -> None:
    """As docs/explanation/convex-projections.md says, beside fractions that share no code."""
    for logs, masses in cases(40, 4):
        prior = masses / masses.sum()
        w = np.exp(logs) / (prior @ np.exp(logs))
        exact = exact_ratios(w.tolist(), masses.tolist(), BOUNDS, method)
        assert prior @ exact == pytest.approx(1.0, abs=1e-14)
        bisection = project_log(logs, BOUNDS, method, masses).ratios
        np.testing.assert_allclose(bisection, exact, rtol=0.0, atol=1e-12)
        solved = project_log(logs, BOUNDS, odp.ConvexProjection(nu=nu), masses).ratios
        np.testing.assert_allclose(solved, exact, rtol=0.0, atol=5e-3)


@pytest.mark.parametrize("nu", [0.1, 1.0, 10.0])
def test_equation_c1_between_its_limits_is_minimised(nu: float) -> None:
    """By another solver, from another form of the objective, without cvxpy."""
    n = 6
    logs, masses = logs_of(n, seed=3), integer_masses([3, 1, 2, 2, 1, 4])
    prior = masses / masses.sum()
    w = np.exp(logs) / (prior @ np.exp(logs))

    def objective(f: Any) -> float:
        return float(np.sqrt(prior @ (f - w) ** 2) + nu * (prior @ (w * np.log(w / f))))

    found = minimize(
        objective,
        np.ones(n),
        method="SLSQP",
        bounds=[BOUNDS] * n,
        constraints={"type": "eq", "fun": lambda f: prior @ f - 1.0},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    solved = project_log(logs, BOUNDS, odp.ConvexProjection(nu=nu), masses).ratios
    np.testing.assert_allclose(solved, found.x, atol=1e-4)
    assert objective(solved) <= objective(found.x) + 1e-7


def test_a_distance_of_ones_own_is_minimised() -> None:
    """Every f-divergence has the solution clip(w / nu, c, C), which bisection finds for KL."""
    logs = logs_of(40, seed=4)
    exact = project_log(logs, BOUNDS, "kl").ratios
    solved = project_log(logs, BOUNDS, odp.ConvexProjection(hellinger))
    np.testing.assert_allclose(solved.ratios, exact, atol=2e-3)
    assert_exact(solved, BOUNDS)


def test_another_distance_gives_another_density() -> None:
    def cautious(f: Any, w: Any, prior: Any) -> Any:
        return squared(f, w, prior) + 3.0 * cp.sum(cp.multiply(prior, cp.square(f - 1.0)))

    logs = logs_of(40, seed=4)
    solved = project_log(logs, BOUNDS, odp.ConvexProjection(cautious, name="cautious")).ratios
    # The sum of the squares around w and 1 is, but for a constant, one square around their mean.
    masses = uniform_masses(40)
    w = np.exp(logs) * 40 / np.exp(logs).sum()
    pulled = project_log(np.log((w + 3.0) / 4.0), BOUNDS, "l2", masses).ratios
    np.testing.assert_allclose(solved, pulled, atol=2e-3)


@pytest.mark.slow
def test_nothing_leaves_the_bounds_in_random_cases() -> None:
    rng = np.random.default_rng(5)
    for _ in range(40):
        n = int(rng.choice([2, 3, 17, 60]))
        bounds = float(rng.choice([0.75, 1e-6, 0.999])), float(rng.choice([1.001, 2.0, 1e6]))
        logs = rng.normal(size=n) * 10.0 ** rng.integers(-3, 3)
        logs[rng.random(n) < 0.2] = rng.choice([np.nan, -np.inf])
        masses = integer_masses(list(rng.random(n) + 0.05)) if rng.random() < 0.3 else None
        nu = float(rng.choice([0.0, 1.0, 1e3, np.inf]))
        try:
            density = project_log(logs, bounds, odp.ConvexProjection(nu=nu), masses)
        except ProjectionError:  # Rarely, and then nothing is drawn.
            continue
        assert_exact(density, bounds)


def returning(value: Any, status: str = "optimal") -> Callable[..., None]:
    """A solver that returns what it likes."""

    def solve(self: Any, *args: Any, **kwargs: Any) -> None:
        (variable,) = self.variables()
        if value is not None:
            variable.save_value(np.broadcast_to(value, variable.shape))
        self._status = status

    return solve


@pytest.mark.parametrize("status", ["optimal", "optimal_inaccurate"])
@pytest.mark.parametrize(
    "value",
    [0.0, -5.0, 1e300, 2.0, np.nextafter(1.9, 9.0), np.arange(5.0), np.array([1e9, 0, 0, 0, 0])],
)
def test_whatever_a_solver_returns_the_density_is_within_the_bounds(
    value: Any, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    projection = odp.ConvexProjection(nu=1.0)
    monkeypatch.setattr(cp.Problem, "solve", returning(value, status))
    for masses in (uniform_masses(5), integer_masses([5, 1, 2, 9, 3])):
        assert_exact(project_log(logs_of(5), BOUNDS, projection, masses), BOUNDS)


def fails(self: Any, *args: Any, **kwargs: Any) -> None:
    raise cp.error.SolverError("no luck")


FAILURES = {
    "raises": fails,
    "says infeasible": returning(1.0, "infeasible"),
    "returns nothing": returning(None),
    "returns NaN": returning(np.nan),
    "returns infinity": returning(np.inf),
}


@pytest.mark.parametrize("how", FAILURES)
def test_a_solver_that_fails_ends_in_an_error(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    projection = odp.ConvexProjection(nu=1.0)
    monkeypatch.setattr(cp.Problem, "solve", FAILURES[how])
    with pytest.raises(ProjectionError):
        project_log(logs_of(5), BOUNDS, projection)


def test_the_second_solver_is_tried_where_the_first_one_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solve = cp.Problem.solve

    def only_scs(self: Any, *args: Any, solver: str, **kwargs: Any) -> Any:
        return fails(self) if solver == "CLARABEL" else solve(self, *args, solver=solver, **kwargs)

    monkeypatch.setattr(cp.Problem, "solve", only_scs)
    solved = project_log(logs_of(30), BOUNDS, odp.ConvexProjection()).ratios
    np.testing.assert_allclose(solved, project_log(logs_of(30), BOUNDS, "l2").ratios, atol=0.05)
    with pytest.raises(ProjectionError):
        project_log(logs_of(30), BOUNDS, odp.ConvexProjection(solver="CLARABEL"))


# Under the sampler.


def sampler_with(projection: Any, **kwargs: Any) -> odp.DPHyPOSampler:
    return odp.DPHyPOSampler(
        SPACE, trials=exactly(4), candidates=16, projection=projection, **kwargs, run=RUN
    )


def objective(trial: optuna.Trial) -> float:
    return trial.suggest_float("x", -1.0, 1.0)


@pytest.mark.parametrize(
    "projection", [odp.ConvexProjection(nu=1.0), odp.ConvexProjection(hellinger)]
)
def test_a_study_is_run_and_released(projection: odp.ConvexProjection) -> None:
    study = study_of(sampler_with(projection))
    study.optimize(objective)
    released = odp.release(study, vouched="a test")
    ratios = [
        trial.system_attrs["optuna_dp:draw"].get("density_ratio", 1.0)
        for trial in study.trials[1:]
    ]
    assert all(0.75 <= ratio <= 2.0 for ratio in ratios)
    assert released.design.settings["search"]["projection"] == projection.describe()
    default = study_of(sampler_with("kl"))
    default.optimize(objective)
    assert odp.release(default, vouched="a test").guarantee == released.guarantee


@pytest.mark.parametrize(
    "changed",
    [
        odp.ConvexProjection(nu=2.0),
        odp.ConvexProjection(nu=1.0, solver="SCS"),
        odp.ConvexProjection(hellinger),
        "l2",
    ],
)
def test_workers_with_another_projection_do_not_run(changed: Any) -> None:
    study = study_of(sampler_with(odp.ConvexProjection(nu=1.0)))
    study.optimize(objective, n_trials=1)
    study.sampler = sampler_with(changed)
    with pytest.raises(PlanError):
        study.optimize(objective, n_trials=1)


def test_the_plan_records_a_distance_by_its_name() -> None:
    named = odp.ConvexProjection(lambda f, w, prior: squared(f, w, prior), name="squared")
    assert named.describe()["distance"] == "squared"
    own = odp.ConvexProjection(squared).describe()["distance"]
    assert own == f"{squared.__module__}.squared"
    assert odp.ConvexProjection(nu=math.inf).describe()["nu"] == "inf"
    study = study_of(sampler_with(named))
    study.optimize(objective, n_trials=1)
    study.sampler = sampler_with(odp.ConvexProjection(squared, name="squared"))
    study.optimize(objective)
    odp.release(study, vouched="a test")


@pytest.mark.parametrize("catch", [(), (Exception,)])
def test_a_run_that_no_solver_could_draw_is_no_failed_run(
    catch: tuple[type[Exception], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the scores of earlier runs could decide which runs fail."""
    study = study_of(sampler_with(odp.ConvexProjection(nu=1.0)))
    study.optimize(objective, n_trials=2)
    with monkeypatch.context() as patch:
        patch.setattr(cp.Problem, "solve", fails)
        if catch:
            study.optimize(objective, n_trials=1, catch=catch)
        else:
            with pytest.raises(ProjectionError):
                study.optimize(objective)
    assert study.trials[2].params == {}
    study.optimize(objective)
    assert len(study.trials) == 4
    with pytest.raises(ReleaseRefusedError) as caught:
        odp.release(study, vouched="a test")
    assert caught.value.trial_number == 2


# What is refused before any run.


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"nu": -1.0}, "nu"),
        ({"nu": math.nan}, "nu"),
        ({"distance": "l2"}, "distance"),
        ({"distance": squared, "nu": 1.0}, "nu"),
        ({"name": "squared"}, "name"),
        ({"distance": lambda f, w, prior: squared(f, w, prior)}, "name"),
        ({"distance": squared, "name": " "}, "name"),
        ({"solver": "NONE"}, "solver"),
        ({"distance": lambda f, w, prior: -cp.sum_squares(f), "name": "a"}, "distance"),
        ({"distance": lambda f, w, prior: f - w, "name": "a"}, "distance"),
        ({"distance": lambda f, w, prior: 1 / 0, "name": "a"}, "distance"),
        ({"distance": lambda f: f, "name": "a"}, "distance"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], argument: str) -> None:
    with refuses(argument):
        odp.ConvexProjection(**arguments)


def test_without_cvxpy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    load = importlib.import_module

    def missing(name: str, *rest: Any) -> Any:
        if name == "cvxpy":
            raise ModuleNotFoundError("No module named 'cvxpy'", name="cvxpy")
        return load(name, *rest)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtraError) as caught:
        odp.ConvexProjection()
    assert (caught.value.package, caught.value.extra) == ("cvxpy", "cvxpy")
