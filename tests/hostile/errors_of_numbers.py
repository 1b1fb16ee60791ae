"""Ways to go wrong with laws of T, events of runs, guarantees and plans."""

from __future__ import annotations

import math

from dp_accounting import dp_event
from support import RUN

import optuna_dp as odp

from .error_case import Case

LAWS = [
    Case("A shape of -1 or below", lambda: odp.NegativeBinomial(shape=-1, mean=3)),
    Case("gamma outside (0, 1)", lambda: odp.NegativeBinomial(shape=1, gamma=1.5)),
    Case("Neither gamma nor mean", lambda: odp.NegativeBinomial(shape=1)),
    Case("Both gamma and mean", lambda: odp.NegativeBinomial(shape=1, gamma=0.1, mean=10)),
    Case("A mean below 1 for a law that begins at 1", lambda: odp.Geometric(mean=0.5)),
    Case("NaN", lambda: odp.Poisson(math.nan)),
    Case("More runs on average than there can be", lambda: odp.Binomial(3, 7)),
    Case("More runs on average than a search can make", lambda: odp.Poisson(10**9)),
    Case("A cap of 0", lambda: odp.Geometric(mean=5).capped(0)),
    Case("A quantile of 1", lambda: odp.Geometric(mean=5).quantile(1.0)),
    Case("A fraction above 1", lambda: odp.Geometric(mean=5).hit_probability(1.5)),
    Case("A record of a law that is none", lambda: odp.TrialCount.from_json({"law": "uniform"})),
]

EVENTS = [
    Case("No noise", lambda: odp.gaussian(0.0)),
    Case(
        "A sampling rate above 1",
        lambda: odp.dp_sgd(noise_multiplier=1.0, sample_rate=64, steps=420),
    ),
    Case(
        "A number of steps that is not whole",
        lambda: odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.01, steps=10.5),  # type: ignore[arg-type]
    ),
    Case("A negative epsilon", lambda: odp.pure_dp(-1.0)),
    Case("A delta of 1", lambda: odp.approximate_dp(1.0, 1.0)),
    Case("Renyi-DP points of unequal length", lambda: odp.rdp([2.0, 4.0], [0.1])),
    Case("An order of 1", lambda: odp.rdp([1.0], [0.1])),
    Case("A profile that is not convex", lambda: odp.from_profile([0, 1, 2], [0.5, 0.49, 0.0])),
    Case("Something else than a PLD", lambda: odp.from_pld(1.1)),
    Case("Composing nothing", lambda: odp.compose()),
    Case("Something else than an event", lambda: odp.compose(RUN, 1.0)),
    Case("Something else than an engine", lambda: odp.from_opacus("engine")),
]

ACCOUNTING = [
    Case(
        "No event",
        lambda: odp.selection_guarantee(1.0, odp.Geometric(10)),
    ),
    Case(
        "No law",
        lambda: odp.selection_guarantee(RUN, 10),  # type: ignore[arg-type]
    ),
    Case(
        "An event that no accountant supports",
        lambda: odp.selection_guarantee(dp_event.UnsupportedDpEvent(), odp.Geometric(10)),
    ),
    Case(
        "Replacing a record, with Laplace noise",
        lambda: odp.Guarantee(odp.laplace(2.0), "replace_one"),
    ),
    Case("An unknown relation", lambda: odp.Guarantee(RUN, "add_one")),
    *(
        Case(
            what,
            lambda bounds=bounds: odp.selection_guarantee(
                RUN, odp.Geometric(10), density_bounds=bounds
            ),
        )
        for what, bounds in (
            ("c above 1", (1.5, 2.0)),
            ("C below 1", (0.5, 0.9)),
            ("c of 0", (0.0, 2.0)),
            ("c above C", (2.0, 0.5)),
            ("One bound only", 2.0),
            ("A NaN among the bounds", (math.nan, 2.0)),
        )
    ),
    Case(
        "An unknown policy",
        lambda: odp.selection_guarantee(RUN, odp.Geometric(10), policy="both"),
    ),
    Case("No event in a guarantee", lambda: odp.Guarantee(3)),
    Case("A delta of 1", lambda: odp.Guarantee(RUN).epsilon(delta=1.0)),
    Case("A Renyi order of 1", lambda: odp.Guarantee(RUN).rdp([1.0])),
    Case("A negative epsilon", lambda: odp.Guarantee(RUN).delta(epsilon=-0.1)),
    Case(
        "Composing guarantees of different relations",
        lambda: odp.Guarantee(RUN).compose(odp.Guarantee(RUN, "replace_one")),
    ),
    Case("A record of a guarantee that is none", lambda: odp.Guarantee.from_json({"event": 1})),
    Case(
        "Nothing to solve for",
        lambda: odp.calibrate(target_epsilon=1, delta=1e-5, run=RUN, trials=odp.Geometric(3)),
    ),
    Case(
        "A target below what one run costs",
        lambda: odp.calibrate(target_epsilon=0.1, delta=1e-5, run=RUN, trials=odp.Geometric),
    ),
    Case("No mean in a plan", lambda: odp.selection_plan(RUN, means=[])),
    Case("One mean that is not in a list", lambda: odp.selection_plan(RUN, means=3)),
    Case("No law in a plan", lambda: odp.selection_plan(RUN, laws=[], density_bounds=[])),
    Case("One law that is not in a list", lambda: odp.selection_plan(RUN, laws="poisson")),
    Case(
        "One pair of bounds that is not in a list",
        lambda: odp.selection_plan(RUN, density_bounds=(0.5, 2)),
    ),
    Case("An unknown law in a plan", lambda: odp.selection_plan(RUN, laws=["uniform"])),
    Case(
        "A plan for a target without noise to find",
        lambda: odp.selection_plan(RUN, target_epsilon=1),
    ),
]
