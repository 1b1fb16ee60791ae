"""A small BERT trained by Hugging Face's Trainer and Opacus within epsilon 3, once.

    pip install torch==2.13.0 && pip install transformers accelerate ".[opacus]"
    python with_hugging_face.py
    optuna-dp check with_hugging_face.py:objective --plan PLAN

The second takes less than half a minute on one core, the third about two: it trains seven times.
"""

import secrets
import warnings

import numpy as np
import optuna
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
)

import optuna_dp as odp

warnings.filterwarnings("ignore", module="(opacus|torch|accelerate)")
torch.set_num_threads(1)
# A digit as a sentence: each row and each column, black and white, is a word among 256.
pixels, labels = load_digits(return_X_y=True)
dark = (pixels.reshape(-1, 8, 8) > 7).astype(int)
words = np.hstack([dark @ 2 ** np.arange(8), dark.transpose(0, 2, 1) @ 2 ** np.arange(8)])
RECORDS = 1797  # a number that may be public; of a secret one a round guess
DATA = torch.tensor(words), torch.tensor(labels)
POSITIONS = torch.arange(words.shape[1])
PLAN = odp.plan_budget(epsilon=3.0, delta=1e-5, records=RECORDS, epochs=30, pilots=0)


class PrivateTrainer(Trainer):
    """A Trainer that takes Opacus' batches as they are, and prints nothing of the training."""

    def get_train_dataloader(self):
        return self.train_dataset  # Poisson samples; a loader of the Trainer's own shuffles

    def log(self, *arguments, **settings):
        """Drops what the Trainer would print and keep: its losses have no noise."""


def train(run, words, labels):
    config = BertConfig(
        vocab_size=256, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=16, num_labels=10, initializer_range=0.2,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    rate = odp.rehearse_module(  # on made-up sentences, so it costs nothing
        run,
        model,
        odp.made_up_tokens(256, 16),
        optimizer="adam",
        schedule=odp.Schedule("constant"),
    ).learning_rate
    dataset = [
        {"input_ids": ids, "position_ids": POSITIONS, "labels": label}  # one row for each record
        for ids, label in zip(words, labels, strict=True)
    ]
    private, optimizer, batches = odp.opacus.make_private(
        run,
        module=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=rate),
        data_loader=DataLoader(dataset),
    )
    arguments = TrainingArguments(
        max_steps=run.steps,
        lr_scheduler_type="constant",
        max_grad_norm=0,  # Opacus clips
        seed=secrets.randbits(32),  # the default is 42, for the noise too
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = PrivateTrainer(
        private, arguments, train_dataset=batches, optimizers=(optimizer, None),
    )  # fmt: skip
    torch.seed()  # the Trainer has set a seed of 32 bits; noise and batches want more
    trainer.train()
    return model.eval()


MODELS = {}


def objective(trial, data=DATA):
    run = odp.start_run(trial)
    words, labels = data
    model = train(run, words, labels)
    MODELS["last"] = model
    with torch.no_grad():
        found = model(words, position_ids=POSITIONS.repeat(len(words), 1)).logits.argmax(1)
    return run.score(np.asarray(found == labels))


def main():
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(PLAN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    print(release.value, release.guarantee.epsilon(delta=1e-5))
    torch.save(MODELS["last"].state_dict(), "model.pt")


if __name__ == "__main__":
    main()
