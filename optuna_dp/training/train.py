"""The private training of one run, from the first draw to the score.

The library owns every step: it draws the records, computes each one's gradient by itself, clips
it, adds the noise, divides by the public size of a batch, and steps as often as the run may. So a
run that was trained here did what its plan says, whatever the model is. Differentially private
stochastic gradient descent is by Abadi et al. (arXiv:1607.00133v2, Algorithm 1).
"""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from optuna.study import StudyDirection

from optuna_dp import validation
from optuna_dp.errors import Described, InvalidArgumentError, MissingExtraError, PlanError
from optuna_dp.optuna_internals import storage_of, study_id_of
from optuna_dp.protocol.records import read_plan
from optuna_dp.training.fidelity import Fidelity
from optuna_dp.training.learner import Learner, checked_clipping_norm
from optuna_dp.training.noise import GeneratorNoise, Noise, SecureNoise, is_affordable
from optuna_dp.training.optimizers import OptimizerFactory
from optuna_dp.training.records import (
    Records,
    check_disjoint,
    check_number,
    read_records,
    refuse_as_inputs,
)
from optuna_dp.training.rehearsal import Rehearsal, default_optimizer, rehearsed
from optuna_dp.training.run_endings import TrainedWeights, check_at_end
from optuna_dp.training.sampling import poisson_sample
from optuna_dp.training.schedules import DEFAULT_SCHEDULE, Schedule
from optuna_dp.training.softmax_regression import SoftmaxLearner, SoftmaxRegression
from optuna_dp.training.stepping import take_steps
from optuna_dp.training.trained_values import refuse_copies, remember
from optuna_dp.training.trial_notes import (
    BY_ENGINE,
    SCORE,
    TRAINING,
    claim,
    refuse_second,
)

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import Trial

_PROGRESS_LINES = 20
_LOSS_EXAMPLES = {
    "loss": "For example loss=torch.nn.functional.cross_entropy.",
    "record_loss": "For example record_loss=lambda model, *record: ....",
    "record_score": "For example record_score=lambda model, *record: ....",
}


@dataclass(frozen=True)
class Trained:
    """A private training that has come to its end.

    Attributes:
        model: The model that was given, trained.
        score: The mean of one number in [0, 1] for each record, with the noise of the plan. Exact,
            if the plan says that scores are computed on public records. 0.0 if the plan charges
            for no score of this run, so that an objective that computes with it does not fail in
            the last run. None if none was asked for.
        learning_rate: The rate of the first step.
        rehearsal: How the rate was found; None if it was given.
    """

    model: Any
    score: float | None
    learning_rate: float
    rehearsal: Rehearsal | None = None


_OF_THE_PLAN = ("the plan decides it", "Take the argument away. Plan with odp.plan_budget(...).")
_FAMILIAR_NAMES = {
    **dict.fromkeys(
        ("max_grad_norm", "l2_norm_clip"), validation.by_another_name("clipping_norm")
    ),
    "lr": validation.by_another_name("learning_rate"),
    "criterion": validation.by_another_name("loss"),
    "loss_fn": validation.by_another_name("loss"),
    "module": validation.by_another_name("model"),
    **dict.fromkeys(
        ("data", "dataset", "train_data"), validation.by_another_name("records")
    ),
    **dict.fromkeys(
        ("data_loader", "train_loader", "loader"),
        ("the batches are drawn here", "Give records=, the data set itself."),
    ),
    **dict.fromkeys(
        ("epochs", "steps", "batch_size", "noise_multiplier", "sample_rate", "epsilon", "delta",
         "target_epsilon", "target_delta"),
        _OF_THE_PLAN,
    ),
    **dict.fromkeys(
        ("max_physical_batch_size", "microbatch_size", "num_microbatches"),
        validation.by_another_name("physical_batch_size"),
    ),
    **dict.fromkeys(
        ("seed", "generator", "random_state"),
        ("noise and batches come from the operating system's randomness, so that no seed "
         "repeats them", "Take the argument away."),
    ),
    "metric": validation.by_another_name("score"),
    "scheduler": validation.by_another_name("schedule"),
}  # fmt: skip


