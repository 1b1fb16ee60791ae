"""The bound of selections whose runs learn from private outputs."""
