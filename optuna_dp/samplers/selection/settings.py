"""The settings of a private selection in a study's plan."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypedDict

from optuna_dp.core.json_entries import Entry, plain, stored
from optuna_dp.core.validation import density_bounds as checked_density_bounds
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.evidence.stated_run import StatedRun
from optuna_dp.runs.run_plan import RunPlan
from optuna_dp.selection.laws.base import TrialCount
from optuna_dp.study.plan import Design, canonical_json

PROCEDURE = "private_selection"
Schedule = Literal["independent", "batch", "any"]


def _run(entry: object) -> RunPlan | StatedRun:
    """Reads what a run is: its event alone, or its plan."""
    if isinstance(entry, dict) and "event" in entry:
        return StatedRun.from_json(entry)
    return RunPlan.from_json(entry)


class RecordedDensity(TypedDict, total=False):
    """The fields of :class:`SelectionSettings` that say what a density near the prior is."""

    density_bounds: tuple[float, float]
    schedule: Schedule
    batch_size: int
    search: dict[str, Any]
    startup_runs: int | None


@dataclass(frozen=True)
class SelectionSettings(Entry):
    """The settings of a private selection, as the plan stores them.

    Attributes:
        trials: The law of the number of runs.
        density_bounds: (c, C), bounds of each run's joint density relative to the prior.
        schedule: Which earlier runs a run's density may depend on: ``"independent"`` none,
            ``"batch"`` the completed batches before its own, ``"any"`` whatever has ended.
        batch_size: Runs per batch.
        search_space: Distributions by parameter name as Optuna's JSON; None is define-by-run.
        prior: The prior's fingerprint, which two equal priors share.
        search: How the density is made (surrogate, projection, ...), JSON values.
        startup_runs: How many runs, the first ones, are drawn from the prior whatever is known;
            None if nothing is promised.
        run: What each run is, or its event alone; None if the sampler was not told.
        output_attributes: User attributes of a trial that are part of the run's private output.
    """

    described_as: ClassVar[str] = "The entry of the settings in the study's plan"

    trials: TrialCount
    density_bounds: tuple[float, float] = (1.0, 1.0)
    schedule: Schedule = "independent"
    batch_size: int = 1
    search_space: dict[str, Any] | None = None
    prior: dict[str, Any] = field(default_factory=lambda: {"prior": "uniform"})
    search: dict[str, Any] = field(default_factory=dict)
    startup_runs: int | None = field(default=None, metadata=stored(optional=True))
    run: RunPlan | StatedRun | None = field(
        default=None, metadata=stored(optional=True, write=plain, read=_run)
    )
    output_attributes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.startup_runs is not None and (self.startup_runs < 1 or self.schedule != "batch"):
            raise InvalidArgumentError(
                "startup_runs", self.startup_runs, problem="it is not of a plan"
            )
        if checked_density_bounds(self.density_bounds) != self.density_bounds:
            raise InvalidArgumentError(
                "density_bounds", self.density_bounds, problem="either both are 1 or neither is"
            )

    @staticmethod
    def of(design: Design) -> SelectionSettings:
        """Returns the settings in a design; the same object for equal ones.

        Raises:
            PlanError: If they are corrupted.
        """
        return _read(canonical_json(design.settings))

    @property
    def plan_of_run(self) -> RunPlan | None:
        """What trials may be given; None if no more than an event was stated."""
        return self.run if isinstance(self.run, RunPlan) else None

    @property
    def policy(self) -> str:
        """Which analysis applies: what the density may depend on.

        Under ``"any"`` it depends on who finished first, hence on durations, which no event
        covers; only the analysis that lets it depend on the data directly holds then.
        """
        return "data" if self.schedule == "any" else "history"


@functools.lru_cache(maxsize=8)
def _read(text: str) -> SelectionSettings:
    # An event is judged when it is read, and the callback reads it after every run.
    return SelectionSettings.from_json(json.loads(text))
