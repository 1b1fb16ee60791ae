"""The private training of one run, from the first draw to the score.

The library owns every step: it draws the records, computes each one's gradient by itself, clips
it, adds the noise, divides by the public size of a batch, and steps as often as the run may. So a
run that was trained here did what its plan says, whatever the model is. Differentially private
stochastic gradient descent is by Abadi et al. (arXiv:1607.00133v2, Algorithm 1).
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
from optuna.study import StudyDirection

from optuna_dp.core import by_name, validation
from optuna_dp.core.numbers_shown import reach_of_means
from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import InvalidArgumentError, PlanError, Text
from optuna_dp.runs.independence import refuse_trained, take
from optuna_dp.runs.predictions import predictions
from optuna_dp.runs.rehearsal import (
    Inputs,
    Rehearsal,
    Weight,
    default_optimizers,
    rehearsed_in_turn,
    unknown_inputs,
)
from optuna_dp.runs.run import Run, SgdRun
from optuna_dp.runs.scored_records import (
    ScoredRecords,
    check_arguments,
    refuse_copied_inputs,
    refuse_copies_in_model,
    scored_records,
)
from optuna_dp.runs.trial_notes import BY_ENGINE, BY_FUNCTION, claim, noted, refuse_second
from optuna_dp.study.entries import RANGES, SCORES, TRAININGS
from optuna_dp.study.given_back import set_up_of
from optuna_dp.study.trials import read_plan, trials_of
from optuna_dp.training.exact_step import NOISE_GENERATOR, ExactStep
from optuna_dp.training.learner import Learner, checked_clipping_norm, take_steps
from optuna_dp.training.loss_and_score import (
    USUAL_SCORES,
    LossAndScore,
    is_module,
    made_learner,
)
from optuna_dp.training.optimizers import (
    GIVEN,
    REHEARSED,
    OptimizerFactory,
    optimizer_name,
)
from optuna_dp.training.prepared import AS_GIVEN, NewRows, PreparedRecords
from optuna_dp.training.records import Records, read_records, refuse_as_inputs, warn_of_number
from optuna_dp.training.references import named_records
from optuna_dp.training.sampling import poisson_sample
from optuna_dp.training.schedules import DEFAULT_SCHEDULE, Schedule
from optuna_dp.training.softmax_regression import SoftmaxRegression

if TYPE_CHECKING:
    import torch
    from optuna.study import Study
    from optuna.trial import Trial
    from tqdm import tqdm

# A torch.nn.Module or a SoftmaxRegression; made_learner refuses anything else.
Model: TypeAlias = Any

_logger = logging.getLogger("optuna_dp")
# The standard deviation that the noise alone gives a score in [0, 1]: beyond it few differences
# between settings can be seen.
_BLIND = 0.1
# The frame of who called odp.train, from a function that it calls, and through the decorator.
_CALLER = 4


@dataclass(frozen=True)
class Trained:
    """A private training that has come to its end.

    Attributes:
        model: The model that was given, or that the given function made: trained, and in
            evaluation mode.
        score: The mean of one number in [0, 1] for each record, with the noise of the plan. Exact,
            if the plan says that scores are computed on public records. 0.0 if the plan charges
            for no score of this run, so that an objective that computes with it does not fail in
            the last run. None if none was asked for.
        learning_rate: The rate of the first step.
        optimizer: Its name; "function" if a function of the script made it.
        rehearsal: How the rate was found; None if it was given.
        preparation: How the records were prepared, as the statement says it.
        new_rows: How new rows are prepared, where a function prepared the records.
    """

    model: Model
    score: float | None
    learning_rate: float
    optimizer: str
    rehearsal: Rehearsal | None = None
    preparation: JsonObject = field(default_factory=dict, repr=False)
    new_rows: NewRows = field(default=NewRows(), repr=False, compare=False)

    def predict(self, records: object) -> npt.NDArray[Any]:
        """Returns what the model predicts for new records, an array of numpy.

        The model is in evaluation mode, and no gradient is computed. What is returned:

        * **After a training on records by a schema with a target**, also with ``prepare=``: the
          names of the predicted classes, or numbers in the units of the target, shape (n,). Of
          each row, also of a person with many. If ``prepare`` returned targets that no schema
          encoded, their names are not known, and what follows is returned.
        * **Of a** :class:`optuna_dp.SoftmaxRegression` **without a schema**: the numbers of the
          predicted classes, shape (n,).
        * **Otherwise** what the model returns, shape (n, ...), in double precision. For a
          classifier these are logits: ``trained.predict(x).argmax(axis=1)`` are the classes.

        Private is the model, not the new records: a prediction tells of the record that it is for.

        Args:
            records: Where a schema prepared the training's records: rows as they come, as for
                :meth:`optuna_dp.Schema.encode`; a column of the target may be missing. The
                function ``prepare`` of the training is applied to them (a trained object that was
                pickled has lost it). Otherwise what the model is called with, a batch of it: an
                array or a tensor, a tuple for several arguments, or a mapping for arguments by
                name. What ``encode`` returned is taken as it is.

        Raises:
            InvalidArgumentError: If it is nothing of the kind, the function leaves rows out, or
                the model returns no tensor.

        Example:
            >>> import optuna, optuna_dp as odp
            >>> schema = odp.Schema(age=(20, 80), died=["no", "yes"], target="died")
            >>> rows = {"age": [30, 75] * 200, "died": ["no", "yes"] * 200}
            >>> plan = odp.plan_budget(epsilon=8, records=400, batch_size=100, epochs=10, pilots=0)
            >>> study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
            >>> run = odp.start_run(study.ask())
            >>> model = odp.SoftmaxRegression(schema.width, schema.outputs)
            >>> odp.train(run, model, schema.encode(rows)).predict({"age": [22, 78]}).tolist()
            ['no', 'yes']
        """
        return predictions(self.model, records, self.preparation, self.new_rows)


_OF_THE_PLAN = (
    "the plan decides it",
    "Take the argument away: it stands in the plan of the study.",
)
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
        ("schema", "prepare"),
        ("records are prepared before the training",
         "Write records=schema.encode(rows, prepare=...), with schema = odp.Schema(...)."),
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
    "secure_noise": (
        "noise is always from OpenSSL's cryptographic generator", "Take the argument away."
    ),
    "metric": validation.by_another_name("score"),
    "scheduler": validation.by_another_name("schedule"),
}  # fmt: skip


def _set_up_of_call(
    run: object = None, *args: object, **kwargs: object
) -> AbstractContextManager[None]:
    """Returns what marks the error of a call that does not fit ``odp.train``."""
    return _set_up(run.trial if isinstance(run, Run) else None)


@validation.answers_familiar_names(_FAMILIAR_NAMES, refused_in=_set_up_of_call)
def train(
    run: Run,
    model: Model | Callable[[], Model],
    records: object,
    *,
    loss: Callable[..., torch.Tensor] | None = None,
    record_loss: Callable[..., torch.Tensor] | None = None,
    score: Literal["auto", "accuracy", "closeness"] | None = "auto",
    record_score: Callable[..., torch.Tensor] | None = None,
    score_records: object = None,
    score_size: int | None = None,
    optimizer: str | OptimizerFactory | None = None,
    learning_rate: float | None = None,
    inputs: Inputs = None,
    rehearsal_size: float | None = None,
    schedule: Schedule = DEFAULT_SCHEDULE,
    clipping_norm: float = 1.0,
    physical_batch_size: int | None = None,
    device: str | torch.device | None = None,
    show_progress: bool | None = None,
) -> Trained:
    """Trains a model privately, with exactly what a run may spend, and scores it.

    In the objective::

        def make_model():
            return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

        run = odp.start_run(trial)
        trained = odp.train(
            run, make_model, (x, y), loss=nn.functional.cross_entropy, score="accuracy"
        )
        return trained.score

    Guarantees:
        * Every record joins each step with chance ``run.sample_rate``, independently, drawn from
          the operating system's randomness. No seed repeats the draws.
        * The loss is a function of one record. Its gradient has L2 norm ``clipping_norm`` at most,
          over all trained parameters together; one that is not finite counts as zero. So does a
          record that raises an error, and its score counts as 0: neither what a record holds nor
          how many there are makes a run fail.
        * Gradients are rounded to whole numbers on a grid and added without error, so one record
          more changes the sum by ``clipping_norm`` at most in floating point, too. The proof is in
          ``optuna_dp/training/exact_step.py``.
        * Each of the ``run.steps`` steps has Gaussian noise of standard deviation
          ``run.noise_multiplier * clipping_norm`` in the sum, from OpenSSL's generator. The sum is
          divided by the public ``run.batch_size``. Optimizer, schedule and averages see nothing
          else.
        * The training computes with a copy of the model. Only noisy weights leave the copy.
        * What a model, a loss or a data set draws, as for dropout, comes from generators of
          Python, numpy and PyTorch with states from the operating system. They are put back
          afterwards, except for generators that a data set keeps in its attributes.
        * The score is one number in [0, 1] for each record, summed exactly, with the noise of the
          plan. Nothing else of the records is returned, logged or shown.
        * The trial claims the training before the first step. There is one in each trial.

    Not seen: how the records were made, as with a scaler that was fitted on them; a loss or a
    model that holds a copy of records, or what was computed from them; what a data set makes of
    several records when it reads one; and what the objective does with the model afterwards.

    Args:
        run: What :func:`optuna_dp.start_run` returned for the trial.
        model: A function that makes the model and has no arguments; or the model: a PyTorch
            module, or an :class:`optuna_dp.SoftmaxRegression`. The parameters that require a
            gradient are trained, with each part in the mode (training or evaluation) that it is
            in. The trained weights are put into the model at the end, and it is in evaluation
            mode then.
        records: All records: what :meth:`optuna_dp.Schema.encode` returned. Or a tensor or numpy
            array, a tuple or mapping of these with the records along the first axis, or a
            map-style data set, one item of which is one record; the statement says then that how
            they were made is the curator's word. Numbers
            in double precision are converted to the model's.
        loss: For records ``(input, target)``: from the model's output and the target to a number,
            such as ``torch.nn.functional.cross_entropy``. Model and loss are called with a batch
            axis of length 1. By default that of the schema's target: cross entropy for classes,
            the squared error for a number. For a regression without a schema give the model one
            output, scale the target from a public range to [-1, 1], and give
            ``torch.nn.functional.mse_loss``. PyTorch's own losses compare an output of shape (1,
            1) with a target of shape (1,) as one number.
        record_loss: For any other records, in place of ``loss``: from the model and the parts of
            **one** record, without a batch axis, to a number. For a language model and records of
            token ids: ``lambda model, ids: model(input_ids=ids[None], labels=ids[None]).loss``.
            A record that is a mapping is one argument.
        score: "accuracy": the share of records about which the model is right. Of one output for
            each target the loss says whether it is a logit or a probability; a loss that does not
            tell, as a squared error, is refused. Targets that the loss leaves out (-100, or its
            ``ignore_index``) do not count. "closeness", of
            records with a schema whose target is a number: the mean of one minus the distance of
            prediction and target, in units of the target's range. Both in a study with
            ``direction="maximize"`` only, unless nothing is chosen by it. "auto": the one that
            suits the target of a schema. Of other records there is none, so it is refused where
            the plan charges for a score. None: no score.
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
            elsewhere, and for a single output whose rate is rehearsed. If noise alone would allow
            SGD steps that a loss may not bear, Adam is taken there too.
        learning_rate: The rate of the first step. By default it is rehearsed on ``inputs``: see
            :func:`optuna_dp.rehearse_module`.
        inputs: Made-up or public inputs for the rehearsal; a schema has its own. As the model is
            called with them, a batch of them: :func:`optuna_dp.made_up_inputs`,
            :func:`optuna_dp.made_up_images` or :func:`optuna_dp.made_up_tokens`; a tuple for
            several arguments, a mapping for arguments by name. **No private records.** Models of
            linear layers, norms and activations, and a :class:`optuna_dp.SoftmaxRegression`, can
            do without: their features are taken to lie between -1 and 1. All others need
            ``inputs`` or ``learning_rate``.
        rehearsal_size: How far noise may move the outputs in the rehearsal, positive; for those
            who know what their model bears. By default by the kind of the model: see ``size`` of
            :func:`optuna_dp.rehearse_module`.
        schedule: How the rate falls, and which of the last weights are averaged. By default the
            rate is constant, and the weights of the last quarter of the steps are averaged.
        clipping_norm: The largest L2 norm of one record's gradient; positive.
        physical_batch_size: How many records' gradients are computed at a time at most, rounded up
            to a multiple of 8; bounds memory and changes nothing else. By default 64 to 512, as
            long as their gradients fit 256 MB, or a quarter of what is free on a GPU; and fewer
            if memory is short when made-up records are computed, before the first step.
        device: Where to train. By default on a GPU if there is one, and else where the model is.
        show_progress: Whether a bar of the steps, with the time left, is shown on the standard
            error. By default only in a terminal. It shows no loss: that would be exact.

    Returns:
        The trained model, its score and its rate.

    Raises:
        InvalidArgumentError: If an argument is not allowed, the study minimizes an accuracy, or
            the loss or the score cannot be computed for one record alone. Nothing was trained
            then, and the trial may call this again. If the error leaves the objective of a
            study's first run, and no record was read before, the run waits again and costs
            nothing: mend the objective and call ``study.optimize`` again. Any other run has
            failed then: it uses up its place in the plan, and is charged for.
        PlanError: If no trial was given this run, or the trial has trained already.
        MissingExtraError: If the model needs PyTorch and it is not installed.

    Warns:
        UserWarning: If the schema keeps more records of a person than the study's plan was made
            for. If records have to be computed one after another, because
            ``torch.func.vmap`` cannot take the model (recurrent layers other than LSTM, and models
            that look at numbers in Python), with how long a step takes then. If the loss, the
            score or the model names all the records. If the model or the loss compares the records
            of a batch: each is computed alone here, so such a model learns little.

    Example:
        >>> import numpy as np, optuna, optuna_dp as odp
        >>> x = np.random.default_rng(0).normal(size=(500, 5))
        >>> y = (x[:, 0] > 0).astype(int)
        >>> plan = odp.plan_budget(epsilon=3.0, records=500, batch_size=100, epochs=10, pilots=0)
        >>> study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
        >>> run = odp.start_run(study.ask())
        >>> trained = odp.train(run, odp.SoftmaxRegression(5, 2), (x, y), score="accuracy")
        >>> 0.5 < trained.score < 1.2
        True
    """
    # What was asked for. Only rank 0 of several has the trial.
    numbers, ranks = _checked_run(run), run.ranks
    trial = run.own_trial() if ranks.leads else None
    prepared = records if isinstance(records, PreparedRecords) else None
    task = None if prepared is None else prepared.task
    with _set_up(trial):
        norm = checked_clipping_norm(clipping_norm)
        if physical_batch_size is not None:
            validation.whole("physical_batch_size", physical_batch_size, 1)
        if not isinstance(schedule, Schedule):
            raise InvalidArgumentError(
                "schedule",
                schedule,
                allowed="it must be an optuna_dp.Schedule",
                fix="For example schedule=optuna_dp.Schedule('cosine').",
            )
        if score == "auto":
            is_scored = run.scored_on in ("training", None) or score_records is not None
            score = _usual_score(task) if is_scored and record_score is None else None
            if score is None and record_score is None and run.score_noise_multiplier is not None:
                raise _no_score(run)
        functions = LossAndScore(loss, record_loss, score, record_score, task)
        check_arguments(run, functions.has_score, score_records, score_size)
        if trial is not None:
            refuse_second(trial, TRAININGS)
            _check_direction(trial.study, functions.score)
        if prepared is not None:
            _refuse_missing_targets(prepared, record_loss)
            if trial is not None:
                _warn_of_persons(trial.study, prepared)
        all_records = read_records(records)

    # How many there are, and which are scored. An error here may tell of them and costs the run.
    if prepared is not None and trial is not None:
        _refuse_foreign_ranges(trial, prepared)
    warn_of_number(all_records, numbers.records)
    scored = scored_records(
        run, numbers, all_records, functions.has_score, score_records, score_size
    )
    to_score = None if scored is None else scored.records
    held_out = to_score if scored is not None and scored.is_disjoint else None
    preparation = _preparation(records, None if held_out is None else score_records)
    user_model = _made(model)

    # A copy of the model, tried on made-up records; the optimizer and its rate, on noise.
    with _set_up(trial):
        refuse_as_inputs(inputs, all_records, held_out)
        refuse_copied_inputs(inputs, all_records, held_out)
        learner = made_learner(
            user_model,
            functions,
            chunk_size=physical_batch_size,
            device=device,
            batch_size=numbers.batch_size,
            holders=[*all_records.holders(), *(() if to_score is None else to_score.holders())],
        )
        if run.is_independent and trial is not None:
            refuse_trained(trial.study, learner.user_parts)
        if ranks.leads:
            _refuse_what_is_of_records(user_model, all_records, held_out)
            _warn_of_names(user_model, functions, optimizer, all_records)
        learner.try_out(all_records, to_score)
        if ranks.leads:
            _warn_of_slowness(learner, numbers)
            _warn_of_blindness(scored)
        if inputs is None and prepared is not None:
            inputs = prepared.made_up_inputs
        name, rate, rehearsal = ranks.shared(
            lambda: _optimizer_and_rate(
                run,
                learner,
                all_records,
                inputs,
                optimizer,
                learning_rate,
                rehearsal_size,
                schedule,
                norm,
            )
        )
        kind = name if optimizer is None else optimizer
        remarks = () if rehearsal is None else rehearsal.remarks
        for remark in (*learner.hints(inputs), *remarks) if ranks.leads else ():
            warnings.warn(remark, UserWarning, stacklevel=_CALLER - 1)
        learner.begin(kind, rate)
        exact_step = _exact_step(learner, norm, numbers)
        ranks.make_alike(learner, all_records, *(() if to_score is None else (to_score,)))

    # The claim, before the first step; the steps; the score.
    is_reproducible = ranks.all_agree(learner.is_reproducible)
    if run.is_independent and trial is not None:
        take(trial.study, learner.user_parts)
    training_claim = (
        None
        if trial is None
        else claim(
            trial,
            TRAININGS,
            by=BY_ENGINE,
            noise_multiplier=numbers.noise_multiplier,
            sample_rate=numbers.sample_rate,
            steps=numbers.steps,
            clipping_norm=norm,
            units=exact_step.units,
            generator=NOISE_GENERATOR,
            physical_batch=learner.chunk_size,
            ranks=ranks.count,
            reproducible=is_reproducible,
            optimizer=name,
            rate=GIVEN if rehearsal is None else REHEARSED,
            prepared=preparation,
        )
    )

    def batch() -> npt.NDArray[np.int64]:
        return poisson_sample(len(all_records), numbers.sample_rate)

    def noisy_gradient(step: int) -> list[Weight]:
        bar.update(bool(step))
        noisy_sum = ranks.noisy_sum(learner, all_records, batch, exact_step)
        return [part / numbers.batch_size for part in noisy_sum]

    with ranks.together():
        with _bar_of_steps(run, numbers.steps, show_progress) as bar:
            take_steps(learner, noisy_gradient, numbers.steps, schedule)
            bar.update()
        if training_claim is not None:
            training_claim.finish()
        measure = functions.score or BY_FUNCTION
        value = _score(run, trial, learner, scored, measure) if functions.has_score else None

    # What leaves the copy: noisy weights.
    learner.hand_over()
    new_rows = NewRows() if prepared is None else prepared.new_rows
    return Trained(user_model, value, rate, name, rehearsal, preparation, new_rows)


def _set_up(trial: Trial | None) -> AbstractContextManager[None]:
    """Returns what marks errors of the set-up, in the process that has the trial."""
    return contextlib.nullcontext() if trial is None else set_up_of(trial)


def _checked_run(run: object) -> SgdRun:
    """Returns the numbers of what was given as a run."""
    if not isinstance(run, Run):
        raise InvalidArgumentError(
            "run",
            Text(f"a value of type {type(run).__name__}"),
            allowed="it must be what optuna_dp.start_run(trial) returned",
            fix="Write run = optuna_dp.start_run(trial), and odp.train(run, model, records, ...).",
        )
    if run.sgd is None:
        raise InvalidArgumentError(
            "run",
            run,
            problem="its plan was made from a function and does not know how batches are drawn",
            fix="Plan with plan_budget(records=..., epochs=...), or train by a loop of your own "
            "and call run.spent(accountant).",
        )
    return run.sgd


def _no_score(run: Run) -> InvalidArgumentError:
    """Returns the error for a run whose plan charges for a score, and of which none was asked."""
    others = ", and give score_records= and score_size=" if run.scored_on == "disjoint" else ""
    return InvalidArgumentError(
        "score",
        "auto",
        problem=f"the plan charges for a score on {run.scored_on} records, and nothing says which "
        "score that is",
        fix=f"Write score='accuracy', or record_score=lambda model, *record: ...{others}. A "
        "schema with a target says it, too. If the run needs no score, or run.score is called, "
        "write score=None.",
    )


def _usual_score(task: str | None) -> Literal["accuracy", "closeness"] | None:
    """Returns the score for what a schema says of the target; None if it says nothing."""
    return None if task is None else USUAL_SCORES[task]


def _check_direction(study: Study, score: str | None) -> None:
    """Refuses an accuracy in a study that looks for the smallest score: it would keep the worst.

    Optuna minimizes unless it is told otherwise, and the pilots' epsilon is spent by then. Another
    number made of the score, one less it say, would not be the score that was computed here. Of
    several objectives one may be minimized, as the size of a model. Where the one run of a plan
    is the last, nothing is chosen by its score.
    """
    if score is None or StudyDirection.MAXIMIZE in study.directions:
        return
    plan = read_plan(study)
    is_only_run = plan is not None and plan.design.settings.get("plan", {}).get("rungs") == []
    if not is_only_run:
        raise InvalidArgumentError(
            "score",
            score,
            problem="the study minimizes, so it would choose the model with the worst accuracy",
            fix='Create a new study with direction="maximize". To minimize a share of errors give '
            "record_score=lambda model, *record: ....",
        )


def _refuse_foreign_ranges(trial: Trial, records: PreparedRecords) -> None:
    """Refuses records whose ranges were drawn with noise, but not so that this study pays for it.

    Where a person has a bounded number of records, the ranges must be drawn from no more of them.
    """
    if not records.ranges:
        return
    past_trials = trials_of(trial.study)
    drawn = next((note for past in past_trials if (note := noted(past, RANGES))), None)
    if drawn is None or drawn.get("ranges") != records.ranges:
        raise PlanError(
            "The ranges of these records were drawn with noise in another study, and this one's "
            "plan does not pay for it. In each trial write odp.draw_ranges(run, schema, "
            "rows).encode(rows)."
        )
    schema = records.notes.get("schema") or {}
    if drawn.get("person") != [schema.get("unit"), schema.get("most")]:
        raise PlanError(
            "The ranges were drawn by a schema with another unit= or most= than the one that "
            "encoded these records, so a person may have more records in them. Give both schemas "
            "the same unit= and most=."
        )


def _refuse_missing_targets(records: PreparedRecords, record_loss: object) -> None:
    """Refuses records without the targets that their schema has."""
    if records.y is None and records.task is not None and record_loss is None:
        raise InvalidArgumentError(
            "records",
            Text("records without targets"),
            problem="their schema has a target, and the encoded rows did not have its column",
            fix="Encode rows with the column, or give the targets beside: schema.encode(x, y).",
        )


def _warn_of_persons(study: Study, records: PreparedRecords) -> None:
    """Says that a plan was made for fewer records of a person than the schema keeps."""
    schema = records.notes["schema"]
    remark = "" if schema["most"] in (None, 1) else by_name.remark_on_persons(study, schema)
    if remark:
        warnings.warn(remark, UserWarning, stacklevel=_CALLER)


def _preparation(records: object, held_out: object) -> dict[str, object]:
    """Returns how the records were prepared, and other private ones that are scored.

    Args:
        records: The records that are trained on.
        held_out: Other private records that are scored; None if there are none.

    Raises:
        InvalidArgumentError: If both were prepared, but not in the same way.
    """
    given = [records] if held_out is None else [records, held_out]
    notes = [some.notes for some in given if isinstance(some, PreparedRecords)]
    if len(notes) < len(given):
        return {"word": AS_GIVEN}
    if notes[-1] != notes[0]:
        raise InvalidArgumentError(
            "score_records",
            Text("records that were prepared otherwise"),
            allowed="they must be prepared as the training's records were",
            fix="Encode both by the same schema, with the same prepare=.",
        )
    return dict(notes[0])


def _made(model: Model | Callable[[], Model]) -> Model:
    """Returns the model, made if it was given as a function."""
    if isinstance(model, SoftmaxRegression) or is_module(model) or not callable(model):
        return model
    return model()


def _refuse_what_is_of_records(model: Model, records: Records, held_out: Records | None) -> None:
    """Refuses a model that holds records, or their averages."""
    if is_module(model):
        from optuna_dp.training.statistics_in_model import refuse_statistics  # An extra.

        refuse_statistics(model, records)
        refuse_copies_in_model(model, records, held_out)


def _warn_of_names(
    model: Model, functions: LossAndScore, optimizer: object, records: Records
) -> None:
    parts = model.modules() if is_module(model) else ()
    named: list[Callable[..., object]] = [*functions.functions().values()]
    named += [type(part).forward for part in parts if not _is_of_torch(part)]
    named += [optimizer] if callable(optimizer) else []
    name = named_records(named, records.holders())
    if name is not None:
        warnings.warn(
            f"The model, the loss, the score or the optimizer names all the records ({name}). It "
            "must use their shape only: what it computes of other records, such as a mean, is not "
            "clipped and has no noise.",
            UserWarning,
            stacklevel=_CALLER,
        )


def _is_of_torch(part: object) -> bool:
    return type(part).__module__.split(".")[0] in ("torch", "transformers", "peft")


def _warn_of_slowness(learner: Learner, numbers: SgdRun) -> None:
    seconds = learner.seconds_of_a_record
    if seconds is None:
        return
    of_step = seconds * numbers.batch_size
    warnings.warn(
        f"Records are computed one after another: {1000 * seconds:.2g} ms a record, "
        f"{of_step:.2g} s a step, {of_step * numbers.steps / 60:.2g} minutes for all "
        f"{numbers.steps} steps. Models that torch.func.vmap can take were 2 to 8 times faster. "
        f"The reason: {learner.reason_of_loop}.",
        UserWarning,
        stacklevel=_CALLER,
    )


def _warn_of_blindness(scored: ScoredRecords | None) -> None:
    """Says that a score is mostly noise, which public numbers tell."""
    if scored is None or scored.noise_multiplier is None:
        return
    deviation = scored.noise_multiplier / (2.0 * scored.size)
    if deviation > _BLIND:
        _logger.warning(
            "The noise alone gives the score of this run a standard deviation of %.2g, and a "
            "score lies between 0 and 1: few settings can be told apart by it. More records or a "
            "larger epsilon make it smaller. Or write pilots=0: then no score is needed.",
            deviation,
        )


def _optimizer_and_rate(
    run: Run,
    learner: Learner,
    records: Records,
    inputs: Inputs,
    optimizer: str | OptimizerFactory | None,
    learning_rate: float | None,
    size: float | None,
    schedule: Schedule,
    clipping_norm: float,
) -> tuple[str, float, Rehearsal | None]:
    """Returns the optimizer's name, the rate of the first step, and how it was rehearsed."""
    if size is not None:
        size = validation.positive("rehearsal_size", size)
    if learning_rate is not None:
        if size is not None:
            raise InvalidArgumentError(
                "rehearsal_size",
                size,
                problem="it decides the learning rate, and learning_rate= was given too",
                fix="Give one of them.",
            )
        kind = default_optimizers(learner)[0] if optimizer is None else optimizer
        return optimizer_name(kind), validation.positive("learning_rate", learning_rate), None
    if inputs is None:
        inputs = learner.default_inputs(records)
    if inputs is None:
        raise unknown_inputs(learner.example_of_inputs(records))
    kinds = default_optimizers(learner, inputs) if optimizer is None else [optimizer]
    kind, rehearsal = rehearsed_in_turn(
        run,
        learner,
        inputs,
        optimizers=kinds,
        schedule=schedule,
        clipping_norm=clipping_norm,
        size=size,
    )
    if kind != kinds[0]:  # Public numbers decide it, and the model.
        _logger.info(
            "This run is trained by %s: with its noise the rule for %s asks for steps that a loss "
            "may be too curved for. optimizer= says another one.",
            optimizer_name(kind),
            optimizer_name(kinds[0]),
        )
    return optimizer_name(kind), rehearsal.learning_rate, rehearsal


