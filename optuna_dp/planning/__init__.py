"""Chooses settings; the accounting judges what is chosen. No guarantee rests on it."""
