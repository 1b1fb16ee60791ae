"""Bounds of others, for comparison. No guarantee rests on them."""
