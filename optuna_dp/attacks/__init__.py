"""Explicit attacks, lower bounds of the cost. No guarantee depends on them."""
