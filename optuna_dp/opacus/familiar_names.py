"""Answers to arguments of Opacus' own ``make_private`` and ``make_private_with_epsilon``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna_dp.errors import InvalidArgumentError

_PLAN = "the plan decides it", "Take the argument away. Plan with odp.plan_budget(...)."
_ANSWERS: dict[str, tuple[str, str]] = {
    "max_grad_norm": ("its name here is clipping_norm", "Write clipping_norm=... ."),
    "model": ("its name here is module", "Write module=... ."),
    "loader": ("its name here is data_loader", "Write data_loader=... ."),
    "noise_multiplier": _PLAN,
    "sample_rate": _PLAN,
    "target_epsilon": _PLAN,
    "target_delta": _PLAN,
    "epsilon": _PLAN,
    "delta": _PLAN,
    "epochs": (
        "the plan decides how many steps there are, and the batches are all of them",
        "Take the argument and the loop over epochs away.",
    ),
    "batch_size": (
        "the plan decides it",
        "Take the argument away. To bound memory, write physical_batch_size=... .",
    ),
    "max_physical_batch_size": (
        "its name here is physical_batch_size",
        "Write physical_batch_size=... .",
    ),
    "poisson_sampling": (
        "batches are always Poisson samples, which is what the plan charges for",
        "Take the argument away.",
    ),
    "loss_reduction": (
        "the loss has to be the mean of one number for each record",
        "Take the argument away, and give the loss reduction='mean'.",
    ),
    "batch_first": (
        "the first axis of what a layer gets has to be that of the records",
        "Take the argument away. Make recurrent layers with batch_first=True.",
    ),
    "criterion": (
        "the loss is computed in the loop, on what the module returns",
        "Take the argument away, and call backward() on the loss yourself.",
    ),
    "grad_sample_mode": (
        "gradients of single records are computed by Opacus' hooks, and they are compared",
        "Take the argument away. For large models write physical_batch_size=... .",
    ),
    "clipping": (
        "each record's whole gradient is clipped to one norm",
        "Take the argument away.",
    ),
    "noise_generator": (
        "the noise comes from the operating system's randomness, so that no seed repeats it",
        "Take the argument away.",
    ),
    "secure_mode": (
        "the noise always comes from the operating system's randomness",
        "Take the argument away.",
    ),
    "accountant": (
        "the training is recorded by an accountant of its own",
        "Take the argument away. batches.accountant is that accountant.",
    ),
}


def answer_familiar_names(arguments: Mapping[str, Any]) -> None:
    """Refuses arguments that are unknown here, and says what to write in their place.

    Args:
        arguments: Keyword arguments by name.

    Raises:
        InvalidArgumentError: If there is any.
    """
    for name, value in arguments.items():
        allowed, fix = _ANSWERS.get(
            name,
            (
                "odp.opacus.make_private has no such argument",
                "It has module=, optimizer=, data_loader=, clipping_norm= and "
                "physical_batch_size=.",
            ),
        )
        raise InvalidArgumentError(name, value, allowed, fix)
