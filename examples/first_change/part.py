"""What the part of logistic noise adds: one event."""

from optuna_dp.parts import Part, register

register(
    Part(
        name="logistic noise",
        events={"LogisticDpEvent": "optuna_dp.logistic.event"},
    )
)
