"""Lets ``joblib.parallel_config`` know Ray, and say which extra brings Ray or Dask.

This is done as soon as both joblib and optuna-dp have been imported, in whatever order. joblib is
not imported for it: that takes longer than everything else here.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from optuna_dp.errors import MissingExtraError

_JOBLIB = "joblib.parallel"


def name_engines() -> None:
    """Names the engines to joblib now, or when it is imported."""
    if _JOBLIB in sys.modules:
        _name_to(sys.modules[_JOBLIB])
    else:
        sys.meta_path.insert(0, _WhenJoblibIsImported())


class _WhenJoblibIsImported(MetaPathFinder):
    """Finds joblib where it would be found otherwise, once."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _JOBLIB:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_name(module: ModuleType) -> None:
                run(module)
                _name_to(module)

            spec.loader.exec_module = run_and_name  # type: ignore[method-assign]
        return spec


def _name_to(joblib: Any) -> None:
    known = joblib.EXTERNAL_BACKENDS
    known.update(dask=_named("distributed", "dask", known["dask"]))
    known.setdefault("ray", _named("ray", "ray", _register_ray))


def _named(package: str, extra: str, register: Callable[[], Any]) -> Callable[[], Any]:
    def named() -> Any:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, extra)
        return register()

    return named


def _register_ray() -> None:
    from ray.util.joblib import register_ray  # an extra

    register_ray()
