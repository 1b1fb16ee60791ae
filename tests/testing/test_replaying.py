"""The replay finds what reads the data outside its mechanisms, and spares what does not."""

from __future__ import annotations

import random

import optuna
import pytest

from optuna_dp.testing import other_trials_read, replay

ONE, TWO = [0.0] * 9 + [0.0], [0.0] * 9 + [1.0]


def noisy(query):
    return query + random.gauss(0.0, 3.0)


def honest(data, mechanisms):
    total = mechanisms.ask("sum", noisy, sum(data), sensitivity=1.0, norm="l1", sigma=3.0)
    more = 3 if total > 0 else 1
    return [mechanisms.ask("mean", noisy, sum(data) / 10, sensitivity=0.1) for _ in range(more)]


def too_sensitive(data, mechanisms):
    return mechanisms.ask("sum", noisy, 2 * sum(data), sensitivity=1.0)


def peeks(data, mechanisms):
    mechanisms.ask("sum", noisy, sum(data), sensitivity=1.0)
    return max(data)


def adapts_its_noise(data, mechanisms):
    return mechanisms.ask("sum", noisy, sum(data), sensitivity=1.0, sigma=1.0 + max(data))


def asks_more(data, mechanisms):
    for _ in range(1 + int(max(data))):
        mechanisms.ask("sum", noisy, sum(data), sensitivity=1.0)


def asks_of_another_size(data, mechanisms):
    mechanisms.ask("all", lambda q: 0, [x for x in data if x > 0], sensitivity=1.0)


def test_an_honest_procedure_passes() -> None:
    for _ in range(20):
        result = replay(honest, ONE, TWO)
        result.check()
        assert result.calls in (2, 4)


@pytest.mark.parametrize(
    ("procedure", "problem"),
    [
        (too_sensitive, "more than the sensitivity"),
        (peeks, "results differ"),
        (adapts_its_noise, "settings"),
        (asks_more, "more than the 1 calls"),
        (asks_of_another_size, "shape"),
    ],
)
def test_a_procedure_that_cheats_is_reported(procedure, problem) -> None:
    with pytest.raises(AssertionError, match=problem):
        replay(procedure, ONE, TWO).check()


def test_fewer_calls_are_reported() -> None:
    assert "makes 1 calls, not 2" in replay(asks_more, TWO, ONE).problems[0]


def alone(trial):
    x = trial.suggest_float("x", 0, 1)
    trial.set_user_attr("loss", x)
    trial.report(x, 1)
    trial.should_prune()
    return x


def warm_start(trial):
    return trial.suggest_float("x", 0, 1) + trial.study.best_trial.value


def stops_early(trial):
    return max(t.value or 0.0 for t in trial.study.trials)


def test_objectives_that_read_other_trials() -> None:
    assert other_trials_read(alone) == []
    assert other_trials_read(warm_start) == ["get_best_trial"]
    assert "get_all_trials" in other_trials_read(stops_early)
    median = optuna.pruners.MedianPruner(n_startup_trials=0)
    assert other_trials_read(alone, pruner=median)
