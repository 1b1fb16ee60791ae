"""One run: what it may spend, how it trains and scores, and what is noted of it."""
