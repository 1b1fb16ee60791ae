"""The exceptions of optuna-dp, and its warnings about seeds and exact scores.

Every exception is an :class:`OptunaDPError`. Those about an argument are also a ``ValueError``, so
that existing ``except ValueError`` clauses keep working. Errors carry their facts as fields; the
message is made from them.
"""

from __future__ import annotations

import copyreg
import numbers

__all__ = [
    "ExactScoreWarning",
    "InvalidArgumentError",
    "MissingExtraError",
    "OptunaDPError",
    "PlanError",
    "ProjectionError",
    "ReleaseRefusedError",
    "SeedWarning",
    "StorageError",
    "UnfinishedStudyError",
    "UnsupportedEventError",
    "WaitError",
    "WorkersError",
]


class Text(str):
    """A value in an error's words, where the value itself is too large or private to print."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{self}>"


def type_of(value: object) -> Text:
    """Returns words for a value that may hold records: its type, and nothing of its content."""
    return Text(type(value).__name__)


class OptunaDPError(Exception):
    """Base class of every error raised by optuna-dp."""

    def __reduce__(self) -> tuple[object, ...]:
        # Python would call the class with the message, and most take facts instead.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


_LONGEST_SHOWN = 300  # characters
_MOST_SHOWN = 50  # items of a list


def _fit_to_show(value: object) -> object:
    """Returns a value if an error may keep and print it, otherwise words for it.

    An array may hold records, so its shape stands for it. A list or mapping of lists or arrays may
    be a table, so its type stands for it. What has no short ``repr`` of its own, such as a module,
    a long list or a function, is named by its type. Other values that may hold records are given
    as :func:`type_of` them.
    """
    if hasattr(value, "__array__") and not isinstance(value, numbers.Number):
        shape = getattr(value, "shape", None)
        return Text(
            f"{type(value).__name__}{'' if shape is None else f' of shape {tuple(shape)}'}"
        )
    if isinstance(value, list | tuple | dict | set):
        items = [*value.values()] if isinstance(value, dict) else [*value]
        if len(items) > _MOST_SHOWN or any(map(_holds_several, items)):
            return Text(f"{type(value).__name__} of {len(value)} items")
    text = repr(value)
    is_short = len(text) <= _LONGEST_SHOWN and "\n" not in text and " at 0x" not in text
    if is_short or isinstance(value, str):
        return value
    return Text(f"{type(value).__name__} {getattr(value, '__qualname__', '')}".strip())


def _holds_several(value: object) -> bool:
    return isinstance(value, list | tuple | dict | set) or (
        hasattr(value, "__array__") and not isinstance(value, numbers.Number)
    )


class InvalidArgumentError(OptunaDPError, ValueError):
    """An argument is outside what is allowed.

    At least one of ``problem`` and ``allowed`` says something.

    Attributes:
        argument: Name of the argument.
        value: The value that was given; words for it where it is large or may hold records.
        problem: What is wrong with the value, in words; empty where ``allowed`` says it.
        allowed: Which values are allowed, in words; empty where there is no such rule.
        fix: What to do about it, in words (may be empty).
    """

    def __init__(
        self, argument: str, value: object, *, problem: str = "", allowed: str = "", fix: str = ""
    ) -> None:
        self.argument = argument
        self.value = _fit_to_show(value)
        self.problem = problem
        self.allowed = allowed
        self.fix = fix
        super().__init__(f"{argument}={self.value!r} is not allowed: {self.why}. {fix}".rstrip())

    @property
    def why(self) -> str:
        """Why the value is refused: the problem, and what is allowed instead."""
        return "; ".join(filter(None, [self.problem, self.allowed]))

    def about(self, argument: str) -> InvalidArgumentError:
        """Returns the error for another name of the argument, such as a path to it."""
        words = {"problem": self.problem, "allowed": self.allowed, "fix": self.fix}
        return InvalidArgumentError(argument, self.value, **words)


class UnsupportedEventError(OptunaDPError, ValueError):
    """No accountant can compute the cost of an event, or of one of its sub-events.

    Attributes:
        event: The sub-event that no accountant supports.
        reason: Why no accountant supports it.
    """

    def __init__(self, event: object, reason: str) -> None:
        self.event = event
        self.reason = reason
        super().__init__(f"No accountant supports the event {event!r}: {reason}")


class MissingExtraError(OptunaDPError, ImportError):
    """An optional dependency is needed and not installed.

    Attributes:
        package: The package that could not be imported.
        extra: The extra of ``optuna-dp`` that brings it.
    """

    def __init__(self, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(
            f"{package} is needed for this and is not installed. "
            f'Install it with: pip install "optuna-dp[{extra}]", or in the source tree: '
            f'pip install ".[{extra}]"'
        )


class SeedWarning(UserWarning):
    """A sampler was given a seed: its studies are for tests and cannot be released."""


class ExactScoreWarning(UserWarning):
    """The scores of a study repeat or are round, as scores without noise are."""


class PlanError(OptunaDPError):
    """The recorded plan of a study is missing, corrupted, or not this worker's plan."""


class ProjectionError(OptunaDPError):
    """No solver has found a density within the bounds, so no run was drawn."""


class ReleaseRefusedError(OptunaDPError):
    """The study cannot be released; nothing was changed.

    Attributes:
        reason: Why, in words.
        trial_number: The trial that is the cause, if there is one.
        fix: What to do about it, in words (may be empty).
    """

    def __init__(self, reason: str, *, trial_number: int | None = None, fix: str = "") -> None:
        self.reason = reason
        self.trial_number = trial_number
        self.fix = fix
        where = "" if trial_number is None else f"Trial {trial_number}: "
        text = f"The study cannot be released. {where}{reason}"
        super().__init__(f"{text} {fix}" if fix else text)


class StorageError(OptunaDPError):
    """The study's storage failed: its database, its disk, or the network to it.

    What the driver raised is its ``__cause__``.

    Attributes:
        reason: What it failed with, the first line of the driver's words.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"The storage of the study failed ({reason}), so what was under way has stopped; a "
            "run that had begun counts and is not repeated. When the storage works again, list "
            "what is open with optuna-dp recover STORAGE STUDY, and start the workers again."
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.reason,)


class DeletedStudyError(StorageError):
    """The study was deleted from its storage while a worker or a release was at it."""

    def __init__(self) -> None:
        self.reason = "the study was deleted"
        OptunaDPError.__init__(
            self,
            "The study was deleted from its storage, so what was under way has stopped. Its runs "
            "cannot be continued or released. Create a new study. The guarantee of its release "
            "covers nothing that was seen of the deleted one.",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), ()


class UnfinishedStudyError(ReleaseRefusedError):
    """Some runs of the study have not ended yet."""


class WaitError(OptunaDPError):
    """A worker would wait for ever, for a run that its own thread has open."""


class WorkersError(OptunaDPError):
    """The workers of a call have died, or one of them cannot work at the study.

    Attributes:
        reason: What happened, in words.
        fix: What to do about it, in words (may be empty).
    """

    def __init__(self, reason: str, fix: str = "") -> None:
        self.reason = reason
        self.fix = fix
        super().__init__(f"{reason} {fix}" if fix else reason)
