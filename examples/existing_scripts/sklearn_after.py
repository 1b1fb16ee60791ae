"""After: candidates trained without privacy on partitions, a private choice, a private model."""

import numpy as np
import optuna
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

import optuna_dp as odp

x, y = load_breast_cancer(return_X_y=True)
# Ranges that anybody could know, from the description of the data, not from these records.
x = np.clip(np.log1p(x) / np.log1p([30, 40, 190, 2500, *[0.4] * 6, 3, 5, 22, 540, *[0.4] * 5, 0.03,
                                    36, 50, 250, 4250, *[1.3] * 6]), 0, 1)  # fmt: skip
RECORDS = 569  # a number that may be public; of a secret one a round guess
PARTS = 20
part_of = odp.partition(len(x), PARTS)


def objective(trial):
    c = trial.suggest_float("c", 1e-4, 1e2, log=True)
    scores = []
    for part in range(PARTS):
        # Train on one part, score on it: what counts is that no record moves two of the scores.
        mine = part_of == part
        if len(np.unique(y[mine])) < 2:
            scores.append(None)  # the worst score of a part on which nothing can be trained
            continue
        fit = np.flatnonzero(mine)[::2]
        test = np.flatnonzero(mine)[1::2]
        try:
            model = LogisticRegression(C=c, max_iter=500).fit(x[fit], y[fit])
            scores.append(float(model.score(x[test], y[test])))
        except ValueError:  # one class only
            scores.append(None)
    return odp.report_utilities(trial, scores)


def train_privately(c, noise_multiplier, sample_rate, steps, clipping=1.0):
    """DP-SGD for the logistic regression; the prior C becomes a weight decay."""
    rng = np.random.default_rng()
    weights, features = np.zeros(x.shape[1] + 1), np.hstack([x, np.ones((len(x), 1))])
    for _ in range(steps):
        batch = rng.random(len(x)) < sample_rate
        errors = 1 / (1 + np.exp(-features[batch] @ weights)) - y[batch]
        gradients = errors[:, None] * features[batch]
        norms = np.maximum(np.linalg.norm(gradients, axis=1), 1e-12)
        total = (gradients * np.minimum(1, clipping / norms)[:, None]).sum(axis=0)
        total += rng.normal(0, noise_multiplier * clipping, len(weights))
        weights -= 2.0 * (total / (sample_rate * RECORDS) + weights / (c * RECORDS))
    return weights


FINAL = {"noise_multiplier": 2.0, "sample_rate": 64 / RECORDS, "steps": 90}
training = odp.dp_sgd(**FINAL)
sampler = odp.NoisyMaxSampler(
    candidates=[{"c": float(c)} for c in np.geomspace(1e-4, 1e2, 15)],
    n_partitions=PARTS,
    epsilon=0.5,
    training=training,
    resolve=0.8,
)
study = optuna.create_study(direction="maximize", sampler=sampler)
study.optimize(objective)
choice = odp.release(study)
weights = train_privately(**choice.params, **FINAL)
release = choice.with_training(training, artifact=weights.tobytes())
print(release.params, release.guarantee.epsilon(delta=1e-5))
