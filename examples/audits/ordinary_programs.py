"""Ordinary programs whose epsilon was false, and what becomes of them now.

Outside readers wrote them with Opacus, PyTorch and this library at version 0.1.0 of 2026-11-25.
Each was released with the epsilon of its plan, most with "checked" on the statement. This script
runs each again and prints a table in Markdown: what was said then, what was true, and what happens
now. It needs torch and Opacus, and takes about a minute.

    python examples/audits/ordinary_programs.py
"""

from __future__ import annotations

import itertools
import logging
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import optuna
import torch
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import ConcatDataset, DataLoader, SubsetRandomSampler, TensorDataset

import optuna_dp as odp

RECORDS, CLASSES = 400, 3
PLAN = odp.plan_budget(epsilon=3.0, delta=1e-5, records=RECORDS, batch_size=40, epochs=2, pilots=0)
PILOTS = odp.plan_budget(
    epsilon=3.0, delta=1e-5, records=RECORDS, batch_size=40, epochs=2, pilots=2
)
X, Y = torch.randn(RECORDS, 5), torch.arange(RECORDS) % CLASSES
CORRECT = np.arange(RECORDS) % 4 > 0


@dataclass(frozen=True)
class Program:
    """A program, and what it led to.

    Attributes:
        row: Its row in the readers' list.
        title: What it does, in a few words.
        true: The epsilon that was true, where 2.99 was said.
        objective: Of the study.
        plan: Of the study.
    """

    row: str
    title: str
    true: str
    objective: Callable[[optuna.Trial], Any]
    plan: odp.BudgetPlan = PLAN


def private(run: odp.Run, **changes: Any) -> Any:
    """A training with Opacus, with some of its parts changed."""
    module = changes.pop("module", None) or nn.Linear(5, CLASSES)
    parts = {
        "module": module,
        "optimizer": torch.optim.SGD(module.parameters(), lr=0.1),
        "data_loader": DataLoader(TensorDataset(X, Y), batch_size=40),
    }
    return odp.opacus.make_private(run, **{**parts, **changes})


def with_opacus(
    loss: Callable[[Any, Any], Any] = cross_entropy, **changes: Any
) -> Callable[[optuna.Trial], float]:
    """An objective that trains with Opacus in an ordinary loop."""

    def objective(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        made = {name: value() if callable(value) else value for name, value in changes.items()}
        module, optimizer, batches = private(run, **made)
        for x, y in batches:
            optimizer.zero_grad()
            loss(module(x), y).backward()
            optimizer.step()
        return run.score(CORRECT)

    return objective


def frozen_statistics() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(5, affine=False), nn.Linear(5, CLASSES))


class Windows(nn.Module):
    """Moves five windows of a record into the batch axis."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.layer(x.reshape(-1, 1)).reshape(len(x), 5, CLASSES).mean(1)


def two_trainings(trial: optuna.Trial) -> float:
    run = odp.start_run(trial)
    for _ in range(2):
        module, optimizer, batches = private(run)
        for x, y in itertools.islice(batches, 5):
            optimizer.zero_grad()
            cross_entropy(module(x), y).backward()
            optimizer.step()
    return run.score(CORRECT)


class Engine:
    """What Opacus' engines have: an accountant with a history."""

    def __init__(self, run: odp.Run) -> None:
        self.accountant = self
        self.history = [(run.noise_multiplier, run.sample_rate, run.steps)]


def goes_on(trial: optuna.Trial) -> float:
    run = odp.start_run(trial)
    engine = Engine(run)
    run.spent(engine)
    engine.history.append((run.noise_multiplier, run.sample_rate, 4 * run.steps))
    return run.score(CORRECT)


def many_values_a_record(trial: optuna.Trial) -> float:
    run = odp.start_run(trial)
    run.spent(Engine(run))
    tokens = np.repeat(CORRECT, 20)
    return run.score(tokens, size=20 * RECORDS)


def second_optimizer(trial: optuna.Trial) -> float:
    run = odp.start_run(trial)
    module = nn.Linear(5, CLASSES)
    other = torch.optim.SGD(module.parameters(), lr=0.1)
    wrapped, optimizer, batches = private(run, module=module)
    for x, y in batches:
        optimizer.zero_grad()
        cross_entropy(wrapped(x), y).backward()
        optimizer.step()
        module.zero_grad()
        cross_entropy(module(x), y).backward()
        other.step()
    return run.score(CORRECT)


