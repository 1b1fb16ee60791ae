"""A whole pipeline with one statement: 100 candidates, a private choice, a private final training.

Run it with ``python examples/propose_test_digits.py`` (about ten seconds). The candidates are
trained WITHOUT privacy on k disjoint partitions of the digits; only the choice among them and the
final DP-SGD training on all records are charged. The choice is report-noisy-max's; what the
propose-test loop would resolve at the same epsilon is printed beside it.
"""

import math

import numpy as np
import optuna
from scipy.optimize import brentq

import optuna_dp as odp
from optuna_dp import digits
from optuna_dp.mechanisms import DoublingPlan, plan_utilities

K = 100
EPSILON = 1.0
STEPS = 25
EPOCHS = 20
DELTA = 1e-5

optuna.logging.set_verbosity(optuna.logging.WARNING)

data = digits.load()
RECORDS = 1355  # a number that may be public; of a secret one a round guess
# Each record is placed independently of all others, whatever their number.
part_of = odp.partition(len(data.train_x), K)
parts = [(data.train_x[part_of == i], data.train_y[part_of == i]) for i in range(K)]


def train_without_privacy(x, y, learning_rate, clipping_norm):
    """The update rule of the final training (clipped gradients), without its noise."""
    weights = np.zeros((x.shape[1], 10))
    for _ in range(STEPS):
        logits = x @ weights
        errors = np.exp(logits - logits.max(axis=1, keepdims=True))
        errors /= errors.sum(axis=1, keepdims=True)
        errors[np.arange(len(y)), y] -= 1.0
        norms = np.linalg.norm(x, axis=1) * np.linalg.norm(errors, axis=1)
        errors *= np.minimum(1.0, clipping_norm / np.maximum(norms, 1e-12))[:, None]
        weights -= learning_rate * (x.T @ errors) / len(y)
    return weights


def objective(trial):
    learning_rate = trial.suggest_float("learning_rate", 0.01, 10.0, log=True)
    clipping_norm = trial.suggest_float("clipping_norm", 0.05, 5.0, log=True)
    utilities = []
    for x, y in parts:
        if len(y) == 0:
            utilities.append(None)  # an empty partition has the worst score
            continue
        weights = train_without_privacy(x, y, learning_rate, clipping_norm)
        utilities.append(digits.accuracy(weights, data.valid_x, data.valid_y))
    return odp.report_utilities(trial, utilities)


candidates = [
    {"learning_rate": float(rate), "clipping_norm": float(norm)}
    for rate in np.geomspace(0.01, 10.0, 10)
    for norm in np.geomspace(0.05, 5.0, 10)
]
sampler = odp.NoisyMaxSampler(candidates=candidates, n_partitions=K, epsilon=EPSILON, resolve=0.2)
study = optuna.create_study(direction="maximize", sampler=sampler)
study.optimize(objective)  # stops by itself after the choice
choice = odp.release(study)
print("chosen:", choice.params)
print(f"epsilon of the choice:   {choice.guarantee.epsilon(delta=DELTA):.4f}")


def excess(epsilon):
    """What a loop of at most 19 iterations costs beyond the choice above."""
    event = DoublingPlan(epsilon, granularity=0.1).event()
    return odp.Guarantee(event).epsilon(delta=DELTA) - EPSILON


loop = DoublingPlan(brentq(excess, EPSILON / 19, EPSILON), granularity=0.1)
planned = plan_utilities(loop, n_candidates=len(candidates), n_partitions=K, delta=DELTA)
print(f"loss in accuracy that the noise may cost here: {planned.noisy_max_error:.2f}")
print(f"the same for the propose-test loop:            {planned.error:.2f}")

# The final training, private, on all training records; and its score, private too. Noise covers
# training and validation records, each of which is in one of the two.
steps, rate = math.ceil(EPOCHS * RECORDS / digits.BATCH), digits.BATCH / RECORDS
training = odp.dp_sgd(noise_multiplier=digits.NOISE_MULTIPLIER, sample_rate=rate, steps=steps)
cost = odp.compose(training, odp.gaussian(digits.SCORE_NOISE))
weights = digits.train(data.train_x, data.train_y, steps=steps, sample_rate=rate, **choice.params)
score = digits.private_accuracy(weights, data.valid_x, data.valid_y)
release = choice.with_training(cost, value=score, artifact=weights.tobytes())

epsilon = release.guarantee.epsilon(delta=DELTA)
print(f"noisy accuracy:          {release.value:.3f}")
print(f"epsilon of the pipeline: {epsilon:.4f}")
print(release.statement())

# The printed number is the accountant's, whatever the study did.
assert epsilon == odp.Guarantee(odp.compose(odp.pure_dp(EPSILON), cost)).epsilon(delta=DELTA)
