"""Every private name of Optuna that this package uses, each behind one function.

Optuna documents no public way to a study's storage, and the protocol of slots is written to the
storage. So a few private names are needed. They are here and nowhere else
(``tests/test_architecture.py`` looks), so that a release of Optuna that renames one is mended in
one file. :func:`uses` says beside each function which name it uses, since which version Optuna has
it, and what fails without it. ``tests/test_optuna_internals.py`` reads that list and asks the
installed Optuna for each name.

"3.0" means that Optuna 3.0 has the name: older versions were not looked at. The oldest version
that this package accepts is in ``pyproject.toml``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from optuna.distributions import BaseDistribution
from optuna.pruners import BasePruner, PatientPruner
from optuna.samplers import BaseSampler, TPESampler
from optuna.search_space import IntersectionSearchSpace
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages._cached_storage import _CachedStorage
from optuna.storages._heartbeat import is_heartbeat_enabled
from optuna.storages.journal import BaseJournalBackend, JournalFileBackend
from optuna.storages.journal._file import get_lock_file
from optuna.study import Study
from optuna.study._frozen import FrozenStudy as FrozenStudy
from optuna.trial import FrozenTrial, Trial

from optuna_dp.core.value_types import ParamValue

if TYPE_CHECKING:
    from optuna.artifacts._protocol import ArtifactStore as ArtifactStore

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C")


class Copying(Protocol):
    """A function that copies whatever it is given."""

    def __call__(self, original: C, /) -> C: ...


class PrivateName(NamedTuple):
    """A private name of Optuna, or a name in a private module of Optuna.

    Attributes:
        owner: The module, or the class with its module, that has the name.
        name: The name.
        since: The oldest version of Optuna that is known to have it.
        without: What fails without it.
        user: What uses it here.
    """

    owner: str
    name: str
    since: str
    without: str
    user: str


PRIVATE_NAMES: list[PrivateName] = []


def uses(owner: str, name: str, *, since: str, without: str) -> Callable[[F], F]:
    """Returns a decorator that lists a private name which a function or a class uses."""

    def listed(user: F) -> F:
        PRIVATE_NAMES.append(PrivateName(owner, name, since, without, user.__name__))
        return user

    return listed


# -- studies and trials ----------------------------------------------------------------------


@uses("optuna.study.Study", "_storage", since="3.0", without="no plan and no slot can be stored")
def storage_of(study: Study) -> BaseStorage:
    """Returns the storage that a study is in."""
    return study._storage


@uses("optuna.study.Study", "_study_id", since="3.0", without="no plan can be stored")
@uses("optuna.study._frozen.FrozenStudy", "_study_id", since="3.0", without="no copy is found")
def study_id_of(study: Study | FrozenStudy) -> int:
    """Returns the id of a study in its storage."""
    return study._study_id


@uses("optuna.trial.Trial", "_trial_id", since="3.0", without="no slot can be stored")
@uses("optuna.trial.FrozenTrial", "_trial_id", since="3.0", without="no slot can be stored")
def trial_id_of(trial: Trial | FrozenTrial) -> int:
    """Returns the id of a trial in its storage."""
    return trial._trial_id


@uses(
    "optuna.study.study._ThreadLocalStudyAttribute",
    "in_optimize_loop",
    since="3.1",
    without="Study.stop raises an error under ask and tell, instead of doing nothing",
)
@uses("optuna.study.Study", "_thread_local", since="3.1", without="Study.stop raises an error")
def is_in_optimize_loop(study: Study) -> bool:
    """Returns whether this thread is inside of ``study.optimize``."""
    return bool(study._thread_local.in_optimize_loop)


@uses(
    "optuna.pruners.HyperbandPruner",
    "_study",
    since="3.0",
    without="a study with a HyperbandPruner keeps a pruner that compares trials",
)
def whole_study(study: Study) -> Study:
    """Returns the study itself where Optuna hands out a view of one bracket of it."""
    study_of_all_brackets: Study = getattr(study, "_study", study)
    return study_of_all_brackets


@uses("optuna.trial.Trial", "_suggest", since="3.0", without="proposers draw no parameter later")
def suggest(trial: Trial, name: str, distribution: BaseDistribution) -> ParamValue:
    """Returns the value of one parameter of any distribution, as ``trial.suggest_*`` does."""
    return trial._suggest(name, distribution)


@uses(
    "optuna.distributions.BaseDistribution",
    "_contains",
    since="3.0",
    without="values outside of a search space are not found",
)
def contains(distribution: BaseDistribution, internal: float) -> bool:
    """Returns whether a distribution contains a value, given by its internal number."""
    return bool(distribution._contains(internal))


@uses(
    "optuna.pruners.PatientPruner",
    "_wrapped_pruner",
    since="3.0",
    without="a PatientPruner around a pruner that compares trials is not refused",
)
def wrapped_pruner(pruner: PatientPruner) -> BasePruner | None:
    """Returns the pruner inside of a patient one, None if there is none."""
    return pruner._wrapped_pruner


@uses(
    "optuna.samplers.TPESampler",
    "_search_space",
    since="3.0",
    without="a proposer compares the ranges of all pilots at each proposal, which takes longer",
)
def give_search_space(sampler: TPESampler, shared_space: IntersectionSearchSpace) -> None:
    """Hands a new sampler what an earlier one knew of the space that all trials share."""
    sampler._search_space = shared_space


@uses(
    "optuna.samplers.TPESampler",
    "_constraints_func",
    since="3.0",
    without="constraints of a proposer are ignored without a word",
)
def has_constraints_function(sampler: BaseSampler) -> bool:
    """Returns whether a sampler was given constraints on trials."""
    return getattr(sampler, "_constraints_func", None) is not None


# -- storages --------------------------------------------------------------------------------


# Optuna's cache before a database.
CachedStorage = _CachedStorage


@uses(
    "optuna.storages._cached_storage",
    "_CachedStorage",
    since="3.0",
    without="a database is not recognised: every reading sorts the trials",
)
@uses(
    "optuna.storages._cached_storage._CachedStorage",
    "_backend",
    since="3.0",
    without="publishing to a database is refused; a study in memory is given to workers",
)
def uncached(storage: BaseStorage) -> BaseStorage:
    """Returns the storage behind Optuna's cache; the storage itself if it has no cache."""
    return storage._backend if isinstance(storage, CachedStorage) else storage


