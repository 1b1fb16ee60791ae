"""The samplers, a folder for each procedure.

``selection``  RandTune and DP-HyPO: the best of a secret number of runs
``budget``     pilots and a last run, every one of them paid for
``choice``     noisy max and propose-test: a choice by utilities over disjoint parts of the records

In each ``settings`` is what workers agree on, ``slot_strategy`` decides which trials are runs and
draws their hyperparameters, ``procedure`` checks the study and knows its cost, and ``statement``
says what was done.
"""
