"""One private training: what it may spend, how it is done, and what its trial records."""
