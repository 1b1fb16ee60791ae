"""The generators that dropout and augmentation draw from, while a training computes."""

from __future__ import annotations

import random
import secrets
from typing import Any

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch")

from optuna_dp.training.generators import Draws  # noqa: E402

CPU = torch.device("cpu")


def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(()))


def test_a_scripts_generators_go_on_as_if_nothing_had_been_drawn() -> None:
    for is_interrupted in (False, True):
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        first = drawn()
        try:
            with Draws(CPU).for_step():
                drawn(), torch.randn(1_000)
                if is_interrupted:
                    raise KeyError
        except KeyError:
            pass
        second = drawn()
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        assert (drawn(), drawn()) == (first, second)


def test_no_two_steps_draw_the_same() -> None:
    draws, seen = Draws(CPU), set()
    for _ in range(20):
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        with draws.for_step():
            draws.before_reading()
            seen.update(drawn())
            draws.before_computing()
            seen.update(drawn())
    assert len(seen) == 20 * 6


def test_the_whole_state_of_pytorchs_generator_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """``torch.manual_seed`` keeps 32 bits of a seed, so that all seeds can be tried in hours."""
    words: list[Any] = []

    def token_bytes(count: int) -> bytes:
        words.append(np.random.default_rng(len(words)).bytes(count))
        return words[-1]

    monkeypatch.setattr(secrets, "token_bytes", token_bytes)
    with Draws(CPU).for_step():
        state = torch.default_generator.get_state().numpy().tobytes()
        numbers = torch.rand(20_000, dtype=torch.float64).numpy()
    held = np.frombuffer(state[24 : 24 + 8 * 624], dtype=np.uint64)
    assert np.array_equal(held, np.frombuffer(words[-1], dtype=np.uint32))
    assert stats.kstest(numbers, "uniform").pvalue > 1e-7
    assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 0.04
