"""The tasks of real networks in examples/compare: odp.train, and the list of the package."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

FOLDER = Path(__file__).parents[2] / "examples" / "compare"
sys.path.append(str(FOLDER))

from landscape import Landscape, bare_run, measured  # noqa: E402
from task import from_file  # noqa: E402

text = from_file(FOLDER / "network_tasks" / "text.py")


@pytest.mark.slow
def test_every_model_of_the_text_task_trains_and_predicts() -> None:
    task = text.task()
    private, tests = (rows[:300] for rows in task.split(0))
    run = bare_run(replace(task, records=300, batch=60), noise=1.0, steps=2)
    small = text.trained_by_train(text.architecture, 300)
    for params in task.configurations():
        predict = small(task.x[private], task.y[private], params, run, np.random.default_rng(0))
        measures = measured(task, predict, private, tests)
        assert np.isfinite(measures).all()
        assert 0.0 <= measures[-1] <= 1.0


def test_its_landscape_has_all_configurations_and_all_of_the_list() -> None:
    task, land = text.task(), Landscape.read("networks/text", beyond=True)
    assert land.configurations == task.configurations()
    assert all(params in land.configurations for params in text.listed())
    assert len(text.listed()) == 5
