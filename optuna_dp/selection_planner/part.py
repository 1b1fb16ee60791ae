"""What the planner of selections adds: one function, and its command."""

from optuna_dp.parts import CommandEntry, Part, register

register(
    Part(
        name="selection planner",
        names={"optuna_dp.selection_planner.selection_plan": "selection_plan"},
        commands=(
            CommandEntry(
                function="optuna_dp.selection_planner.command:plan",
                group="Plan",
                summary="Compare private selections of a secret number of runs.",
            ),
        ),
    )
)
