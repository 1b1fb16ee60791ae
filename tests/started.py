"""Runs that a trial has started, and what training them by odp.train does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import optuna

import optuna_dp as odp
from optuna_dp.runs.trial_notes import claims, stored_trial

# Noise that no float shows: what is left of a step is the clipped sum over the public batch size.
NO_NOISE = 1e-9


def started(
    records: int,
    *,
    batch_size: float | None = None,
    steps: int = 1,
    noise_multiplier: float = 1.0,
    score: str | None = "training",
    score_noise_multiplier: float | None = 0.1,
    **changes: Any,
) -> odp.Run:
    """A run of a study whose runs are all alike. By default all records join its one step."""
    plan = odp.RunPlan(
        records=records,
        batch_size=records if batch_size is None else batch_size,
        steps=steps,
        noise_multiplier=noise_multiplier,
        score=score,
        score_noise_multiplier=None if score is None else score_noise_multiplier,
        **changes,
    )
    sampler = odp.RandTuneSampler(trials=odp.Poisson(mean=2000.0), run=plan)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    return odp.start_run(study.ask())


def claimed(run: odp.Run, kind: str) -> list[Mapping[str, Any]]:
    """What a run's trial has claimed of a kind."""
    assert run.trial is not None
    return list(claims(stored_trial(run.trial), kind).values())
