"""Kinds of events that dp-accounting does not have: what each is, and how it is judged."""
