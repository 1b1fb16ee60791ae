"""What the pages' Python blocks take for started: the reader's data, training and functions."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest

import optuna_dp as odp


def _score(trial: optuna.Trial) -> float:
    return -(trial.suggest_float("x", -1.0, 1.0) ** 2)


def _audit() -> dict[str, Any]:
    return {
        "objective": lambda trial: _score(trial) + secrets.SystemRandom().gauss(0.0, 1.0),
        "event": odp.gaussian(1.0),
    }


def _propose_test() -> dict[str, Any]:
    size, k = 4000, 1000
    return {
        "k": k,
        "secret_key": secrets.token_bytes(32),
        "record_ids": [str(i) for i in range(size)],
        "x": np.zeros(size),
        "y": np.zeros(size),
        "x_valid": None,
        "y_valid": None,
        "TrainingFailed": ArithmeticError,
        "train_without_privacy": lambda x, y, rate: rate,
        "train_with_dp_sgd": lambda x, y, rate: rate,
        "accuracy": lambda model, x, y: 1.0 - model,
        "propose": lambda accepted: [accepted or 0.5, 0.1],
        "scores_on_partitions": lambda candidate: [candidate] * k,
        "search_space": {"rate": optuna.distributions.FloatDistribution(1e-3, 1.0, log=True)},
    }


def _bring_your_model() -> dict[str, Any]:
    for package in ("torch", "pandas"):
        pytest.importorskip(package)
    return {}


_PREPARED: dict[str, Callable[[], dict[str, Any]]] = {
    "docs/how-to/audit.md": _audit,
    "docs/how-to/bring-your-model.md": _bring_your_model,
    "docs/how-to/propose-test.md": _propose_test,
}


def namespace_of(page: str) -> dict[str, Any]:
    """Returns a new namespace for a page's blocks."""
    return {"odp": odp, **_PREPARED.get(page, dict)()}
