"""A softmax regression trained with JAX Privacy within epsilon 3, once.

    pip install jax-privacy .
    python with_jax_privacy.py
    optuna-dp check with_jax_privacy.py:objective --plan PLAN

The second takes less than half a minute on one core, the third about as long.
"""

import secrets

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optuna
from dp_accounting import NeighboringRelation
from jax_privacy import batch_selection, clipping, noise_addition
from jax_privacy.experimental import accounting
from sklearn.datasets import load_digits

import optuna_dp as odp

pixels, labels = load_digits(return_X_y=True)
SCHEMA = odp.Schema.images(64, high=16, target=range(10))  # what is public about the records
DATA = SCHEMA.encode(pixels, labels).parts
RECORDS, RATE, STEPS = 1797, 1 / 5, 150  # the number of records is public here


def training_event(noise_multiplier, steps):
    """What a training costs, as JAX Privacy states it: it goes into the plan as it is."""
    return accounting.dpsgd_event(noise_multiplier, steps, sampling_prob=RATE)


PLAN = odp.plan_budget(epsilon=3.0, delta=1e-5, run=training_event, steps=STEPS, pilots=0)


def logits(weights, features):
    return features @ weights["w"] + weights["b"]


def loss(weights, features, label):
    return optax.softmax_cross_entropy_with_integer_labels(logits(weights, features), label).mean()


def train(run, rate, x, y):
    """DP-SGD from JAX Privacy's parts: clipping, noise, batches."""
    clipped_sum = clipping.clipped_grad(
        loss, l2_clip_norm=1.0, normalize_by=RECORDS * RATE, batch_argnums=(1, 2)
    )
    # A key of its own for each training, from the operating system. Left out, it is one of 2**31.
    key = jax.random.wrap_key_data(np.frombuffer(secrets.token_bytes(8), dtype=np.uint32))
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE  # the plan's; JAX Privacy's own is another
    privatizer = noise_addition.gaussian_privatizer(
        stddev=run.noise_multiplier * clipped_sum.sensitivity(relation), prng_key=key
    )
    batches = batch_selection.CyclicPoissonSampling(
        sampling_prob=RATE,
        iterations=run.steps,
        partition_type=batch_selection.PartitionType.INDEPENDENT,
    )

    @jax.jit
    def step(weights, noise_state, indices):
        gradient = clipped_sum(weights, x[indices], y[indices], is_padding_example=indices == -1)
        gradient, noise_state = privatizer.update(gradient, noise_state)
        return jax.tree.map(lambda w, g: w - rate * g, weights, gradient), noise_state

    weights = {"w": jnp.zeros((SCHEMA.width, SCHEMA.outputs)), "b": jnp.zeros(SCHEMA.outputs)}
    noise_state = privatizer.init(weights)
    for batch in batches.batch_iterator(len(x)):  # numpy's generator, fresh for each training
        indices = batch_selection.pad_to_multiple_of(batch, 256)  # compiled once
        weights, noise_state = step(weights, noise_state, indices)
    return weights


MODELS = {}


def objective(trial, data=DATA):
    run = odp.start_run(trial)
    x, y = (jnp.asarray(column) for column in data)
    rate = odp.learning_rate(  # the plan is made of events, and does not know the batch
        "sgd",
        noise_multiplier=run.noise_multiplier,
        steps=run.steps,
        batch_size=RECORDS * RATE,
    )
    weights = train(run, rate, x, y)
    run.spent(training_event(run.noise_multiplier, run.steps))
    MODELS["last"] = weights
    correct = np.asarray(logits(weights, x).argmax(axis=1) == y)
    return run.score(correct, size=RECORDS)


def main():
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(PLAN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(
        study, vouched="JAX Privacy trained, with the plan's numbers, as in train()"
    )
    print(release.value, release.guarantee.epsilon(delta=1e-5))
    np.savez("model.npz", **MODELS["last"])


if __name__ == "__main__":
    main()
