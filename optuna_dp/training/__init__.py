"""The training itself: batches, gradients, the exact sum and its noise, optimizers, rates.

It knows no study and no accountant: what a run may spend comes as numbers from ``runs``.
"""