@validation.answers_familiar_names(_FAMILIAR_NAMES)
def train(
    run: Fidelity,
    model: Any,
    records: Any,
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    record_loss: Callable[..., Any] | None = None,
    score: Literal["accuracy"] | None = None,
    record_score: Callable[..., Any] | None = None,
    score_records: Any = None,
    score_size: int | None = None,
    optimizer: str | OptimizerFactory | None = None,
    learning_rate: float | None = None,
    inputs: Any = None,
    schedule: Schedule = DEFAULT_SCHEDULE,
    clipping_norm: float = 1.0,
    physical_batch_size: int | None = None,
    secure_noise: bool | None = None,
    device: Any = None,
    show_progress: bool = False,
) -> Trained:
    """Trains a model privately, with exactly what a run may spend, and scores it.

    In the objective::

        run = odp.fidelity(trial)
        model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        trained = odp.train(
            run, model, (x, y), loss=nn.functional.cross_entropy, score="accuracy"
        )
        return trained.score

    Guarantees:
        * Every record joins each step with chance ``run.sample_rate``, independently, drawn from
          the operating system's randomness. No seed repeats the draws.
        * The loss is a function of one record. Its gradient has L2 norm ``clipping_norm`` at most,
          over all trained parameters together; one that is not finite counts as zero. So does a
          record that raises an error, and its score counts as 0: no record makes a run fail.
        * What a model, a loss or a data set draws, as for dropout, comes from generators of
          Python, numpy and PyTorch that the operating system has seeded. They are put back
          afterwards, except for generators that a data set keeps in its attributes.
        * Each of the ``run.steps`` steps has Gaussian noise of standard deviation
          ``run.noise_multiplier * clipping_norm`` in the sum, and divides it by the public
          ``run.batch_size``. Optimizer, schedule and averages see nothing else.
        * Nothing else on the model, the loss and the score has changed at the end, to the last
          bit. Otherwise the training is an error, and its trial cannot be released.
        * The score is one number in [0, 1] for each record, summed exactly, with the noise of the
          plan. Nothing else of the records is returned, logged or shown.
        * The trial claims the training before the first step. There is one in each trial.
        * If something else changes the weights before the trial ends, its training is *not
          checked*, and the release asks for the curator's reason.

    A loss or a model that holds a *copy* of records, or what was computed from them, is not seen.
    Neither is what a data set makes of several records when it reads one, nor what the objective
    does with the model afterwards.

    Args:
        run: What :func:`optuna_dp.fidelity` returned for the trial.
        model: A PyTorch module, or :class:`optuna_dp.SoftmaxRegression`, made in this trial. Its
            parameters that require a gradient are trained in place, in the mode (training or
            evaluation) that each part is in.
        records: All records: a tensor or numpy array, a tuple or mapping of these with the records
            along the first axis, or a map-style data set, one item of which is one record. Numbers
            in double precision are converted to the model's.
        loss: For records ``(input, target)``: from the model's output and the target to a number,
            such as ``torch.nn.functional.cross_entropy``. Model and loss are called with a batch
            axis of length 1.
        record_loss: For any other records, in place of ``loss``: from the model and the parts of
            **one** record, without a batch axis, to a number. For a language model and records of
            token ids: ``lambda model, ids: model(input_ids=ids[None], labels=ids[None]).loss``.
            A record that is a mapping is one argument.
        score: "accuracy": the share of records about which the model is right; in a study with
            ``direction="maximize"`` only, unless nothing is chosen by it.
        record_score: In place of ``score``: from the model and the parts of one record, as for
            ``record_loss``, to a number in [0, 1]. Numbers outside are clipped, and what is not a
            number counts as 0. The model is in evaluation mode.
        score_records: The records to score, if they are not the training's: needed where the plan
            scores on disjoint or on public records.
        score_size: The public number of disjoint records to score, fixed beforehand.
        optimizer: "sgd", "momentum", "adam" or "adamw", or a function that makes one:
            ``lambda parameters, learning_rate: torch.optim.RMSprop(parameters, learning_rate)``.
            By default plain SGD where a single matrix is trained, as in a softmax regression or
            a last layer, and for networks of up to three linear layers without norms. Adam
            elsewhere. If noise alone would allow SGD steps that a loss may not bear, Adam is
            taken there too.
        learning_rate: The rate of the first step. By default it is rehearsed on ``inputs``: see
            :func:`optuna_dp.rehearse_module`.
        inputs: Made-up or public inputs for the rehearsal, as the model is called with them, a
            batch of them: :func:`optuna_dp.made_up_inputs`, :func:`optuna_dp.made_up_images` or
            :func:`optuna_dp.made_up_tokens`; a tuple for several arguments, a mapping for
            arguments by name. **No private records.** Models of linear layers, norms and
            activations, and a :class:`optuna_dp.SoftmaxRegression`, can do without: their features
            are taken to lie between -1 and 1. All others need ``inputs`` or ``learning_rate``.
        schedule: How the rate falls, and which of the last weights are averaged. By default the
            rate is constant, and the weights of the last quarter of the steps are averaged.
        clipping_norm: The largest L2 norm of one record's gradient; positive.
        physical_batch_size: How many records' gradients are computed at a time; bounds memory and
            changes nothing else. By default what fits 256 MB.
        secure_noise: Whether noise is a sum of four Gaussians from a cryptographic generator, in
            which the gaps of floating-point numbers do not show (arXiv:2107.10138). By default
            where it takes less than about a tenth of a step; otherwise noise is from a fast
            generator that the operating system seeds. The trial records which.
        device: Where to train. By default on a GPU if there is one, and else where the model is.
        show_progress: Whether the number of the step is shown on the standard error.

    Returns:
        The trained model, its score and its rate.

    Raises:
        InvalidArgumentError: If an argument is not allowed, the study minimizes an accuracy, or
            the loss or the score cannot be computed for one record alone. Nothing was trained
            then, and the trial may call this again. If the error leaves the objective, the run
            has failed: as any failed run it uses up its place in the plan, and is charged for.
        PlanError: If no trial was granted this run, the trial has trained already, or the training
            changed something that it does not train.
        MissingExtraError: If the model needs PyTorch and it is not installed.

    Example:
        >>> import numpy as np, optuna, optuna_dp as odp
        >>> x = np.random.default_rng(0).normal(size=(500, 5))
        >>> y = (x[:, 0] > 0).astype(int)
        >>> plan = odp.plan_budget(epsilon=3.0, records=500, batch_size=100, epochs=10, pilots=0)
        >>> study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
        >>> run = odp.fidelity(study.ask())
        >>> trained = odp.train(run, odp.SoftmaxRegression(5, 2), (x, y), score="accuracy")
        >>> 0.5 < trained.score < 1.2
        True
    """
    process = os.getpid()
    trial = _checked_run(run).granted_trial()
    refuse_second(trial, TRAINING)
    norm = checked_clipping_norm(clipping_norm)
    if physical_batch_size is not None:
        validation.whole("physical_batch_size", physical_batch_size, 1)
    if type(schedule) is not Schedule:  # One of a script's own may have read records.
        raise InvalidArgumentError(
            "schedule",
            schedule,
            "it must be an optuna_dp.Schedule",
            "For example schedule=optuna_dp.Schedule('cosine').",
        )
    if secure_noise not in (None, True, False):
        raise InvalidArgumentError("secure_noise", secure_noise, "it must be True, False or None")
    functions = _Functions(loss, record_loss, score, record_score)
    _check_direction(trial.study, score)
    all_records = read_records(records)
    assert run.records is not None
    check_number(all_records, run.records)
    scored = _scored_records(run, all_records, functions.has_score, score_records, score_size)
    is_private = scored is not None and run.scored_on == "disjoint"
    refuse_as_inputs(inputs, all_records, *([scored.records] if scored and is_private else []))
    learner = _learner(model, functions, norm, physical_batch_size, device, optimizer)
    try:
        kind = default_optimizer(learner) if optimizer is None else optimizer
        learner.try_out(all_records, None if scored is None else scored.records)
        rehearsal = None
        if learning_rate is None:
            try:
                rehearsal = _rehearsal(run, learner, all_records, inputs, kind, schedule, norm)
            except InvalidArgumentError as error:
                # Noise may be so little that SGD's steps of it move no weight.
                if optimizer is not None or kind == "adam" or error.argument != "optimizer":
                    raise
            if optimizer is None and (rehearsal is None or rehearsal.remarks):
                # Steps of SGD would be too long, or too short.
                kind = "adam"
                rehearsal = _rehearsal(run, learner, all_records, inputs, kind, schedule, norm)
            assert rehearsal is not None
            for remark in rehearsal.remarks:
                warnings.warn(remark, UserWarning, stacklevel=3)  # Of the caller's line.
            learner.keep_in_mind()
        rate = (
            validation.positive("learning_rate", learning_rate)
            if rehearsal is None
            else rehearsal.learning_rate
        )
        learner.begin(kind, rate)
        noise = _noise(secure_noise, learner, run)
        beginning = refuse_copies(trial, learner)
        learner.take_over(trial.number)
        learner.seed_readers(all_records, *([] if scored is None else [scored.records]))
        training_claim = claim(trial, TRAINING, by=BY_ENGINE)
        _take_steps(run, learner, all_records, noise, norm, schedule, process, show_progress)
        learner.check_unchanged()
        training_claim.finish(steps=run.steps, noise=noise.word)
        remember(trial, learner, beginning)
        check_at_end(trial, TrainedWeights(trial, learner.weights_digest()))
        value = None if not functions.has_score else _score(run, trial, learner, scored, process)
    finally:
        learner.close()
    return Trained(model, value, rate, rehearsal)


