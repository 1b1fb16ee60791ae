"""A network trained by TensorFlow Privacy within epsilon 8, once, on shuffled batches.

    echo "dp-accounting>=0.6" > newer.txt        # TensorFlow Privacy 0.9 asks for 0.4.3
    uv pip install --override newer.txt "tensorflow-cpu==2.15.*" tensorflow-privacy==0.9.0 \
        scikit-learn .
    python with_tensorflow_privacy.py
    optuna-dp check with_tensorflow_privacy.py:objective --plan PLAN
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import optuna
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorflow_privacy import DPKerasSGDOptimizer

import optuna_dp as odp

pixels, labels = load_digits(return_X_y=True)
DATA = pixels.astype(np.float32) / 16, labels.astype(np.int32)
RECORDS, BATCH_SIZE, EPOCHS = 1797, 256, 5  # the number of records is public here
STEPS_PER_EPOCH = RECORDS // BATCH_SIZE  # the rest of each shuffle is dropped


def training_event(noise_multiplier, steps):
    """In each epoch a record is in one batch at most, so an epoch is one Gaussian mechanism.

    There is no gain from sampling: the batches are shuffled, and no Poisson samples.
    """
    return odp.gaussian(noise_multiplier / (steps / STEPS_PER_EPOCH) ** 0.5)


PLAN = odp.plan_budget(
    epsilon=8.0,
    delta=1e-5,
    run=training_event,
    steps=EPOCHS * STEPS_PER_EPOCH,
    pilots=0,
    neighboring_relation="replace_one",  # the size of a batch is public
)


def train(run, rate, x, y):
    model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
    model.compile(
        optimizer=DPKerasSGDOptimizer(
            l2_norm_clip=1.0, noise_multiplier=run.noise_multiplier, learning_rate=rate
        ),
        # One loss for each record: a mean would be clipped as a whole.
        loss=tf.keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction=tf.keras.losses.Reduction.NONE
        ),
    )
    batches = (
        tf.data.Dataset.from_tensor_slices((x, y))
        .shuffle(RECORDS)
        .batch(BATCH_SIZE, drop_remainder=True)
    )
    model.fit(batches, epochs=run.steps // STEPS_PER_EPOCH, verbose=0)
    return model


def objective(trial, data=DATA):
    run = odp.start_run(trial)
    x, y = data
    rate = odp.learning_rate(
        "sgd",
        noise_multiplier=run.noise_multiplier,
        steps=run.steps,
        batch_size=BATCH_SIZE,
    )
    model = train(run, rate, x, y)
    run.spent(training_event(run.noise_multiplier, run.steps))
    correct = model.predict(x, verbose=0).argmax(axis=1) == y
    return run.score(correct, size=RECORDS)


def main():
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(PLAN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study, vouched="TensorFlow Privacy trained, with the plan's numbers")
    print(release.value, release.guarantee.epsilon(delta=1e-5))
    print(release.statement())


if __name__ == "__main__":
    main()
