"""Programs with ``make_private`` of a hostile reader, which were said to be *compared*."""

from __future__ import annotations

import os
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra opacus")
pytest.importorskip("opacus", reason="needs the extra opacus")

from granted import granted  # noqa: E402
from opacus_support import RECORDS, Begun, begin, cross_entropy, dense, parts, train  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.errors import InvalidArgumentError, PlanError  # noqa: E402
from optuna_dp.training.noise import SecureNoise  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("physical", [None, 8])
def test_noise_is_that_of_the_norm_that_the_sums_were_clipped_to(
    physical: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opacus.schedulers import ExponentialGradClip

    begun = begin()
    private, optimizer, batches = odp.opacus.make_private(
        begun.run, physical_batch_size=physical, **parts()
    )
    scales: list[float] = []

    def added_to(noise: Any, total: Any, scale: float) -> Any:
        scales.append(scale)
        return total.double()

    monkeypatch.setattr(SecureNoise, "added_to", added_to)
    schedule = ExponentialGradClip(optimizer, gamma=0.5)
    norms = []
    for batch in batches:
        norms.append(optimizer.max_grad_norm)
        cross_entropy(private, batch).backward()
        optimizer.step()
        schedule.step()
    pieces = len(batches) // begun.run.steps
    deviations = scales[::2]  # of the first of two weights
    assert len(deviations) == begun.run.steps
    largest = [max(norms[start : start + pieces]) for start in range(0, len(norms), pieces)]
    assert deviations == pytest.approx([begun.run.noise_multiplier * norm for norm in largest])


def test_a_forked_loop_takes_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    private, optimizer, batches = odp.opacus.make_private(begin().run, **parts())
    loop = iter(batches)
    cross_entropy(private, next(loop)).backward()
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)  # as a forked child sees it
    with pytest.raises(PlanError, match="was forked"):
        optimizer.step()
    with pytest.raises(PlanError, match="was forked"):
        next(loop)


def test_what_was_spent_is_not_what_a_script_left_in_the_accountant() -> None:
    begun = begin()
    private, optimizer, batches = odp.opacus.make_private(begun.run, **parts())
    train(private, optimizer, batches)
    batches.accountant.history.clear()
    begun.end()
    assert begun.recorded_steps == begun.run.steps


def test_a_copy_of_weights_of_an_earlier_run_is_refused() -> None:
    run = granted(RECORDS, batch_size=20, steps=3)
    assert run.trial is not None
    first, study = Begun(run.trial.study, run.trial, run), run.trial.study
    module = dense(5, 8)
    train(*odp.opacus.make_private(first.run, **parts(module)))
    first.end()
    state = {name: value.clone() for name, value in module.state_dict().items()}
    later = odp.fidelity(study.ask())
    copied = dense(5, 8)
    copied.load_state_dict(state)
    with pytest.raises(InvalidArgumentError, match="copy of weights"):
        odp.opacus.make_private(later, **parts(copied))
    renamed = dense(5, 8)
    renamed.weight = torch.nn.Parameter(module.weight.detach())
    with pytest.raises(InvalidArgumentError, match="has trained"):
        odp.opacus.make_private(granted(RECORDS), **parts(renamed))
    train(*odp.opacus.make_private(later, **parts(dense(5, 8))))
