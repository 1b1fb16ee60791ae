"""Workers on whatever engine joblib is configured for: this machine, Dask, Ray.

``call``      the one call, ``optimize``
``engines``   who starts workers, and how it says that one has died
``storages``  how workers reach the study; which storages number trials as they must
``served``    a storage served from this process for as long as the call lasts
``worker``    what runs on the engine
``owners``    which trial is whose; settling those of the dead
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optuna_dp.front_doors import front_door

if TYPE_CHECKING:
    from optuna_dp.distributed.call import optimize as optimize

__getattr__, __dir__, __all__ = front_door(
    __name__,
    {
        "call": "optimize",
    },
)
