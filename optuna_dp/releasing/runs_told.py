"""Releases that tell how many runs had a chance to be chosen."""

from __future__ import annotations

from dataclasses import replace

from optuna_dp.protocol.plan import Design
from optuna_dp.releasing.runs import Evidence
from optuna_dp.trial_counts.binomial import Binomial


def of_runs_that_were_told(evidence: Evidence, runs: int) -> Design:
    """The design of the same search with as many selection runs as were told."""
    exactly = Binomial(runs, mean=runs).to_json()
    settings = dict(evidence.plan.design.settings)
    if "selection" in settings:
        settings["selection"] = {**settings["selection"], "trials": exactly}
    else:
        settings["trials"] = exactly
    return replace(evidence.plan.design, settings=settings)
