"""A script for ``torchrun``: ``ranks_script.py WHAT FOLDER [FILE OF WEIGHTS]``.

Rank 0 leaves the trained weights of each run, and what a test looks at, in the folder.
"""

from __future__ import annotations

import os
import random
import signal
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from torch import nn

import optuna_dp as odp

RECORDS, CLASSES, TOKENS, LENGTH, WIDTH = 200, 3, 11, 6, 8
RANK = int(os.environ.get("RANK", "0"))


def same_draws() -> None:
    """Makes batches and noise the same each time: a test compares two trainings by them."""
    rng = random.Random(7)
    ssl.RAND_bytes = rng.randbytes


class LowRank(nn.Module):
    """A linear layer that is not trained, with an update of rank two that is (LoRA)."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, 2, bias=False)
        self.up = nn.Linear(2, layer.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x) + self.up(self.down(x))
        return out


class LanguageModel(nn.Module):
    """Attention over a few tokens; from tokens to the logits of the next ones."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH).requires_grad_(False)
        self.mixed = LowRank(nn.Linear(WIDTH, 3 * WIDTH))
        self.head = nn.Linear(WIDTH, TOKENS).requires_grad_(False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        queries, keys, values = self.mixed(x).chunk(3, -1)
        x = x + nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        logits: torch.Tensor = self.head(x)
        return logits


def next_token(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(tokens[None, :-1])[0], tokens[1:])


def tabular() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(RECORDS, 10)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0)


def mlp(run: odp.Run) -> odp.Trained:
    def make_model() -> nn.Module:
        return nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, CLASSES))

    return odp.train(
        run, make_model, tabular(), loss=nn.functional.cross_entropy, score="accuracy"
    )


def softmax(run: odp.Run) -> odp.Trained:
    return odp.train(run, odp.SoftmaxRegression(10, CLASSES), tabular(), score="accuracy")


def cnn(run: odp.Run) -> odp.Trained:
    def make_model() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(8 * 9, CLASSES),
        )  # fmt: skip

    _, y = tabular()
    images = np.random.default_rng(1).random((RECORDS, 1, 8, 8), dtype=np.float32)
    images += y[:, None, None, None]
    return odp.train(
        run,
        make_model,
        (images, y),
        loss=nn.functional.cross_entropy,
        score="accuracy",
        inputs=odp.made_up_images(1, 8, 8, high=4),
    )


def lora(run: odp.Run) -> odp.Trained:
    tokens = np.random.default_rng(2).integers(TOKENS, size=(RECORDS, LENGTH))
    return odp.train(
        run,
        LanguageModel,
        tokens,
        record_loss=next_token,
        inputs=odp.made_up_tokens(TOKENS, LENGTH - 1),
        record_score=lambda model, tokens: torch.exp(-next_token(model, tokens)),
        optimizer="sgd",
    )


TRAININGS: dict[str, Callable[[odp.Run], odp.Trained]] = {
    "mlp": mlp, "softmax": softmax, "cnn": cnn, "lora": lora
}  # fmt: skip


def trained_alike(folder: Path) -> None:
    """Trains every model with the same draws; each rank starts from weights of its own."""
    same_draws()
    plan = odp.plan_budget(epsilon=8.0, records=RECORDS, batch_size=50, epochs=1, pilots=0)
    for name in TRAININGS:
        torch.manual_seed(0 if RANK == 0 else 100 + RANK)
        study = odp.distributed.optimize_ranks(
            lambda: optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan)),
            objective_of(name, folder),
        )
        if study is not None:
            (folder / f"{name}.md").write_text(odp.release(study).statement())


def objective_of(name: str, folder: Path) -> Callable[[optuna.Trial], float]:
    def objective(trial: optuna.Trial) -> float:
        drawn = trial.suggest_float("drawn", 0, 1)
        trained = TRAININGS[name](odp.start_run(trial))
        model = trained.model
        parts = [model.weights] if name == "softmax" else model.parameters()
        weights = torch.cat([torch.as_tensor(part).detach().flatten() for part in parts])
        np.savez(folder / f"{name}-{RANK}.npz", weights=weights.numpy(), hyperparameter=drawn)
        assert trained.score is not None
        return trained.score

    return objective


