"""What the part of Flower adds; its clients cast the votes of the part of votes."""

from optuna_dp.parts import Part, register

register(Part(name="federated", modules={"federated": "optuna_dp.federated"}))
