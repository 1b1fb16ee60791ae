"""One private training: what it may spend, the training itself, and what its trial records of it."""