def _rehearsal(
    run: Fidelity,
    learner: Learner,
    records: Records,
    inputs: Any,
    optimizer: str | OptimizerFactory,
    schedule: Schedule,
    clipping_norm: float,
) -> Rehearsal:
    """Returns the rehearsal of this very training, on inputs that are no records."""
    if inputs is None:
        inputs = learner.default_inputs(records)
    return rehearsed(
        run,
        learner,
        inputs,
        optimizer=optimizer,
        schedule=schedule,
        clipping_norm=clipping_norm,
    )


def _checked_run(run: Any) -> Fidelity:
    if type(run) is not Fidelity:  # One of a script's own may say other numbers each time.
        raise InvalidArgumentError(
            "run",
            Described(f"a value of type {type(run).__name__}"),
            "it must be what optuna_dp.fidelity(trial) returned",
            "Write run = optuna_dp.fidelity(trial), and odp.train(run, model, records, ...).",
        )
    if run.sample_rate is None or run.batch_size is None:
        raise InvalidArgumentError(
            "run",
            run,
            "its plan was made from a function and does not know how batches are drawn",
            "Plan with plan_budget(records=..., epochs=...), or train by a loop of your own and "
            "call run.spent(accountant).",
        )
    return run


def _check_direction(study: Study, score: str | None) -> None:
    """Refuses an accuracy in a study that looks for the smallest score: it would keep the worst.

    Optuna minimizes unless it is told otherwise, and the pilots' epsilon is spent by then. Another
    number made of the score, one less it say, would not be the score that was computed here. Of
    several objectives one may be minimized, as the size of a model. Where the one run of a plan
    is the last, nothing is chosen by its score.
    """
    if score is None or StudyDirection.MAXIMIZE in study.directions:
        return
    plan = read_plan(storage_of(study), study_id_of(study))
    is_only_run = plan is not None and plan.design.settings.get("plan", {}).get("rungs") == []
    if not is_only_run:
        raise InvalidArgumentError(
            "score",
            score,
            "the study minimizes, so it would choose the model with the worst accuracy",
            'Create a new study with direction="maximize". To minimize a share of errors give '
            "record_score=lambda model, *record: ....",
        )


