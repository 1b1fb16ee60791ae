"""Base of the distributions of T."""

from __future__ import annotations

import importlib
import json
import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
import numpy.typing as npt

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.core.json_entries import Entry
from optuna_dp.core.value_types import JsonValue
from optuna_dp.errors import InvalidArgumentError, OptunaDPError
from optuna_dp.selection.laws import exact
from optuna_dp.selection.laws.polynomial import polynomial

if TYPE_CHECKING:
    from mpmath import MPContext

WholeNumbers = int | list[int] | npt.NDArray[Any]

_LARGEST_QUESTION = 10**300
# Probabilities that are computed at once: their formulas take ten times the memory.
_AT_ONCE = 1_000_000
#: Bits of the uniform that :meth:`TrialCount.sample` inverts.
UNIFORM_BITS = 128
_STORABLE = "Declare each field's type, such as tuple[float, ...], or write to_json and _read."
Mpf = Any  # A number of mpmath, which has no types.


_PACKAGE = "optuna_dp.selection.laws"
# The laws of this package, by the names that records have for them: file and class. Only the law
# in question is loaded: a study depends on the code of no other.
_LAWS = {
    "binomial": "binomial:Binomial",
    "capped": "capped:Capped",
    "geometric": "negative_binomial:Geometric",
    "logarithmic": "logarithmic:Logarithmic",
    "negative_binomial": "negative_binomial:NegativeBinomial",
    "poisson": "poisson:Poisson",
}
# Those that a user has defined, in this process.
_OWN: dict[str, type[TrialCount]] = {}


def law_named(name: str) -> type[TrialCount]:
    """Returns the class of a law, by its name in records.

    Raises:
        KeyError: If there is no such law.
    """
    if name in _OWN:
        return _OWN[name]
    file, _, class_name = _LAWS[name].partition(":")
    law: type[TrialCount] = getattr(importlib.import_module(f"{_PACKAGE}.{file}"), class_name)
    return law


