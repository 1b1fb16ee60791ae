"""The command line ``optuna-dp``.

``application``  the program, of the commands here and of those that parts add
``common``       what commands share
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optuna_dp.front_doors import front_door

if TYPE_CHECKING:
    from optuna_dp.cli.application import app as app

__getattr__, __dir__, _ = front_door(__name__, {"application": "app"})