@dataclass(frozen=True)
class _Functions:
    """The user's loss and score."""

    loss: Callable[..., Any] | None
    record_loss: Callable[..., Any] | None
    score: str | None
    record_score: Callable[..., Any] | None

    def __post_init__(self) -> None:
        for first, second in (("loss", "record_loss"), ("score", "record_score")):
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise InvalidArgumentError(
                    second, getattr(self, second), f"give {first} or {second}, and not both"
                )
        for argument in ("loss", "record_loss", "record_score"):
            value = getattr(self, argument)
            if isinstance(value, type):
                raise InvalidArgumentError(
                    argument,
                    value,
                    "it is a class, and the function is what the class makes",
                    f"Add the parentheses: {argument}={value.__name__}().",
                )
            if value is not None and not callable(value):
                raise InvalidArgumentError(
                    argument,
                    value,
                    "it must be a function, and not its result or its name",
                    _LOSS_EXAMPLES.get(argument, ""),
                )
        if self.score not in (None, "accuracy"):
            raise InvalidArgumentError(
                "score",
                self.score,
                "it must be 'accuracy' or None",
                "For another score give record_score=lambda model, *record: ....",
            )

    @property
    def has_score(self) -> bool:
        return self.score is not None or self.record_score is not None


def _learner(
    model: Any,
    functions: _Functions,
    clipping_norm: float,
    chunk_size: int | None,
    device: Any,
    optimizer: Any,
) -> Learner:
    if isinstance(model, SoftmaxRegression):
        for argument in ("loss", "record_loss", "record_score"):
            if getattr(functions, argument) is not None:
                raise InvalidArgumentError(
                    argument,
                    getattr(functions, argument),
                    "a SoftmaxRegression has its own loss, the cross entropy, and is scored by "
                    "accuracy",
                    "Take the argument away, or give a PyTorch module.",
                )
        if device is not None:
            raise InvalidArgumentError(
                "device", device, "a SoftmaxRegression is trained by the processor"
            )
        return SoftmaxLearner(model, clipping_norm=clipping_norm, chunk_size=chunk_size)
    try:
        import torch  # An extra.
    except ImportError:
        raise MissingExtraError("torch", "torch") from None
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgumentError(
            "model",
            Described(f"the class {model.__name__}")
            if isinstance(model, type)
            else type(model).__name__,
            "it must be a torch.nn.Module or an optuna_dp.SoftmaxRegression",
            f"Add the parentheses: {model.__name__}(...)."
            if isinstance(model, type)
            else "Give the model itself, and not a function that makes it."
            if inspect.isroutine(model)
            else "",
        )
    if functions.loss is None and functions.record_loss is None:
        raise InvalidArgumentError(
            "loss",
            None,
            "a PyTorch module needs a loss",
            "For records (input, target), loss=torch.nn.functional.cross_entropy for example; for "
            "others record_loss=lambda model, *record: ....",
        )
    # Lazy: only models of PyTorch need it.
    from optuna_dp.training.record_functions import accuracy_of_pair, loss_of_pair
    from optuna_dp.training.torch_learner import TorchLearner

    is_pair = functions.loss is not None
    record_loss = loss_of_pair(functions.loss) if functions.loss else functions.record_loss
    assert record_loss is not None
    own = {
        argument: function
        for argument in ("loss", "record_loss", "record_score")
        if (function := getattr(functions, argument)) is not None
    }
    return TorchLearner(
        model,
        loss=record_loss,
        loss_argument="loss" if is_pair else "record_loss",
        score=accuracy_of_pair if functions.score else functions.record_score,
        score_argument="score" if functions.score else "record_score",
        clipping_norm=clipping_norm,
        chunk_size=chunk_size,
        device=device,
        functions=own,
        optimizer=optimizer,
    )


