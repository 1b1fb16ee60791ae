"""A check that a training moved nothing but the weights that it trains.

Whatever else hangs on a model, its loss or its score can carry records out of a training: running
statistics, a list of losses, the last batch. So all of it is hashed before and afterwards. Nothing
is copied.
"""

from __future__ import annotations

import contextvars
import dis
import enum
import functools
import hashlib
import queue
import secrets
import sys
import types
import warnings
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._library.custom_ops import OPDEFS
from torch.nn.modules.module import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_pre_hooks,
)
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

_BYTES_AT_A_TIME = 1 << 26
_SCALARS = (bool, int, float, complex, str, bytes, type(None), enum.Enum, range)
# Their classes and functions hold no records, and their own caches may move.
_LIBRARIES = ("torch", "transformers", "peft", "numpy", "builtins")
# Their objects change while a trial is under way, and hold what its notes say.
_NOT_FOLLOWED = ("optuna", "optuna_dp", "logging", "threading", "tqdm", "weakref")
# Modules and classes of these, and those in these folders, are no places where a script keeps
# something.
_NO_SCRIPTS = frozenset({*_LIBRARIES, *_NOT_FOLLOWED, *sys.stdlib_module_names})
_INSTALLED = frozenset({"site-packages", "dist-packages"})
# Methods that a loss or a score of one record does not call. They may name the records.
_NOT_CALLED = frozenset(
    {"__init__", "__new__", "__post_init__", "__init_subclass__", "__del__", "__repr__", "__str__"}
)
# What takes a tensor of one record back to that of all records which are computed with it.
_UNWRAPPING = frozenset({"debug_unwrap", "get_unwrapped", "_functorch"})
# What PyTorch calls for every module and every optimizer of the process.
HOOKS_OF_MODULES = (
    _global_forward_pre_hooks,
    _global_forward_hooks,
    _global_backward_pre_hooks,
    _global_backward_hooks,
)
# In place of the name of a method that is called without a function of a script that names it.
_BY_ITSELF = "(called by itself)"
# Functions that name these may call a method whose name is in a text.
_BUILT_IN_LOOKUPS = frozenset({"getattr", "vars", "globals", "locals", "eval", "exec"})
_OTHER_LOOKUPS = frozenset({"__dict__", "__getattribute__", "attrgetter", "methodcaller"})
HOOKS_OF_OPTIMIZERS = (_global_optimizer_pre_hooks, _global_optimizer_post_hooks)

Fingerprint = dict[str, bytes]


