"""The public names of the package ``dashboard``, each once: see ``optuna_dp/__init__.pyi``."""

from .study_pages import DashboardCallback as DashboardCallback
from .study_pages import annotate as annotate
from .study_pages import annotate_published as annotate_published
from .study_pages import available as available
