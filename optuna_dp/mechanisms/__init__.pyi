"""The public names of the package ``mechanisms``, each once: see ``optuna_dp/__init__.pyi``."""

from .doubling import DoublingPlan as DoublingPlan
from .doubling import propose_test as propose_test
from .partitions import partition as partition
from .partitions_needed import NoiseWarning as NoiseWarning
from .partitions_needed import UtilityPlan as UtilityPlan
from .partitions_needed import plan_utilities as plan_utilities
from .report_noisy_max import NoisyMaxPlan as NoisyMaxPlan
from .report_noisy_max import noisy_max as noisy_max
from .sparse_vector import above_threshold as above_threshold
from .utility_values import Utilities as Utilities
from .utility_values import validation_records_needed as validation_records_needed
