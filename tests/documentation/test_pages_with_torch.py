"""Pages whose blocks need PyTorch and pandas; test_blocks.py has the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from documentation import test_blocks
from documentation.pages import ROOT

pytest.importorskip("torch")
pytest.importorskip("pandas")


@pytest.mark.parametrize("page", ["docs/how-to/bring-your-model.md"])
def test_their_blocks_run(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    test_blocks.test_python_blocks_run(ROOT / page, tmp_path, monkeypatch, capsys)
