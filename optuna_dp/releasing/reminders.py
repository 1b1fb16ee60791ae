"""Reminders for the curator while a study runs and at its release. They change nothing.

That other studies count too; and that scores look as if no noise had been added to them. This is
for the curator's eyes: it reads all scores. It refuses nothing, because equal or round scores can
be private (rounded, clipped, noise of a fixed size in units of a count), and scores on public data
need no noise.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Sequence

from optuna_dp.core.exact_values import common_unit
from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import ExactScoreWarning, OptunaDPError
from optuna_dp.evidence.data_description import read_description
from optuna_dp.evidence.ended_runs import Evidence
from optuna_dp.evidence.procedures import procedure_of
from optuna_dp.study.snapshot import OtherStudy
from optuna_dp.study.trials import score

_logger = logging.getLogger("optuna_dp")

EXACT = "The scores of this study look exact"
_ALIKE = 3
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


def remind(evidence: Evidence, others: Sequence[OtherStudy]) -> None:
    """Says what the curator should think of, once a release is made.

    Args:
        evidence: The runs that were released.
        others: The other studies of the same storage.
    """
    _warn_of_other_studies(others)
    if not procedure_of(evidence.plan.design).runs_are_private:
        return  # Utilities have no noise, and are not released.
    scores = [score(run.trial) for run in evidence.runs]
    words = looks_exact([value for value in scores if value is not None])
    if words:
        warn_of_scores(words)


def missing_facts(attributes: JsonObject) -> list[str]:
    """Returns what a reviewer looks for first and nobody has described, by argument.

    Args:
        attributes: The system attributes of a study.
    """
    try:
        description = read_description(attributes)
    except OptunaDPError:
        return []  # A damaged entry: the release refuses it.
    names = ("dataset", "owner", "purpose", "unit", "most", "earlier_releases")
    return [name for name in names if getattr(description, name, None) is None]


def _warn_of_other_studies(others: Sequence[OtherStudy]) -> None:
    """Reminds the curator that the best of several releases is not one release."""
    count = sum(other.is_ours for other in others)
    if count:
        _logger.warning(
            "This storage holds %d other private stud%s. This guarantee covers one search only. "
            "If you discarded a search because of its result, or choose the best of several, add "
            "their costs (Guarantee.compose).",
            count,
            "y" if count == 1 else "ies",
        )
