"""A recipe by vote, then Flower's own FedAvg with client-level privacy, as one release."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')
pytest.importorskip("sklearn", reason="the digits are scikit-learn's")

import optuna_dp as odp
from optuna_dp.accounting.kinds.skellam import SkellamDpEvent

EXAMPLE = Path(__file__).parents[2] / "examples" / "federated_recipe" / "recipe.py"


@pytest.fixture(scope="module")
def recipe() -> Any:
    spec = importlib.util.spec_from_file_location("federated_recipe", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_vote_and_training_are_one_release_about_clients(
    recipe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[float, int]] = []
    real = np.random.normal

    def noted(mean: float, deviation: float, shape: Any) -> Any:
        drawn.append((deviation, int(np.prod(shape))))
        return real(mean, deviation, shape)

    monkeypatch.setattr(np.random, "normal", noted)
    whole = recipe.run(clients=12, rounds=3, noise_multiplier=5.0, epsilon=2.0)
    # What Flower drew is what is accounted: the noise over what one of 12 clients can move.
    assert drawn == [(pytest.approx(5.0 * recipe.CLIP / 12), 650)] * 3
    vote, training = whole.guarantee.event.events
    assert isinstance(vote, SkellamDpEvent)
    rounds = odp.dp_sgd(noise_multiplier=5.0, sample_rate=1.0, steps=3)
    assert training == odp.per_client(rounds)
    assert whole.guarantee.unit == "client"
    assert whole.guarantee.neighboring_relation == "null_client"
    alone = [odp.Guarantee(e, "null_client").epsilon(1e-5) for e in (vote, training)]
    assert max(alone) < whole.guarantee.epsilon(1e-5) < sum(alone)
    assert "for each client as a whole: 3 times" in whole.statement()


def test_the_example_runs() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--quick"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"both together, about one client: ([\d.]+)", done.stdout)
    assert found is not None
    assert 2.0 < float(found[1]) < 6.0
