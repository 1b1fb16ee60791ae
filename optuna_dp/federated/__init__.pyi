"""The public names of the package ``federated``, each once: see ``optuna_dp/__init__.pyi``."""

from .client import voter as voter
from .in_process import InProcessGrid as InProcessGrid
from .ledger_summary import client_statement as client_statement
from .plain_sum import PlainSum as PlainSum
from .policy import VotePolicy as VotePolicy
from .secure_sum import SecureSum as SecureSum
from .server import FederatedVote as FederatedVote
from .strategy import VoteStrategy as VoteStrategy
