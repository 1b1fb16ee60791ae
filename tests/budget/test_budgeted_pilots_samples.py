"""Studies whose pilots run on secret samples: who draws them, and what is said of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import optuna
from support import study_of

import optuna_dp as odp

PLAN: dict[str, Any] = {"epsilon": 2.0, "records": 2000, "batch_size": 50, "epochs": 1}


def test_pilots_have_samples_of_their_own_and_the_last_run_has_everything() -> None:
    plan = odp.plan_budget(**PLAN, pilots=(4, 2), sample=0.25, score=None)
    drawn: list[np.ndarray] = []

    def objective(trial: optuna.Trial) -> float:
        drawn.append(odp.fidelity(trial).draw_sample(2000))
        return trial.suggest_float("x", 0.0, 1.0)

    study = study_of(odp.BudgetSampler(plan))
    study.optimize(objective)
    assert len({rows.tobytes() for rows in drawn}) == 7
    assert all(rows.size < 1000 for rows in drawn[:-1])
    assert drawn[-1].size == 2000

    release = odp.release(study)
    assert release.guarantee.epsilon(1e-5) == plan.guarantee.epsilon(1e-5)
    text = " ".join(release.statement().split())
    assert "on a Poisson sample of 0.25" in text
    assert "each pilot trains and is scored on its own secret sample" in text
    assert "each drew its own, with fresh" in text
    kept = [study._storage.get_study_system_attrs(study._study_id)]
    kept += [{**t.system_attrs, **t.user_attrs} for t in study.trials]
    held = json.dumps(kept, default=str).replace("\\", "").replace(" ", "")
    # Of the samples a study knows what its plan says, and nothing else.
    assert '"sample":0.25' in held
    for rows in drawn[:-1]:
        assert ",".join(map(str, rows[:3])) not in held
