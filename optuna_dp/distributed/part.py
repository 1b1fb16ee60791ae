"""What the part of engines adds: workers on joblib, Dask and Ray."""

from optuna_dp.parts import Part, register

register(Part(name="engines", modules={"distributed": "optuna_dp.distributed"}))
