"""Frozen dataclasses as JSON entries, written and read by their fields.

Reading is strict, because what a storage or a stranger hands back may be damaged in any way: an
entry holds exactly the fields of its class, each of the type that the class declares, and what
was read would be written as the very same entry again. Nothing is dropped, guessed or converted.
"""

from __future__ import annotations

import functools
import math
import types
import typing
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any, ClassVar, TypeVar

from optuna_dp.core.value_types import JsonValue
from optuna_dp.errors import OptunaDPError, PlanError

# What can be done about an entry in a study's storage that is not what was written.
RESTORE = "Restore the storage from a backup, or start a new study."

V = TypeVar("V")


def stored(
    *,
    key: str | None = None,
    write: Callable[[V], JsonValue] | None = None,
    read: Callable[[JsonValue], V] | None = None,
    optional: bool = False,
) -> dict[str, object]:
    """Returns metadata of a dataclass field that is stored under another name or in another form.

    Args:
        key: Its name in the entry; by default the field's.
        write: Makes plain JSON of it.
        read: Makes the field of that again; raises ``ValueError``, ``TypeError`` or
            ``OptunaDPError`` on anything else. Without it the declared type is read.
        optional: Whether None, the field's default, is left out of the entry.
    """
    return {"key": key, "write": write, "read": read, "optional": optional}


# Metadata of a dataclass field that is no part of the entry.
NOT_STORED = {"not stored": True}


R = TypeVar("R", bound="Entry")


class Entry:
    """Base of frozen dataclasses that are stored as JSON.

    The types that are understood: ``bool``, ``int``, ``float``, ``str``, ``None``, ``dict``,
    ``Any`` (JSON as it is), literals, classes with ``from_json``, tuples of these, one of these or
    ``None``; for others see :func:`stored`. Fields with ``init=False`` are not stored.

    Attributes:
        described_as: What the entry is called in errors, a sentence's beginning.
        constants: Stored before the fields, and expected there again, such as a version.
    """

    described_as: ClassVar[str] = "An entry"
    constants: ClassVar[dict[str, JsonValue]] = {}

    def to_json(self) -> dict[str, JsonValue]:
        """Returns plain JSON values; :meth:`from_json` reads them back exactly."""
        entry = dict(self.constants)
        for key, field in _stored_fields(type(self)).items():
            write, value = field.metadata.get("write") or plain, getattr(self, field.name)
            if value is not None or not field.metadata.get("optional"):
                entry[key] = write(value)
        return entry

    @classmethod
    def from_json(cls: type[R], data: object) -> R:
        """Reads what :meth:`to_json` wrote; refuses anything else.

        Raises:
            OptunaDPError: If ``data`` is anything else; a :class:`PlanError` unless a class says
                otherwise.
        """
        fields_by_key = {
            key: field
            for key, field in _stored_fields(cls).items()
            if not field.metadata.get("optional") or (isinstance(data, dict) and key in data)
        }
        for name, value in cls.constants.items():
            if isinstance(data, dict) and name in data and not _same(data[name], value):
                raise cls.refusal(
                    data,
                    f"its {name} is {data[name]!r}, and this optuna-dp reads {value!r}",
                    "Use the version of optuna-dp that wrote it.",
                )
        names = sorted({*cls.constants, *fields_by_key})
        if not isinstance(data, dict) or set(data) != set(names):
            holds = sorted(map(str, data)) if isinstance(data, dict) else f"a {_kind(data)}"
            raise cls.refusal(data, f"it holds {holds} instead of {names}")
        values = {}
        for key, field in fields_by_key.items():
            hint = _hints(cls)[field.name]  # type: ignore[arg-type]  # classes are hashable
            reader = field.metadata.get("read") or functools.partial(_read, hint)
            try:
                values[field.name] = reader(data[key])
            except PlanError:
                raise  # An entry within this one has said what is wrong with it.
            except (KeyError, TypeError, ValueError, OverflowError, OptunaDPError) as error:
                raise cls.refusal(data, f"it is wrong in its {key}: {error}") from error
        try:
            entry = cls(**values)
        except (TypeError, ValueError, OptunaDPError) as error:
            raise cls.refusal(data, str(error)) from error
        if entry.to_json() != data:
            raise cls.refusal(data, "it is not what would be written")
        return entry

    @classmethod
    def refusal(cls, data: object, reason: str, fix: str = RESTORE) -> OptunaDPError:
        """Returns the error for an entry that cannot be read.

        Args:
            data: What was given instead. Not for the message: entries may hold secrets.
            reason: What is wrong with it, a clause.
            fix: What to do about it, a sentence.
        """
        return PlanError(f"{cls.described_as} is corrupted: {reason}. {fix}")


def plain(value: object) -> JsonValue:
    """Returns JSON for a value: entries by ``to_json``, lists for tuples, "inf" for infinity."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0.0 else "-inf"
    return value


def _stored_fields(cls: type[Any]) -> dict[str, Field[object]]:
    """The fields of a class by their names in entries."""
    return {
        field.metadata.get("key") or field.name: field
        for field in fields(cls)
        if field.init and not field.metadata.get("not stored")
    }


@functools.cache  # A study has an entry for every run.
def _hints(cls: type[Entry]) -> dict[str, object]:
    """The types of a class's fields."""
    return typing.get_type_hints(cls)


def _read(hint: object, value: JsonValue) -> object:
    """Returns what a value of JSON stands for in a field of this type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        (hint,) = (argument for argument in arguments if argument is not type(None))
        return _read(hint, value)
    if origin is typing.Literal:
        if value not in arguments:
            raise ValueError(f"it must be one of {', '.join(map(repr, arguments))}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"a list was expected, not a {_kind(value)}")
        if arguments[1:] == (Ellipsis,):
            arguments = arguments[:1] * len(value)
        return tuple(
            _read(argument, item) for argument, item in zip(arguments, value, strict=True)
        )
    if hint is float and (value in ("inf", "-inf") or type(value) in (int, float)):
        if value != value:
            raise ValueError("a number was expected, not NaN")
        return float(value)
    if hasattr(hint, "from_json"):
        return hint.from_json(value)
    if type(value) is not (origin or hint):
        raise ValueError(f"{_kind(hint)} was expected, not {_kind(value)}")
    return value


def _kind(value: object) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__


def _same(value: object, reference: object) -> bool:
    """Equal and of one type: True is not 1 here."""
    return type(value) is type(reference) and bool(value == reference)
