"""The contract suite on the sampler of this folder: ``pytest examples/extending``."""

from typing import Any

import optuna
from sampler import BracketSampler, bracket
from sampler_contract import RUN, SamplerContract

import optuna_dp as odp


class TestBracketSampler(SamplerContract):
    def make(self, trials: odp.TrialCount, seed: int | None = None) -> Any:
        return BracketSampler(trials=trials, run=RUN, seed=seed)

    def make_different(self, trials: odp.TrialCount) -> Any:
        return BracketSampler(width=8, trials=trials, run=RUN)

    def objective(self, trial: optuna.Trial) -> float:
        return bracket(trial, lambda setting, length: length - abs(setting["rate"] - 0.3))[0]
