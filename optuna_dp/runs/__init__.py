"""One run: what it may spend, how it trains and scores, and what its trial holds of that.

``run_plan`` and ``run`` are the numbers, ``train`` is :func:`optuna_dp.train`, ``spending`` and
``run_endings`` are for loops of one's own, ``trial_notes`` is what a trial holds, and
``judgement`` what is known of a run that has ended.
"""
