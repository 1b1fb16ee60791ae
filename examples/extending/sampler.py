"""A private sampler of your own: every run is a bracket of successive halving.

A bracket draws four settings, trains all of them a little, the better two longer and the best in
full; all of these trainings are composed into the event of one run. The best of a secret number
of brackets is released.
"""

from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution

import optuna_dp as odp

SPACE = {"rate": FloatDistribution(1e-3, 10.0, log=True)}


class BracketSampler(odp.RandTuneSampler):
    """Draws ``width`` settings per run, each from the prior."""

    def __init__(
        self, space: dict[str, BaseDistribution] = SPACE, *, width: int = 4, **options: Any
    ) -> None:
        wide = {f"{name}_{i}": one for i in range(width) for name, one in space.items()}
        super().__init__(wide, **options)  # What workers must agree on is in the plan: the space.


def bracket(trial: optuna.Trial, train: Any, width: int = 4) -> tuple[float, dict[str, float]]:
    """Trains ``width`` settings, halves them by their private scores, and so on to one.

    Returns the last score and setting.
    """
    settings = [
        {"rate": trial.suggest_float(f"rate_{i}", 1e-3, 10.0, log=True)} for i in range(width)
    ]
    length = 1.0 / width
    while True:
        scores = [train(setting, length) for setting in settings]
        order = sorted(range(len(settings)), key=lambda i: -scores[i])
        settings = [settings[i] for i in order[: len(settings) // 2]] or [settings[order[0]]]
        if len(scores) == 1:
            return scores[0], settings[0]
        length *= 2.0


def cost(noise: float, steps: int, width: int = 4) -> Any:
    """The event of a bracket: every training with its score, composed."""
    parts, left = [], width
    while left:
        one = odp.dp_sgd(noise_multiplier=noise, sample_rate=0.05, steps=steps // left)
        parts += [odp.compose(one, odp.gaussian(20.0))] * left
        left //= 2
    return odp.compose(*parts)


if __name__ == "__main__":
    import random

    def train(setting: dict[str, float], length: float) -> float:  # Yours: with DP-SGD.
        return length - abs(setting["rate"] - 0.3) + random.SystemRandom().gauss(0.0, 0.05)

    sampler = BracketSampler(
        trials=odp.Geometric(5), run=cost(2.0, 100), output_attributes=["chosen"]
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def objective(trial: optuna.Trial) -> float:
        score, chosen = bracket(trial, train)
        trial.set_user_attr("chosen", chosen)
        return score

    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study, vouched="each step of a bracket adds this noise")
    print(release.attributes, release.guarantee.epsilon(1e-5))
