from __future__ import annotations

import gc
import importlib.util

import cores  # noqa: F401 (first: numpy reads its number of threads when it is loaded)
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

pytest_plugins = ["last_limit", "seeds"]


def pytest_report_header() -> str:
    """Says whether odp.train is tested with PyTorch, which is an extra."""
    if importlib.util.find_spec("torch") is None:
        return 'odp.train with PyTorch: not tested here; pip install -e ".[test,torch]" has it'
    return "odp.train with PyTorch: tested"


def pytest_collection_finish() -> None:
    """Spares the garbage collector the thousands of collected tests: a sixth of the time."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _quiet_optuna() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
