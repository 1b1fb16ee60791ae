"""Scores that were never noised are pointed out to the curator, and to nobody else."""

from __future__ import annotations

import json
import random
import warnings

import numpy as np
import pytest
from optuna.trial import Trial
from support import exactly, logged, study_of

import optuna_dp as odp
from optuna_dp.errors import ExactScoreWarning
from optuna_dp.releasing.reminders import looks_exact

RUN = odp.pure_dp(0.1)


def seeded(trial: Trial) -> float:
    """The same 'noise' in every run, as after torch.manual_seed(0), at a plateau."""
    trial.suggest_float("x", 0, 1)
    return 0.8 + float(np.random.default_rng(0).normal())


def exact_accuracy(trial: Trial) -> float:
    """Of 442 records, and another one in each run: by chance some would be the very same."""
    trial.suggest_float("x", 0, 1)
    return (300 + 11 * trial.number) / 442


@pytest.mark.promise("noisy-score")
@pytest.mark.slow
@pytest.mark.parametrize(("objective", "word"), [(seeded, "same"), (exact_accuracy, "1/442")])
def test_scores_without_noise_are_pointed_out(objective: object, word: str) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(12), run=RUN))
    with logged() as lines, pytest.warns(ExactScoreWarning, match=word) as caught:
        study.optimize(objective, callbacks=[odp.PrivacyCallback()])  # type: ignore[arg-type]
    assert len(caught) == 1, "said once, when it shows"
    assert [line for line in lines if "look exact" in line]
    with pytest.warns(ExactScoreWarning, match=word):
        found = odp.release(study, vouched="a test")
    shown = found.statement() + json.dumps(found.to_json())
    assert "exact:" not in shown
    assert "look exact" not in shown


def test_the_log_says_it_where_warnings_are_silenced() -> None:
    with warnings.catch_warnings(), logged() as lines:
        warnings.simplefilter("ignore")
        odp.RandTuneSampler(seed=3, run=RUN)
        study = study_of(odp.RandTuneSampler(trials=exactly(5), run=RUN))
        study.optimize(seeded)
        odp.release(study, vouched="a test")
    assert [line for line in lines if "with a seed" in line]
    assert [line for line in lines if "look exact" in line]


def test_some_that_repeat_among_others_are_pointed_out() -> None:
    assert "several runs have the very same" in looks_exact([0.8132, 0.52, 0.8132, 0.91, 0.8132])


def test_scores_with_noise_are_not() -> None:
    rng = random.Random(3)
    for _ in range(200):
        assert looks_exact([rng.gauss(0.8, 0.1) for _ in range(rng.randint(1, 40))]) == ""
    for _ in range(20):
        correct = [rng.random() < 0.8 for _ in range(400)]
        scores = [
            odp.scoring.private_accuracy(correct, size=400, noise_multiplier=8.0)
            for _ in range(10)
        ]
        assert looks_exact(scores) == ""
    # Clipped at the ends of the range.
    assert looks_exact([0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.1234567]) == ""
    assert looks_exact([float("inf")] * 5) == ""
    assert looks_exact([]) == ""
