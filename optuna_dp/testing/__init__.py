"""Instruments to check a private search with: audits and a contract.

None of them proves anything: they catch implementations that do not keep their promise.

=====================  ==========================================================================
:func:`audit`          lower bound on epsilon from outputs of two neighbouring worlds
:func:`audit_procedure`  the same, running a whole procedure on two neighbouring inputs
:class:`SamplerContract`  pytest class for samplers of your own (needs pytest)
=====================  ==========================================================================

============  ============  =================================================================
code          notation      meaning
============  ============  =================================================================
``on``        P             probabilities of outputs on one data set
``off``       P'            the same on its neighbour
``lower``     p_low         Clopper-Pearson bounds of an event's probability
``upper``     p'_high
============  ============  =================================================================
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna_dp.testing.auditing import Audit as Audit
    from optuna_dp.testing.auditing import audit as audit
    from optuna_dp.testing.auditing import audit_procedure as audit_procedure
    from optuna_dp.testing.contract import SamplerContract as SamplerContract

_NAMES = {"auditing": "Audit audit audit_procedure", "contract": "SamplerContract"}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    # The contract needs pytest, which is not a dependency of the package.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # help() loads every name that it finds.
    has_pytest = importlib.util.find_spec("pytest") is not None
    return [name for name in __all__ if name != "SamplerContract" or has_pytest]
