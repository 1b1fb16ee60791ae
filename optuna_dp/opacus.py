"""Trainings with Opacus as a budget's plan has them (extra ``opacus``)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from optuna_dp import validation
from optuna_dp.errors import InvalidArgumentError, MissingExtraError, PlanError
from optuna_dp.training.fidelity import Fidelity

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader

__all__ = ["make_private"]


def make_private(
    run: Fidelity,
    *,
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    data_loader: DataLoader[Any],
    clipping_norm: float = 1.0,
) -> tuple[Any, Any, Batches]:
    """Returns module, optimizer and batches of a training that spends what a run may spend.

    In place of ``opacus.PrivacyEngine.make_private``, and of the loop over epochs::

        run = odp.fidelity(trial)
        private, optimizer, batches = odp.opacus.make_private(
            run, module=model, optimizer=optimizer, data_loader=loader
        )
        for x, y in batches:  # all steps of the run
            optimizer.zero_grad()
            loss(private(x), y).backward()
            optimizer.step()

    Guarantees:
        * Every record joins each batch with probability ``run.sample_rate``, independently; each
          step has noise of ``run.noise_multiplier`` clipping norms and is divided by the plan's
          batch size; there are at most ``run.steps`` of them.
        * Batches and noise come from generators that the operating system seeds: no seed of a
          script repeats them.
        * What Opacus' accountant recorded is handed to :meth:`Fidelity.spent` when the loop over
          the batches ends.

    Args:
        run: What :func:`optuna_dp.fidelity` returned.
        module: The model; its parameters are trained in place.
        optimizer: Any optimizer of its parameters. Pass ``lr=run.learning_rate(...)``.
        data_loader: Where the records come from: its data set, collate function and workers are
            used, its batch size is not.
        clipping_norm: Largest L2 norm of one record's gradient; positive.

    Returns:
        The model to call, the optimizer to step, and the batches, which can be gone through once.

    Raises:
        MissingExtraError: If Opacus is not installed.
        InvalidArgumentError: If an argument is not allowed, the plan was made from ``run`` and
            does not know a sampling rate, or the optimizer has parameters of another module.
        opacus.validators.errors.UnsupportedModuleError: If Opacus cannot train the module, as one
            with BatchNorm.
        PlanError: When stepped more often than the run may, or gone through twice.
    """
    if not isinstance(run, Fidelity):
        raise InvalidArgumentError(
            "run", run, "it must be what optuna_dp.fidelity(trial) returned"
        )
    if run.sample_rate is None or run.batch_size is None:
        raise InvalidArgumentError(
            "run",
            run,
            "its plan was made from a function and does not know how batches are drawn",
            "Use opacus.PrivacyEngine and hand it to run.spent(engine).",
        )
    norm = validation.positive("clipping_norm", clipping_norm)
    try:
        # An extra.
        import opacus
        import torch
        from opacus.accountants import RDPAccountant
        from opacus.data_loader import DPDataLoader
        from opacus.optimizers import DPOptimizer
        from opacus.validators import ModuleValidator
    except ImportError as error:
        raise MissingExtraError("opacus", "opacus") from error

    own = {id(parameter) for parameter in module.parameters()}
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    if any(id(parameter) not in own for parameter in trained):
        raise InvalidArgumentError(
            "optimizer",
            type(optimizer).__name__,
            "it must hold parameters of the module only",
            "Make it of module.parameters().",
        )
    ModuleValidator.validate(module, strict=True)
    private = opacus.GradSampleModule(module)
    private.forbid_grad_accumulation()
    noisy = DPOptimizer(
        optimizer,
        noise_multiplier=run.noise_multiplier,
        max_grad_norm=norm,
        expected_batch_size=run.batch_size,
        generator=_fresh(torch, trained[0].device),
    )
    loader = DPDataLoader(
        data_loader.dataset,
        sample_rate=run.sample_rate,
        collate_fn=data_loader.collate_fn,
        num_workers=data_loader.num_workers,
        pin_memory=data_loader.pin_memory,
        timeout=data_loader.timeout,
        worker_init_fn=data_loader.worker_init_fn,
        multiprocessing_context=data_loader.multiprocessing_context,
        prefetch_factor=data_loader.prefetch_factor,
        generator=_fresh(torch, "cpu"),
    )
    loader.batch_sampler.steps = run.steps
    accountant = RDPAccountant()
    batches = Batches(loader, run, accountant)
    count = accountant.get_optimizer_hook_fn(sample_rate=run.sample_rate)

    def stepped(stepping: Any) -> None:
        batches.stepped()
        count(stepping)

    noisy.attach_step_hook(stepped)
    return private, noisy, batches


class Batches:
    """The batches of one run, to be gone through once; one step each.

    Attributes:
        accountant: Opacus', with what was spent so far.
    """

    def __init__(self, loader: Any, run: Fidelity, accountant: Any) -> None:
        self.accountant = accountant
        self.loader, self._run = loader, run
        self._begun, self._steps = False, 0

    def __len__(self) -> int:
        return self._run.steps

    def __iter__(self) -> Iterator[Any]:
        if self._begun:
            raise PlanError(
                f"These batches can be gone through once: they are all {self._run.steps} steps of "
                "the run, not an epoch. Take the loop over epochs away."
            )
        self._begun = True
        try:
            yield from self.loader
        finally:
            if self._steps:
                self._run.spent(self.accountant)

    def stepped(self) -> None:
        """Counts a step; refuses one beyond what the run may spend."""
        if self._steps >= self._run.steps:
            raise PlanError(
                f"This run may take {self._run.steps} steps, and has taken them. Step once for "
                "each batch."
            )
        self._steps += 1


def _fresh(torch: Any, device: Any) -> Any:
    """Returns a generator that the operating system seeds."""
    generator = torch.Generator(device=device)
    generator.manual_seed(secrets.randbits(63))
    return generator
