"""What the part of figures adds: plots, and pages of notebooks."""

from optuna_dp.parts import Part, register

register(
    Part(
        name="figures",
        modules={"visualization": "optuna_dp.visualization"},
        notebook_page="optuna_dp.visualization.notebook:to_html",
    )
)
