"""The public names of the package: each stands here once.

Editors and type checkers read this file. At run time lazy-loader reads it too, and loads a name
when it is first used.
"""

from . import dashboard as dashboard
from . import distributed as distributed
from . import errors as errors
from . import federated as federated
from . import opacus as opacus
from . import scoring as scoring
from . import visualization as visualization
from . import voting as voting
from .accounting.events import compose as compose
from .accounting.events import dp_sgd as dp_sgd
from .accounting.events import gaussian as gaussian
from .accounting.events import laplace as laplace
from .accounting.events import zcdp as zcdp
from .accounting.guarantee import Guarantee as Guarantee
from .accounting.kinds.approximate import approximate_dp as approximate_dp
from .accounting.kinds.approximate import pure_dp as pure_dp
from .accounting.kinds.bounded_range import bounded_range as bounded_range
from .accounting.kinds.curve import rdp as rdp
from .accounting.kinds.per_client import per_client as per_client
from .accounting.kinds.profile import from_pld as from_pld
from .accounting.kinds.profile import from_profile as from_profile
from .accounting.kinds.worst_case import worst_case as worst_case
from .accounting.opacus import from_opacus as from_opacus
from .check.objective_check import check_objective as check_objective
from .check.objective_report import ObjectiveReport as ObjectiveReport
from .evidence.drawn_ranges import draw_ranges as draw_ranges
from .evidence.start import start_run as start_run
from .mechanisms.partitions import partition as partition
from .planning.batch import batch_choices as batch_choices
from .planning.budget import plan_budget as plan_budget
from .planning.calibration import calibrate as calibrate
from .planning.selection_plan import selection_plan as selection_plan
from .planning.short_lists import short_list as short_list
from .preparation.columns import Categories as Categories
from .preparation.columns import Date as Date
from .preparation.columns import Number as Number
from .preparation.schema import Schema as Schema
from .priors.around import around as around
from .priors.densities.convex_projection import ConvexProjection as ConvexProjection
from .releasing.callbacks import PrivacyCallback as PrivacyCallback
from .releasing.describing import describe as describe
from .releasing.make_release import release as release
from .releasing.publishing import publish as publish
from .releasing.release import Release as Release
from .releasing.signature import sign as sign
from .releasing.verification import verify as verify
from .runs.rehearsal import Rehearsal as Rehearsal
from .runs.rehearsal import rehearse_module as rehearse_module
from .runs.run import Run as Run
from .runs.run_plan import RunPlan as RunPlan
from .runs.train import Trained as Trained
from .runs.train import train as train
from .samplers.budget.plan import BudgetPlan as BudgetPlan
from .samplers.budget.sampler import BudgetSampler as BudgetSampler
from .samplers.choice.noisy_max_sampler import NoisyMaxSampler as NoisyMaxSampler
from .samplers.choice.propose_test_sampler import ProposeTestSampler as ProposeTestSampler
from .samplers.choice.reported import report_utilities as report_utilities
from .samplers.selection.dp_hypo import DPHyPOSampler as DPHyPOSampler
from .samplers.selection.rand_tune import RandTuneSampler as RandTuneSampler
from .selection.guarantee import selection_guarantee as selection_guarantee
from .selection.laws.base import TrialCount as TrialCount
from .selection.laws.binomial import Binomial as Binomial
from .selection.laws.logarithmic import Logarithmic as Logarithmic
from .selection.laws.negative_binomial import Geometric as Geometric
from .selection.laws.negative_binomial import NegativeBinomial as NegativeBinomial
from .selection.laws.poisson import Poisson as Poisson
from .study.pruners import WithinTrialPruner as WithinTrialPruner
from .study.recovery import recover as recover
from .training.learning_rate import learning_rate as learning_rate
from .training.made_up import made_up_images as made_up_images
from .training.made_up import made_up_inputs as made_up_inputs
from .training.made_up import made_up_tokens as made_up_tokens
from .training.public_maps import public_maps as public_maps
from .training.schedules import Schedule as Schedule
from .training.softmax_regression import SoftmaxRegression as SoftmaxRegression

__version__: str
