"""Several processes on real storages: exactly T slots, one plan, no lost run."""

from __future__ import annotations

import optuna
import pytest

import optuna_dp as odp

from .checks import check_exactly_t
from .storages import KINDS, opened
from .workers import SAMPLERS, Job

LAW = odp.Geometric(mean=6)


def run_studies(crew, url, count, sampler, workers, n_jobs):
    slots = []
    with opened(url) as storage:
        for _ in range(count):
            # Optuna names it: all tests share one proxy.
            study = optuna.create_study(storage=storage, direction="maximize")
            executed = crew.work(Job(url, study.study_name, sampler, LAW, n_jobs), workers)
            slots.append(check_exactly_t(study, executed))
    return slots


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_eight_processes_make_exactly_t_runs(crew, url_of, kind) -> None:
    run_studies(crew, url_of(kind), 1, "rand_tune", 8, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "n_jobs"), [(8, 1), (3, 4)])
@pytest.mark.parametrize("kind", KINDS)
def test_exactly_t_runs_in_three_studies_of_each_sampler(
    crew, url_of, kind, workers, n_jobs
) -> None:
    url, slots = url_of(kind), []
    for sampler in SAMPLERS:
        slots += run_studies(crew, url, 3, sampler, workers, n_jobs)
    assert len(set(slots)) > 1  # The same T nine times: probability 1.3e-7.
