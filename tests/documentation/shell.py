"""Runs a page's console blocks in one shell and compares what they print with what is shown."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from documentation.pages import ROOT, Block, blocks_of, folder_of

_PORT = "13000"
_MARK = "--- end of command"
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
_BRACES = re.compile(r"\{[^{}]*\}|None")
# What a command may show when it is meant to fail.
_FAILURES = ("Killed", "optuna-dp: ")


@dataclass
class Command:
    """A command and what the page shows of its output."""

    text: str
    shown: list[str] = field(default_factory=list)
    exact: bool = False

    def compare(self, printed: str, status: int) -> None:
        """Every line shown is part of a line printed, in order; the status is as expected.

        Raises:
            AssertionError: If not.
        """
        fails = bool(self.shown) and self.shown[0].startswith(_FAILURES)
        assert fails == (status != 0), f"$ {self.text}\nended with {status}:\n{printed}"
        rest = iter([self._plain(line) for line in printed.splitlines()])
        for line in self.shown:
            wanted = self._plain(line)
            assert any(wanted in other for other in rest), (
                f"$ {self.text}\ndoes not print (in this order)\n{line}\nbut\n{printed}"
            )

    def _plain(self, line: str) -> str:
        line = " ".join(line.split())
        return line if self.exact else _NUMBER.sub("#", _BRACES.sub("#", line))


def commands_of(block: Block) -> list[Command]:
    """Splits a console block at its prompts; a trailing backslash goes on."""
    found: list[Command] = []
    goes_on = False
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:], exact=not block.has("numbers vary")))
        elif goes_on:
            found[-1].text += "\n" + line
        else:
            assert found, f"{block.page}:{block.line}: a console block begins with a prompt"
            if line.strip():
                found[-1].shown.append(line)
            continue
        goes_on = line.endswith("\\")
    return found


def run_page(
    page: Path, *kinds: str, environment: Mapping[str, str] | None = None, port: int | None = None
) -> int:
    """Runs the console blocks of these kinds; returns how many commands.

    Args:
        page: The page.
        kinds: "slow", "federated" or nothing.
        environment: Variables besides those of this process.
        port: What to use in place of the page's port.

    Raises:
        AssertionError: If a command fails, hangs or prints something else than the page shows.
    """
    wanted = [
        block
        for block in blocks_of(page)
        if block.verb == "run"
        and block.language == "console"
        and {"slow", "federated"} & set(block.how.split(", ")) == set(kinds)
    ]
    commands = [command for block in wanted for command in commands_of(block)]
    script = "".join(f"{command.text}\necho '{_MARK}' $?\n" for command in commands)
    if port is not None:
        script = script.replace(_PORT, str(port))
    # Not pytest's folder: a PostgreSQL started by root runs as somebody else and must get here.
    with tempfile.TemporaryDirectory(prefix="odp-page-", ignore_cleanup_errors=True) as made:
        place = Path(made)
        place.chmod(0o755)
        folder = folder_of(page)
        if folder is not None:
            shutil.copytree(folder, place, dirs_exist_ok=True)
        output = _run(script, place, environment or {})
    parts = re.split(rf"^{_MARK} (\d+)\n", output, flags=re.MULTILINE)
    assert len(parts) == 2 * len(commands) + 1, output
    for command, printed, status in zip(commands, parts[::2], parts[1::2], strict=False):
        command.compare(printed, int(status))
    return len(commands)


def _run(script: str, place: Path, environment: Mapping[str, str]) -> str:
    log = place / ".output"
    with log.open("wb") as file:
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=place,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                "COLUMNS": "120",
                **environment,
            },
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(timeout=800)
        finally:
            with suppress(ProcessLookupError):  # What the page has left in the background.
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return log.read_text(errors="replace")
