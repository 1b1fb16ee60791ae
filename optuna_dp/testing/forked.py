"""Whether a run gives the same when it is repeated from the same state of the program."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

_AT_LEAST = 10.0


def repeats(run: Callable[[], str], seconds: float) -> bool:
    """Returns whether two copies of this process, which run at the same time, get the same.

    If they do, everything that the run draws is under control, and what differs between two runs
    of *this* process is what the first has left behind. False where processes cannot be copied.

    Args:
        run: What is repeated; it returns "" if it failed.
        seconds: How long it took here.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads that wait do no harm
            found = _in_copies(run, _AT_LEAST + 5.0 * seconds)
    except (
        ValueError,
        AssertionError,
        OSError,
    ):  # no fork, or a process that may have no children
        return False
    return len(found) == 2 and found[0] == found[1] != ""


def _in_copies(run: Callable[[], str], seconds: float) -> list[str]:
    context = multiprocessing.get_context("fork")
    both = context.Barrier(2)  # what one writes to a file, the other should not read
    copies = []
    for _ in range(2):
        ours, theirs = context.Pipe(duplex=False)
        copy = context.Process(target=_say, args=(run, both, theirs), daemon=True)
        copy.start()
        theirs.close()
        copies.append((copy, ours))
    found = []
    for copy, ours in copies:
        with contextlib.suppress(EOFError):
            if ours.poll(seconds):
                found.append(ours.recv())
        copy.kill()
        copy.join()
    return found


def _say(run: Callable[[], str], both: Any, to: Any) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)  # threads do not survive the copy
    both.wait(_AT_LEAST)
    to.send(run())
