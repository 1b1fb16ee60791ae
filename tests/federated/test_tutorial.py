"""The tutorial of the federated vote, command by command."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from documentation.pages import ROOT
from documentation.shell import run_page


@pytest.mark.deployment
def test_the_tutorial_runs_as_written() -> None:
    page = ROOT / "docs" / "how-to" / "federated.md"
    environment = {"NO_PROXY": "*", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}
    assert run_page(page, "federated", environment=environment)
