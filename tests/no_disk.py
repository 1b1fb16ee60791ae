"""SQLite does not wait for the disk here, which is most of what a write takes.

Nothing that is tested depends on it: what a killed process wrote is there all the same, and locks
are as they were. Only a machine that loses its power would lose it.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import sqlalchemy


def _does_not_wait(connection: Any, _: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


def install() -> None:
    """For every engine that this process makes from now on."""
    sqlalchemy.event.listen(sqlalchemy.engine.Engine, "connect", _does_not_wait)
