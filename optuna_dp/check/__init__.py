"""``optuna-dp check``: looks for honest mistakes in an objective, in two runs and in its source.

It proves nothing: it catches what people in a hurry write.
"""
