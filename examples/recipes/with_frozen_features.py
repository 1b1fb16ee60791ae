"""The last layer of a vision model, trained within epsilon 3 on features that stay as they are.

    pip install torch==2.13.0 && pip install transformers ".[torch]"
    python with_frozen_features.py
    optuna-dp check with_frozen_features.py:objective --plan PLAN --data DATA

The features are computed once, record by record, by a model that has seen no private record. Here
it is a ViT with random weights, made on the spot, so nothing is downloaded. With a model of your
own, ``ViTModel.from_pretrained(name)`` takes its place.
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
pixels, labels = load_digits(return_X_y=True)
IMAGES = torch.tensor(pixels / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
with torch.no_grad():
    FEATURES = BODY(pixel_values=IMAGES).last_hidden_state.mean(1)
# To length one, record by record: no statistics of the records are used.
FEATURES = nn.functional.normalize(FEATURES) * FEATURES.shape[1] ** 0.5
DATA = FEATURES, torch.tensor(labels)
PLAN = odp.plan_budget(epsilon=3.0, delta=1e-5, records=len(labels), epochs=20, pilots=0)


def objective(trial, data=DATA):
    run = odp.fidelity(trial)
    head = nn.Linear(FEATURES.shape[1], 10)
    trained = odp.train(
        run,
        head,
        data,
        loss=nn.functional.cross_entropy,
        score="accuracy",
        inputs=odp.made_up_inputs(*[(-1.73, 1.73)] * FEATURES.shape[1]),  # mean square one
    )
    torch.save(trained.model.state_dict(), "head.pt")
    return trained.score


def main():
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(PLAN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    print(release.value, release.guarantee.epsilon(delta=1e-5), release.spending["training"])


if __name__ == "__main__":
    main()
