"""Trainings with Opacus as a plan has them (extra ``opacus``).

For loops that :func:`optuna_dp.train` cannot take over: Lightning, the Hugging Face Trainer,
models with layers of Opacus' own. The user owns the loop, and common mistakes in it are refused.

``private_training``  :func:`make_private`
``record_source``     which data loaders are taken, and records by their indices
``set_up``            which modules and optimizers are taken
``batches``           what the loop goes through
``mixing_check``      the check that a record's gradient does not depend on the others of its batch
``noisy_optimizer``   clips, adds noise and steps
``watched_training``  one training, and what it has to show when its trial ends
"""

from optuna_dp.opacus.private_training import make_private

__all__ = ["make_private"]
