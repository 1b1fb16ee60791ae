"""Bounds of what a private selection costs."""