def operators_named_in(roots: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the custom operators of scripts that functions name, by name.

    A function calls them by ``torch.ops``, where they are not found.

    Args:
        roots: The objects from which the functions can be reached, by name.
    """
    names: set[str] = set()
    for _, value in reachable(roots):
        if isinstance(value, types.FunctionType) and not _is_of(value, _LIBRARIES):
            names |= _names_in(value.__code__)[1]
    return {
        name: operator
        for name, operator in list(OPDEFS.items())
        if name.split("::")[-1] in names and _is_of_a_script(_module(operator))
    }


def _module(operator: Any) -> str:
    return str(getattr(getattr(operator, "_init_fn", None), "__module__", "torch"))


def fingerprint(roots: Mapping[str, Any], moving: list[torch.Tensor]) -> Fingerprint:
    """Returns a digest of each value that can be reached from some objects.

    Args:
        roots: The objects, by name.
        moving: The trained tensors. They and what has no numbers but theirs are left out.
    """
    memories = _Memories(moving)
    return {path: _value_digest(value, memories) for path, value in reachable(roots)}


def digest_of_values(tensors: list[torch.Tensor]) -> bytes:
    """Returns a digest of the numbers in tensors, wherever they are kept."""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        try:
            octets = tensor.detach().reshape(-1).contiguous().view(torch.uint8)
            for piece in octets.split(_BYTES_AT_A_TIME):
                digest.update(piece.cpu().numpy())
        except (RuntimeError, TypeError):  # Sparse or quantized, or its memory is given back.
            digest.update(repr(tensor).encode())
    return digest.digest()


def holder_of(roots: Mapping[str, Any], records: list[Any]) -> str | None:
    """Returns the name of a value that shares memory with records; None if there is none.

    Args:
        roots: The objects to look into, by name.
        records: The arrays and data sets of the records.
    """
    record_ids = {id(record) for record in records}
    intervals = _merged(
        [interval for record in records if (interval := _interval(record)) is not None]
    )
    for path, value in reachable(roots):
        if id(value) in record_ids:
            return path
        interval = _interval(value)
        if interval is not None and any(_overlap(interval, memory) for memory in intervals):
            return path
    return None


def reachable(roots: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields what can be reached from some objects, with a name for each.

    Attributes of objects and of their classes are followed, and the variables that functions hold.
    Of a module that a function names or imports, the variables that the function names as well. Of
    a script's class, the methods and properties that some reached function names, and those that
    Python and PyTorch call by themselves. Other methods are not followed: a class may have an
    objective, which knows the records.

    Args:
        roots: The objects, by name.
    """
    pending_values: list[tuple[str, Any]] = list(roots.items())
    # With the objects themselves: an id is of one object only as long as it exists.
    visited_values: dict[int, Any] = {}
    names, methods_by_name = {_BY_ITSELF}, dict[str, list[tuple[str, Any]]]()
    looks_names_up = False
    while pending_values:
        path, value = pending_values.pop()
        yield path, value
        if isinstance(value, (*_SCALARS, torch.Tensor)) or id(value) in visited_values:
            continue
        visited_values[id(value)] = value
        pending_values += [(f"{path}{step}", part) for step, part in _parts(value)]
        for name, function in _methods(value):
            methods_by_name.setdefault(name, []).append((f"{path}.{name}", function))
        if isinstance(value, types.FunctionType) and not _is_of(value, _LIBRARIES):
            global_names, all_names = _names_in(value.__code__)
            names |= all_names
            looks_names_up |= bool(global_names & _BUILT_IN_LOOKUPS or all_names & _OTHER_LOOKUPS)
        for name in list(methods_by_name) if looks_names_up else names & methods_by_name.keys():
            pending_values += methods_by_name.pop(name)


def has_own_rule_for_batches(value: Any) -> bool:
    """Returns whether a script has written how an operation treats many records at once.

    ``torch.func.vmap`` computes the loss of many records by such a rule, which may mix them.
    """
    if isinstance(value, type) and issubclass(value, torch.autograd.Function):
        function: Any = value
        has_own_rule = function.vmap is not torch.autograd.Function.vmap
        return (
            has_own_rule and not function.generate_vmap_rule and _is_of_a_script(value.__module__)
        )
    rule = getattr(value, "_vmap_fn", None) if type(value).__name__ == "CustomOpDef" else None
    return rule is not None and _is_of_a_script(rule.__module__)


def unwraps_records(value: Any) -> bool:
    """Returns whether a script's function names what takes it from one record to all others.

    Or whether it is that function itself, under another name.
    """
    if isinstance(value, types.BuiltinFunctionType):
        return str(value.__module__) == "torch._C._functorch"
    if not isinstance(value, types.FunctionType) or not _is_of_a_script(str(value.__module__)):
        return False
    return not _UNWRAPPING.isdisjoint(_names_in(value.__code__)[1])


def mode_of_a_script() -> str | None:
    """Returns the name of a mode, written in a script, that every operation now goes through."""
    modes = [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]
    kinds = (type(mode) for mode in modes)
    return next((k.__name__ for k in kinds if _is_of_a_script(str(k.__module__))), None)


def difference(earlier: Fingerprint, later: Fingerprint) -> str | None:
    """Returns the name of a value that differs, None if all are the same."""
    changed = [
        path for path in earlier.keys() | later.keys() if earlier.get(path) != later.get(path)
    ]
    return min(changed, key=lambda path: (len(path), path), default=None)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields what an object holds, with the step of the path that leads there."""
    if isinstance(value, Mapping):
        for number, (key, part) in enumerate(value.items()):
            name = key if isinstance(key, str) else f"{number}"
            yield f"[{name}]", part
            if not isinstance(key, str):
                yield f"[{number}].key", key
    elif isinstance(value, list | tuple | deque):
        for number, part in enumerate(value):
            yield f"[{number}]", part
    elif isinstance(value, set | frozenset):
        yield ".elements", tuple(sorted(map(repr, value)))
    elif isinstance(value, np.ndarray):
        yield ".elements", value.tolist()
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
        yield ".__func__", value.__func__
    elif isinstance(value, types.FunctionType):
        yield from held_by(value)
    elif isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif isinstance(value, weakref.ReferenceType):
        yield ".referent", value()
    elif isinstance(value, contextvars.ContextVar):
        yield ".value", value.get(None)
    elif isinstance(value, types.GeneratorType):
        frame = value.gi_frame  # None after its end.
        if frame is not None:
            yield ".position", frame.f_lasti
            yield ".locals", dict(frame.f_locals)
    elif isinstance(value, queue.SimpleQueue):
        yield ".size", value.qsize()
    elif isinstance(value, functools._lru_cache_wrapper):
        # Not its hits: a table that is made once and read by each record holds no records.
        yield from ((".size", value.cache_info().currsize), (".function", value.__wrapped__))
    elif isinstance(value, type):
        for kind in value.__mro__:
            if _is_of_a_script(str(kind.__module__)):
                yield from ((f".{name}", part) for name, part in _class_data(kind))
    elif not isinstance(value, types.ModuleType) and not _is_of(value, _NOT_FOLLOWED):
        if hasattr(value, "__dict__"):
            yield from ((f".{name}", part) for name, part in vars(value).items())
        if not isinstance(value, torch.nn.Module) and _pickles_by_itself(type(value)):
            yield ".state", _state(value)
        for kind in type(value).__mro__:
            if isinstance(value, torch.nn.Module) and not _is_of(kind, _LIBRARIES):
                yield from ((f".{kind.__name__}.{n}", v) for n, v in _class_values(kind))
            elif _is_of_a_script(str(kind.__module__)):
                yield from ((f".{kind.__name__}.{n}", v) for n, v in _class_data(kind))
            for name in _slots(kind):
                if hasattr(value, name):
                    yield f".{name}", getattr(value, name)


def _pickles_by_itself(kind: type) -> bool:
    """Returns whether objects of a class hold more than their attributes."""
    names = ("__reduce__", "__reduce_ex__", "__getstate__")
    return "__dict__" not in dir(kind) or any(
        getattr(kind, name, None) is not getattr(object, name, None) for name in names
    )


def _state(value: Any) -> Any:
    """Returns what an object is pickled as besides its attributes, such as a text's characters.

    None of what cannot be pickled. What it holds is not seen.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pickling of iterators is deprecated.
            reduced = value.__reduce_ex__(2)
    except Exception:
        return None
    if not isinstance(reduced, tuple):
        return None
    return [tuple(part) if isinstance(part, Iterator) else part for part in reduced[1:]]


def held_by(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yields the values that a function holds: its variables, defaults and attributes."""
    global_names, all_names = _names_in(function.__code__)
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        try:
            yield from _variable(name, cell.cell_contents, all_names)
        except ValueError:
            continue  # Not assigned yet.
    yield ".defaults", function.__defaults__
    yield ".keyword_defaults", function.__kwdefaults__
    yield ".attributes", function.__dict__
    if not _is_of(function, _LIBRARIES):
        for name in sorted(global_names):
            yield from _variable(name, function.__globals__.get(name), all_names)
        package = function.__globals__.get("__package__") or ""
        for name in sorted(all_names - global_names):
            for imported in (name, f"{package}.{name}"):
                if imported in sys.modules:
                    yield from _variable(name, sys.modules[imported], all_names)


def _variable(
    name: str, value: Any, names: frozenset[str], module_ids: frozenset[int] = frozenset()
) -> Iterator[tuple[str, Any]]:
    """Yields what a function reaches by a variable.

    Args:
        name: The variable.
        value: Its value.
        names: All names of variables and attributes in the function.
        module_ids: The modules that the path goes through, by their id.
    """
    if not isinstance(value, types.ModuleType):
        yield f".{name}", value
    elif _is_of_a_script(value.__name__):
        for part_name in sorted(names & vars(value).keys()):
            part = vars(value)[part_name]
            if id(part) not in module_ids:
                yield from _variable(f"{name}.{part_name}", part, names, module_ids | {id(value)})


@functools.lru_cache(maxsize=1024)
def _names_in(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the global variables of a function's code, and all its names; inner ones' too."""
    global_names = {
        step.argval
        for step in dis.get_instructions(code)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")
    }
    all_names = set(code.co_names)
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            inner_globals, inner_names = _names_in(part)
            global_names |= inner_globals
            all_names |= inner_names
    return frozenset(global_names), frozenset(all_names)


def _methods(value: Any) -> Iterator[tuple[str, types.FunctionType]]:
    """Yields the methods and properties that a script has written, each with the name it goes by.

    What overrides something of a library goes by the name ``_BY_ITSELF``: the library calls it, as
    PyTorch does ``forward``, ``step`` and ``backward``. So does what Python calls. What another
    class of the script overrides goes by the name ``super``.
    """
    if isinstance(value, types.ModuleType | types.FunctionType):
        return
    classes = (value if isinstance(value, type) else type(value)).__mro__
    script_classes = [kind for kind in classes if _is_of_a_script(str(kind.__module__))]
    library_names = {name for kind in classes if kind not in script_classes for name in vars(kind)}
    overridden: set[str] = set()
    for kind in script_classes:
        for name, part in vars(kind).items():
            if name in _NOT_CALLED:
                continue
            is_called = name.startswith("__") or name in library_names or name == "forward"
            key = "super" if name in overridden else _BY_ITSELF if is_called else name
            yield from ((key, function) for function in _functions_of(part))
        overridden |= vars(kind).keys()


def _class_data(kind: type) -> Iterator[tuple[str, Any]]:
    """Yields what a class holds, without its methods."""
    for name, value in vars(kind).items():
        if not name.startswith("__") and not hasattr(type(value), "__get__"):
            yield name, value


def _functions_of(value: Any) -> list[types.FunctionType]:
    """Returns the functions behind what a class has as a method or a property."""
    if isinstance(value, property):
        functions: tuple[Any, ...] = (value.fget, value.fset)
    elif isinstance(value, staticmethod | classmethod):
        functions = (value.__func__,)
    elif isinstance(value, functools.cached_property | functools.partialmethod):
        functions = (value.func,)
    else:
        functions = (value,)
    return [function for function in functions if isinstance(function, types.FunctionType)]


def _class_values(kind: type) -> Iterator[tuple[str, Any]]:
    kinds = (*_SCALARS, torch.Tensor, np.ndarray, list, dict, set)
    for name, value in vars(kind).items():
        if isinstance(value, kinds) and not name.startswith("__"):
            yield name, value


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _is_of_a_script(module: str) -> bool:
    """Returns whether a module is a script's own, and not an installed one."""
    if module.split(".")[0] in _NO_SCRIPTS:
        return False
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return _INSTALLED.isdisjoint(Path(file).parts)


def _is_of(value: Any, libraries: tuple[str, ...]) -> bool:
    kind = value if isinstance(value, type | types.FunctionType) else type(value)
    return str(kind.__module__).split(".")[0] in libraries


def _is_wrapped(tensor: torch.Tensor) -> bool:
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


class _Memories:
    """The memory of some tensors, without what lies beside it in the same storages."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        spans = [span for tensor in tensors if (span := _span(tensor)) is not None]
        self._spans: list[tuple[Any, int, int]] = []
        for device, start, end in sorted(spans, key=lambda span: (str(span[0]), *span[1:])):
            if self._spans and self._spans[-1][0] == device and start <= self._spans[-1][2]:
                _, start, end_of_span = self._spans.pop()
                end = max(end, end_of_span)
            self._spans.append((device, start, end))
        self._without = {id(tensor) for tensor in tensors if _span(tensor) is None}

    def hold(self, tensor: torch.Tensor) -> bool:
        """Returns whether all of a tensor lies within their memory, without a gap."""
        span = _span(tensor)
        if span is None:
            return id(tensor) in self._without
        return any(
            span[0] == memory[0] and memory[1] <= span[1] and span[2] <= memory[2]
            for memory in self._spans
        )


def _span(tensor: torch.Tensor) -> tuple[Any, int, int] | None:
    """Returns device, first and last address of a tensor's own numbers; None if it has none."""
    try:
        start = tensor.data_ptr()
    except (RuntimeError, NotImplementedError):
        return None
    if not start:
        return None
    steps = zip(tensor.stride(), tensor.shape, strict=True)
    numbers = 1 + sum(stride * (length - 1) for stride, length in steps)
    return tensor.device, start, start + numbers * tensor.element_size()


def _interval(value: Any) -> tuple[Any, int, int] | None:
    """Returns device, first and last address of an array's memory; None of anything else."""
    if isinstance(value, np.ndarray):
        while isinstance(value.base, np.ndarray):
            value = value.base
        start = value.__array_interface__["data"][0]
        return ("cpu", start, start + value.nbytes) if value.nbytes else None
    if isinstance(value, torch.Tensor) and not _is_wrapped(value):
        try:
            storage = value.untyped_storage()
            start = storage.data_ptr()
        except (RuntimeError, NotImplementedError):
            return None
        return (str(value.device), start, start + storage.nbytes()) if start else None
    return None


def _merged(intervals: list[tuple[Any, int, int]]) -> list[tuple[Any, int, int]]:
    """Returns the same memory in fewer pieces: records of a list are views of few arrays."""
    pieces: list[tuple[Any, int, int]] = []
    for device, start, end in sorted(set(intervals)):
        if pieces and pieces[-1][0] == device and start <= pieces[-1][2]:
            device, start, end_of_piece = pieces.pop()
            end = max(end, end_of_piece)
        pieces.append((device, start, end))
    return pieces


def _overlap(interval: tuple[Any, int, int], other_interval: tuple[Any, int, int]) -> bool:
    return (
        interval[0] == other_interval[0]
        and interval[1] < other_interval[2]
        and other_interval[1] < interval[2]
    )


def _value_digest(value: Any, moving: _Memories) -> bytes:
    if isinstance(value, torch.Tensor):
        if _is_wrapped(value):
            # A tensor that exists inside of a step only; no two of them are the same.
            return secrets.token_bytes(16)
        return b"trained" if moving.hold(value) else _tensor_digest(value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return _digest(f"{value.dtype}{value.shape}", [value.tobytes()])
    if isinstance(value, _SCALARS) or type(value).__module__ == "torch":
        return _digest(repr(value))
    return _digest(type(value).__qualname__)


def _tensor_digest(tensor: torch.Tensor) -> bytes:
    described = f"{tensor.dtype}{tuple(tensor.shape)}{tensor.device.type}{tensor.requires_grad}"
    try:
        octets = tensor.detach().reshape(-1).contiguous().view(torch.uint8)
    except (RuntimeError, TypeError):
        return _digest(described, [repr(tensor).encode()])  # Sparse or quantized.
    return _digest(described, (piece.cpu().numpy() for piece in octets.split(_BYTES_AT_A_TIME)))


def _digest(described: str, pieces: Any = ()) -> bytes:
    digest = hashlib.blake2b(described.encode(), digest_size=16)
    for piece in pieces:
        digest.update(piece)
    return digest.digest()