@dataclass(frozen=True)
class _ScoredRecords:
    """The records that are scored, and the public number that their sum is divided by."""

    records: Records
    size: int


def _scored_records(
    run: Fidelity,
    records: Records,
    has_score: bool,
    score_records: Any,
    score_size: int | None,
) -> _ScoredRecords | None:
    """Returns the records that the plan charges a score of; None if there is no score."""
    assert run.records is not None
    own = run.scored_on in ("disjoint", "public")
    if score_records is not None and not (own and has_score):
        raise InvalidArgumentError(
            "score_records",
            type(score_records).__name__,
            "the plan charges for a score on the training records"
            if has_score and run.scored_on == "training"
            else "no score is computed on them",
            "For a score on other private records plan with score='disjoint', on public ones with "
            "score=None. Otherwise take score_records= away.",
        )
    if score_size is not None and not (run.scored_on == "disjoint" and has_score):
        raise InvalidArgumentError(
            "score_size", score_size, "it is for scores on disjoint private records only"
        )
    if not has_score or run.scored_on is None:
        return None
    if not own:
        return _ScoredRecords(records, max(1, round(run.records)))
    if score_records is None:
        raise InvalidArgumentError(
            "score_records",
            None,
            f"the plan scores on {run.scored_on} records",
            "Give them, in the form of records=.",
        )
    scored = read_records(score_records, "score_records")
    check_disjoint(records, scored)
    if run.scored_on == "public":
        return _ScoredRecords(scored, len(scored))
    if score_size is None:
        raise InvalidArgumentError(
            "score_size",
            None,
            "the plan does not know how many records are scored",
            "Give their public number, fixed beforehand and not their exact number.",
        )
    size = validation.whole("score_size", score_size, 1)
    check_number(scored, size, "score_records")
    return _ScoredRecords(scored, size)


