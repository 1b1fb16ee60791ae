"""Laws of T, the secret number of runs of a private selection.

The law has to be fixed before the data are touched; T itself is drawn with
:meth:`TrialCount.sample` from the operating system's entropy.

Notation (Papernot & Steinke, arXiv:2110.03620v2, section 2; Wang et al., arXiv:2306.05734v2):

=================  ===============================================================
here               meaning
=================  ===============================================================
``T``              number of runs, a random whole number
``mean``, m        E[T] = phi'(1)
``pgf``            phi(s) = E[s^T], the generating function, s in [0, 1]
``pgf_derivative`` phi'(s) = E[T s^(T-1)]
``shape``          eta (theta in DP-HyPO) of the truncated negative binomial law
``gamma``          its stopping parameter, in (0, 1)
``z``              1 - gamma
``tail(n)``        P[T > n]
=================  ===============================================================

==================================  =========================  ======================
law                                 support                    parameters
==================================  =========================  ======================
``NegativeBinomial(shape=, ...)``   1, 2, 3, ...               shape > -1, gamma in
                                                               (0, 1) or mean >= 1
``Geometric(mean)``                 1, 2, 3, ... (shape 1)     mean >= 1
``Logarithmic(mean)``               1, 2, 3, ... (shape 0)     mean >= 1
``Poisson(mean)``                   0, 1, 2, ...               mean > 0
``Binomial(n, mean)``               0, 1, ..., n               n >= 1, 0 < mean <= n
``Once()``                          1                          none
``law.capped(n)``                   min(T, n)                  n >= 1
==================================  =========================  ======================
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna_dp.trial_counts.base import TrialCount as TrialCount
    from optuna_dp.trial_counts.binomial import Binomial as Binomial
    from optuna_dp.trial_counts.capped import Capped as Capped
    from optuna_dp.trial_counts.logarithmic import Logarithmic as Logarithmic
    from optuna_dp.trial_counts.negative_binomial import Geometric as Geometric
    from optuna_dp.trial_counts.negative_binomial import NegativeBinomial as NegativeBinomial
    from optuna_dp.trial_counts.once import Once as Once
    from optuna_dp.trial_counts.poisson import Poisson as Poisson

# Inside the package each law is imported from its own file, so that it can be seen who rests on
# which.
_HOMES = {
    "Binomial": "binomial",
    "Capped": "capped",
    "Geometric": "negative_binomial",
    "Logarithmic": "logarithmic",
    "NegativeBinomial": "negative_binomial",
    "Once": "once",
    "Poisson": "poisson",
    "TrialCount": "base",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
