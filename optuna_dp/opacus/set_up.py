"""Which modules and optimizers a private training with Opacus can be made of."""

from __future__ import annotations

import opacus
import torch
from opacus.grad_sample import AbstractGradSampleModule
from opacus.optimizers import DPOptimizer
from opacus.validators import ModuleValidator
from torch.nn.modules.batchnorm import _NormBase

from optuna_dp.errors import InvalidArgumentError, Text


def trained_weights(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> list[torch.nn.Parameter]:
    """Returns the weights that are trained, if module and optimizer are fit for it.

    Args:
        module: The user's module.
        optimizer: The user's optimizer.

    Raises:
        InvalidArgumentError: If they are not.
    """
    _check_kinds(module, optimizer)
    held = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    own_ids = {id(parameter) for parameter in module.parameters()}
    if not all(
        id(p) in own_ids or not p.requires_grad
        for group in optimizer.param_groups
        for p in group["params"]
    ):
        raise InvalidArgumentError(
            "optimizer",
            optimizer,
            allowed="it must hold parameters of the module only",
            fix="Make it of module.parameters(). If the module was replaced "
            "(ModuleValidator.fix, a copy), make the optimizer after that.",
        )
    if not held:
        raise InvalidArgumentError(
            "optimizer", optimizer, allowed="it must hold a parameter that can be trained"
        )
    in_optimizer = {id(parameter) for parameter in held}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) not in in_optimizer:
            raise InvalidArgumentError(
                "optimizer",
                optimizer,
                problem=f"it does not hold the module's parameter {name!r}, which requires a "
                "gradient; whatever else trains it would add no noise",
                fix="Give the optimizer all of module.parameters(), or freeze the parameter: "
                "requires_grad_(False).",
            )
    _check_layers(module)
    return held


def hooked(module: torch.nn.Module) -> opacus.GradSampleModule:
    """Returns the module with hooks that compute the gradient of each record."""
    try:
        # Not strict: constant buffers are no reason to refuse a module.
        return opacus.GradSampleModule(module, strict=False)
    except (NotImplementedError, ValueError) as error:
        raise InvalidArgumentError(
            "module",
            module,
            problem=f"Opacus cannot compute the gradient of each record ({error})",
            fix="Use odp.train, which computes them without hooks, or replace the layer.",
        ) from error


def _check_kinds(module: object, optimizer: object) -> None:
    if isinstance(module, AbstractGradSampleModule) or hasattr(
        module, "autograd_grad_sample_hooks"
    ):
        raise InvalidArgumentError(
            "module",
            module,
            problem="Opacus' hooks are in it already, by another run or by an engine of its own",
            fix="Make the module inside the objective and give it as it is, without a "
            "PrivacyEngine.",
        )
    if not isinstance(module, torch.nn.Module):
        raise InvalidArgumentError("module", module, allowed="it must be a torch.nn.Module")
    if isinstance(optimizer, DPOptimizer):
        raise InvalidArgumentError(
            "optimizer",
            optimizer,
            problem="it is Opacus' own already",
            fix="Give the optimizer of torch, made inside the objective, without a PrivacyEngine.",
        )
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgumentError(
            "optimizer", optimizer, allowed="it must be a torch.optim.Optimizer"
        )
    if isinstance(optimizer, torch.optim.LBFGS | torch.optim.SparseAdam):
        raise InvalidArgumentError(
            "optimizer",
            optimizer,
            allowed="it must take one gradient a step, and not a sparse one: LBFGS asks for "
            "several",
            fix="Use SGD, Adam, AdamW or another optimizer of torch.",
        )
    processes = torch.distributed
    if processes.is_available() and processes.is_initialized() and processes.get_world_size() > 1:
        raise InvalidArgumentError(
            "module",
            module,
            problem="trainings in several processes at once are not supported",
            fix="Train each trial in one process. Trials can run side by side.",
        )


def _check_layers(module: torch.nn.Module) -> None:
    if not module.training:
        raise InvalidArgumentError(
            "module",
            module,
            allowed="it must be in train mode, or Opacus' hooks record nothing",
            fix="Call module.train(). Frozen layers with running statistics go to eval() "
            "afterwards.",
        )
    for name, part in module.named_modules():
        if (problem_and_fix := mixing_problem(part)) is not None:
            problem, fix = problem_and_fix
            about = Text(f"{type(part).__name__} {name!r}")
            raise InvalidArgumentError("module", about, problem=problem, fix=fix)
        own_weights = list(part.parameters(recurse=False))
        if any(isinstance(p, torch.nn.UninitializedParameter) for p in own_weights):
            raise InvalidArgumentError(
                "module",
                Text(f"{type(part).__name__} {name!r}"),
                problem="its weights do not exist yet",
                fix="Call the module once on made-up input before the optimizer is made.",
            )
        if isinstance(part, torch.nn.EmbeddingBag) and any(p.requires_grad for p in own_weights):
            raise InvalidArgumentError(
                "module",
                Text(f"EmbeddingBag {name!r}"),
                problem="Opacus has no gradients of single records for every way to call it",
                fix="Use torch.nn.Embedding and a mean over the words: embedding(words).mean(1).",
            )
    if errors := ModuleValidator.validate(module, strict=False):
        raise InvalidArgumentError(
            "module",
            module,
            problem=f"Opacus cannot train it ({errors[0]})",
            fix="Replace the layer, before the optimizer is made: module = "
            "opacus.validators.ModuleValidator.fix(module). Or use odp.train.",
        )


def mixing_problem(part: torch.nn.Module) -> tuple[str, str] | None:
    """Returns why a normalisation layer mixes records as it is now, and what to do; None if not.

    A layer that is frozen and in ``eval()`` uses constants only, and mixes nothing.
    """
    if not isinstance(part, _NormBase):
        return None
    of_batch = isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
    keeps = part.running_mean is not None
    if not part.training and (keeps or not of_batch):
        return None
    if of_batch:
        return (
            "it normalises each record by the others of the batch, and keeps their statistics "
            "without noise, whether its weights are frozen or not",
            "Use GroupNorm. A pre-trained layer can stay if it is frozen and constant: "
            "requires_grad_(False) and eval(), after every train().",
        )
    if keeps:
        return (
            "it keeps running statistics of the records, without noise",
            "Write track_running_stats=False, or freeze it: requires_grad_(False) and eval(), "
            "after every train().",
        )
    return None
