"""Optuna samplers whose studies can be released, and the bookkeeping they share."""
