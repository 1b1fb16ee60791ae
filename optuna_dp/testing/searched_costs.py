"""Hyperparameters that set what a run spends, such as an epsilon that is searched.

An event states one cost for all runs. So a run is made with each hyperparameter at its smallest
value, and one with each at its largest, if what a run spends was seen to follow them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, Literal

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from optuna_dp.testing.checked_run import CheckedRun
from optuna_dp.testing.finding import Finding
from optuna_dp.testing.library_faults import of_spendings
from optuna_dp.testing.score_faults import of_score_noise
from optuna_dp.testing.stage import Stage
from optuna_dp.testing.training_faults import of_opacus


def follow_hyperparameters(first_run: CheckedRun, pair: Sequence[CheckedRun]) -> bool:
    """Returns whether what runs spend differs with other hyperparameters, and only then.

    Args:
        first_run: A run with other hyperparameters than the pair.
        pair: Two runs with the same ones.
    """
    spent = [_spent(run) for run in pair]
    return spent[0] == spent[1] != _spent(first_run) and not pair[0].is_enforced


def _spent(run: CheckedRun) -> Any:
    """Returns all that was seen of what a run spends and that is not random."""
    return (
        [(spending.epsilon, spending.delta) for spending in run.spendings],
        run.opacus.steps,
        run.opacus.stated_noise,
        run.opacus.sample_rates,
        [score.noise_multiplier for score in run.scores],
    )


def at_ends(run: CheckedRun) -> Iterator[tuple[str, CheckedRun]]:
    """Yields a run's hyperparameters with each number at its smallest and at its largest value.

    Args:
        run: A run that has all of them.
    """
    ends: tuple[tuple[str, Callable[[Iterable[Any]], Any]], ...] = (
        ("smallest", min),
        ("largest", max),
    )
    for word, choose in ends:
        params = dict(run.params)
        for name, distribution in run.distributions.items():
            values = _ends(distribution)
            if values:
                params[name] = choose(values)
        yield word, replace(run, params=params)


def _ends(distribution: BaseDistribution) -> list[Any]:
    if isinstance(distribution, FloatDistribution | IntDistribution):
        return [distribution.low, distribution.high]
    choices = (
        list(distribution.choices) if isinstance(distribution, CategoricalDistribution) else []
    )
    numbers = all(isinstance(choice, Real) for choice in choices)
    return choices if numbers else []


def of_run_at_end(
    word: str, run: CheckedRun, stage: Stage, scores: Literal["private", "public", "none"]
) -> Iterator[Finding]:
    """Yields what a run spends beside what its event says.

    Args:
        word: "smallest" or "largest".
        run: A run whose hyperparameters are at that end.
        stage: What it is a run of.
        scores: What the scores are computed on.
    """
    findings = [*of_spendings([run], stage), *of_opacus([run], stage)]
    if scores == "private":
        findings += of_score_noise([run], stage)
    for finding in findings:
        yield replace(
            finding,
            what=f"With each hyperparameter at its {word} value: {finding.what}",
            change=f"{finding.change} What a run spends may not follow a hyperparameter, unless "
            "the event is the worst of all: odp.worst_case(...).",
        )
