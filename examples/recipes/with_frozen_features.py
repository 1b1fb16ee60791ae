"""The last layer of a vision model, trained within epsilon 3 on features that stay as they are.

    pip install torch==2.13.0 && pip install transformers ".[torch]"
    python with_frozen_features.py
    optuna-dp check with_frozen_features.py:objective --plan PLAN

The features are computed record by record, by a model that has seen no private record. Here it is
a ViT with random weights, made on the spot, so nothing is downloaded. With a model of your own,
``ViTModel.from_pretrained(name)`` takes its place. A study of several runs computes them once:
let it encode the records before the objective.
"""

import optuna
import torch
from sklearn.datasets import load_digits
from torch import nn
from transformers import ViTConfig, ViTModel

import optuna_dp as odp

torch.set_num_threads(1)
CONFIG = ViTConfig(
    image_size=8, patch_size=2, num_channels=1, hidden_size=64, num_hidden_layers=2,
    num_attention_heads=4, intermediate_size=128, initializer_range=0.2,
)  # fmt: skip
BODY = ViTModel(CONFIG).eval()
SCHEMA = odp.Schema.images(1, 8, 8, high=16, target=range(10))  # what is public of the images
DATA = load_digits(return_X_y=True)
PLAN = odp.plan_budget(epsilon=3.0, delta=1e-5, records=1797, epochs=20, pilots=0)


def features_of(images):
    """Each image's own features, at a public length: no statistics of the records are used."""
    (pixels,) = SCHEMA.encode(images).tensors()
    with torch.no_grad():
        features = BODY(pixel_values=pixels).last_hidden_state.mean(1)
    return nn.functional.normalize(features) * features.shape[1] ** 0.5


def objective(trial, data=DATA):
    run = odp.start_run(trial)
    records = SCHEMA.encode(*data, prepare=features_of)  # tried on made-up images first
    trained = odp.train(run, nn.Linear(records.width, SCHEMA.outputs), records)
    if not run.is_pilot:  # of the last run
        torch.save(trained.model.state_dict(), "head.pt")
    return trained.score


def main():
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(PLAN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    print(release.value, release.guarantee.epsilon(delta=1e-5), release.spending["training"])


if __name__ == "__main__":
    main()
