"""Wraps :class:`optuna_dp.RandTuneSampler` for OptunaHub."""

from optuna_dp import RandTuneSampler

__all__ = ["RandTuneSampler"]
