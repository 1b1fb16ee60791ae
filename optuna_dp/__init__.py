"""Differentially private hyperparameter tuning for people who already use Optuna.

Change the sampler, add one callback, call :func:`release`, and get a choice with a guarantee for
the whole procedure::

    import optuna
    import optuna_dp as odp

    run = odp.dp_sgd(noise_multiplier=1.0, sample_rate=64 / 1347, steps=420)
    study = optuna.create_study(direction="maximize", sampler=odp.DPHyPOSampler())
    study.optimize(objective, callbacks=[odp.PrivacyCallback(run)])
    release = odp.release(study)

Every name is loaded when it is first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from optuna_dp import asides

if TYPE_CHECKING:
    from optuna_dp import dashboard as dashboard
    from optuna_dp import distributed as distributed
    from optuna_dp import errors as errors
    from optuna_dp import federated as federated
    from optuna_dp import scoring as scoring
    from optuna_dp import testing as testing
    from optuna_dp import visualization as visualization
    from optuna_dp import voting as voting
    from optuna_dp.accounting.events import compose as compose
    from optuna_dp.accounting.events import dp_sgd as dp_sgd
    from optuna_dp.accounting.events import gaussian as gaussian
    from optuna_dp.accounting.events import laplace as laplace
    from optuna_dp.accounting.events import zcdp as zcdp
    from optuna_dp.accounting.guarantee import Guarantee as Guarantee
    from optuna_dp.accounting.guarantee import selection_guarantee as selection_guarantee
    from optuna_dp.accounting.kinds.approximate import approximate_dp as approximate_dp
    from optuna_dp.accounting.kinds.approximate import pure_dp as pure_dp
    from optuna_dp.accounting.kinds.bounded_range import bounded_range as bounded_range
    from optuna_dp.accounting.kinds.curve import rdp as rdp
    from optuna_dp.accounting.kinds.per_client import per_client as per_client
    from optuna_dp.accounting.kinds.worst_case import worst_case as worst_case
    from optuna_dp.accounting.opacus import from_opacus as from_opacus
    from optuna_dp.callbacks import PrivacyCallback as PrivacyCallback
    from optuna_dp.describing import describe as describe
    from optuna_dp.planning.budget import plan_budget as plan_budget
    from optuna_dp.planning.budget_plan import BudgetPlan as BudgetPlan
    from optuna_dp.planning.calibration import calibrate as calibrate
    from optuna_dp.planning.fidelity import Fidelity as Fidelity
    from optuna_dp.planning.selection_plan import selection_plan as selection_plan
    from optuna_dp.propose_test import partition as partition
    from optuna_dp.protocol.recovery import recover as recover
    from optuna_dp.pruners import WithinTrialPruner as WithinTrialPruner
    from optuna_dp.publishing import publish as publish
    from optuna_dp.releasing.make_release import release as release
    from optuna_dp.releasing.release import Release as Release
    from optuna_dp.samplers.budget_runs import fidelity as fidelity
    from optuna_dp.samplers.dp_hypo import DPHyPOSampler as DPHyPOSampler
    from optuna_dp.samplers.noisy_max import NoisyMaxSampler as NoisyMaxSampler
    from optuna_dp.samplers.pilots import PilotSampler as PilotSampler
    from optuna_dp.samplers.pilots import is_pilot as is_pilot
    from optuna_dp.samplers.propose_test import ProposeTestSampler as ProposeTestSampler
    from optuna_dp.samplers.rand_tune import RandTuneSampler as RandTuneSampler
    from optuna_dp.samplers.utility_trials import report_utilities as report_utilities
    from optuna_dp.testing.objective_check import ObjectiveReport as ObjectiveReport
    from optuna_dp.testing.objective_check import check_objective as check_objective
    from optuna_dp.trial_counts import Binomial as Binomial
    from optuna_dp.trial_counts import Geometric as Geometric
    from optuna_dp.trial_counts import Logarithmic as Logarithmic
    from optuna_dp.trial_counts import NegativeBinomial as NegativeBinomial
    from optuna_dp.trial_counts import Once as Once
    from optuna_dp.trial_counts import Poisson as Poisson
    from optuna_dp.trial_counts import TrialCount as TrialCount
    from optuna_dp.verification import verify as verify

__version__ = "0.1.0"

_HOMES = {
    "optuna_dp.planning.budget": ("plan_budget",),
    "optuna_dp.planning.budget_plan": ("BudgetPlan",),
    "optuna_dp.planning.fidelity": ("Fidelity",),
    "optuna_dp.planning.calibration": ("calibrate",),
    "optuna_dp.accounting.events": ("compose", "dp_sgd", "gaussian", "laplace", "zcdp"),
    "optuna_dp.accounting.kinds.approximate": ("approximate_dp", "pure_dp"),
    "optuna_dp.accounting.kinds.bounded_range": ("bounded_range",),
    "optuna_dp.accounting.kinds.curve": ("rdp",),
    "optuna_dp.accounting.kinds.per_client": ("per_client",),
    "optuna_dp.accounting.kinds.worst_case": ("worst_case",),
    "optuna_dp.accounting.opacus": ("from_opacus",),
    "optuna_dp.accounting.guarantee": ("Guarantee", "selection_guarantee"),
    "optuna_dp.planning.selection_plan": ("selection_plan",),
    "optuna_dp.callbacks": ("PrivacyCallback",),
    "optuna_dp.pruners": ("WithinTrialPruner",),
    "optuna_dp.publishing": ("publish",),
    "optuna_dp.propose_test": ("partition",),
    "optuna_dp.describing": ("describe",),
    "optuna_dp.releasing.make_release": ("release",),
    "optuna_dp.releasing.release": ("Release",),
    "optuna_dp.samplers.budget_runs": ("fidelity",),
    "optuna_dp.samplers.dp_hypo": ("DPHyPOSampler",),
    "optuna_dp.samplers.noisy_max": ("NoisyMaxSampler",),
    "optuna_dp.samplers.pilots": ("PilotSampler", "is_pilot"),
    "optuna_dp.samplers.propose_test": ("ProposeTestSampler",),
    "optuna_dp.samplers.rand_tune": ("RandTuneSampler",),
    "optuna_dp.protocol.recovery": ("recover",),
    "optuna_dp.samplers.utility_trials": ("report_utilities",),
    "optuna_dp.testing.objective_check": ("ObjectiveReport", "check_objective"),
    "optuna_dp.trial_counts": (
        "Binomial",
        "Geometric",
        "Logarithmic",
        "NegativeBinomial",
        "Once",
        "Poisson",
        "TrialCount",
    ),
    "optuna_dp.verification": ("verify",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

# Parts with several names of their own; used as ``odp.scoring.private_accuracy``.
_PARTS = (
    "dashboard",
    "distributed",
    "errors",
    "federated",
    "scoring",
    "testing",
    "visualization",
    "voting",
)

__all__ = sorted(["__version__", *_HOME_OF, *_PARTS])


def _comparisons(*question: Any) -> Any:
    from optuna_dp.accounting.comparisons.by_name import comparisons_of  # start-up time

    return comparisons_of(*question)


def _attack(*question: Any) -> Any:
    from optuna_dp.accounting.attacks.strongest import strongest_known_attack  # start-up time

    return strongest_known_attack(*question)


def _page(result: Any) -> str:
    from optuna_dp.notebook import to_html  # start-up time

    return to_html(result)


def _registry(result: Any, **entry: Any) -> str:
    from optuna_dp.registry import to_registry  # start-up time

    return to_registry(result, **entry)


def _grid(*question: Any) -> Any:
    from optuna_dp.accounting.discretisation import interval_for  # start-up time

    return interval_for(*question)


def _points(*question: Any) -> Any:
    from optuna_dp.accounting.reading_points import reading_points  # start-up time

    return reading_points(*question)


def _retries(storage: Any) -> None:
    from optuna_dp.protocol.retries import without_retries  # start-up time

    without_retries(storage)


def _reminders(evidence: Any) -> None:
    from optuna_dp.reminders import remind  # start-up time

    remind(evidence)


# Nothing that a guarantee rests on imports any of these; see there.
asides.offer("bounds of others", _comparisons)
asides.offer("attack", _attack)
asides.offer("page of a notebook", _page)
asides.offer("entry of a registry", _registry)
asides.offer("reminders of a release", _reminders)
asides.offer("grid of a composition", _grid)
asides.offer("points of a profile", _points)
asides.offer("a storage without retries", _retries)


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(f"{__name__}.{name}")
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
