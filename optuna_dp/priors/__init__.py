"""Priors, score models and proposals over a search space, without a procedure."""
