"""What a study with pilots has to show before it is released.

The prior of the selection runs must be one law, a function of the pilots' outputs alone. A
selection run records, before it draws, a digest of the outputs that its prior is made of, and what
its fitted model says at fixed points. A prior that moved between selection runs (refitted to their
scores, say) shows in one or the other.
"""

from __future__ import annotations

import json
import math
from typing import Any

from optuna.trial import FrozenTrial

from optuna_dp.errors import ReleaseRefusedError
from optuna_dp.protocol.pilot_keys import FROZEN_KEY, PILOT_KEY
from optuna_dp.protocol.records import DRAW_KEY, SLOT_KEY
from optuna_dp.releasing.runs import Evidence
from optuna_dp.samplers.pilot_settings import PilotSettings, outputs_digest

# Predictions of two machines differ by rounding. In units of the spread of the pilots' scores.
_TOLERANCE = 1e-6


def check_pilots(evidence: Evidence) -> None:
    """Refuses a study whose selection runs were not drawn from one prior, frozen after the pilots.

    Raises:
        ReleaseRefusedError: Says which trial and why.
    """
    settings = PilotSettings.from_json(evidence.plan.design.settings)
    trials = [run.trial for run in evidence.runs]
    for trial in trials:
        marked = bool(trial.system_attrs.get(PILOT_KEY, False))
        if SLOT_KEY in trial.system_attrs and marked != (trial.number < settings.pilots):
            raise ReleaseRefusedError(
                "it ran as a pilot and is none, or the other way round: its mark is not the "
                "plan's.",
                trial_number=trial.number,
                fix="Start a new study.",
            )
    outputs = outputs_digest(trials[: settings.pilots])
    drawn: tuple[FrozenTrial, list[str], list[float]] | None = None
    for trial in trials[settings.pilots :]:
        # Optuna asks no sampler for what can have one value only.
        drew = any(not distribution.single() for distribution in trial.distributions.values())
        if drew and trial.system_attrs.get(FROZEN_KEY) != outputs:
            raise _moved(trial, "the outputs of the study's pilots")
        record = trial.system_attrs.get(DRAW_KEY)
        if record is None:
            continue
        mine = (trial, *_law(trial, record))
        drawn = drawn or mine
        same = all(
            math.isclose(a, b, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
            for a, b in zip(mine[2], drawn[2], strict=True)
        )
        if mine[1] != drawn[1] or not same:
            raise _moved(trial, f"what trial {drawn[0].number}'s was")


def _law(trial: FrozenTrial, record: Any) -> tuple[list[str], list[float]]:
    """What tells two frozen priors apart: their parameters, and their models' predictions."""
    try:
        space = [json.dumps([name, text]) for name, text in sorted(record["space"].items())]
        return space, [float(value) for value in record["probes"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReleaseRefusedError(
            "the record of its draw is corrupted.", trial_number=trial.number
        ) from error


def _moved(trial: FrozenTrial, what: str) -> ReleaseRefusedError:
    return ReleaseRefusedError(
        f"the prior it was drawn from was not frozen: it is not made of {what}.",
        trial_number=trial.number,
        fix="Start a new study; the pilots that have run are paid for and compose with it. All "
        "workers need the same versions of their packages.",
    )
