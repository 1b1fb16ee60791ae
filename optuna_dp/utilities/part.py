"""What the part of choices over partitions adds: propose-test and noisy max."""

from optuna_dp.parts import Part, ProcedureEntry, register

register(
    Part(
        name="choice over partitions",
        names={
            "optuna_dp.utilities.noisy_max_sampler": "NoisyMaxSampler",
            "optuna_dp.utilities.partitions": "partition",
            "optuna_dp.utilities.propose_test_sampler": "ProposeTestSampler",
            "optuna_dp.utilities.trials": "report_utilities",
        },
        procedures={
            "propose_test": ProcedureEntry(
                procedure="optuna_dp.utilities.procedure:ProposeTest",
                description="optuna_dp.utilities.statement:UtilityDescription",
            ),
            "noisy_max": ProcedureEntry(
                procedure="optuna_dp.utilities.procedure:UtilityChoice",
                description="optuna_dp.utilities.statement:UtilityDescription",
            ),
        },
    )
)
