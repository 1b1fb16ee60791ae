"""Projections by convex programming (DP-HyPO, arXiv 2306.05734v2, equations 3.1 and C.1).

Equation 3.1 leaves the distance open, and cvxpy solves it for any convex one. What the solver
returns is a proposal: ``shares.enforce`` brings it onto whole numbers within [c, C], so no
guarantee depends on a solver or on a distance (docs/explanation/convex-projections.md).

Needs the extra: ``pip install "optuna-dp[cvxpy]"``.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from optuna_dp.core.arrays import FloatArray
from optuna_dp.core.validation import non_negative
from optuna_dp.core.value_types import JsonValue
from optuna_dp.errors import InvalidArgumentError, MissingExtraError, ProjectionError

if TYPE_CHECKING:
    from cvxpy import Expression, Variable

# Tried in this order. Both come with cvxpy and solve every problem that its rules allow.
_SOLVERS = ("CLARABEL", "SCS")
_SOLVED = ("optimal", "optimal_inaccurate")
# Weights below this part of the prior's own move no objective by more than a solver's accuracy.
_SMALLEST_WEIGHT = 1e-12

Distance = Callable[["Variable", FloatArray, FloatArray], "Expression"]


@dataclass(frozen=True)
class ConvexProjection:
    """A projection onto the densities within [c, C] of the prior that cvxpy computes.

    For ``DPHyPOSampler(projection=...)``. Without ``distance`` it is equation C.1 of DP-HyPO
    (Wang et al. 2023, arXiv 2306.05734v2), ``||f - w|| + nu KL(w || f)``, both with respect to
    the prior: ``nu=0`` is ``projection="l2"`` and ``nu=math.inf`` is ``projection="kl"``, which
    bisection solves much faster and exactly. ``distance`` states any other one. Needs the extra:
    ``pip install "optuna-dp[cvxpy]"``. How far the solvers are from the exact density, and a
    distance of your own: ``docs/explanation/convex-projections.md``.

    Guarantees:
        * Whatever the distance and the solver return, the density of the draw is within [c, C] of
          the prior and adds up, exactly.
        * If every solver fails, :class:`~optuna_dp.errors.ProjectionError` is raised, and nothing
          is drawn.

    Args:
        distance: A function of ``f``, ``w`` and ``prior``, each of shape (N,), whose result is
            minimised: ``f``, a cvxpy variable, the ratios to be found, relative to the prior;
            ``w``, at least 0, the ratios that the search would like, with ``prior @ w == 1``;
            ``prior``, probabilities that add up to 1. It returns a scalar cvxpy expression that is
            convex in ``f`` by cvxpy's rules. It must be a function of its arguments alone, the
            same in every worker. None is equation C.1.
        nu: The weight of KL in equation C.1, at least 0; ``math.inf`` leaves KL alone. Not with
            ``distance``.
        name: The name under which the plan records ``distance``; by default its module and name.
            Workers agree on the name, which cannot tell what a function computes: give a changed
            function another name.
        solver: The name of an installed solver of cvxpy. None tries Clarabel and then SCS.

    Raises:
        InvalidArgumentError: If an argument is not allowed, or ``distance`` does not return a
            convex scalar.
        MissingExtraError: If cvxpy is not installed.

    Example:
        >>> import optuna_dp as odp
        >>> sampler = odp.DPHyPOSampler(projection=odp.ConvexProjection(nu=1.0))
    """

    distance: Distance | None = None
    nu: float = 0.0
    name: str | None = None
    solver: str | None = None

    def __post_init__(self) -> None:
        if self.nu != math.inf:
            object.__setattr__(self, "nu", non_negative("nu", self.nu))
        if self.distance is not None and not callable(self.distance):
            raise InvalidArgumentError(
                "distance",
                self.distance,
                allowed="it must be None or a function of f, w and prior",
            )
        if self.distance is not None and self.nu != 0.0:
            raise InvalidArgumentError(
                "nu",
                self.nu,
                problem="it belongs to equation C.1",
                fix="Put the weight into distance.",
            )
        if self.distance is None and self.name is not None:
            raise InvalidArgumentError("name", self.name, problem="it is the name of a distance")
        if self.distance is not None:
            object.__setattr__(self, "name", _checked_name(self.name, self.distance))
        cvxpy = _cvxpy()
        if self.solver is not None and self.solver not in cvxpy.installed_solvers():
            raise InvalidArgumentError(
                "solver",
                self.solver,
                problem=f"the solvers that are installed are {sorted(cvxpy.installed_solvers())}",
            )
        self._check_convex(cvxpy)

    def describe(self) -> dict[str, JsonValue]:
        """What workers must agree on, as plain data for the record of a plan."""
        record: dict[str, JsonValue] = {"method": "convex", "solver": self.solver}
        if self.distance is None:
            # JSON has no infinity.
            return {**record, "distance": "C.1", "nu": str(float(self.nu))}
        return {**record, "distance": self.name}

    def ratios(self, w: FloatArray, prior: FloatArray, c: float, big_c: float) -> FloatArray:
        """Returns what the solver finds; the bounds are met up to its accuracy only.

        Args:
            w: The ratios that the search would like, shape (N,), with ``prior @ w == 1``.
            prior: Probabilities, shape (N,).
            c: The lower bound of a ratio.
            big_c: The upper bound.

        Raises:
            ProjectionError: If no solver returns finite ratios.
        """
        cvxpy = _cvxpy()
        failures = []
        for solver in _SOLVERS if self.solver is None else (self.solver,):
            try:
                f = cvxpy.Variable(w.size)
                minimum = cvxpy.Minimize(self._objective(f, w, prior))
                problem = cvxpy.Problem(minimum, [f >= c, f <= big_c, prior @ f == 1.0])
                problem.solve(solver=solver)
            except Exception as error:  # A solver, and a distance, may raise anything.
                failures.append(f"{solver} raised {type(error).__name__}")
                continue
            if problem.status in _SOLVED and f.value is not None and np.isfinite(f.value).all():
                return np.array(f.value, dtype=np.float64)
            failures.append(f"{solver} returned {problem.status!r} or no finite numbers")
        raise ProjectionError(
            f"No solver has found a projection: {'; '.join(failures)}. No parameters were drawn. "
            "The scores of earlier runs may be the cause, so this is no failed run, and the study "
            "cannot be released any more. Start a new study with another solver or distance, or "
            'with projection="kl", which cannot fail.'
        )

    def _objective(self, f: Variable, w: FloatArray, prior: FloatArray) -> Expression:
        if self.distance is not None:
            return self.distance(f, w, prior)
        cvxpy = _cvxpy()
        if self.nu == 0.0:
            # The square has the same minimum, and solvers find it to more digits; still more of
            # them where the terms do not shrink as candidates become many.
            squares: Expression = cvxpy.sum_squares(cvxpy.multiply(np.sqrt(prior * w.size), f - w))
            return squares
        positive = w > _SMALLEST_WEIGHT
        divergence: Expression = cvxpy.sum(
            cvxpy.multiply(prior[positive], cvxpy.rel_entr(w[positive], f[positive]))
        )
        if self.nu == math.inf:
            return divergence
        norm: Expression = cvxpy.norm(cvxpy.multiply(np.sqrt(prior), f - w), 2)
        # Divided, so that a large nu leaves the numbers as they are.
        mixture: Expression = norm / (1.0 + self.nu) + divergence * (self.nu / (1.0 + self.nu))
        return mixture

    def _check_convex(self, cvxpy: ModuleType) -> None:
        """Refuses, before any run, a distance that cvxpy cannot minimise."""
        f, fix = cvxpy.Variable(3), "See docs/explanation/convex-projections.md for examples."
        try:
            w, prior = np.array([0.5, 1.0, 1.5]), np.array([0.25, 0.5, 0.25])
            convex = bool(cvxpy.Problem(cvxpy.Minimize(self._objective(f, w, prior))).is_dcp())
        except Exception as error:
            reason = f"cvxpy cannot minimise what it returns ({error})"
            raise InvalidArgumentError("distance", self.name, problem=reason, fix=fix) from error
        if not convex:
            reason = "what it returns is not convex in f by cvxpy's rules"
            raise InvalidArgumentError("distance", self.name, problem=reason, fix=fix)


def _checked_name(name: object, distance: Distance) -> str:
    if name is None:
        name = f"{getattr(distance, '__module__', '')}.{getattr(distance, '__qualname__', '<')}"
        if "<" in name:
            raise InvalidArgumentError(
                "name",
                None,
                problem="the distance has no name of its own, and the plan records it by its name",
                fix='Give one, for example ConvexProjection(distance, name="squared").',
            )
    if not isinstance(name, str) or not name.strip():
        raise InvalidArgumentError("name", name, allowed="it must be a text that is not empty")
    return name


def _cvxpy() -> ModuleType:
    try:
        return importlib.import_module("cvxpy")
    except ModuleNotFoundError as error:
        raise MissingExtraError("cvxpy", "cvxpy") from error
