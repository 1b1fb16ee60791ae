"""What the benchmarks count and compute; what they time is printed by ``.ci/whole``."""

import sys
from pathlib import Path

import numpy as np
import optuna
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "benchmarks"))

import storage_traffic

from optuna_dp.priors.densities.projection import project_log


@pytest.mark.parametrize("name", storage_traffic.samplers())
def test_storage_calls_per_trial_do_not_grow(name: str) -> None:
    """Counted, not timed: what 10 trials ask of the storage after 20 and after 40."""
    few, many = storage_traffic.traffic(name, (20, 40), optuna.storages.InMemoryStorage())
    assert few.calls == many.calls
    assert sum(many.calls.values()) <= 30 * storage_traffic.BLOCK


@pytest.mark.slow
@pytest.mark.parametrize("name", ["RandTune", "RandTune, define-by-run"])
def test_rand_tune_sends_a_database_a_claim_and_one_write_more_than_random_search(
    name: str, tmp_path: Path
) -> None:
    """The entry of the slot, from which all draws follow; a claim is 3 writes and 2 reads."""
    calls, statements = [], []
    for i, sampler in enumerate(("RandomSampler", name)):
        storage = optuna.storages.get_storage(f"sqlite:///{tmp_path}/{i}.db")
        found = storage_traffic.traffic(sampler, (4, 12), storage, block=5)
        assert found[0].calls == found[1].calls
        assert found[0].statements == found[1].statements
        calls.append(found[0].calls)
        statements.append(found[0].statements)
    assert calls[1] - calls[0] == {"set_trial_system_attr": 20, "get_trial": 10}
    assert not calls[0] - calls[1]
    assert statements[1] - statements[0] <= 5 * 20


def test_the_simulated_density_is_the_library_s() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "dp_hypo"))
    from optuna.distributions import FloatDistribution
    from simulate import log_weights

    from optuna_dp.priors.densities.adaptive_density import AdaptiveDensity
    from optuna_dp.priors.densities.informed import FixedCandidates
    from optuna_dp.priors.scores import RunOutcome

    rng = np.random.default_rng(0)
    points, known = rng.random((40, 2)), rng.random((9, 2))
    y = [float(v) for v in known.sum(axis=1)]
    space = {name: FloatDistribution(0.0, 1.0) for name in ("a", "b")}
    fixed = FixedCandidates([{"a": float(a), "b": float(b)} for a, b in points])
    adaptive = AdaptiveDensity(prior=fixed)
    history = [
        RunOutcome({"a": float(a), "b": float(b)}, v) for (a, b), v in zip(known, y, strict=True)
    ]
    proposal = adaptive.propose(history, space, np.random.default_rng(5))
    density = project_log(
        log_weights(adaptive, known, y, points), adaptive.bounds, adaptive.projection
    )
    i = density.draw(np.random.default_rng(5))
    assert proposal.params == fixed.params_list[i]
    assert proposal.ratio == pytest.approx(density.ratios[i])
