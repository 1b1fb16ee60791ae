"""RandTune and DP-HyPO: the best of a secret number of runs is released, and nothing else."""
