"""The ledger: all that is stored in a study, who writes it and when, and how it is read.

Nothing else touches Optuna's system attributes. ``entries`` lists what is stored. ``slots`` is the
sampler that Optuna calls, ``slot_strategy`` what a procedure decides for it. ``claims``,
``shared_plan`` and ``draws`` make several workers one study; ``recovery`` and ``storage_errors``
are for those that died. ``snapshot`` is a study as it was read, once.
"""
