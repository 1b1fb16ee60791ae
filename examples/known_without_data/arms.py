"""Other ways to come to a rate, or to need none, each within the epsilon of the plan's one run.

``held_back.py`` runs them. All see the plan's batches and Adam.

* **Fewer steps**: the same records seen, in larger batches; the rate rehearsed for them.
* **Extrapolation** (Panda et al., arXiv:2212.04486). Three trials at a hundredth of epsilon, three
  at a tenth, each with a random rate; a line through the best two rates, read at what is left of
  epsilon. The shares and the ranges are those of the authors' script, with 0.1 as Adam's largest
  rate. The trials are paid for. Their accuracies are taken from the test records and not paid for,
  which favours the arm.
* **HyFreeDP** (arXiv:2503.00703). Every fifth step the loss is measured with noise at the weights
  and one step before and behind; a parabola through the three gives the next rate. Gradients are
  normalised and get 1 % more noise, and the losses get what that leaves. What its abstract and
  excerpts leave open is as in an independent implementation of it: a rate changes by a factor of
  two at most, a loss is clipped at the sum of the last three.
* **DP-KFC** (arXiv:2605.13418). Each record's gradient is multiplied by the inverse roots of the
  Kronecker factors of the Fisher matrix before it is clipped. The factors come from made-up inputs
  and random labels at the weights of the time, once per epoch.
"""

from __future__ import annotations

import math
import warnings
from functools import cache
from types import SimpleNamespace
from typing import Any

import dp_accounting
import families as first
import numpy as np
import torch
from dp_accounting.pld import PLDAccountant
from families import EPOCHS, NORM, RECORDS, TAIL, Family, Row
from torch import nn
from torch.func import functional_call, grad, vmap

import optuna_dp as odp

DELTA = 1e-5
STEPS = (40, 75, 150)
# HyFreeDP: steps between two measurements of the loss, and the gradients' noise over the plan's.
EVERY, MORE = 5, 1.01
# Panda et al.: shares of epsilon, trials at each, and the largest rate of Adam.
SHARES, TRIALS, LARGEST = (0.01, 0.1), 3, 0.1
# DP-KFC: damping, and steps between two estimates of the factors.
DAMPING, PER_EPOCH = 1e-3, 15


# -- accounting -----------------------------------------------------------------------------------


def epsilon_of(sample_rate: float, parts: list[tuple[float, int]]) -> float:
    """Of noise multipliers, each with its number of steps, composed."""
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    for noise, steps in parts:
        step = dp_accounting.PoissonSampledDpEvent(
            sample_rate, dp_accounting.GaussianDpEvent(noise)
        )
        accountant.compose(step, steps)
    return float(accountant.get_epsilon(DELTA))


def smallest(allowed: Any, low: float, high: float) -> float:
    """The smallest number that is allowed, to one in a thousand, from above."""
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if allowed(middle) else (middle, high)
    return high


@cache
def plan(epsilon: float, steps: int) -> odp.Run:
    """The plan's run with so many steps over the same number of records."""
    if steps == first.plan(epsilon).steps:
        return first.plan(epsilon)
    batch = EPOCHS * RECORDS / steps
    return odp.plan_budget(
        epsilon=epsilon, records=RECORDS, batch_size=batch, epochs=EPOCHS, pilots=0
    ).final


@cache
def spent(epsilon: float) -> float:
    """What the training of the plan costs; its score costs the rest."""
    run = first.plan(epsilon)
    return epsilon_of(run.sample_rate, [(run.noise_multiplier, run.steps)])


@cache
def noises_of_trials(epsilon: float) -> tuple[float, float, float]:
    """Noise multipliers of the trials of both kinds and of the last run."""
    run, total = first.plan(epsilon), spent(epsilon)
    small, large = (
        smallest(
            lambda noise, share=share: (
                epsilon_of(run.sample_rate, [(noise, run.steps)]) <= share * total
            ),
            run.noise_multiplier,
            1000.0 * run.noise_multiplier,
        )
        for share in SHARES
    )
    trials = [(small, TRIALS * run.steps), (large, TRIALS * run.steps)]
    last = smallest(
        lambda noise: epsilon_of(run.sample_rate, [*trials, (noise, run.steps)]) <= total,
        run.noise_multiplier,
        10.0 * run.noise_multiplier,
    )
    return small, large, last


@cache
def noise_of_losses(epsilon: float) -> float:
    """The noise multiplier of HyFreeDP's losses. All four outputs of a step are of one batch."""
    run, total = first.plan(epsilon), spent(epsilon)
    gradients, measured = MORE * run.noise_multiplier, run.steps // EVERY

    def allowed(noise: float) -> bool:
        together = 1.0 / math.sqrt(gradients**-2 + 3.0 * noise**-2)
        parts = [(gradients, run.steps - measured), (together, measured)]
        return epsilon_of(run.sample_rate, parts) <= total

    return smallest(allowed, run.noise_multiplier, 1000.0 * run.noise_multiplier)


