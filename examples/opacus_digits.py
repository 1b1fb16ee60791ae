"""Private tuning of an Opacus training run, and the winner's model.

A small network learns handwritten digits (scikit-learn's, offline) with DP-SGD through Opacus'
``PrivacyEngine``. Tuned are the noise multiplier and, around what follows from it, the learning
rate. Since the noise is tuned, a run costs what its worst setting costs. Each run keeps its model
as an artifact; only the winner's is released.

    pip install torch==2.13.0 && pip install ".[opacus]"
    python examples/opacus_digits.py

Takes seconds on a CPU.
"""

from __future__ import annotations

import io
import tempfile
import warnings
from pathlib import Path

import numpy as np
import optuna
import torch
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from optuna.artifacts import FileSystemArtifactStore, upload_artifact
from optuna.distributions import CategoricalDistribution, FloatDistribution
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import optuna_dp as odp

BATCH, EPOCHS, MOMENTUM = 128, 6, 0.5
NOISES = (1.2, 1.6, 2.4)
SCORE_NOISE = 8.0
SPACE = {
    "noise_multiplier": CategoricalDistribution(NOISES),
    "noise_per_weight": FloatDistribution(0.03, 3.0, log=True),
}
VALIDATION_SIZE = 450  # public, like the size of the training set

warnings.filterwarnings("ignore", module="(opacus|torch)")
torch.set_num_threads(1)


def data() -> tuple[TensorDataset, torch.Tensor, torch.Tensor]:
    pixels, labels = load_digits(return_X_y=True)
    schema = odp.Schema.images(64, high=16, target=range(10))  # what is public about the records
    x, y = schema.encode(pixels, labels).tensors()
    # The split is by position and fixed: it does not look at the records.
    order = torch.tensor(np.random.default_rng(0).permutation(len(x)))
    valid, train = order[:VALIDATION_SIZE], order[VALIDATION_SIZE:]
    return TensorDataset(x[train], y[train]), x[valid], y[valid]


def train(dataset: TensorDataset, noise: float, rate: float) -> tuple[nn.Module, PrivacyEngine]:
    """Trains with DP-SGD; neither the model nor the batches get a fixed seed."""
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    engine = PrivacyEngine()
    private, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM),
        data_loader=DataLoader(dataset, batch_size=BATCH),
        noise_multiplier=noise,
        max_grad_norm=1.0,
    )
    for _ in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(private(x), y).backward()
            optimizer.step()
    return model, engine


def training_event(dataset: TensorDataset, noise: float) -> object:
    """What training with this noise will cost, in Opacus' own books."""
    steps_per_epoch = len(DataLoader(dataset, batch_size=BATCH))
    accountant = RDPAccountant()
    for _ in range(EPOCHS * steps_per_epoch):
        accountant.step(noise_multiplier=noise, sample_rate=1 / steps_per_epoch)
    return odp.from_opacus(accountant)


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    dataset, valid_x, valid_y = data()
    training = odp.worst_case(*(training_event(dataset, noise) for noise in NOISES))
    run = odp.compose(training, odp.scoring.score_event(SCORE_NOISE))
    trials = odp.Geometric(mean=4).capped(12)

    with tempfile.TemporaryDirectory() as folder:  # the curator's: it holds every run's model
        artifacts = FileSystemArtifactStore(folder)

        def objective(trial: optuna.Trial) -> float:
            noise = trial.suggest_categorical("noise_multiplier", NOISES)
            rate = odp.learning_rate(
                "momentum",
                noise_multiplier=noise,
                steps=EPOCHS * len(DataLoader(dataset, batch_size=BATCH)),
                batch_size=len(dataset) / len(DataLoader(dataset, batch_size=BATCH)),
                momentum=MOMENTUM,
                noise_per_weight=trial.suggest_float("noise_per_weight", 0.03, 3.0, log=True),
            )
            model, engine = train(dataset, noise, rate)
            # What was spent is what was promised. Neither depends on the data.
            assert odp.from_opacus(engine) == training_event(dataset, noise)
            checkpoint = Path(folder) / f"run-{trial.number}.pt"
            torch.save(model.state_dict(), checkpoint)
            upload_artifact(
                artifact_store=artifacts, file_path=str(checkpoint), study_or_trial=trial
            )
            with torch.no_grad():
                correct = (model(valid_x).argmax(1) == valid_y).numpy()
            return odp.scoring.private_accuracy(
                correct, size=VALIDATION_SIZE, noise_multiplier=SCORE_NOISE
            )

        sampler = odp.RandTuneSampler(
            SPACE, trials=trials, prior=odp.around({"noise_per_weight": 0.3}), run=run
        )
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(objective, callbacks=[odp.PrivacyCallback()])
        release = odp.release(
            study,
            artifact_store=artifacts,
            vouched="every run compares what Opacus recorded with what it was to spend",
        )

    print(release.params, round(release.value or 0.0, 3))
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model.load_state_dict(torch.load(io.BytesIO(release.artifact), weights_only=True))
    print(f"the winner's model: {sum(p.numel() for p in model.parameters())} parameters, ready")

    epsilon = release.guarantee.epsilon(delta=1e-5)
    print(f"epsilon of the worst run:    {odp.Guarantee(run).epsilon(delta=1e-5):.2f}")
    print(f"epsilon of the whole search: {epsilon:.2f}")
    assert epsilon == odp.selection_guarantee(run, trials).epsilon(delta=1e-5)


if __name__ == "__main__":
    main()
