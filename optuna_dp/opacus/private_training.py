"""Sets up a training with Opacus that is what a plan charges for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError, MissingExtraError
from optuna_dp.runs.independence import refuse_trained, take
from optuna_dp.runs.run import Run, SgdRun
from optuna_dp.runs.run_endings import check_at_end
from optuna_dp.runs.trial_notes import BY_OPACUS, claim
from optuna_dp.study.entries import TRAININGS
from optuna_dp.training.learner import checked_clipping_norm

if TYPE_CHECKING:
    import torch
    from opacus import GradSampleModule
    from torch.utils.data import DataLoader

    from optuna_dp.opacus.batches import Batches
    from optuna_dp.opacus.noisy_optimizer import NoisyOptimizer

# Chance that any step of a run draws more records than its physical batches hold.
_CHANCE_OF_TOO_MANY = 1e-9
_PLAN = "the plan decides it", "Take the argument away: it stands in the plan of the study."
_FAMILIAR_NAMES = {
    "max_grad_norm": validation.by_another_name("clipping_norm"),
    "model": validation.by_another_name("module"),
    "loader": validation.by_another_name("data_loader"),
    "max_physical_batch_size": validation.by_another_name("physical_batch_size"),
    **dict.fromkeys(
        ("noise_multiplier", "sample_rate", "target_epsilon", "target_delta", "epsilon", "delta",
         "batch_size"),
        _PLAN,
    ),
    "epochs": (
        "the plan decides how many steps there are, and the batches are all of them",
        "Take the argument and the loop over epochs away.",
    ),
    "clipping": (
        "the gradient of all parameters together is clipped to one norm",
        "Take the argument away. The norm is clipping_norm=... .",
    ),
    "poisson_sampling": ("batches are always Poisson samples", "Take the argument away."),
    "loss_reduction": (
        "the loss has to be the mean of one number for each record",
        "Take the argument away, and give the loss reduction='mean'.",
    ),
    "batch_first": (
        "the first axis of what a layer gets has to be that of the records",
        "Take the argument away. Make recurrent layers with batch_first=True.",
    ),
    "secure_mode": (
        "the noise is always from OpenSSL's cryptographic generator", "Take the argument away."
    ),
}  # fmt: skip


@validation.answers_familiar_names(_FAMILIAR_NAMES, package="odp.opacus")
def make_private(
    run: Run,
    *,
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    data_loader: DataLoader[object],
    clipping_norm: float = 1.0,
    physical_batch_size: int | None = None,
) -> tuple[GradSampleModule, NoisyOptimizer, Batches]:
    """Returns module, optimizer and batches of a training that spends what a run may spend.

    For loops that :func:`optuna_dp.train` cannot take over, such as Lightning's and the Hugging
    Face Trainer's. In place of ``opacus.PrivacyEngine.make_private``, and of the loop over
    epochs::

        run = odp.start_run(trial)
        private, optimizer, batches = odp.opacus.make_private(
            run, module=model, optimizer=optimizer, data_loader=loader
        )
        for x, y in batches:  # all steps of the run
            optimizer.zero_grad()
            loss(private(x), y).backward()
            optimizer.step()

    The loop is the user's own code, so the statement says *compared*, not *enforced*.

    Guarantees:
        * Every record joins the batch of a step with probability ``run.sample_rate``,
          independently. Each record's gradient is clipped, each step has noise of
          ``run.noise_multiplier`` clipping norms and is divided by the plan's batch size. There
          are at most ``run.steps`` steps, one for each batch, and one training in a trial.
        * Batches and noise come from the operating system's randomness: no seed repeats them.
        * Clipping, sums and noise are exact (``optuna_dp/training/exact_step.py``), for the
          gradients that Opacus' hooks have computed.
        * What was spent is read from Opacus' accountant when the trial ends. The run is refused if
          no step was taken. However the loop was left, ``break`` included, what it had spent is
          recorded.
        * The gradient of a record does not depend on the other records of its batch, as far as one
          test shows. The first two batches share some records, and are computed at the same
          weights. The gradients of these records have to be equal, or no step is taken. The two
          noisy steps follow after the second batch. Dropout layers are switched off in these two
          batches.

    What the test cannot see: a dependence that those two batches do not show. They can be alike by
    chance. Class weights in a mean loss passed in at most 2 of 100 trainings, of 200 at each of
    several batch sizes. Where one record of a batch decides, as its largest loss or a quantile, a
    fifth of the trainings and more passed. Each run of a study is tested. A dependence that
    begins later in the training is not found. Where random numbers are drawn by functional
    dropout, by the ``collate_fn`` or by the loop, a dependence on the number of records is not
    found.

    What nothing here sees: what the module keeps of the records besides its weights, what the
    loop prints or stores, other changes of the weights than the noisy steps, weights that were
    trained on the records before this call, and what was computed from all records beforehand.

    No batch is empty: if no record was drawn, the loop gets one whose gradient is dropped. The
    first two batches have some more such records.

    Args:
        run: What :func:`optuna_dp.start_run` returned in this trial.
        module: The model, in train mode, made in this trial; its parameters are trained in place.
        optimizer: An optimizer of all parameters that require a gradient. Pass
            ``lr=run.learning_rate(...)``.
        data_loader: Where the records come from: its data set, collate function and workers are
            used. Its batch size, ``shuffle`` and ``drop_last`` are not: the plan decides them.
        clipping_norm: Largest L2 norm of one record's gradient; positive and finite.
        physical_batch_size: Largest number of records that are computed at once; None for the
            batch of a step as it is drawn. The records of a step are then delivered in several
            batches, always equally many, so there are ``len(batches)`` batches, and the weights
            move at the last one of each step. The first two batches may have an eighth and ten
            records more. So may others, with a chance of 1e-9 in a run, and all of them if the
            data set has more records than the plan.

    Returns:
        The model to call, the optimizer to step, and the batches: ``len(batches)`` of them, which
        can be gone through once. Whoever leaves the loop and begins again goes on where it was
        left.

    Raises:
        MissingExtraError: If Opacus is not installed.
        InvalidArgumentError: If an argument is not allowed. The plan was made from ``run`` and
            does not know a sampling rate. The module cannot be trained so, has normalisation
            layers that mix records, or was trained by another run. Parameters that require a
            gradient are not in the optimizer. The loader has a sampler of its own, records twice,
            or less than half or more than twice the records of the plan.
        PlanError: If no trial was given the run, or it has trained already. Later, in the loop,
            when a batch has no step or a step has no batch, and for all that is refused above.
    """
    if not isinstance(run, Run):
        raise InvalidArgumentError(
            "run", run, allowed="it must be what optuna_dp.start_run(trial) returned"
        )
    numbers = run.sgd
    if numbers is None:
        raise InvalidArgumentError(
            "run",
            run,
            problem="its plan was made from a function and does not know how batches are drawn",
            fix="Use opacus.PrivacyEngine and hand it to run.spent(engine).",
        )
    norm = checked_clipping_norm(clipping_norm)
    if physical_batch_size is not None:
        physical_batch_size = validation.whole("physical_batch_size", physical_batch_size, 1)
    try:
        # An extra.
        import opacus  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("opacus", "opacus") from error
    # An extra: these need torch and Opacus.
    from optuna_dp.opacus.batches import Batches
    from optuna_dp.opacus.mixing_check import SHOWN_RECORDS
    from optuna_dp.opacus.noisy_optimizer import NoisyOptimizer
    from optuna_dp.opacus.record_source import record_source
    from optuna_dp.opacus.set_up import hooked, trained_weights
    from optuna_dp.opacus.watched_training import WatchedTraining

    trial = run.own_trial()
    weights = trained_weights(module, optimizer)
    if run.is_independent:
        refuse_trained(trial.study, weights)
    source = record_source(data_loader, numbers.records)
    pieces = _batches_of_a_step(numbers, physical_batch_size)
    private = hooked(module)
    try:
        if run.is_independent:
            take(trial.study, weights)
        training_claim = claim(trial, TRAININGS, by=BY_OPACUS)
    except BaseException:
        private.to_standard_module()
        raise
    training = WatchedTraining(
        numbers,
        training_claim,
        module,
        weights,
        source,
        pieces,
        min(SHOWN_RECORDS, physical_batch_size or SHOWN_RECORDS),
    )
    check_at_end(trial, training)
    noisy = NoisyOptimizer(
        optimizer,
        noise_multiplier=numbers.noise_multiplier,
        clipping_norm=norm,
        expected_batch_size=numbers.batch_size,
        watching=training,
    )
    return private, noisy, Batches(training, data_loader, numbers.batch_size)


def _batches_of_a_step(run: SgdRun, physical_batch_size: int | None) -> int:
    """Returns in how many batches the records of a step are delivered, always as many.

    It follows from public numbers, so a schedule that counts batches depends on no record.

    Args:
        run: What the run may spend.
        physical_batch_size: The largest number of records that are computed at once.
    """
    # Start-up time: scipy.stats is slow to load.
    from scipy.stats import binom

    # The check for mixing needs two batches.
    fewest = 2 if run.steps == 1 else 1
    if physical_batch_size is None:
        return fewest
    planned_records = max(1, round(run.records))
    largest_batch = binom.isf(_CHANCE_OF_TOO_MANY / run.steps, planned_records, run.sample_rate)
    return max(fewest, math.ceil(float(largest_batch) / physical_batch_size))
