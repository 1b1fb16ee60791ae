"""Laws of T, the secret number of runs of a private selection.

The law has to be fixed before the data are touched; T itself is drawn with
:meth:`TrialCount.sample` from the operating system's entropy. Each law is a file, with a name in
the table of ``base``. All that is known of it stands there: its probabilities and its theorems.

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
``law.capped(n)``                   min(T, n)                  n >= 1
==================================  =========================  ======================
"""
