"""Gives workers the study, and checks that its storage numbers trials as the protocol needs.

==============================  =============================================================
storage                         what workers get
==============================  =============================================================
in memory, SQLite               nothing of it: it is served from this process (``served``)
PostgreSQL, MySQL, ...          a connection of their own
journal                         the same file or Redis
Optuna's gRPC proxy             a connection of their own to it
anything else                   a copy, if it can be copied
==============================  =============================================================

A trial owns a run by its number, so numbers must be 0, 1, 2, ... without gaps and without twins,
whoever creates the trials. Optuna's own storages do that (``tests/reliability``). Of any other,
and of whatever is behind a proxy, it is tried before anything begins.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.storages import (
    BaseStorage,
    GrpcStorageProxy,
    InMemoryStorage,
    JournalStorage,
    RDBStorage,
)

from optuna_dp.distributed.engines import Engine
from optuna_dp.distributed.served import served
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.optuna_internals import address_of, uncached

_NUMBERS_WELL = (InMemoryStorage, RDBStorage, JournalStorage)


@contextmanager
def reachable(storage: BaseStorage, engine: Engine) -> Iterator[BaseStorage]:
    """Yields what workers open the study with; serves it from here if there is no other way."""
    if _is_of_this_process(storage):
        one_by_one = not isinstance(storage, InMemoryStorage)
        with served(storage, engine.host(), one_by_one=one_by_one) as proxy:
            yield proxy
    else:
        yield storage


def numbers_well(storage: BaseStorage) -> bool:
    """Returns whether it is known of this kind of storage that it numbers trials as needed."""
    return type(uncached(storage)) in _NUMBERS_WELL


@contextmanager
def scratch_study(storage: BaseStorage) -> Iterator[str]:
    """A study for trying out how a storage numbers trials; deleted afterwards."""
    name = f"optuna-dp tries how trials are numbered {uuid.uuid4().hex}"
    # A client of its own: Optuna's remember a deleted study, and SQLite gives its id away again.
    client: Any = storage
    if type(storage) is GrpcStorageProxy:
        host, port = address_of(storage)
        client = GrpcStorageProxy(host=host, port=port)
    study_id = client.create_new_study([optuna.study.StudyDirection.MAXIMIZE], name)
    try:
        yield name
    finally:
        client.delete_study(study_id)
        if client is not storage:
            with contextlib.suppress(Exception):
                client.close()


def check_numbers(storage: BaseStorage, numbers: Sequence[int | None]) -> None:
    """Refuses a storage by the numbers that trials were given which several workers created."""
    if sorted(-1 if n is None else n for n in numbers) == list(range(len(numbers))):
        return
    if None in numbers:
        defect = "it drops the attributes that a trial is created with"
    elif len(set(numbers)) < len(numbers):
        defect = "it gave one number to two trials"
    else:
        defect = "it left gaps between the numbers of trials"
    raise InvalidArgumentError(
        "storage of the study",
        type(uncached(storage)).__name__,
        f"runs are identified by their trial numbers, and {defect}",
        "Use PostgreSQL, MySQL, SQLite, a journal, or no storage at all.",
    )


def _is_of_this_process(storage: BaseStorage) -> bool:
    backend = uncached(storage)
    return type(backend) is InMemoryStorage or (
        isinstance(backend, RDBStorage) and backend.engine.name == "sqlite"
    )
