"""The public names of the package ``visualization``, each once: see ``optuna_dp/__init__.pyi``."""

from .density import plot_density as plot_density
from .figures import plot_epsilon_by_trials as plot_epsilon_by_trials
from .figures import plot_plan as plot_plan
from .figures import plot_privacy_profile as plot_privacy_profile
from .figures import plot_renyi_by_trials as plot_renyi_by_trials
from .figures import plot_renyi_divergence as plot_renyi_divergence
from .figures import plot_trade_off as plot_trade_off
from .figures import plot_votes as plot_votes
