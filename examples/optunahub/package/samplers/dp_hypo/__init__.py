"""Wraps :class:`optuna_dp.DPHyPOSampler` for OptunaHub."""

from optuna_dp import DPHyPOSampler

__all__ = ["DPHyPOSampler"]
