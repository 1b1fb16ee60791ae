"""Priors over a search space, score models, and draws within bounds of a prior."""
