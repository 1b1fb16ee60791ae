"""What the part of audits adds: instruments that look for faults."""

from optuna_dp.parts import CommandEntry, Part, register

register(
    Part(
        name="audits",
        modules={"testing": "optuna_dp.testing"},
        names={
            "optuna_dp.testing.objective_check": "check_objective",
            "optuna_dp.testing.objective_report": "ObjectiveReport",
        },
        commands=(
            CommandEntry(
                function="optuna_dp.testing.command:check",
                group="Check",
                summary="Run an objective and look for faults in its privacy.",
            ),
        ),
    )
)
