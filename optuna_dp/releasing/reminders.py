"""Reminders for the curator while a study runs and at its release. They change nothing.

That other studies count too; and that scores look as if no noise had been added to them. This is
for the curator's eyes: it reads all scores. It refuses nothing, because equal or round scores can
be private (rounded, clipped, noise of a fixed size in units of a count), and scores on public data
need no noise.
"""

from __future__ import annotations

import datetime
import logging
import math
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.errors import ExactScoreWarning, OptunaDPError
from optuna_dp.evidence.procedure import Procedure
from optuna_dp.evidence.procedures import procedure_of
from optuna_dp.evidence.runs import Evidence
from optuna_dp.exact_values import common_unit
from optuna_dp.optuna_internals import storage_of, study_id_of
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import ended, score
from optuna_dp.protocol.retries import is_ours
from optuna_dp.releasing.data_description import read_description

if TYPE_CHECKING:
    from optuna_dp.optuna_internals import FrozenStudy

_logger = logging.getLogger("optuna_dp")

EXACT = "The scores of this study look exact"
_ALIKE = 3
# Of how many runs scores are compared after each; release compares all of them.
_LOOKED_AT = 100
_ADVICE = (
    "If they come from private data, add noise and charge for it (optuna_dp.scoring). If the "
    "training has a seed, remove it: noise that repeats does not protect. Scores on public data "
    "may be exact."
)


def looks_exact(scores: Sequence[float]) -> str:
    """Says in words why scores look exact; empty if they do not."""
    finite = [value for value in scores if math.isfinite(value)]
    value, times = Counter(finite).most_common(1)[0] if finite else (0.0, 0)
    # Clipped scores repeat at the ends of their range.
    if times >= _ALIKE and value not in (min(finite), max(finite), 0.0, 1.0):
        return f"{EXACT}: several runs have the very same score. {_ADVICE}"
    if times >= _ALIKE and times == len(finite):
        return f"{EXACT}: all runs have the very same score. {_ADVICE}"
    unit = common_unit(sorted(set(finite)))
    if unit is not None and unit > 1:
        return f"{EXACT}: all are multiples of 1/{unit}, like a share of {unit} records. {_ADVICE}"
    return ""


def warn_of_scores(words: str) -> None:
    """Warns the curator, and logs it for scripts that silence warnings."""
    _logger.warning(words)
    warnings.warn(words, ExactScoreWarning, stacklevel=3)


def remind(evidence: Evidence, other_studies: Sequence[FrozenStudy]) -> None:
    """Says what the curator should think of, once a release is made.

    Args:
        evidence: The runs that were released.
        other_studies: The other studies of the same storage.
    """
    _warn_of_other_studies(storage_of(evidence.snapshot.study), other_studies)
    if not procedure_of(evidence.plan.design).runs_are_private:
        return  # Utilities have no noise, and are not released.
    scores = [score(run.trial) for run in evidence.runs]
    words = looks_exact([value for value in scores if value is not None])
    if words:
        warn_of_scores(words)


def say_what_is_open(study: Study, logger: logging.Logger) -> None:
    """Asks the curator, before a release, for what a reviewer looks for first.

    A description cannot change once the study is released.

    Args:
        study: The study, whose last run has ended.
        logger: Where the callback says what is guaranteed.
    """
    try:
        attributes = storage_of(study).get_study_system_attrs(study_id_of(study))
        description = read_description(attributes)
    except OptunaDPError:
        return  # A damaged record: the release refuses it.
    facts = ("dataset", "owner", "purpose", "unit", "sampling")
    missing_facts = [name for name in facts if getattr(description, name, None) is None]
    if missing_facts:
        logger.info(
            "Before the release, say what a reviewer looks for first: odp.describe(study, %s). "
            "odp.release(study, artifact_store=...) names the model's file.",
            ", ".join(f"{name}=..." for name in missing_facts),
        )


def _warn_of_other_studies(storage: BaseStorage, other_studies: Sequence[FrozenStudy]) -> None:
    """Reminds the curator that the best of several releases is not one release."""
    count = sum(is_ours(storage, study_id_of(sibling)) for sibling in other_studies)
    if count:
        _logger.warning(
            "This storage holds %d other private stud%s. This guarantee covers one search only. "
            "If you discarded a search because of its result, or choose the best of several, add "
            "their costs (Guarantee.compose).",
            count,
            "y" if count == 1 else "ies",
        )


class Reminder:
    """Says once for a study what its curator should know while it is still going on."""

    def __init__(self) -> None:
        self._looked = ""  # The nonce of the study whose scores were pointed out last.
        self._warned = ""  # The nonce of the study that was warned of its failures last.

    def look(self, procedure: Procedure, plan: StudyPlan, slots: Sequence[FrozenTrial]) -> None:
        """Looks at the runs so far: do they fail together, do scores look as without noise."""
        if self._warned != plan.nonce and (words := procedure.warning(slots)):
            self._warned = plan.nonce
            _logger.warning(words)
        if self._looked == plan.nonce or not procedure.runs_are_private:
            return  # Utilities have no noise, and are not released.
        scores = [score(t) for t in slots[-_LOOKED_AT:] if ended(t)]
        if words := looks_exact([value for value in scores if value is not None]):
            self._looked = plan.nonce
            warn_of_scores(words)


class ProgressLine:
    """One line on the terminal that goes away; it depends on T only while it is there."""

    def __init__(self) -> None:
        self._bar: Any = None

    def __reduce__(self) -> Any:
        return ProgressLine, ()  # A copy in another process has a line of its own.

    def show(self, run: str, epsilon_text: str, delta: float, is_over: bool) -> None:
        """Says which run has ended, and the guarantee at delta; takes it away with the last."""
        from tqdm.auto import tqdm  # Lazy: only a progress line needs it.

        if self._bar is None:
            # disable=None: not where a file would keep one line per run.
            self._bar = tqdm(total=0, bar_format="{desc}", leave=False, disable=None)
        time = datetime.datetime.now().strftime("%H:%M:%S")
        # At most 79 characters: a terminal's width cuts it.
        words = (
            f"{run.capitalize()} ended at {time}. Guaranteed: {epsilon_text} at delta {delta:g}."
        )
        self._bar.set_description_str(words)
        if is_over:
            self._bar.close()
            self._bar = None
