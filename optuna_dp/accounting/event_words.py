"""Events in words, for statements that people read."""

from __future__ import annotations

from typing import Any

from dp_accounting import dp_event

from optuna_dp.accounting import events


def in_words(event: Any) -> str:
    """Returns what was done to the data, as one line of text."""
    if isinstance(event, dp_event.SelfComposedDpEvent):
        return f"{event.count} times [{in_words(event.event)}]"
    if isinstance(event, dp_event.ComposedDpEvent):
        parts = [e for e in event.events if not isinstance(e, dp_event.NoOpDpEvent)]
        return "; then ".join(map(in_words, parts)) or "nothing"
    if isinstance(event, dp_event.PoissonSampledDpEvent):
        return f"{in_words(event.event)} on a Poisson sample of {event.sampling_probability:.6g}"
    if isinstance(event, dp_event.GaussianDpEvent):
        return f"Gaussian noise of {event.noise_multiplier:g} times the sensitivity"
    if isinstance(event, dp_event.LaplaceDpEvent):
        return f"Laplace noise of {event.noise_multiplier:g} times the sensitivity"
    if isinstance(event, dp_event.ZCDpEvent):
        return f"a {event.rho:g}-zCDP mechanism"
    if isinstance(event, events.PrivateSelectionDpEvent):
        c, big_c = event.density_bounds
        within = ""
        if (c, big_c) != (1.0, 1.0):
            seen = "private outputs" if event.policy == "history" else "anything"
            within = f", drawn within [{c:g}, {big_c:g}] of the prior after seeing {seen}"
            if event.startup_runs > 0:
                within += f" (the first {event.startup_runs} from the prior itself)"
        return f"the best of T runs, T from {event.trials!r}{within}, each: {in_words(event.run)}"
    words = event.words(in_words) if hasattr(event, "words") else repr(event)
    return str(words)