@uses(
    "optuna.storages.journal.JournalStorage",
    "_backend",
    since="3.1",
    without="publishing to a journal is refused, because nobody can see whether it is new",
)
def journal_of(storage: JournalStorage) -> BaseJournalBackend:
    """Returns what keeps the lines of a journal."""
    return storage._backend


@uses(
    "optuna.storages.journal.JournalFileBackend",
    "_file_path",
    since="4.0",
    without="advice on a journal calls recover from Python",
)
def place_of(storage: BaseStorage) -> str | None:
    """Returns how a command names a storage; None if no command can open it.

    A database's URL, which may hold a password, or the path of a journal's file.
    """
    backend = uncached(storage)
    if isinstance(backend, JournalStorage):
        journal = journal_of(backend)
        return journal._file_path if isinstance(journal, JournalFileBackend) else None
    # Of RDBStorage, whose class is not imported here: it needs SQLAlchemy.
    url = getattr(backend, "url", None)
    return url if isinstance(url, str) else None


@uses("optuna.storages.journal._file", "get_lock_file", since="4.0", without="--mend fails")
@uses("optuna.storages.journal.JournalFileBackend", "_lock", since="4.0", without="--mend fails")
def journal_lock(path: str) -> AbstractContextManager[None]:
    """Returns the lock of a journal file, which a worker holds while it writes."""
    return get_lock_file(JournalFileBackend(path)._lock)


# Where Optuna reads and writes the files of journals: tracebacks name it.
JOURNAL_FILE_MODULE = get_lock_file.__module__


@uses(
    "optuna.storages._heartbeat",
    "is_heartbeat_enabled",
    since="3.0",
    without="workers that wait for a dead worker do not notice it",
)
def has_heartbeat(storage: BaseStorage) -> bool:
    """Returns whether a storage notices dead workers by itself."""
    return is_heartbeat_enabled(storage)


@uses(
    "optuna.storages.InMemoryStorage",
    "_studies",
    since="3.0",
    without="proposers of a budget cannot be asked",
)
def copy_in_memory(storage: InMemoryStorage, copy_of: Copying) -> InMemoryStorage:
    """Returns a storage of its own; ``copy_of`` copies the storage, and each study in it."""
    fork = copy_of(storage)
    fork._studies = {key: copy_of(study) for key, study in storage._studies.items()}
    return fork
