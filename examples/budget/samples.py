"""Pilots on secret samples, beside pilots on everything: what they cost and what they tell.

A plan with ``sample=s`` pays for pilots that each draw a fresh Poisson sample of the records. For
every way the noise of the pilots is solved for, beside the same last run at the same epsilon.

python examples/budget/samples.py

Columns: a pilot's steps and the records it looks at in all, in units of the last run's; its signal
to noise over that of the last run (noise per record of a step, over the root of the steps).
"""

from __future__ import annotations

import math
from dataclasses import replace

from dp_accounting import dp_event

import optuna_dp as odp
from optuna_dp.planning.calibration import NOISE, profile_epsilon
from optuna_dp.planning.target_search import largest_within

RECORDS, BATCH, EPOCHS = 60_000, 256, 10
SAMPLES = (0.1, 0.3)


def sgd(epsilon: float) -> None:
    """DP-SGD, batches alike: samples against pilots that are as short, on everything."""
    given = {"epsilon": epsilon, "records": RECORDS, "batch_size": BATCH, "epochs": EPOCHS}
    row("DP-SGD", epsilon, "everything", odp.plan_budget(**given, score=None))
    for sample in SAMPLES:
        short = odp.plan_budget(**given, score=None, pilot_epochs=EPOCHS * sample)
        row("DP-SGD", epsilon, f"everything, {sample:g} of the length", short)
        row(
            "DP-SGD",
            epsilon,
            f"fresh samples of {sample:g}",
            odp.plan_budget(**given, score=None, sample=sample),
        )
        noise = shared(short, sample)
        signal = short.final.noise_multiplier / noise * math.sqrt(sample)
        line("DP-SGD", epsilon, f"one sample of {sample:g} for all", noise, sample, signal)


def shared(plan: odp.BudgetPlan, sample: float) -> float:
    """The noise of pilots that share one sample, which plan_budget does not make plans of."""
    rate = BATCH / RECORDS / sample

    def cost(u: float) -> float:
        pilots = [
            dp_event.SelfComposedDpEvent(
                odp.dp_sgd(
                    noise_multiplier=NOISE.value(u) / 2**rung, sample_rate=rate, steps=run.steps
                ),
                count,
            )
            for rung, (run, count) in enumerate(zip(plan.rungs, plan.rung_sizes, strict=True))
        ]
        on_sample = dp_event.PoissonSampledDpEvent(sample, dp_event.ComposedDpEvent(pilots))
        whole = odp.Guarantee(dp_event.ComposedDpEvent([on_sample, plan.final.event]))
        return profile_epsilon(whole, plan.delta)

    start = replace(NOISE, start=-math.log(2.0 * plan.pilot.noise_multiplier), slope=0.3)
    return NOISE.value(largest_within(cost, plan.epsilon, start).at)


def full_batch(epsilon: float) -> None:
    """Gradient descent on whole data sets, which has no batches to be drawn."""

    def run(noise: float, steps: int) -> dp_event.DpEvent:
        return odp.gaussian(noise / math.sqrt(steps))

    for sample in (None, *SAMPLES):
        plan = odp.plan_budget(epsilon=epsilon, run=run, steps=100, score=None, sample=sample)
        name = "everything" if sample is None else f"fresh samples of {sample:g}"
        row("whole batches", epsilon, name, plan)


def row(training: str, epsilon: float, name: str, plan: odp.BudgetPlan) -> None:
    pilot, last = plan.pilot, plan.final
    # A step averages over fewer records where it takes the whole sample.
    fewer = plan.sample or 1.0 if last.sample_rate is None else 1.0
    signal = fewer * last.noise_multiplier / pilot.noise_multiplier
    signal *= math.sqrt(pilot.steps / last.steps)
    work = fewer * pilot.steps / last.steps
    line(training, epsilon, name, pilot.noise_multiplier, work, signal)


def line(
    training: str, epsilon: float, name: str, noise: float, work: float, signal: float
) -> None:
    said = f"{noise:.3g} | {work:.2g} | {signal:.3f}"
    print(f"| {training} | {epsilon:g} | {name} | {said} |", flush=True)


def main() -> None:
    print("| training | epsilon | pilots on | noise | records looked at | signal to noise |")
    print("|---|---|---|---|---|---|")
    for epsilon in (1.0, 3.0):
        sgd(epsilon)
        full_batch(epsilon)


if __name__ == "__main__":
    main()