def the_optimizer_handed_in(trial: optuna.Trial) -> float:
    run = odp.start_run(trial)
    module = nn.Linear(5, CLASSES)
    own = torch.optim.SGD(module.parameters(), lr=0.1)
    wrapped, _, batches = private(run, module=module, optimizer=own)
    for x, y in batches:
        own.zero_grad()
        cross_entropy(wrapped(x), y).backward()
        own.step()
    return run.score(CORRECT)


def several_batches_in_a_step(trial: optuna.Trial) -> float:
    run = odp.start_run(trial)
    module, optimizer, batches = private(run)
    for i, (x, y) in enumerate(batches):
        cross_entropy(module(x), y).backward()
        if hasattr(optimizer, "signal_skip_step"):
            optimizer.signal_skip_step(do_skip=i % 2 == 0)
        optimizer.step()
        optimizer.zero_grad()
    return run.score(CORRECT)


def numbers_of_the_plan(trial: optuna.Trial) -> float:
    odp.start_run(trial)
    private(PILOTS.final)
    return PILOTS.pilot.score(CORRECT)


def never_compared(trial: optuna.Trial) -> float:
    run = odp.start_run(trial)
    return run.score(CORRECT)


def unused_accountant(trial: optuna.Trial) -> float:
    run = odp.start_run(trial)
    run.spent(RdpAccountant(), dp_event.NoOpDpEvent())
    return run.score(CORRECT)


def replaced_score(trial: optuna.Trial) -> float:
    plan = odp.plan_budget(
        epsilon=3.0, run=lambda noise, steps: odp.gaussian(noise), steps=1, pilots=1
    )
    replace(plan, score=None)
    raise AssertionError


def repeated_records() -> Any:
    return DataLoader(ConcatDataset([TensorDataset(X, Y)] * 5))


PROGRAMS = [
    Program("1", "class weights in a mean loss", "2.28 and more for 0.5",
            with_opacus(lambda out, y: cross_entropy(out, y, torch.tensor([50.0, 1.0, 1.0])))),
    Program("1", "`ignore_index` in a mean loss", "50 norms",
            with_opacus(lambda out, y: cross_entropy(out, y, ignore_index=0))),
    Program("2", "BatchNorm without parameters, in train mode", "infinite",
            with_opacus(module=frozen_statistics)),
    Program("3", "windows of a record in the batch axis", "666 and more",
            with_opacus(module=Windows)),
    Program("4", "two trainings in one trial, left by `islice`", "4.07", two_trainings),
    Program("5", "a sampler in the loader", "4.08",
            with_opacus(data_loader=lambda: DataLoader(
                TensorDataset(X, Y), sampler=SubsetRandomSampler(range(300))))),
    Program("6", "the training goes on after `run.spent`", "9.82", goes_on),
    Program("7", "each record five times", "19.8", with_opacus(data_loader=repeated_records)),
    Program("8", "20 values of each record as 20 records", "15.5", many_values_a_record),
    Program("9", "a second optimizer on the same module", "no noise", second_optimizer),
    Program("10", "the optimizer handed in is stepped", "infinite", the_optimizer_handed_in),
    Program("11", "several batches in one noisy step", "5.1 to 36", several_batches_in_a_step),
    Program("12", "numbers of a plan, not of a run", "6.16", numbers_of_the_plan, PILOTS),
    Program("13", "an engine of one's own, never compared", "as it is", never_compared),
    Program("14", "an accountant without a step", "a label", unused_accountant),
    Program("15", "`dataclasses.replace(plan, score=None)`", "4.07", replaced_score),
]  # fmt: skip


def outcome(program: Program) -> str:
    """Returns what happens to a program now, in its first sentence."""
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(program.plan))
    try:
        study.optimize(program.objective, callbacks=[odp.PrivacyCallback()])
        release = odp.release(study)
    except odp.errors.OptunaDPError as error:
        prefix = r"^(The study cannot be released\. )?(Trial 0( cannot be released)?: )?"
        first = re.split(r"(?<=[a-z0-9)])\. ", re.sub(prefix, "", str(error)))[0]
        return f"refused: {first.rstrip('.')}".replace("<", r"\<")  # No tag of HTML.
    return f"released, {release.spending['training']}"


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("optuna_dp").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print("| | program | true epsilon, where 2.99 was said | now |\n|---|---|---|---|")
    for program in PROGRAMS:
        print(
            f"| {program.row} | {program.title} | {program.true} | {outcome(program)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
