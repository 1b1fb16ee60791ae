"""Bounds of a selection: whatever its runs see, by rank, and of searches that learn.

``profile_bound`` holds for every policy of choosing hyperparameters, ``rank_profile`` for laws
that know their number of runs well, ``pointwise_bound`` for policies that see private outputs
only. ``as_part`` is for selections inside of others.
"""
