"""The DP-SGD training inside an event."""

from __future__ import annotations

from typing import Any, NamedTuple

from dp_accounting import dp_event

from optuna_dp.accounting.kinds.worst_case import WorstCaseDpEvent
from optuna_dp.errors import InvalidArgumentError


class StatedTraining(NamedTuple):
    """What an event says of a DP-SGD training.

    Attributes:
        noise_multiplier: Noise of each step over the clipping norm.
        sample_rate: Chance of a record to join a step.
        steps: Number of steps.
    """

    noise_multiplier: float
    sample_rate: float
    steps: int


def trainings_in(event: Any) -> list[StatedTraining]:
    """Returns every DP-SGD training that an event composes; alternatives count as several."""
    if isinstance(event, dp_event.SelfComposedDpEvent):
        inner = event.event
        if isinstance(inner, dp_event.PoissonSampledDpEvent):
            noise = inner.event
            if isinstance(noise, dp_event.GaussianDpEvent):
                rate = float(inner.sampling_probability)
                return [StatedTraining(float(noise.noise_multiplier), rate, int(event.count))]
        return trainings_in(inner)
    parts = getattr(event, "events", None)
    if isinstance(parts, (list, tuple)):
        return [training for part in parts for training in trainings_in(part)]
    return []


def training_in(event: Any) -> StatedTraining:
    """Returns the one DP-SGD training in an event; refuses an event that has none or several."""
    trainings = trainings_in(event)
    if len(trainings) != 1:
        raise InvalidArgumentError(
            "event",
            event,
            f"it must hold one DP-SGD training, and holds {len(trainings)}",
            "Audit one training with one noise: dp_sgd(noise_multiplier=..., sample_rate=..., "
            "steps=...).",
        )
    return trainings[0]


def alternatives(event: Any) -> list[StatedTraining]:
    """Returns what a run may be: one entry for each mechanism that ``worst_case`` names.

    Trainings that are composed count as one: the least noise, the largest rate, all steps.
    """
    if isinstance(event, WorstCaseDpEvent):
        return [training for part in event.events for training in alternatives(part)]
    if isinstance(event, dp_event.ComposedDpEvent):
        trainings: list[StatedTraining] = []
        for part in event.events:
            part_trainings = alternatives(part)
            if trainings and part_trainings:
                trainings = [_together(a, b) for a in trainings for b in part_trainings]
            else:
                trainings = trainings or part_trainings
        return trainings
    return trainings_in(event)


def _together(a: StatedTraining, b: StatedTraining) -> StatedTraining:
    return StatedTraining(
        min(a.noise_multiplier, b.noise_multiplier),
        max(a.sample_rate, b.sample_rate),
        a.steps + b.steps,
    )


def answers_in(event: Any) -> int:
    """Returns how many noisy answers an event charges for beside its trainings, at most."""
    if isinstance(event, WorstCaseDpEvent):
        return max(answers_in(part) for part in event.events)
    if isinstance(event, dp_event.ComposedDpEvent):
        return sum(answers_in(part) for part in event.events)
    if trainings_in(event):
        return 0
    if isinstance(event, dp_event.SelfComposedDpEvent):
        return int(event.count) * answers_in(event.event)
    return 1