def _noise(secure: bool | None, learner: Learner, run: Fidelity) -> Noise:
    assert run.batch_size is not None
    if secure is None:
        secure = is_affordable(learner.weights, run.batch_size, learner.on_processor)
    return SecureNoise() if secure else GeneratorNoise()


def _take_steps(
    run: Fidelity,
    learner: Learner,
    records: Records,
    noise: Noise,
    clipping_norm: float,
    schedule: Schedule,
    process: int,
    show_progress: bool,
) -> None:
    """Takes all steps of a run, in the process that began it."""
    assert run.sample_rate is not None
    assert run.batch_size is not None
    sample_rate, batch_size = run.sample_rate, run.batch_size
    scale = run.noise_multiplier * clipping_norm

    def gradient(step: int) -> list[Any]:
        if show_progress and step:
            _show(step, run.steps)
        _refuse_fork(process)  # PyTorch computes no gradients in a fork, and may wait for ever.
        batch = poisson_sample(len(records), sample_rate)
        totals = learner.clipped_sum(records, batch)
        _refuse_fork(process)
        return [noise.added_to(total, scale) / batch_size for total in totals]

    take_steps(learner, gradient, run.steps, schedule)
    if show_progress:
        _show(run.steps, run.steps)


def _refuse_fork(process: int) -> None:
    """Refuses to draw noise in another process than the one that began the training."""
    if os.getpid() != process:
        raise PlanError(
            "This process was forked while a training was under way. Noise is not to be drawn "
            "twice, so only the process that began the training goes on."
        )


def _show(step: int, steps: int) -> None:
    """Shows the number of a step, and nothing else."""
    if step == steps or step % max(1, steps // _PROGRESS_LINES) == 0:
        end = "\n" if step == steps else ""
        print(f"\rprivate training: step {step} of {steps}", end=end, file=sys.stderr, flush=True)


def _score(
    run: Fidelity,
    trial: Trial,
    learner: Learner,
    scored: _ScoredRecords | None,
    process: int,
) -> float:
    """Returns the score that a plan charges for; 0.0 if it charges for none."""
    if scored is None:
        return 0.0
    if run.scored_on == "public":
        values = learner.scores(scored.records)
        learner.check_unchanged()
        return float(np.mean(values))
    # Start-up time: OpenDP is slow to load.
    from optuna_dp.scoring import private_mean

    assert run.score_noise_multiplier is not None
    # Disjoint records are protected, too: the statement counts them.
    extra = {"size": scored.size} if run.scored_on == "disjoint" else {}
    score_claim = claim(trial, SCORE, by=BY_ENGINE, **extra)
    values = learner.scores(scored.records)
    learner.check_unchanged()
    _refuse_fork(process)
    value = private_mean(
        values,
        lower=0.0,
        upper=1.0,
        size=scored.size,
        noise_multiplier=run.score_noise_multiplier,
    )
    score_claim.finish(value=value)
    return value
