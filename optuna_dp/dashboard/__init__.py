"""Notes and plots for Optuna Dashboard, in a private study and in a published one.

Needs the extra: ``pip install "optuna-dp[dashboard]"``.

Two pages, for two readers. The curator's study is annotated by :func:`annotate`; its page shows
every run and must not be published. The published study (:func:`optuna_dp.publish`) is
annotated by :func:`annotate_published`, which is given the release and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optuna_dp.front_doors import front_door

if TYPE_CHECKING:
    from optuna_dp.dashboard.study_pages import DashboardCallback as DashboardCallback
    from optuna_dp.dashboard.study_pages import annotate as annotate
    from optuna_dp.dashboard.study_pages import annotate_published as annotate_published
    from optuna_dp.dashboard.study_pages import available as available

__getattr__, __dir__, __all__ = front_door(
    __name__,
    {
        "study_pages": "DashboardCallback annotate annotate_published available",
    },
)
