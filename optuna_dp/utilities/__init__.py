"""Propose-test tuning: non-private utilities on disjoint partitions, then one private choice.

Two mechanisms choose from the same utilities: AboveThreshold inside the doubling loop of Ding & Wu
(arXiv 2211.01852, the versions titled "Revisiting Hyperparameter Tuning with Differential Privacy"
and "Constant-overhead Differentially Private Hyperparameter Tuning"), and report-noisy-max. The
proofs are in ``docs/explanation/propose-test.md``. Nothing here knows Optuna.

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

from __future__ import annotations

from typing import TYPE_CHECKING

from optuna_dp.front_doors import front_door

if TYPE_CHECKING:
    from optuna_dp.utilities.doubling import DoublingPlan as DoublingPlan
    from optuna_dp.utilities.doubling import propose_test as propose_test
    from optuna_dp.utilities.partitions import partition as partition
    from optuna_dp.utilities.partitions_needed import NoiseWarning as NoiseWarning
    from optuna_dp.utilities.partitions_needed import UtilityPlan as UtilityPlan
    from optuna_dp.utilities.partitions_needed import plan_utilities as plan_utilities
    from optuna_dp.utilities.report_noisy_max import NoisyMaxPlan as NoisyMaxPlan
    from optuna_dp.utilities.report_noisy_max import noisy_max as noisy_max
    from optuna_dp.utilities.utility_values import Utilities as Utilities
    from optuna_dp.utilities.utility_values import (
        validation_records_needed as validation_records_needed,
    )

__getattr__, __dir__, __all__ = front_door(
    __name__,
    {
        "doubling": "DoublingPlan propose_test",
        "report_noisy_max": "NoisyMaxPlan noisy_max",
        "partitions": "partition",
        "partitions_needed": "NoiseWarning UtilityPlan plan_utilities",
        "utility_values": "Utilities validation_records_needed",
    },
)
