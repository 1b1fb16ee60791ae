"""Propose-test tuning: non-private utilities on disjoint partitions, then one private choice.

Two mechanisms choose from the same utilities: AboveThreshold inside the doubling loop of Ding & Wu
(arXiv 2211.01852, the versions titled "Revisiting Hyperparameter Tuning with Differential Privacy"
and "Constant-overhead Differentially Private Hyperparameter Tuning"), and report-noisy-max. The
proofs are in ``docs/explanation/propose-test.md``.

To be read from below: ``utility_values`` (the numbers), then ``sparse_vector``, ``doubling`` and
``report_noisy_max`` (the mechanisms). Nothing here knows a study: its samplers are
``optuna_dp.samplers.choice``.

Notation (code name: meaning, name in the papers):

====================  ==========================================================================
``n_partitions``      number of disjoint parts of the training data, ``k``
``n_candidates``      number of candidates tested, ``|S|``
``epsilon``           privacy of ONE iteration (``ε0`` / ``ϵ``) in the doubling loop; of the whole
                      choice in report-noisy-max
``granularity``       smallest step of the threshold, ``g``
``lower_bound``       where the threshold starts, ``u0``
``n``                 ``ceil((1 - u0) / g)``, the number of granules between ``u0`` and 1
``position``          granules accumulated so far, an integer ``j``; ``u = u0 + j g``
``step``              the next proposal in granules, a power of two
``m``                 iteration bound: ``2n - 1`` (bounded) or fixed beforehand (capped)
``totals``            utilities as whole numbers, ``sum_i round(RESOLUTION * u_s^(i))``
``unit``              the total that stands for utility 1, ``k * RESOLUTION``
``sensitivity``       how far one record can move one total, ``Δ`` (``RESOLUTION`` for scores)
====================  ==========================================================================
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
