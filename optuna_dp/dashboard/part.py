"""What the part of Optuna Dashboard adds; it draws with the part of figures."""

from optuna_dp.parts import Part, register

register(
    Part(
        name="dashboard",
        modules={"dashboard": "optuna_dp.dashboard"},
        published_page="optuna_dp.dashboard.study_pages:annotate_published",
    )
)
