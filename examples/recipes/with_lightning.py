"""A network trained by PyTorch Lightning and Opacus within epsilon 3, once.

    pip install torch==2.13.0 && pip install lightning ".[opacus]"
    python with_lightning.py
    optuna-dp check with_lightning.py:objective --plan PLAN

The second takes less than half a minute on one core, the third about as long.
"""

import logging
import warnings

import lightning
import numpy as np
import optuna
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import optuna_dp as odp

warnings.filterwarnings("ignore", module="(opacus|torch|lightning)")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)
pixels, labels = load_digits(return_X_y=True)
SCHEMA = odp.Schema.images(64, high=16, target=range(10))  # what is public about the records
DATA = SCHEMA.encode(pixels, labels).tensors()
PLAN = odp.plan_budget(epsilon=3.0, delta=1e-5, records=1797, epochs=20, pilots=0)


class Digits(lightning.LightningModule):
    """An ordinary module; what is private comes from outside, made by Opacus."""

    def __init__(self, network):
        super().__init__()
        self.network = network
        self.optimizer = None

    def configure_optimizers(self):
        return self.optimizer

    def training_step(self, batch):
        features, target = batch
        # No self.log("loss", ...): a loss of training records has no noise.
        return nn.functional.cross_entropy(self.network(features), target)


def train(run, rate, x, y):
    network = nn.Sequential(nn.Linear(SCHEMA.width, 32), nn.ReLU(), nn.Linear(32, SCHEMA.outputs))
    private, optimizer, batches = odp.opacus.make_private(
        run,
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=rate),
        data_loader=DataLoader(TensorDataset(x, y)),
    )
    module = Digits(private)
    module.optimizer = optimizer
    trainer = lightning.Trainer(
        max_epochs=1,  # all steps of the run; and no EarlyStopping
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,  # on several devices it would change the batches
        accelerator="cpu",
        devices=1,
    )
    trainer.fit(module, batches)
    return network


MODELS = {}


def objective(trial, data=DATA):
    run = odp.start_run(trial)
    x, y = data
    network = train(run, run.learning_rate("sgd"), x, y)  # which follows from public numbers
    MODELS["last"] = network
    with torch.no_grad():
        correct = np.asarray(network(x).argmax(1) == y)
    return run.score(correct)


def main():
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(PLAN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    print(release.value, release.guarantee.epsilon(delta=1e-5))
    torch.save(MODELS["last"].state_dict(), "model.pt")


if __name__ == "__main__":
    main()
