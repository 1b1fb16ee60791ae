"""Records become tensors by what is public about them, without a statistic of the records."""