class TrialCount(Entry, ABC):
    """Law of the secret number of runs T.

    Laws are frozen data: they compare by value, can be keys of dictionaries, and survive a round
    trip through JSON exactly.

    Guarantees:
        * ``sample()`` draws from the operating system's entropy and meets every P[T <= k] to
          within 2^-128. Its distance from the law in total variation stays below 2^-64 as long as
          fewer than 2^62 values of T carry all but 2^-65 of the mass.
        * ``pmf``, ``tail``, ``pgf`` and ``pgf_derivative`` have relative errors of about 1e-12
          wherever the value is a normal floating-point number.

    Probabilities of one number are a float, of an array an array of its shape.

    Attributes:
        mean: E[T].
        law: Name of the law in its JSON.

    Raises:
        InvalidArgumentError: By every method, if an argument is not allowed.
    """

    law: ClassVar[str]

    if TYPE_CHECKING:  # a field of the dataclasses below

        @property
        def mean(self) -> float:
            """E[T]."""

    # ---- what each law says --------------------------------------------------------------------

    @abstractmethod
    def exact_tail(self, ctx: MPContext, n: int) -> Mpf:
        """P[T > n] for n >= 0 to far better than 2^-230, as a number of the mpmath context.

        All that a bounded law has to say, beside ``mean`` and ``maximum``. What follows has values
        that are right for every law; a law overrides those for which it knows something better.
        """

    @property
    def maximum(self) -> int | None:
        """Largest possible T, or None if there is none."""
        return None

    @property
    def uncapped(self) -> TrialCount:
        """The law of T without its cap; the law itself if it has none."""
        return self

    def _pmf(self, k: FloatArray) -> FloatArray:
        """P[T = k] for whole k >= 0."""
        ctx = exact.context()

        def tail(n: int) -> Mpf:
            return self.exact_tail(ctx, n) if n >= 0 else ctx.mpf(1)

        values = [float(tail(int(n) - 1) - tail(int(n))) for n in k.ravel()]
        return np.reshape(values, k.shape)

    def _tail(self, n: int) -> float:
        """P[T > n] for n >= 0."""
        return float(self.exact_tail(exact.context(), n))

    @property
    def terms(self) -> int:
        """How many terms phi' is the sum of: a law whose phi' has a closed form returns 1.

        Long sums take coarser grids, and no rank profile, for time.
        """
        return 1 if self.maximum is None else self.maximum

    def _pgf(self, s: FloatArray) -> FloatArray:
        """phi(s)."""
        return polynomial(self._probabilities, s)

    def _pgf_derivative(self, s: FloatArray) -> FloatArray:
        """phi'(s)."""
        return polynomial(self._weights, s)

    @cached_property
    def _probabilities(self) -> FloatArray:
        """P[T = k] for k = 0, ..., maximum (trailing zeros and what is negligible cut off)."""
        if self.maximum is None:
            raise InvalidArgumentError(
                "law",
                self,
                allowed="a law without a maximum must have _pgf and _pgf_derivative",
                fix="Write these methods, or a maximum.",
            )
        end = self.maximum
        parts = [
            self._pmf(np.arange(start, min(start + _AT_ONCE, end), dtype=np.float64))
            for start in range(0, end, _AT_ONCE)
        ]
        p = np.concatenate([*parts, [self._tail(end - 1)]])
        # phi'(s) >= P[T=1] for every s, so the terms cut off are below its rounding error.
        k = np.arange(p.size, dtype=np.float64)
        indices = np.flatnonzero(k * p > 1e-24 * p[1])
        return p[: int(indices[-1]) + 1] if indices.size else p

    @cached_property
    def _weights(self) -> FloatArray:
        """k P[T = k] for k = 1, 2, ...: the coefficients of phi'."""
        p = self._probabilities
        return np.arange(1.0, p.size) * p[1:]

    # ---- what is proved of it ------------------------------------------------------------------

    @property
    def pure_factor(self) -> float:
        """The best of T eps-DP runs is (pure_factor eps)-DP, whatever ``maximum`` is; or inf."""
        return math.inf

    @property
    def is_memoryless(self) -> bool:
        """Whether, for every k, T - k given T > k has the law of T."""
        return False

    def ratios(self, k: int) -> tuple[float, float] | None:
        """Returns P[T = k+1] / P[T = k], k >= 1, and the limit that this ratio moves to.

        None if it is not known to move monotonically from the one to the other.
        """
        return None

    @property
    def rdp_may_be_smaller(self) -> bool:
        """Whether the curve of :meth:`rdp` may say less than the profile bounds."""
        return False

    def why_no_rdp(self, density_bounds: tuple[float, float] = (1.0, 1.0)) -> str | None:
        """Returns why :meth:`rdp` covers this law under these bounds nowhere, or None."""
        return (
            f"the RDP theorems of selection do not hold for {self!r}: they need phi' of a "
            "truncated negative binomial or Poisson law, and for capped laws they are false "
            "(min(T, 20) for geometric T of mean 1000 and 1-DP runs leaks 5.9, not 3). The "
            "profile bounds cover it."
        )

    def rdp(
        self,
        orders: npt.ArrayLike,
        run_rdp: npt.ArrayLike,
        density_bounds: tuple[float, float] = (1.0, 1.0),
    ) -> FloatArray:
        """Returns the RDP curve of releasing the best of T runs.

        Guarantees:
            * At C = c = 1 the values are those of dp-accounting's ``RepeatAndSelectDpEvent``
              wherever it takes the parameters, and for Poisson laws never above them.
            * Non-decreasing in the order (Renyi divergences are, so the running minimum from the
              right is a bound), in the mean of T, in C, in 1/c and in the curve of the run.
            * ``inf`` where nothing is known (:meth:`why_no_rdp` says why), never NaN.

        Args:
            orders: Shape (n,), at least 1, ``inf`` allowed (pure DP), in any sequence.
            run_rdp: Shape (n,), the run's curve at these orders, ``inf`` allowed.
            density_bounds: (c, C) with 0 < c <= 1 <= C.

        Returns:
            Shape (n,).
        """
        # Lazy: only Rényi curves need it.
        from optuna_dp.accounting.rdp_curves import checked_curve

        a, run = checked_curve(orders, run_rdp)
        c, big_c = validation.density_bounds(density_bounds)
        if self.why_no_rdp((c, big_c)) is not None:
            return np.full_like(a, np.inf)
        return self._rdp(a, run, c, big_c)

    def _rdp(self, a: FloatArray, run: FloatArray, c: float, big_c: float) -> FloatArray:
        """The curve under density bounds (c, C)."""
        return np.full_like(a, np.inf)

    def rdp_term(self, a: FloatArray, run: FloatArray, per_run: float, constant: float) -> float:
        """(1+eta) min over b of [(1-1/b)(eps(b) + per_run) + constant + log(1/gamma)/b], or inf.

        What Theorem 2 of arXiv:2110.03620v2 adds to the curve ``run`` at every order; the orders
        ``a`` stand in for b.
        """
        return math.inf

    def log_slope_ratios(
        self, a: FloatArray, forward: FloatArray, reverse: FloatArray
    ) -> FloatArray | None:
        """Returns log R with phi'(s) <= R phi'(s'), for each a >= 0; None if none is known.

        For all s, s' in [0, 1] with s <= e^a s' + forward and 1 - s' <= e^a (1 - s) + reverse
        (docs/explanation/profile-bound.md). It is used for comparison only.
        """
        return None

    # ---- probabilities -------------------------------------------------------------------------

    @overload
    def pmf(self, k: int) -> float: ...
    @overload
    def pmf(self, k: npt.NDArray[Any] | list[int]) -> FloatArray: ...
    def pmf(self, k: WholeNumbers) -> float | FloatArray:
        """Returns P[T = k] for a whole number, or for each of an array; 0 for negative ones."""
        array = _whole_numbers("k", k)
        inside = array >= 0.0
        values = np.where(inside, self._pmf(np.where(inside, array, 1.0)), 0.0)
        return _as_result(values, np.ndim(k) == 0)

    def tail(self, n: int) -> float:
        """Returns P[T > n], accurate also where it is tiny."""
        return self._tail_at(_whole("n", n))

    def cdf(self, k: int) -> float:
        """Returns P[T <= k]."""
        return self._cdf_at(_whole("k", k))

    def quantile(self, p: float) -> int:
        """Returns the smallest k with ``cdf(k) >= p``.

        Args:
            p: A probability in (0, 1); 1 is allowed if T is bounded.
        """
        p = validation.number("p", p)
        if p == 1.0 and self.maximum is not None:
            return self.first_with_tail(0.0)
        validation.open_unit("p", p)
        return self._search(lambda k: self._cdf_at(k) >= p)

    def first_with_tail(self, p: float) -> int:
        """Returns the smallest k with ``tail(k) <= p``, in floating point."""
        return self._search(lambda k: self._tail_at(k) <= p)

    def hit_probability(self, fraction: float) -> float:
        """Returns the chance that at least one run lands in the best ``fraction`` of the prior.

        This is 1 - phi(1 - fraction) for runs drawn from the prior.

        Args:
            fraction: In [0, 1].
        """
        fraction = validation.number("fraction", fraction)
        if not 0.0 <= fraction <= 1.0:
            raise InvalidArgumentError("fraction", fraction, allowed="it must lie between 0 and 1")
        return 1.0 - min(self.pgf(1.0 - fraction), 1.0)

    @overload
    def pgf(self, s: float) -> float: ...
    @overload
    def pgf(self, s: npt.NDArray[Any]) -> FloatArray: ...
    def pgf(self, s: float | npt.NDArray[Any]) -> float | FloatArray:
        """Returns phi(s) = E[s^T] for s in [0, 1], or for each of an array of such numbers."""
        return _as_result(self._pgf(_unit("s", s)), np.ndim(s) == 0)

    @overload
    def pgf_derivative(self, s: float) -> float: ...
    @overload
    def pgf_derivative(self, s: npt.NDArray[Any]) -> FloatArray: ...
    def pgf_derivative(self, s: float | npt.NDArray[Any]) -> float | FloatArray:
        """Returns phi'(s) = E[T s^(T-1)] as :meth:`pgf` does."""
        return _as_result(self._pgf_derivative(_unit("s", s)), np.ndim(s) == 0)

    # ---- new laws, drawing, records ------------------------------------------------------------

    def capped(self, n: int) -> TrialCount:
        """Returns the law of min(T, n). A cap on a capped law keeps the smaller of the two.

        Args:
            n: The cap, from 1 to 2 million; the law itself is returned if T never exceeds it.
        """
        n = validation.whole("n", n, minimum=1)
        if self.maximum is not None and self.maximum <= n:
            return self
        law: Callable[..., TrialCount] = law_named("capped")
        return law(self, n)

    def sample(self, uniform_bits: Callable[[int], int] | None = None) -> int:
        """Draws T, a secret: who knows it may learn from the number of runs.

        Args:
            uniform_bits: Source of uniform random bits, called once with 128. The default is the
                operating system's entropy (``secrets.randbits``); anything else makes T guessable
                and is for studies whose result is never released.
        """
        source = secrets.randbits if uniform_bits is None else uniform_bits
        return self.invert(source(UNIFORM_BITS))

    def invert(self, u: int) -> int:
        """Returns the smallest k with P[T <= k] >= (u + 1/2) / 2^128.

        A floating-point quantile is only the first guess; every decision is made on tails in
        320-bit arithmetic.
        """
        if not 0 <= u < 1 << UNIFORM_BITS:
            raise InvalidArgumentError("u", u, allowed="it must be a whole number of 128 bits")
        ctx = exact.context()
        remainder = (1 << (UNIFORM_BITS + 1)) - (2 * u + 1)
        v = ctx.ldexp(ctx.mpf(remainder), -(UNIFORM_BITS + 1))  # 1 - uniform, exactly
        tie = ctx.ldexp(1, -exact.TIE_BITS)

        def beyond(k: int) -> bool:
            """Returns whether T > k, that is P[T > k] > v. Exact ties exist (gamma = 1/2)."""
            return bool(k < 0 or self.exact_tail(ctx, k) - v > tie)

        return _first(lambda k: not beyond(k), self.first_with_tail(float(v)))

    # ---- records -------------------------------------------------------------------------------

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not cls.__module__.startswith("optuna_dp."):
            cls._check_own()
        if "law" in vars(cls):
            cls.constants = {"law": cls.law}
            if not cls.__module__.startswith("optuna_dp."):
                _OWN[cls.law] = cls

    @classmethod
    def _check_own(cls) -> None:
        """Refuses a class outside this package whose guarantee would be that of another one."""
        parents = [base for base in cls.__mro__[1:] if issubclass(base, TrialCount)]
        if len(parents) > 1:
            raise InvalidArgumentError(
                "class",
                cls.__name__,
                problem=f"bounds of {parents[0].__name__} would be taken for those of its "
                "subclass",
                fix="Make it a subclass of TrialCount itself.",
            )
        # A class that cloudpickle makes again has no name yet. Without one nothing can be read.
        name = vars(cls).get("law", "")
        if not isinstance(name, str) or name in _LAWS or name in _OWN:
            raise InvalidArgumentError(
                "law",
                name,
                allowed="it must be a name that no other law has, because T is charged for by "
                "its name",
                fix="If a notebook's cell with this class was run again, restart the notebook.",
            )
        if {"sample", "invert"} & vars(cls).keys():
            raise InvalidArgumentError(
                "sample",
                cls.__name__,
                allowed="T must be drawn by exact_tail",
                fix="Leave out the method.",
            )

    @classmethod
    def from_json(cls, data: JsonValue) -> TrialCount:
        """Reads back any law from :meth:`to_json`; refuses anything else."""
        name = data.get("law") if isinstance(data, dict) else None
        names = {*_LAWS, *_OWN}
        if not isinstance(name, str) or name not in names:
            raise cls.refusal(data, f"a law of T is a mapping with 'law' among {sorted(names)}")
        return law_named(name)._read(data)

    @classmethod
    def _read(cls, data: dict[str, JsonValue]) -> TrialCount:
        """Reads back a law of this class."""
        return super().from_json(data)

    @classmethod
    def refusal(cls, data: object, reason: str, fix: str = "") -> InvalidArgumentError:
        """Returns the error for JSON that is not that of a law."""
        return InvalidArgumentError(
            "law", data, problem=reason, fix=fix or "The entry is corrupted or of another version."
        )

    def checked(self) -> TrialCount:
        """Returns the law; refuses one of your own that contradicts itself.

        That is, one that JSON does not give back, or whose mean is not that of its probabilities.

        Raises:
            InvalidArgumentError: If it does not.
        """
        if type(self.uncapped).__module__.startswith("optuna_dp."):
            return self
        try:
            copy = TrialCount.from_json(json.loads(json.dumps(self.to_json())))
        except (TypeError, ValueError, LookupError, OptunaDPError) as error:
            raise self.refusal(self, f"it cannot be stored ({error})", _STORABLE) from error
        if copy != self:
            raise self.refusal(self, f"JSON gives back {copy!r}", _STORABLE)
        slope = self.pgf_derivative(1.0)
        if not math.isclose(slope, self.mean, rel_tol=1e-9):
            raise self.refusal(
                self, f"its mean is {self.mean!r} and phi'(1) is {slope!r}", "They must be equal."
            )
        return self

    # ---- helpers -------------------------------------------------------------------------------

    def _tail_at(self, n: int) -> float:
        return 1.0 if n < 0 else self._tail(n)

    def _cdf_at(self, k: int) -> float:
        if k < 0:
            return 0.0
        tail = self._tail(k)
        if tail > 0.5 and k <= 4096:
            # Near the bottom the sum keeps the digits that 1 - tail would lose.
            return float(min(1.0, np.sum(self._pmf(np.arange(k + 1, dtype=np.float64)))))
        return 1.0 - tail

    def _search(self, reached: Callable[[int], bool]) -> int:
        """Returns the smallest k in 0 .. maximum with ``reached(k)``, which is monotone in k."""
        largest = math.inf if self.maximum is None else self.maximum
        return _first(lambda k: k >= 0 and (k >= largest or reached(k)), 0)