# -- arms -----------------------------------------------------------------------------------------


def rehearsed_rate(family: Family, run: odp.Run, seed: int, size: float | None = None) -> float:
    """What ``odp.train`` takes; at another size than its own if one is given."""
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = odp.rehearse_module(
            run, family.model(), family.inputs(), optimizer="adam", size=size
        )
    return found.learning_rate


def fewer_steps(
    family: Family, epsilon: float, seed: int, steps: int, size: float | None = None
) -> float:
    run = plan(epsilon, steps)
    row = Row("constant", rehearsed_rate(family, run, seed, size), 0.0)
    return first.accuracies(family, run, "adam", [row], seed)[1][0]


def extrapolated(family: Family, epsilon: float, seed: int) -> float:
    run = first.plan(epsilon)
    small, large, last = noises_of_trials(epsilon)
    rng = np.random.default_rng(100 + seed)

    def trained(noise: float, rates: list[float], own: int) -> list[float]:
        noisier = SimpleNamespace(
            steps=run.steps,
            batch_size=run.batch_size,
            sample_rate=run.sample_rate,
            noise_multiplier=noise,
        )
        rows = [Row("constant", rate, 0.0) for rate in rates]
        return first.accuracies(family, noisier, "adam", rows, own)[0]  # type: ignore[arg-type]

    best, low = [], LARGEST / run.steps
    for noise, high, own in ((small, LARGEST / 10.0, 1000), (large, LARGEST / 5.0, 2000)):
        rates = [float(rate) for rate in rng.uniform(low, high, TRIALS)]
        found = trained(noise, rates, own + seed)
        best.append(rates[int(np.argmax(found))])
        low = best[-1]
    total = spent(epsilon)
    left = epsilon_of(run.sample_rate, [(last, run.steps)]) / total
    slope = (best[1] - best[0]) / (SHARES[1] - SHARES[0])
    rate = min(best[1] + slope * (left - SHARES[1]), LARGEST)
    return trained(last, [rate], seed)[0]


