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

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
