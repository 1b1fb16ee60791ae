"""Digests of source files: of the script that asked for a run, and of this package.

A statement names them, so that a reviewer knows which program it speaks of. They are combined as
``sha256sum`` would, so the same number comes from a terminal, in the folder of the files::

    sha256sum model.py train.py | sha256sum
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

# More files than a person reads are no script any more.
_MOST_FILES = 30


def script_of(frame: FrameType | None) -> dict[str, str]:
    """Returns the SHA-256 of a script's source files by their names; empty if there is no file.

    These are the file of the frame's code and, if they are few, the modules that were loaded from
    its folder or from folders in it.

    Args:
        frame: Of a function of the script.
    """
    if frame is None or not Path(frame.f_code.co_filename).is_file():
        return {}  # A notebook, a prompt, or a function that was sent to this process.
    script = Path(frame.f_code.co_filename).resolve()
    folder, files = script.parent, {script}
    # A look at the texts first: thousands of modules may be loaded.
    folders = (str(folder), os.path.dirname(os.path.abspath(frame.f_code.co_filename)))
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if not isinstance(name, str) or not name.endswith(".py") or "site-packages" in name:
            continue
        if name.startswith(folders):
            path = Path(name).resolve()
            # Some modules have a name in place of a file: torch.classes says "_classes.py".
            if folder in path.parents and path.is_file():
                files.add(path)
    if len(files) > _MOST_FILES:
        files = {script}
    return _digests(folder, tuple(sorted((path, path.stat().st_mtime_ns) for path in files)))


def of_all_runs(scripts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Returns the files that all of several runs have, as they were in each.

    A script may load a module after it has asked for its first run. What only later runs have is
    left out: it would tell that there were several.
    """
    if not scripts:
        return {}
    first, *others = scripts
    shared = {
        name: digest
        for name, digest in first.items()
        if all(other.get(name) == digest for other in others)
    }
    return dict(sorted(shared.items()))


def combined(files: Mapping[str, str]) -> str:
    """Returns one SHA-256 for several files, by their names."""
    text = "".join(f"{digest}  {name}\n" for name, digest in sorted(files.items()))
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def package_digest() -> str:
    """Returns the combined digest of the source files of this package."""
    folder = Path(__file__).resolve().parents[1]
    return combined(_digests(folder.parent, tuple((path, 0) for path in folder.rglob("*.py"))))


@functools.lru_cache(maxsize=8)
def _digests(folder: Path, files: tuple[tuple[Path, int], ...]) -> dict[str, str]:
    """Returns the SHA-256 of files by their names; each file comes with the time of its change."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path, _ in files
    }
