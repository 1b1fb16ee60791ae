"""A study whose runs are trained by all processes that ``torchrun`` has started."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, cast

import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial

from optuna_dp.errors import InvalidArgumentError, MissingExtraError, WorkersError, type_of
from optuna_dp.runs.ranks_trial import RanksTrial
from optuna_dp.study.trials import checked_study

if TYPE_CHECKING:
    from optuna_dp.training.torch_ranks import TorchRanks

Callback = Callable[[Study, FrozenTrial], None]
# As study.optimize takes it.
Objective = Callable[[Trial], float | Sequence[float]]


def optimize_ranks(
    create_study: Callable[[], Study],
    objective: Objective,
    *,
    callbacks: Sequence[Callback] = (),
    catch: Iterable[type[Exception]] | type[Exception] = (),
) -> Study | None:
    """Runs ``study.optimize`` with each run trained by all processes that ``torchrun`` started.

    One script for all of them::

        def create_study():
            return optuna.create_study(
                direction="maximize", sampler=odp.BudgetSampler(plan), storage="sqlite:///a.db"
            )

        study = odp.distributed.optimize_ranks(create_study, objective)
        if study is not None:
            release = odp.release(study)

    It is started by ``torchrun --nproc-per-node 4 script.py``, on one machine or on several. By
    ``python script.py`` the same script trains in one process.

    Rank 0 has the study. The other ranks call the objective with the same trial: what they ask it
    for is answered by rank 0. In :func:`optuna_dp.train` each rank computes the gradients of its
    share of a batch; rank 0 adds them, draws the noise and tells all ranks the noisy sum. Scores
    are computed in the same way. A model's weights, also those that are not trained, are those of
    rank 0 when the training begins.

    Guarantees:
        * The guarantee is that of one process, whatever the number of ranks: the sum of the ranks
          is exact (``optuna_dp/training/exact_step.py``), and there is one noise. On processors of
          one kind the trained weights are equal to those of one process, to the last bit, for the
          same draws.
        * If a rank dies, the run fails, and is charged for. Nothing waits for it: rank 0 raises,
          and the study can be continued.
        * An error of one rank in the midst of a step fails the run in all of them.

    Every rank must hold all records, in the same order; some of them are compared. What the
    objective does must depend on the trial and on what ``odp.train`` returns only. What writes
    files, shows or uploads something belongs after ``optimize_ranks``, or into ``callbacks``,
    which only rank 0 calls.

    Args:
        create_study: A function without arguments that creates or loads the study, with one of
            this package's samplers; called in rank 0 only.
        objective: The objective, as for ``study.optimize``.
        callbacks: As for ``study.optimize``.
        catch: As for ``study.optimize``: exceptions that fail a run and do not end the study.

    Returns:
        The study in rank 0; None in other ranks.

    Raises:
        InvalidArgumentError: If ``create_study`` is no function.
        MissingExtraError: If PyTorch is not installed.
        WorkersError: If another rank has died or has failed in a step.
        Exception: What ``create_study`` or the objective raised.
    """
    if not callable(create_study) or isinstance(create_study, Study):
        raise InvalidArgumentError(
            "create_study",
            type_of(create_study),
            allowed="it must be a function that creates the study, because only rank 0 has one",
            fix="For example lambda: optuna.create_study(sampler=..., direction='maximize').",
        )
    with _joined_ranks() as ranks:
        if ranks is None:
            study = checked_study(create_study())
            study.optimize(objective, callbacks=[*callbacks], catch=catch)
            return study
        if ranks.leads:
            return _led(ranks, create_study, objective, callbacks, catch)
        _follow(ranks, objective)
        return None


def _led(
    ranks: TorchRanks,
    create_study: Callable[[], Study],
    objective: Objective,
    callbacks: Sequence[Callback],
    catch: Iterable[type[Exception]] | type[Exception],
) -> Study:
    """Makes all runs as rank 0, and returns the study."""

    def of_all_ranks(trial: Trial) -> float | Sequence[float]:
        ranks.begin_run()
        return objective(cast(Trial, RanksTrial(trial, ranks)))

    def stop_if_broken(study: Study, trial: FrozenTrial) -> None:
        if ranks.is_broken:  # A caught error: each later run would fail and be charged for.
            study.stop()

    try:
        study = checked_study(create_study())
        with _terminated_by_an_error(ranks):
            study.optimize(of_all_ranks, callbacks=[*callbacks, stop_if_broken], catch=catch)
    finally:
        ranks.end()
    if ranks.is_broken:
        raise ranks.death()
    return study


def _follow(ranks: TorchRanks, objective: Objective) -> None:
    """Makes the same runs as another rank."""
    from optuna_dp.training.torch_ranks import NextRun  # An extra.

    error: Exception | None = None
    while ranks.waits_for_run(error):
        error = None
        try:
            objective(cast(Trial, RanksTrial(None, ranks)))
        except NextRun:
            pass
        except optuna.TrialPruned:
            pass
        except Exception as caught:
            if ranks.is_broken:
                raise
            error = caught


@contextmanager
def _joined_ranks() -> Iterator[TorchRanks | None]:
    """Joins the processes that torchrun started; None if there is only this one."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield None
        return
    try:
        import torch  # An extra.
        import torch.distributed as dist  # An extra.
    except ImportError:
        raise MissingExtraError("torch", "torch") from None
    from optuna_dp.training.torch_ranks import TorchRanks  # An extra.

    if not dist.is_initialized():  # Once in a process: a script may have several studies.
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        has_gpu = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= torch.cuda.device_count()
        if has_gpu:
            torch.cuda.set_device(local_rank)
        dist.init_process_group("nccl" if has_gpu else "gloo")
        atexit.register(dist.destroy_process_group)
    ranks = TorchRanks()
    try:
        yield ranks
    finally:
        ranks.close()


@contextmanager
def _terminated_by_an_error(ranks: TorchRanks) -> Iterator[None]:
    """Lets a run fail if torchrun ends this process, as it does when another rank has died."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ended(number: int, frame: FrameType | None) -> None:
        if not ranks.is_broken:  # Otherwise the run fails already.
            ranks.is_broken = True
            raise WorkersError(
                "Rank 0 was told to end (SIGTERM), as when another rank has died. Its run counts "
                "as a failed one.",
                "Start the ranks again: the study continues.",
            )

    before = signal.signal(signal.SIGTERM, ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
