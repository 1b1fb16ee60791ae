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

from optuna_dp import parts

if TYPE_CHECKING:
    from optuna_dp import accounting as accounting
    from optuna_dp import dashboard as dashboard
    from optuna_dp import distributed as distributed
    from optuna_dp import errors as errors
    from optuna_dp import federated as federated
    from optuna_dp import opacus as opacus
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
    from optuna_dp.accounting.kinds.approximate import approximate_dp as approximate_dp
    from optuna_dp.accounting.kinds.approximate import pure_dp as pure_dp
    from optuna_dp.accounting.kinds.bounded_range import bounded_range as bounded_range
    from optuna_dp.accounting.kinds.curve import rdp as rdp
    from optuna_dp.accounting.kinds.per_client import per_client as per_client
    from optuna_dp.accounting.kinds.profile import from_pld as from_pld
    from optuna_dp.accounting.kinds.profile import from_profile as from_profile
    from optuna_dp.accounting.kinds.profile import from_trade_off as from_trade_off
    from optuna_dp.accounting.kinds.worst_case import worst_case as worst_case
    from optuna_dp.accounting.opacus import from_opacus as from_opacus
    from optuna_dp.adaptive_selection.densities.convex_projection import (
        ConvexProjection as ConvexProjection,
    )
    from optuna_dp.adaptive_selection.dp_hypo import DPHyPOSampler as DPHyPOSampler
    from optuna_dp.budget.plan import BudgetPlan as BudgetPlan
    from optuna_dp.budget.sampler import BudgetSampler as BudgetSampler
    from optuna_dp.evidence.drawn_ranges import draw_ranges as draw_ranges
    from optuna_dp.evidence.granting import fidelity as fidelity
    from optuna_dp.models.around import around as around
    from optuna_dp.planning.batch import batch_choices as batch_choices
    from optuna_dp.planning.budget import plan_budget as plan_budget
    from optuna_dp.planning.calibration import calibrate as calibrate
    from optuna_dp.planning.short_lists import short_list as short_list
    from optuna_dp.preparation.columns import Categories as Categories
    from optuna_dp.preparation.columns import Date as Date
    from optuna_dp.preparation.columns import Number as Number
    from optuna_dp.preparation.schema import Schema as Schema
    from optuna_dp.private_selection.guarantee import selection_guarantee as selection_guarantee
    from optuna_dp.private_selection.rand_tune import RandTuneSampler as RandTuneSampler
    from optuna_dp.private_selection.trial_counts.base import TrialCount as TrialCount
    from optuna_dp.private_selection.trial_counts.binomial import Binomial as Binomial
    from optuna_dp.private_selection.trial_counts.logarithmic import Logarithmic as Logarithmic
    from optuna_dp.private_selection.trial_counts.negative_binomial import Geometric as Geometric
    from optuna_dp.private_selection.trial_counts.negative_binomial import (
        NegativeBinomial as NegativeBinomial,
    )
    from optuna_dp.private_selection.trial_counts.poisson import Poisson as Poisson
    from optuna_dp.protocol.pruners import WithinTrialPruner as WithinTrialPruner
    from optuna_dp.protocol.recovery import recover as recover
    from optuna_dp.releasing.callbacks import PrivacyCallback as PrivacyCallback
    from optuna_dp.releasing.describing import describe as describe
    from optuna_dp.releasing.make_release import release as release
    from optuna_dp.releasing.publishing import publish as publish
    from optuna_dp.releasing.release import Release as Release
    from optuna_dp.releasing.verification import verify as verify
    from optuna_dp.selection_planner.selection_plan import selection_plan as selection_plan
    from optuna_dp.testing.objective_check import check_objective as check_objective
    from optuna_dp.testing.objective_report import ObjectiveReport as ObjectiveReport
    from optuna_dp.training.fidelity import Fidelity as Fidelity
    from optuna_dp.training.learning_rate import learning_rate as learning_rate
    from optuna_dp.training.public_maps import JoinedMaps as JoinedMaps
    from optuna_dp.training.public_maps import joined_maps as joined_maps
    from optuna_dp.training.public_maps import public_maps as public_maps
    from optuna_dp.training.rehearsal import Rehearsal as Rehearsal
    from optuna_dp.training.rehearsal import rehearse_module as rehearse_module
    from optuna_dp.training.run_plan import RunPlan as RunPlan
    from optuna_dp.training.schedules import Schedule as Schedule
    from optuna_dp.training.schema import made_up_images as made_up_images
    from optuna_dp.training.schema import made_up_inputs as made_up_inputs
    from optuna_dp.training.schema import made_up_tokens as made_up_tokens
    from optuna_dp.training.softmax_regression import SoftmaxRegression as SoftmaxRegression
    from optuna_dp.training.train import Trained as Trained
    from optuna_dp.training.train import train as train
    from optuna_dp.utilities.noisy_max_sampler import NoisyMaxSampler as NoisyMaxSampler
    from optuna_dp.utilities.partitions import partition as partition
    from optuna_dp.utilities.propose_test_sampler import ProposeTestSampler as ProposeTestSampler
    from optuna_dp.utilities.trials import report_utilities as report_utilities

