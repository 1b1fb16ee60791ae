"""A study on several processes.

Each makes runs of its own (:func:`optimize`), or all make each run together
(:func:`optimize_ranks`).
"""

from __future__ import annotations

from optuna_dp.distributed.ranks import optimize_ranks
from optuna_dp.distributed.workers import optimize

__all__ = ["optimize", "optimize_ranks"]
