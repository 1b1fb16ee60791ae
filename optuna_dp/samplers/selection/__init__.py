"""Private selections whose runs learn from earlier ones, within bounds of a prior (DP-HyPO)."""
