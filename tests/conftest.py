from __future__ import annotations

import no_disk
import optuna
import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run and on every machine: no new example fails someone else's change,
# and a slow machine is no failure. Other seeds: --hypothesis-seed, on a profile of one's own.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

no_disk.install()


@pytest.fixture(autouse=True)
def _quiet_optuna() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
