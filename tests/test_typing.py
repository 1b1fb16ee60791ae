"""The types that users see, as their type checker sees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")


@pytest.mark.slow
def test_a_users_script_passes_mypy_strict(tmp_path: Path) -> None:
    script = Path(__file__).with_name("typed_user.py")
    config = tmp_path / "mypy.ini"  # a user's own, not that of this repository
    config.write_text("[mypy]\nstrict = True\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(config)]
    command += ["--cache-dir", str(tmp_path / "cache"), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import optuna_dp as odp\n\nodp.Geometric(mean='ten')\nodp.release(3)\n")
    done = subprocess.run([*command[:-1], str(wrong)], capture_output=True, text=True, check=False)
    assert "wrong.py:3: error" in done.stdout
    assert "wrong.py:4: error" in done.stdout