class Net(nn.Module):
    """A linear layer that runs out of memory in rank 1, once it is trained."""

    trains = False

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.layer, self.fails = nn.Linear(10, CLASSES), fails

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fails and Net.trains:
            raise MemoryError
        out: torch.Tensor = self.layer(x)
        return out


def mapped(folder: Path) -> None:
    """Trains with frozen weights that are mapped from a file; says how much of it is copied."""
    plan = odp.plan_budget(epsilon=8.0, records=RECORDS, batch_size=50, epochs=1, pilots=0)
    file = Path(sys.argv[3])

    def make_model() -> nn.Module:
        model = LanguageModel()
        frozen = torch.load(file, mmap=True)
        model.load_state_dict(frozen, strict=False, assign=True)
        return model.requires_grad_(False)

    def objective(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        model = make_model()
        for layer in (model.mixed.down, model.mixed.up):
            layer.requires_grad_(True)
        tokens = np.random.default_rng(2).integers(TOKENS, size=(RECORDS, LENGTH))
        odp.train(
            run,
            model,
            tokens,
            record_loss=next_token,
            score=None,
            optimizer="sgd",
            learning_rate=1.0,
        )
        (folder / f"copied-{RANK}.txt").write_text(str(copied_kilobytes(file)))
        return 0.0

    odp.distributed.optimize_ranks(
        lambda: optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan)),
        objective,
    )


def copied_kilobytes(file: Path) -> int:
    """Returns how much of a mapped file this process has copied for itself."""
    numbers, is_of_file = [], False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *values = line.split()
        if "-" in name and not name.endswith(":"):
            is_of_file = line.endswith(str(file))
        elif is_of_file and name == "Private_Dirty:":
            numbers.append(int(values[0]))
    assert numbers, "not mapped"
    return sum(numbers)


def studied(folder: Path, what: str) -> None:
    """Makes a study of four runs, in the second of which a rank does something wrong."""
    plan = odp.plan_budget(epsilon=8.0, records=RECORDS, batch_size=50, epochs=1, pilots=3)
    x, y = tabular()
    if what == "shuffled" and RANK == 1:
        x, y = x[::-1].copy(), y[::-1].copy()

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_float("x", 0, 1)
        run = odp.start_run(trial)
        fails = trial.number == 1 and RANK == 1
        Net.trains = False
        if what == "odd" and trial.number == 1 and RANK == 0:
            raise ValueError("in rank 0 only")

        class Steps(torch.optim.SGD):
            def step(self, closure: Any = None) -> Any:
                if fails and what == "killed" and Net.trains:
                    os.kill(os.getpid(), signal.SIGKILL)
                if fails and what == "leaving" and Net.trains:
                    raise RuntimeError("in rank 1 only")
                Net.trains = True
                return super().step(closure)

        trained = odp.train(
            run,
            lambda: Net(fails=fails and what == "failing"),
            (x, y),
            loss=nn.functional.cross_entropy,
            score="accuracy",
            optimizer=lambda weights, rate: Steps(weights, lr=rate),
            learning_rate=1.0,
        )
        assert trained.score is not None
        return trained.score

    odp.distributed.optimize_ranks(
        lambda: optuna.create_study(
            study_name="runs",
            direction="maximize",
            sampler=odp.BudgetSampler(plan),
            storage=JournalStorage(JournalFileBackend(str(folder / "journal.log"))),
            load_if_exists=True,
        ),
        objective,
        catch=(ValueError, odp.errors.WorkersError),
    )


if __name__ == "__main__":
    if sys.argv[1] == "alike":
        trained_alike(Path(sys.argv[2]))
    elif sys.argv[1] == "mapped":
        mapped(Path(sys.argv[2]))
    else:
        studied(Path(sys.argv[2]), sys.argv[1])
