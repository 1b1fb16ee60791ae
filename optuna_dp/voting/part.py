"""What the part of votes adds: a choice that takes place without a study."""

from optuna_dp.parts import CommandEntry, Part, ProcedureEntry, register

register(
    Part(
        name="votes",
        modules={"voting": "optuna_dp.voting"},
        procedures={
            "vote": ProcedureEntry(
                description="optuna_dp.voting.statement:VoteDescription",
                guarantee="optuna_dp.voting.statement:guarantee_of_design",
            )
        },
        commands=(
            CommandEntry(
                function="optuna_dp.voting.command:vote",
                group="Plan",
                summary="Plan a vote among clients: which lead shows through the noise.",
            ),
        ),
    )
)
