"""Chooses settings; the accounting computes their cost. No guarantee depends on it."""
