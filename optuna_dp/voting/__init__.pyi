"""The public names of the package ``voting``, each once: see ``optuna_dp/__init__.pyi``."""

from .ballots import argmax as argmax
from .ballots import ballot as ballot
from .plan import ADJACENCIES as ADJACENCIES
from .plan import VoteFailedError as VoteFailedError
from .plan import VotePlan as VotePlan
from .skellam_noise import Skellam as Skellam
from .utility import chance_of_gap as chance_of_gap
from .utility import visible_gap as visible_gap