__version__ = "0.1.0"

# The public names of the core, by their module.
_CORE = {
    "accounting.events": "compose dp_sgd gaussian laplace zcdp",
    "accounting.guarantee": "Guarantee",
    "accounting.kinds.approximate": "approximate_dp pure_dp",
    "accounting.kinds.bounded_range": "bounded_range",
    "accounting.kinds.curve": "rdp",
    "accounting.kinds.per_client": "per_client",
    "accounting.kinds.profile": "from_pld from_profile from_trade_off",
    "accounting.kinds.worst_case": "worst_case",
    "accounting.opacus": "from_opacus",
    "training.fidelity": "Fidelity",
    "evidence.drawn_ranges": "draw_ranges",
    "evidence.granting": "fidelity",
    "training.learning_rate": "learning_rate",
    "budget.plan": "BudgetPlan",
    "budget.sampler": "BudgetSampler",
    "models.around": "around",
    "planning.batch": "batch_choices",
    "planning.budget": "plan_budget",
    "planning.calibration": "calibrate",
    "training.public_maps": "JoinedMaps joined_maps public_maps",
    "training.rehearsal": "Rehearsal rehearse_module",
    "training.schema": "made_up_images made_up_inputs made_up_tokens",
    "training.schedules": "Schedule",
    "training.softmax_regression": "SoftmaxRegression",
    "training.train": "Trained train",
    "planning.short_lists": "short_list",
    "preparation.columns": "Categories Date Number",
    "preparation.schema": "Schema",
    "private_selection.guarantee": "selection_guarantee",
    "private_selection.rand_tune": "RandTuneSampler",
    "private_selection.trial_counts.base": "TrialCount",
    "private_selection.trial_counts.binomial": "Binomial",
    "private_selection.trial_counts.logarithmic": "Logarithmic",
    "private_selection.trial_counts.negative_binomial": "Geometric NegativeBinomial",
    "private_selection.trial_counts.poisson": "Poisson",
    "protocol.pruners": "WithinTrialPruner",
    "protocol.recovery": "recover",
    "releasing.callbacks": "PrivacyCallback",
    "releasing.describing": "describe",
    "releasing.make_release": "release",
    "releasing.publishing": "publish",
    "releasing.release": "Release",
    "releasing.verification": "verify",
    "training.run_plan": "RunPlan",
}
# Modules of the core with several names of their own: ``odp.scoring.private_accuracy``.
_CORE_MODULES = ("accounting", "errors", "opacus", "scoring")

# The parts, each a folder that can be deleted. Only a folder on this list is ever looked for, so
# reading a record never loads code from elsewhere.
_FOLDERS = (
    "adaptive_selection",
    "attacks",
    "dashboard",
    "distributed",
    "federated",
    "selection_planner",
    "testing",
    "utilities",
    "visualization",
    "voting",
)


def _register_parts() -> None:
    # The planner of the core, for plans, which stand below it.
    parts.register(
        parts.Part(name="core", remark_on_plan="optuna_dp.planning.batch:remark_on_batch")
    )
    for folder in _FOLDERS:
        module = f"{__name__}.{folder}"
        try:
            importlib.import_module(f"{module}.part")
        except ModuleNotFoundError as error:
            if error.name not in (module, f"{module}.part"):
                raise


def _homes() -> dict[str, str]:
    """Returns the module of every public name."""
    tables = [
        {f"{__name__}.{module}": names for module, names in _CORE.items()},
        *(part.names for part in parts.registered()),
    ]
    return {
        n: module for table in tables for module, names in table.items() for n in names.split()
    }


_register_parts()
_HOME_OF = _homes()
_MODULES = {
    **{name: f"{__name__}.{name}" for name in _CORE_MODULES},
    **parts.table("modules"),
}

__all__ = sorted(["__version__", *_HOME_OF, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return __all__
