"""Differentially private hyperparameter tuning for people who already use Optuna.

Change the sampler, add one callback, call :func:`release`, and get a choice with a guarantee for
the whole procedure::

    import optuna
    import optuna_dp as odp

    run = odp.RunPlan(
        records=1347, batch_size=64, steps=420, noise_multiplier=2.0, score_noise_multiplier=20.0
    )
    study = optuna.create_study(direction="maximize", sampler=odp.DPHyPOSampler(run=run))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)

The public names stand in ``__init__.pyi``. Each is loaded when it is first used, so importing the
package costs next to nothing.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
