"""When to take which sampler: a few numbers, by the samplers' defaults.

    python which_sampler.py

A run is ``gaussian(4)``: Gaussian noise of four times what one record moves, once. A private
selection makes 20 such runs on average, as ``RandTuneSampler()`` and ``DPHyPOSampler()`` do by
default. Delta is 1e-5. It takes seconds and reads no data.
"""

import optuna_dp as odp
from optuna_dp.mechanisms import DoublingPlan, plan_utilities

DELTA = 1e-5
RUN = odp.gaussian(4.0)
BOUNDS = (0.75, 2.0)  # what DPHyPOSampler() may do to the prior density


def selection(mean, **learning):
    trials = odp.Geometric(mean=mean)
    return odp.selection_guarantee(RUN, trials, **learning).epsilon(delta=DELTA)


def hits(mean, bounds):
    """Returns the largest chance that a run has one of the best 5 % of settings."""
    plan = odp.selection_plan(RUN, laws=["geometric"], means=[mean], density_bounds=[bounds])
    return max(row.hit[1] for row in plan.rows if row.density_bounds == bounds)


def budget(epsilon):
    """Returns the noise of the last run, after four pilots."""
    plan = odp.plan_budget(
        epsilon=epsilon,
        delta=DELTA,
        run=lambda noise, steps: odp.gaussian(noise / steps**0.5),
        steps=1,
        score=None,
        pilots=4,
    )
    return plan.final.noise_multiplier


def numbers():
    """Returns what the program prints, line by line."""
    hypo = selection(20, density_bounds=BOUNDS, startup_runs=1)
    means = odp.calibrate(
        target_epsilon=hypo, delta=DELTA, run=RUN, trials=lambda mean: odp.Geometric(mean=mean)
    )
    test = plan_utilities(
        DoublingPlan(epsilon=0.02), n_candidates=20, n_partitions=1000, delta=DELTA
    )
    return {
        "one run": f"{odp.Guarantee(RUN).epsilon(delta=DELTA):.3f}",
        "four pilots and one run": f"{1.08:.3f}, noise {budget(1.08):.2f}",
        "RandTune": f"{selection(20):.3f}, best 5 % with {hits(20, (1.0, 1.0)):.2f}",
        "DP-HyPO": f"{hypo:.3f}, best 5 % with at most {hits(20, BOUNDS):.2f}",
        "RandTune at DP-HyPO's epsilon": f"{means.value:.0f} runs on average, best 5 % with "
        f"{hits(means.value, (1.0, 1.0)):.2f}",
        "propose-test": f"{test.total_epsilon:.3f}, {test.partitions_needed:,} parts",
        "noisy max at the same epsilon": f"{test.noisy_max_partitions:,} parts",
    }


if __name__ == "__main__":
    for name, value in numbers().items():
        print(f"{name:30} {value}")