class Training:
    """DP-SGD with Adam and one row, for arms that change what happens within a step."""

    def __init__(self, family: Family, epsilon: float, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = family.model().eval()
        self.inputs = torch.as_tensor(family.inputs())
        if self.inputs.is_floating_point():
            self.inputs = self.inputs.float()
        self.x, self.y, self.test_x, self.test_y = family.records()
        self.run = first.plan(epsilon)
        named = list(self.model.named_parameters())
        self.frozen = {name: part.detach() for name, part in named if not part.requires_grad}
        self.weights = {name: part.detach().clone() for name, part in named if part.requires_grad}
        self.rng = np.random.default_rng(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.first = {name: torch.zeros_like(part) for name, part in self.weights.items()}
        self.second = {name: torch.zeros_like(part) for name, part in self.weights.items()}

        def loss(own: Any, record: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(self.logits(own, record[None]), label[None])

        self.gradients = vmap(grad(loss), (None, 0, 0))

    def logits(self, own: Any, x: torch.Tensor) -> torch.Tensor:
        return functional_call(self.model, {**self.frozen, **own}, (x,))

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.tensor(np.flatnonzero(self.rng.random(len(self.x)) < self.run.sample_rate))
        return self.x[chosen], self.y[chosen]

    def direction(
        self, each: Any, factors: torch.Tensor, noise_multiplier: float, step: int
    ) -> dict[str, torch.Tensor]:
        """Adam's step at rate 1, of the gradients' sum with noise."""
        found = {}
        for name, part in each.items():
            noise = torch.randn(part.shape[1:], generator=self.generator)
            total = torch.tensordot(factors, part, 1) + noise_multiplier * NORM * noise
            gradient = total / self.run.batch_size
            self.first[name].lerp_(gradient, 0.1)
            self.second[name].lerp_(gradient.square(), 0.001)
            root = (self.second[name] / (1.0 - 0.999 ** (step + 1))).sqrt() + 1e-8
            found[name] = self.first[name] / (1.0 - 0.9 ** (step + 1)) / root
        return found

    def moved(self, direction: dict[str, torch.Tensor], rate: float) -> dict[str, torch.Tensor]:
        return {name: part - rate * direction[name] for name, part in self.weights.items()}

    def accuracy(self, own: Any) -> float:
        with torch.no_grad():
            right = self.logits(own, self.test_x).argmax(-1) == self.test_y
        return 100.0 * float(right.double().mean())


def norms(each: dict[str, torch.Tensor]) -> torch.Tensor:
    squares = [part.flatten(1).square().sum(1) for part in each.values()]
    return torch.stack(squares).sum(0).sqrt()


def loss_free(family: Family, epsilon: float, seed: int, rate: float) -> float:
    """HyFreeDP, from this rate on."""
    training = Training(family, epsilon, seed)
    run, noise, limit = training.run, noise_of_losses(epsilon), 1.0
    for step in range(run.steps):
        x, y = training.batch()
        each = training.gradients(training.weights, x, y)
        factors = NORM / (norms(each) + 0.01)
        direction = training.direction(each, factors, MORE * run.noise_multiplier, step)
        if step % EVERY == 0:
            losses = []
            for offset in (0.0, rate, -rate):
                with torch.no_grad():
                    logits = training.logits(training.moved(direction, offset), x)
                    own = nn.functional.cross_entropy(logits, y, reduction="none")
                drawn = float(torch.randn((), generator=training.generator))
                clipped = float(own.clamp(max=limit).sum())
                losses.append((clipped + noise * limit * drawn) / run.batch_size)
            here, before, behind = losses
            limit = max(abs(sum(losses)), 1e-3)
            slope = (behind - before) / (2.0 * rate)
            curvature = (before + behind - 2.0 * here) / rate**2
            if slope > 0.0 and curvature > 0.0:
                rate = min(max(slope / curvature, rate / 2.0), 2.0 * rate)
        training.weights = training.moved(direction, rate)
    return training.accuracy(training.weights)


Roots = dict[str, tuple[torch.Tensor, torch.Tensor]]


def roots(training: Training, generator: torch.Generator) -> Roots:
    """Inverse roots of both factors for each trained linear or convolutional layer."""
    layers = {
        name: module
        for name, module in training.model.named_modules()
        if isinstance(module, nn.Linear | nn.Conv2d) and own(name, "weight") in training.weights
    }
    seen: dict[str, torch.Tensor] = {}
    outputs: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: torch.Tensor) -> None:
            seen[name], outputs[name] = args[0].detach(), output

        return hook

    handles = [layer.register_forward_hook(keep(name)) for name, layer in layers.items()]
    weights = {name: part.clone().requires_grad_() for name, part in training.weights.items()}
    logits = training.logits(weights, training.inputs)
    labels = torch.randint(logits.shape[-1], logits.shape[:1], generator=generator)
    loss = nn.functional.cross_entropy(logits, labels, reduction="sum")
    signals = dict(zip(outputs, torch.autograd.grad(loss, list(outputs.values())), strict=True))
    for handle in handles:
        handle.remove()
    found = {}
    for name, layer in layers.items():
        inputs, signal = seen[name], signals[name]
        if isinstance(layer, nn.Conv2d):
            patches = nn.functional.unfold(inputs, layer.kernel_size, padding=layer.padding)
            inputs, signal = patches.transpose(1, 2), signal.flatten(2).transpose(1, 2)
        inputs, signal = inputs.flatten(0, -2), signal.flatten(0, -2)
        if layer.bias is not None:
            inputs = torch.cat([inputs, torch.ones_like(inputs[:, :1])], 1)
        found[name] = inverse_root(inputs), inverse_root(signal)
    return found


def inverse_root(rows: torch.Tensor) -> torch.Tensor:
    factor = rows.T @ rows / len(rows)
    values, vectors = torch.linalg.eigh(factor + DAMPING * torch.eye(len(factor)))
    return vectors @ torch.diag(values.clamp(min=1e-6).rsqrt()) @ vectors.T


def own(name: str, parameter: str) -> str:
    """A layer's parameter by its name in the model; the model itself has none."""
    return f"{name}.{parameter}" if name else parameter


def preconditioned(each: dict[str, torch.Tensor], found: Roots) -> dict[str, torch.Tensor]:
    each = dict(each)
    for name, (of_inputs, of_signals) in found.items():
        weight, bias = each[own(name, "weight")], each.get(own(name, "bias"))
        matrix = weight.flatten(2)
        if bias is not None:
            matrix = torch.cat([matrix, bias[..., None]], -1)
        matrix = of_signals @ matrix @ of_inputs
        if bias is not None:
            each[own(name, "bias")], matrix = matrix[..., -1], matrix[..., :-1]
        each[own(name, "weight")] = matrix.reshape(weight.shape)
    return each


def with_factors(family: Family, epsilon: float, seed: int, rate: float) -> float:
    """DP-KFC at a rate, its last weights averaged as in ``odp.train``."""
    training = Training(family, epsilon, seed)
    run, generator = training.run, torch.Generator().manual_seed(500 + seed)
    tail = odp.Schedule("constant", TAIL).averaged_steps(run.steps)
    averages = {name: torch.zeros_like(part) for name, part in training.weights.items()}
    found: Roots = {}
    for step in range(run.steps):
        if step % PER_EPOCH == 0:
            found = roots(training, generator)
        x, y = training.batch()
        each = preconditioned(training.gradients(training.weights, x, y), found)
        factors = (NORM / norms(each)).clamp(max=1.0)
        direction = training.direction(each, factors, run.noise_multiplier, step)
        training.weights = training.moved(direction, rate)
        if step >= run.steps - tail:
            for name, part in training.weights.items():
                averages[name] += part / tail
    return training.accuracy(averages)
