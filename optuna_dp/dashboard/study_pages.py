"""The notes and plots of a study and of a release, written for Optuna Dashboard."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import threading
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from optuna.storages import BaseStorage, InMemoryStorage
from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.core.optuna_internals import storage_of, study_id_of
from optuna_dp.errors import InvalidArgumentError, MissingExtraError, PlanError
from optuna_dp.study.trials import trials_of
from optuna_dp.visualization import figures as plots
from optuna_dp.visualization.density import plot_density
from optuna_dp.visualization.notes import curators_note, published_note
from optuna_dp.visualization.targets import opened, runs_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from optuna_dp.releasing.release import Release

_logger = logging.getLogger("optuna_dp")

T = TypeVar("T")

PACKAGES = ("optuna_dashboard", "plotly")
_ID = "optuna-dp-"


def available() -> bool:
    """Returns whether the extra is installed."""
    return all(importlib.util.find_spec(package) is not None for package in PACKAGES)


def annotate(study: Study, *, attack: bool = True) -> None:
    """Writes a note and plots for Optuna Dashboard into a private study.

    The note says what is guaranteed, how the study stands and whether it can be released, and that
    the page is for the curator only. The plots, as far as a study of its kind has them:

    ====================  =========================================================================
    privacy-profile       guaranteed epsilon against delta, with the strongest known attack beneath
    renyi-divergence      guaranteed Renyi divergence against its order, if a finite one is known
    epsilon-by-trials     the runs so far (or iterations) against the guarantee; not noisy max
    density               where DP-HyPO draws the next run from, if the study was loaded with its
                          sampler and draws one or two hyperparameters jointly
    ====================  =========================================================================

    Calling it again brings all of it up to date; :class:`DashboardCallback` does so while the
    study runs.

    **For the curator only**, like the study itself: what it writes depends on T and on all scores.
    To show a result to others, publish the release.

    Guarantees:
        * Nothing of the study but its note and its plots is changed; releasing it afterwards gives
          what it would have given before. No private choice is made.

    Args:
        study: A study of one of optuna-dp's samplers, which was told what a run costs.
        attack: Whether to look for attacks, most of the work (some seconds).

    Raises:
        PlanError: If the study has no plan.
        ReleaseRefusedError: If nobody said what a run costs.
        MissingExtraError: If Optuna Dashboard or plotly is not installed.
    """
    board = _board()
    board.save_note(study, curators_note(study))
    figures: dict[str, Callable[[Study], go.Figure]] = {
        "privacy-profile": functools.partial(plots.plot_privacy_profile, attack=attack),
        "renyi-divergence": plots.plot_renyi_divergence,
        "epsilon-by-trials": plots.plot_epsilon_by_trials,
        "density": plot_density,
    }
    _draw(board, study, study, figures)


class DashboardCallback:
    """Calls :func:`annotate` while a study runs; for ``study.optimize(..., callbacks=[...])``.

    After the runs (or candidates) 1, 2, 4, 8 and so on, and after the last one, which takes some
    seconds more because it looks for attacks. Storages in memory are left alone: they have no
    readers but this process.

    Give it after :class:`optuna_dp.PrivacyCallback`, if that is told what a run costs and not the
    sampler. Otherwise it needs no other callback.

    Guarantees:
        * It never ends a study: what cannot be drawn is logged as a warning.

    Raises:
        MissingExtraError: If Optuna Dashboard or plotly is not installed.
    """

    def __init__(self) -> None:
        _board()
        self._lock = threading.Lock()
        # By storage, so that another one with the same id is another one; then by study.
        self._next: weakref.WeakKeyDictionary[BaseStorage, dict[int, int]] = (
            weakref.WeakKeyDictionary()
        )

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """Called by Optuna after each trial."""
        if isinstance(storage_of(study), InMemoryStorage):
            return
        try:
            opened_study = opened(study)
            is_over = not opened_study.procedure.unfinished(trials_of(study), opened_study.plan)
            if self._is_due(study, len(runs_of(study)), is_over):
                annotate(study, attack=is_over)
        except Exception:
            # A picture that cannot be drawn must not end a search: its runs are spent.
            _logger.warning("The note for Optuna Dashboard could not be written.", exc_info=True)

    def _is_due(self, study: Study, ended_runs: int, is_over: bool) -> bool:
        with self._lock:
            due = self._next.setdefault(storage_of(study), {})
            if ended_runs < due.get(study_id_of(study), 1) and not is_over:
                return False
            due[study_id_of(study)] = 2 * ended_runs
        return True


def annotate_published(study: Study, release: Release) -> None:
    """Writes the statement and public plots into a published study, if the extra is installed.

    The plots: guaranteed epsilon against delta; Renyi divergence against its order; what
    publishing so many runs costs; the noisy votes, if it was a vote.

    Guarantees:
        * What is written is a function of the release alone.

    Args:
        study: The study that :func:`optuna_dp.publish` has made.
        release: What it holds.
    """
    if not available():
        return
    board = _board()
    board.save_note(study, published_note(release))
    figures: dict[str, Callable[[Release], go.Figure]] = {
        "privacy-profile": functools.partial(plots.plot_privacy_profile, attack=False),
        "renyi-divergence": plots.plot_renyi_divergence,
        "epsilon-by-trials": plots.plot_epsilon_by_trials,
        "votes": plots.plot_votes,
    }
    _draw(board, study, release, figures)


def _board() -> ModuleType:
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "dashboard")
    return importlib.import_module("optuna_dashboard")


def _draw(
    board: ModuleType, study: Study, target: T, figures: Mapping[str, Callable[[T], go.Figure]]
) -> None:
    for name, plot in figures.items():
        try:
            figure = plot(target)
        except (InvalidArgumentError, PlanError):
            # Not every procedure has every figure, nor every study yet; and a study may be loaded
            # with another sampler than its own.
            continue
        board.save_plotly_graph_object(study, figure, graph_object_id=_ID + name)
