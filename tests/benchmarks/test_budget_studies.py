"""examples/budget: its numbers are on the page, and its fast path is the public procedure."""

import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "headline"))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "budget"))

import more
import prestudy
from simulated import DELTA, EPOCHS, Experiment, Setting

import optuna_dp as odp

PAGE = Path(__file__).parents[2] / "examples" / "budget" / "README.md"


def test_every_number_of_the_page_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    prestudy.tables(prestudy.RESULTS)
    more.tables(more.RESULTS)
    printed = set(capsys.readouterr().out.splitlines())
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if re.search(r"\d ± \d", line)]
    assert len(rows) >= 10
    assert not set(rows) - printed


def test_every_search_is_on_file() -> None:
    done = prestudy.read(prestudy.RESULTS)
    expected = {
        (name, setting) for name, part in prestudy.PARTS.items() for setting in part.settings
    }
    assert set(done) == expected
    for (name, _), kept in done.items():
        assert len(kept["best"]) == len(kept["model"]) == prestudy.PARTS[name].splits
    places = [tuple(row.values())[:4] for row in more.rows(more.RESULTS)]
    assert len(set(places)) == len(places)
    assert len(places) == sum(
        more.REPETITIONS[name] * len(epsilons) * len(more.ARMS)
        for name, epsilons in more.EPSILONS.items()
    )


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_the_fast_path_plans_what_the_package_plans(epsilon: float) -> None:
    setting = Setting(epsilon, (16, 4), 1.15, score_share=0.2)
    fast = Experiment(setting, range(1), seed=0)
    plan = odp.plan_budget(
        epsilon=epsilon,
        delta=DELTA,
        records=fast.n,
        batch_size=setting.batch,
        epochs=EPOCHS,
        pilots=setting.ladder,
        noise_increase=setting.increase,
    )
    assert (plan.final.steps, plan.pilot.steps) == (fast.steps, fast.pilot_steps)
    # The package pays for a score of the last run, and calibrates pilots exactly.
    assert plan.final.noise_multiplier == pytest.approx(fast.final, rel=0.01)
    points = np.full((1, 16, 2), 0.5)
    for rung, count in zip(plan.rungs, setting.ladder, strict=True):
        _, noise = fast.scores(points[:, :count], count)
        assert rung.noise_multiplier == pytest.approx(noise, rel=0.08)
        factor = fast.final * math.sqrt(fast.steps) / (noise * math.sqrt(fast.pilot_steps))
        scaled = rung.learning_rate() / plan.final.learning_rate()
        assert scaled == pytest.approx(factor, rel=0.08)
