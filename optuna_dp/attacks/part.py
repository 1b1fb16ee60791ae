"""What the part of attacks adds: lower bounds and the bounds of others, beside a guarantee."""

from optuna_dp.parts import Part, register

register(
    Part(
        name="attacks",
        attack="optuna_dp.attacks.strongest:strongest_known_attack",
        comparisons="optuna_dp.attacks.comparisons:comparisons_of",
    )
)
