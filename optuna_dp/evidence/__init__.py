"""Checks a study before its release, and writes the statement."""
