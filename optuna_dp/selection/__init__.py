"""The best of a secret, random number of runs: RandTune and DP-HyPO."""
