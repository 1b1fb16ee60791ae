"""What the part of adaptive selection adds: runs that learn, and the bound of what that costs."""

from optuna_dp.parts import Part, register

register(
    Part(
        name="adaptive selection",
        names={
            "optuna_dp.adaptive_selection.densities.convex_projection": "ConvexProjection",
            "optuna_dp.adaptive_selection.dp_hypo": "DPHyPOSampler",
        },
        history_bound="optuna_dp.adaptive_selection.bounds.pointwise_bound:pointwise_bound",
    )
)
