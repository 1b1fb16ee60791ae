"""Figures of what differential privacy adds to a study, each a ``plotly.graph_objects.Figure``.

Needs the extra: ``pip install "optuna-dp[visualization]"``. Histories, slices and importances of
a study are Optuna's: :mod:`optuna.visualization`. They show every run, so outside a study with a
budget they are for the curator only.

Who may see a figure depends on what it is made of:

===========================  =========================  =======================================
figure                       made of                    who may see it
===========================  =========================  =======================================
``plot_privacy_profile``     the design, the event      anybody
``plot_renyi_divergence``    the design, the event      anybody
``plot_trade_off``           the design, the event      anybody
``plot_renyi_by_trials``     the design, the event      anybody
``plot_epsilon_by_trials``   a plan or a release        anybody
``plot_epsilon_by_trials``   a study                    **the curator**: it marks how far it is
``plot_plan``                a plan                     anybody
``plot_votes``               noisy votes                anybody
``plot_density``             a study                    **the curator**: it shows all runs
===========================  =========================  =======================================

The title of a curator's figure says so.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
