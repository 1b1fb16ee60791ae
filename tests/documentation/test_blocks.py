"""Every fenced block of README and docs is run somewhere, or says why not."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from documentation.pages import PAGES, ROOT, Block, blocks_of, folder_of, marked
from documentation.prepared import namespace_of
from documentation.shell import Command, commands_of, run_page

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
NAMES = {page: str(page.relative_to(ROOT)) for page in PAGES}
CI = "".join((ROOT / ".ci" / name).read_text() for name in ("run", "whole")) + "".join(
    path.read_text() for path in (ROOT / "tests").rglob("*.py")
)
PYTHON = {
    page: [b for b in blocks_of(page) if b.verb == "run" and b.language == "python"]
    for page in PAGES
}
_SHOWN = re.compile(r"^print\(.*\)  # (\(?[\d.]+.*)$", re.MULTILINE)
_NUMBER = re.compile(r"\d+\.\d+")


def _name(value: Path | Block) -> str:
    return NAMES[value] if isinstance(value, Path) else f"{value.page}:{value.line}"


def test_no_fence_is_overlooked() -> None:
    fences = sum(
        line.lstrip().startswith("```") for page in PAGES for line in page.read_text().splitlines()
    )
    assert fences == 2 * len(BLOCKS)
    assert len(BLOCKS) > 60


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if not block.is_covered_by_sphinx], ids=_name
)
def test_every_block_is_run_or_says_why_not(block: Block) -> None:
    if block.verb in ("file", "difference"):
        shown = ROOT / block.how.split(", ")[0]
        assert shown.is_relative_to(ROOT / "examples")
        # The folder's name in a test, in CI's script, or a page that runs its commands in it.
        folders = {folder for page in PAGES if (folder := folder_of(page))}
        place = shown.parent
        assert {place, *place.parents} & folders or f"{place.name}/" in CI or shown.stem in CI
        return
    assert not block.directive, f"{block.directive} is not known: see documentation/pages.py"
    assert block.verb, "say <!-- run --> or <!-- not run: REASON --> above it"
    if block.verb == "not run":
        assert block.how, "say why"
    else:
        assert block.language in ("python", "console")


@pytest.mark.filterwarnings("ignore::optuna_dp.mechanisms.partitions_needed.NoiseWarning")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=NAMES[page], marks=[pytest.mark.slow] * blocks[0].has("slow"))
        for page, blocks in PYTHON.items()
        if blocks
    ],
)
def test_python_blocks_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace = namespace_of(NAMES[page])
    for block in PYTHON[page]:
        # Line numbers in a traceback are those of the page.
        exec(compile("\n" * block.line + block.text, block.page, "exec"), namespace)
        printed = capsys.readouterr().out.splitlines()
        for shown in _SHOWN.findall(block.text):
            assert any(_rounds_to(line, shown) for line in printed), (shown, printed)


def _rounds_to(line: str, shown: str) -> bool:
    found, wanted = _NUMBER.findall(line), _NUMBER.findall(shown)
    return len(found) == len(wanted) and all(
        abs(float(a) - float(b)) <= 0.5001 * 10.0 ** -len(b.split(".")[1])
        for a, b in zip(found, wanted, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "kinds"),
    [
        pytest.param(page, kinds, id=NAMES[page], marks=[pytest.mark.slow] * bool(kinds))
        for kinds in ((), ("slow",))
        for page in marked(*kinds)
    ],
)
def test_console_blocks_run(page: Path, kinds: tuple[str, ...]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    assert run_page(page, *kinds, port=port)


def test_the_comparison_notices_what_is_not_printed() -> None:
    command = Command("x", ["epsilon: 3.318", "runs: 7"])
    command.compare("epsilon: 3.318\nmore\nthe runs: 4\n", 0)
    for printed, status in (
        ("runs: 4\nepsilon: 3.318\n", 0),
        ("epsilon: 3.318\n", 0),
        ("epsilon: 3.318\nruns: 4\n", 1),
    ):
        with pytest.raises(AssertionError):
            command.compare(printed, status)
    exact = Command("x", ["epsilon: 3.318"], exact=True)
    exact.compare("epsilon: 3.318\n", 0)
    with pytest.raises(AssertionError):
        exact.compare("epsilon: 3.319\n", 0)


def test_commands_end_at_the_next_prompt() -> None:
    text = "$ one \\\n    --more\nout\n\n$ two\n"
    found = commands_of(Block("page", 1, "console", text, "run", ""))
    assert [(c.text, c.shown) for c in found] == [("one \\\n    --more", ["out"]), ("two", [])]
