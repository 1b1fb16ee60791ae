"""DP-HYPE: clients vote for hyperparameters, the noisy sum of votes is released.

Liebenow, Peinemann & Mohammadi, arXiv 2510.04902. Proofs and what differs from the paper:
``docs/explanation/voting.md``. Nothing here knows Optuna or Flower.

Notation (code name: meaning, name in the paper):

====================  ==========================================================================
``candidates``        number of hyperparameter candidates, ``p``
``clients``           number of clients asked, ``n``
``votes``             ones in each client's ballot, ``k``
``honest``            clients whose noise is certainly in the sum and unknown to the adversary,
                      ``h = n - max_dropout - max_colluding``
``variance``          of the noise of one entry of the sum of ``h`` shares, ``sigma^2``
``share_variance``    of one client's share, ``sigma^2 / h``
``changes``           entries of the sum that neighbours may change, each by one
====================  ==========================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optuna_dp.front_doors import front_door

if TYPE_CHECKING:
    from optuna_dp.voting.ballots import argmax as argmax
    from optuna_dp.voting.ballots import ballot as ballot
    from optuna_dp.voting.plan import ADJACENCIES as ADJACENCIES
    from optuna_dp.voting.plan import VoteFailedError as VoteFailedError
    from optuna_dp.voting.plan import VotePlan as VotePlan
    from optuna_dp.voting.skellam_noise import Skellam as Skellam
    from optuna_dp.voting.utility import chance_of_gap as chance_of_gap
    from optuna_dp.voting.utility import visible_gap as visible_gap

__getattr__, __dir__, __all__ = front_door(
    __name__,
    {
        "ballots": "argmax ballot",
        "plan": "ADJACENCIES VoteFailedError VotePlan",
        "skellam_noise": "Skellam",
        "utility": "chance_of_gap visible_gap",
    },
)
