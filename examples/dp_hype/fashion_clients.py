"""Measures what clients with images of Fashion-MNIST vote on, for Figures 5, 6, 10 and 11.

DP-HYPE (arXiv 2510.04902, section VI) on Fashion-MNIST with a small convolutional network: each
client trains the paper's 100 candidates on two thirds of its records, and counts right predictions
on the others; then all candidates are trained by FedAvg and counted on the 10,000 test records.
``fashion_votes.py`` lets clients vote on these counts::

    python examples/dp_hype/fashion_clients.py          # what the file lacks; 7 minutes
    python examples/dp_hype/fashion_clients.py --quick  # eight clients, two epochs, a new file

It needs Debian's ``dataset-fashion-mnist`` and PyTorch. Nothing here is private; the votes are.

*Clients.* All 60,000 training records are divided among 250 clients (240 each on average), and
again among 1,000 (60 each). Votes of 50 and 100 clients take a random part of the 250: a part of
an even division is one, and so is a part of a Dirichlet division.

*Candidates.* Rates of 1e-6 and below hardly move a weight, so the 50 candidates with these are
not trained. Their counts are those of the first weights.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[1] / "compare"))

from idx_files import load, scaled

FILE = Path(__file__).with_name("fashion.npz")
RATES = (0.5, 0.1, 0.05, 5e-4, 1e-4, 1e-6, 5e-7, 1e-7, 5e-8, 1e-8)  # As in the paper.
DECAYS = (0.0, 0.1, 0.25, 0.99, 1.0)  # Factor per epoch of one local training.
MOMENTA = (0.0, 0.9)
CANDIDATES = tuple(itertools.product(RATES, DECAYS, MOMENTA))
TRAINED = tuple(c for c in CANDIDATES if c[0] > 1e-6)
SPLITS = {"iid": None, "Dirichlet(0.5)": 0.5}  # Concentration of the shares of each label.
POOLS = (250, 1000)
SIZES = {50: 250, 100: 250, 250: 250, 1000: 1000}  # Clients of a vote: of which pool.
LOCAL_EPOCHS, BATCH = 5, 16
ROUNDS, CLIENTS_PER_ROUND, EPOCHS_PER_ROUND = 6, 10, 2
CHUNK = 500  # test records at a time
CHANNELS = (8, 16)

Counts = npt.NDArray[np.uint16]
Records = npt.NDArray[np.int64]


class Networks:
    """One small convolutional network for each candidate, all trained at once.

    16 pixels of a 4 x 4 patch to 8 channels, without overlap; 3 x 3 of these at stride 2 to 16
    channels; a linear layer on 3 x 3 x 16. 2,754 weights. Parameters have a first axis for the
    candidates.

    Args:
        seed: Of the first weights, which all candidates and clients share, as in FedAvg.
        candidates: Rate, decay and momentum of each network.
    """

    def __init__(
        self, seed: int, candidates: tuple[tuple[float, float, float], ...] = TRAINED
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        first, second = CHANNELS
        self.rate, self.decay, self.momentum = (
            torch.tensor(column)[:, None, None] for column in zip(*candidates, strict=True)
        )
        self.parameters: list[Tensor] = []
        for fan_in, fan_out in ((16, first), (9 * first, second), (9 * second, 10)):
            scale = (2.0 / fan_in) ** 0.5
            weights = scale * torch.randn(1, fan_in, fan_out, generator=generator)
            self.parameters += [
                weights.repeat(len(candidates), 1, 1),
                torch.zeros(len(candidates), 1, fan_out),
            ]

    @staticmethod
    def logits(parameters: list[Tensor], patches: Tensor) -> Tensor:
        """Of all networks, shape (networks, records, 10); patches (records, 49, 16)."""
        records = len(patches)
        first, first_bias, second, second_bias, last, last_bias = parameters
        networks = len(first)
        hidden = torch.relu(patches.reshape(1, -1, 16) @ first + first_bias)
        image = hidden.reshape(networks * records, 7, 7, -1)
        windows = torch.stack(
            [image[:, i : i + 5 : 2, j : j + 5 : 2] for i in range(3) for j in range(3)], dim=3
        )
        rows = windows.reshape(networks, records * 9, -1)
        hidden = torch.relu(torch.baddbmm(second_bias, rows, second))
        return torch.baddbmm(last_bias, hidden.reshape(networks, records, -1), last)

    def descend(
        self,
        patches: Tensor,
        labels: Tensor,
        epochs: int,
        rng: np.random.Generator,
        parameters: list[Tensor] | None = None,
    ) -> list[Tensor]:
        """Parameters after training on some records by SGD, from those given or the first ones."""
        trained = [p.clone() for p in parameters or self.parameters]
        velocities = [torch.zeros_like(p) for p in trained]
        for epoch in range(epochs):
            step = self.rate * self.decay**epoch  # 0 ** 0 is 1: decay 0 trains for one epoch
            moving = step.flatten() > 0
            some = [p[moving].requires_grad_() for p in trained]
            speed, momentum = [v[moving] for v in velocities], self.momentum[moving]
            parts = max(len(labels) // BATCH, 1)
            for batch in np.array_split(rng.permutation(len(labels)), parts):
                logits = self.logits(some, patches[batch]).flatten(0, 1)
                target = labels[batch].repeat(len(some[0]))
                loss = nn.functional.cross_entropy(logits, target, reduction="sum") / len(batch)
                with torch.no_grad():
                    for p, v, gradient in zip(
                        some, speed, torch.autograd.grad(loss, some), strict=True
                    ):
                        v.mul_(momentum).sub_(gradient)
                        p.addcmul_(step[moving], v)
            for p, v, new, fast in zip(trained, velocities, some, speed, strict=True):
                p[moving], v[moving] = new.detach(), fast
        return trained

    def right(self, parameters: list[Tensor], patches: Tensor, labels: Tensor) -> Counts:
        """Right predictions of each network; those of a network that diverged are wrong."""
        count = torch.zeros(len(parameters[0]), dtype=torch.int64)
        with torch.no_grad():
            for part, target in zip(patches.split(CHUNK), labels.split(CHUNK), strict=True):
                logits = self.logits(parameters, part)
                finite = logits.isfinite().all(dim=2)
                count += ((logits.argmax(dim=2) == target) & finite).sum(dim=1)
        return count.numpy().astype(np.uint16)


class Images:
    """Fashion-MNIST, each image as 49 patches of 4 x 4 pixels."""

    def __init__(self) -> None:
        images = load()
        self.patches, self.labels = self._arranged(images.train_images, images.train_labels)
        self.test = self._arranged(images.test_images, images.test_labels)

    @staticmethod
    def _arranged(pixels: Any, labels: Any) -> tuple[Tensor, Tensor]:
        rows = scaled(pixels).reshape(-1, 7, 4, 7, 4).transpose(0, 1, 3, 2, 4)
        return torch.tensor(rows.reshape(-1, 49, 16)), torch.tensor(labels.astype(np.int64))

    def split(
        self, clients: int, concentration: float | None, rng: np.random.Generator
    ) -> list[Records]:
        """Records of each client: equal parts, or Dirichlet shares of each label."""
        order = rng.permutation(len(self.labels))
        if concentration is None:
            return np.array_split(order, clients)
        owners, labels = np.empty(len(order), dtype=np.int64), self.labels.numpy()[order]
        for label in range(10):
            shares = rng.dirichlet(np.full(clients, concentration))
            owners[labels == label] = rng.choice(clients, int((labels == label).sum()), p=shares)
        return [order[owners == client] for client in range(clients)]


class Measurement:
    """All counts of one division of the records.

    Args:
        images: The records.
        split: A name of ``SPLITS``.
        pool: The number of clients.
    """

    def __init__(self, images: Images, split: str, pool: int) -> None:
        self.images, self.split, self.pool = images, split, pool
        self.parts = images.split(pool, SPLITS[split], self.generator("split"))
        self.networks = Networks(seed=1)

    def generator(self, *names: str | int) -> np.random.Generator:
        text = "|".join(str(name) for name in (self.split, self.pool, *names))
        return np.random.default_rng(list(text.encode()))

    def local(self, client: int, epochs: int = LOCAL_EPOCHS) -> Counts:
        """Right predictions of the client's trained candidates, then those of the first weights
        and the number of records that were held out."""
        part, rng = self.parts[client], self.generator("local", client)
        held_out = len(part) // 3
        if held_out == 0:
            return np.zeros(len(TRAINED) + 2, dtype=np.uint16)  # nothing to say: all tie
        records = self.images.patches, self.images.labels
        tested, trained = ([r[i] for r in records] for i in np.split(part, [held_out]))
        networks = self.networks
        found = networks.right(networks.descend(*trained, epochs, rng), *tested)
        first = networks.right([p[:1] for p in networks.parameters], *tested)
        return np.concatenate([found, first, np.array([held_out], dtype=np.uint16)])

    def global_counts(self, clients: int, rounds: int = ROUNDS) -> Counts:
        """Right predictions on the test records after FedAvg among some clients of the pool, the
        trained candidates and then the first weights."""
        rng = self.generator("global", clients)
        mine = rng.permutation(self.pool)[:clients]
        networks, parameters = self.networks, self.networks.parameters
        for _ in range(rounds):
            chosen = rng.choice(mine, min(CLIENTS_PER_ROUND, clients), replace=False)
            total = sum(len(self.parts[client]) for client in chosen)
            average = [torch.zeros_like(p) for p in parameters]
            for client in chosen:
                part = self.parts[client]
                if not len(part):
                    continue
                records = self.images.patches[part], self.images.labels[part]
                local = networks.descend(*records, EPOCHS_PER_ROUND, rng, parameters)
                for a, p in zip(average, local, strict=True):
                    a.add_(p, alpha=len(part) / total)
            parameters = average
        first = networks.right([p[:1] for p in networks.parameters], *self.images.test)
        return np.concatenate([networks.right(parameters, *self.images.test), first])


def read(path: Path = FILE) -> dict[str, Counts]:
    """Counts by name: ``local SPLIT of POOL``, ``global SPLIT, N clients``."""
    if not path.exists():
        return {}
    with np.load(path) as file:
        return dict(file)


def measure(path: Path, quick: bool) -> None:
    images, stored = Images(), read(path)
    pools, sizes = ((250,), {50: 250}) if quick else (POOLS, SIZES)

    def add(name: str, compute: Any) -> None:
        if name in stored:
            return
        start = time.process_time()
        stored[name] = compute()
        np.savez_compressed(path, **stored)  # type: ignore[arg-type]
        print(f"{name}: {time.process_time() - start:.0f} s", flush=True)

    for split, pool in itertools.product(SPLITS, pools):
        measurement = Measurement(images, split, pool)
        count, epochs, rounds = (8, 2, 1) if quick else (pool, LOCAL_EPOCHS, ROUNDS)
        add(
            f"local {split} of {pool}",
            lambda m=measurement, c=count, e=epochs: np.stack([m.local(i, e) for i in range(c)]),
        )
        for clients in (n for n, of in sizes.items() if of == pool):
            add(
                f"global {split}, {clients} clients",
                lambda m=measurement, n=clients, k=rounds: m.global_counts(n, k),
            )
    print(f"{path}: {len(stored)} entries")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="eight clients, in a new file")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    measure(Path(tempfile.mkdtemp()) / "fashion.npz" if quick else FILE, quick)


if __name__ == "__main__":
    main()
