"""Notes and plots for Optuna Dashboard, in a private study and in a published one.

Needs the extra: ``pip install "optuna-dp[dashboard]"``.

Two pages, for two readers. The curator's study is annotated by :func:`annotate`; its page shows
every run and must not be published. The published study (:func:`optuna_dp.publish`) is
annotated by :func:`annotate_published`, which is given the release and nothing else.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