def _exact_step(learner: Learner, clipping_norm: float, numbers: SgdRun) -> ExactStep:
    """Returns what clips, adds and adds noise; refuses a device where sums are not exact."""
    exact_step = ExactStep(clipping_norm, numbers.noise_multiplier, learner.weights)
    if not exact_step.is_exact(learner.like):
        raise PlanError(
            "Sums of whole numbers are not exact on this device, so no sum of gradients would be "
            "private. Give device='cpu'."
        )
    return exact_step


def _bar_of_steps(run: Run, steps: int, is_shown: bool | None) -> tqdm[NoReturn]:
    """Returns a bar that counts steps, and shows nothing else."""
    from tqdm import tqdm  # start-up time

    # tqdm's None: in a terminal only.
    is_hidden = None if is_shown is None else not is_shown
    is_hidden = is_hidden if run.ranks.leads else True
    name = run.name or "Private training"
    return tqdm(total=steps, desc=name, unit="step", disable=is_hidden)


def _score(
    run: Run,
    trial: Trial | None,
    learner: Learner,
    scored: ScoredRecords | None,
    measure: str,
) -> float:
    """Returns the score that a plan charges for; 0.0 if it charges for none."""
    if scored is None:
        return 0.0
    score_claim = None
    if trial is not None and scored.noise_multiplier is not None:
        facts: dict[str, object] = {"noise_multiplier": scored.noise_multiplier}
        if scored.is_disjoint:  # These records are protected, too: the statement counts them.
            facts["size"] = scored.size
        score_claim = claim(trial, SCORES, by=BY_ENGINE, measure=measure, **facts)
    values = run.ranks.scores(learner, scored.records)
    value = run.ranks.shared(lambda: _mean(values, scored))
    if score_claim is not None:
        score_claim.finish(value=value)
    return value


def _mean(values: npt.NDArray[np.float64], scored: ScoredRecords) -> float:
    """Returns the mean of the scores, with the noise of the plan if the records are private."""
    if scored.noise_multiplier is None:
        return float(np.mean(values))
    # Start-up time: OpenDP is slow to load.
    from optuna_dp.scoring import private_mean

    value = private_mean(
        values,
        lower=0.0,
        upper=1.0,
        size=scored.size,
        noise_multiplier=scored.noise_multiplier,
    )
    # Of many more records than planned the mean may be anything.
    lowest, highest = reach_of_means(scored.noise_multiplier / (2.0 * scored.size), deviations=8.0)
    return min(max(value, lowest), highest)
