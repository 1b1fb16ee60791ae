"""Names for values that may be anything of their kind, where no narrower type would be true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

# What JSON holds: a dict, a list, a text, a number, a bool or None.
JsonValue: TypeAlias = Any

# An object of JSON as it was read from a storage or a file: any JSON value, by name.
JsonObject: TypeAlias = Mapping[str, JsonValue]

# A value that Optuna suggests: a number, or a choice, which may be anything.
ParamValue: TypeAlias = Any

# A point of a search space, or a part of it: the values that Optuna suggests, by parameter.
Params: TypeAlias = Mapping[str, ParamValue]
