"""Bounded densities: where the next run's hyperparameters are drawn from.

The accountants charge for a search that learns by two numbers alone, the bounds ``c`` and ``C`` of
its density relative to the prior. This package is what makes those two numbers true: whatever the
scores, the surrogate or the solver do, the hyperparameters of a run are drawn from a law whose
density relative to the prior lies in ``[c, C]``, without a tolerance.

The lemmas and their proofs are in ``docs/explanation/bounded-densities.md``.

Notation, shared by every module (DP-HyPO is arXiv 2306.05734v2):

=============  ================================================================================
``N``          number of candidates (fresh draws from the prior, or the points of a fixed set)
``pi0``        the prior; on a fixed set ``pi0_i = m_i / M``
``m_i, M``     integer masses of a fixed set and their sum (all ones, ``M = N``, for fresh ones)
``c, C``       bounds of the density relative to the prior, ``0 < c <= 1 <= C``
``w_i``        weights: the density ratio the search would like, before it is bounded
``f_i``        the bounded ratio, ``c <= f_i <= C``, ``sum_i pi0_i f_i = 1``
``k_i, S``     integer shares and their sum: candidate ``i`` is drawn with probability ``k_i / S``
``unit``       ``S = unit * M`` and ``f_i = k_i / (unit * m_i)``; a power of two
``nu``         the dual variable of a projection, or the penalty of equation C.1
``s_i``        score of a candidate, ``mean_i + tau * std_i`` of the surrogate
``beta``       inverse temperature: ``w_i`` is proportional to ``exp(beta * s_i)``
=============  ================================================================================

Modules: ``shares`` (exact integer probabilities), ``projection`` and ``convex_projection`` (the
latter by cvxpy), ``informed`` (a fixed set of candidates), ``adaptive_density``.
"""