def _first(reached: Callable[[int], bool], guess: int) -> int:
    """Returns the smallest whole number with ``reached``, which is monotone: from a guess on."""
    step = 1
    if reached(guess):
        low, high = guess - step, guess
        while reached(low):
            step *= 2
            low, high = low - step, low
    else:
        low, high = guess, guess + step
        while not reached(high):
            step *= 2
            low, high = high, high + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidArgumentError(name, value, allowed="it must be a whole number")
    result = int(value.__index__())
    if abs(result) > _LARGEST_QUESTION:
        raise InvalidArgumentError(name, value, allowed="it must be at most 1e300")
    return result


def _whole_numbers(name: str, value: WholeNumbers) -> FloatArray:
    if np.ndim(value) == 0:
        return np.asarray(float(_whole(name, value)))
    try:
        array = np.asarray(value)
    except ValueError:  # rows of unequal length
        raise InvalidArgumentError(
            name, value, allowed="it must hold whole numbers only"
        ) from None
    if array.size and array.dtype.kind not in "iu":
        raise InvalidArgumentError(name, value, allowed="it must hold whole numbers only")
    return array.astype(np.float64)


def _unit(name: str, value: object) -> FloatArray:
    """Returns points of [0, 1]; rounding errors up to 1e-12 outside are clipped."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgumentError(name, value, allowed="it must hold numbers only") from None
    if array.size and not bool(np.all((array >= -1e-12) & (array <= 1.0 + 1e-12))):
        raise InvalidArgumentError(name, value, allowed="it must lie between 0 and 1")
    return np.asarray(np.clip(array, 0.0, 1.0), dtype=np.float64)


def _as_result(values: object, scalar: bool) -> float | FloatArray:
    """Returns a float for a scalar argument and a float64 array otherwise."""
    array = np.asarray(values, dtype=np.float64)
    return float(array) if scalar else array
