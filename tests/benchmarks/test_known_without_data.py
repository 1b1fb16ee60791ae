"""The families that had no say: the page has what the command prints, and no arm costs more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "known_without_data"
sys.path.append(str(SCRIPTS))

import arms  # noqa: E402
import dense  # noqa: E402
import families  # noqa: E402
import sizes_by_kind  # noqa: E402

from optuna_dp.training.schedules import DEFAULT_SCHEDULE  # noqa: E402

PAGE = ROOT / "docs" / "explanation" / "known-without-data.md"


@pytest.mark.slow
def test_the_page_has_what_the_command_prints() -> None:
    command = [sys.executable, str(SCRIPTS / "held_back.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    section = PAGE.read_text().split("### Families that had no say")[1].split("\n### ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    assert len(rows) > 30
    assert [row for row in rows if row not in printed.splitlines()] == []


@pytest.mark.slow
def test_the_page_has_the_table_of_linear_models() -> None:
    command = [sys.executable, str(SCRIPTS / "linear.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    section = PAGE.read_text().split("### Linear models")[1].split("\n### ")[0]
    rows = [line for line in printed.splitlines() if line.startswith("|")]
    assert len(rows) == 8
    # What the tasks that choose prefer is what odp.train does.
    share = DEFAULT_SCHEDULE.averaged_share
    assert rows[2].startswith(f"| sgd, {DEFAULT_SCHEDULE.decay}, last {share:.0%} averaged |")
    assert "\n".join(rows) in section


def test_the_page_has_the_tables_of_small_dense_networks() -> None:
    cells = dense.stored_cells()
    section = PAGE.read_text().split("### Small dense networks")[1].split("\n### ")[0]
    assert dense.table(cells) in section
    assert dense.in_hindsight(cells) in section
    # What odp.train does is no worse than any other row at its size, but by 0.05 points.
    assert dense.SHIPPED.schedule() == DEFAULT_SCHEDULE
    names = tuple(dense.CHOOSING)
    means = [dense.mean_losses(cells, names, own, dense.SIZE).mean() for own in dense.SHOWN]
    assert means[0] < min(means) + 0.05


def test_the_pages_have_the_tables_of_sizes_and_schedules() -> None:
    differences = sizes_by_kind.of_differences()
    assert differences in PAGE.read_text()
    assert (
        sizes_by_kind.of_tasks(sizes_by_kind.accuracies()) in (SCRIPTS / "README.md").read_text()
    )
    # odp.train has the size and the schedule that win.
    assert DEFAULT_SCHEDULE in sizes_by_kind.SCHEDULES.values()
    means = {what: np.mean(own) for what, own in sizes_by_kind.differences().items()}
    assert means["size by kind over 1.0"] > 0.0
    assert means["linear decay over averages, size by kind"] < 0.0


def test_the_page_has_the_tables_of_regressions() -> None:
    pytest.importorskip("pandas")
    import regression

    settings = regression.stored()
    section = PAGE.read_text().split("### Regressions")[1].split("\n### ")[0]
    for part in (regression.of_losses, regression.of_sizes, regression.of_steps):
        assert part(settings) in section
    assert regression.of_tables(settings) in section
    # No other loss and optimizer loses less at the shipped size, and no other size is better.
    size = regression.ONE_OUTPUT_SIZE
    means = [
        np.mean([regression.at_size(settings, kind, *shown, size) for kind in regression.MODELS])
        for shown in regression.SHOWN
    ]
    assert means[0] == min(means)
    best, left_out = regression.left_out(regression.lost(settings, *regression.SHOWN[0]))
    assert abs(best - size) < 0.05
    assert left_out < 1.6


def test_gradients_of_the_dense_engine_are_those_of_pytorch() -> None:
    model, rng = dense.Model((6, 5), "tanh"), np.random.default_rng(1)
    x = 3.0 * rng.standard_normal((7, 4)).astype(np.float32)
    y = rng.integers(3, size=7)
    start = model.start(4, 3, rng)
    training = dense.Training(model, start, [0.1, 0.2], ["constant", "linear"], "sgd")
    sums = training.gradients(x, np.eye(3, dtype=np.float32)[y])
    totals = [np.zeros_like(layer) for layer in start]
    for features, label in zip(x, y, strict=True):
        layers = [torch.tensor(layer, requires_grad=True) for layer in start]
        z = torch.tensor(features)
        for place, layer in enumerate(layers):
            z = (z if place == 0 else torch.tanh(z)) @ layer[:-1] + layer[-1]
        torch.nn.functional.cross_entropy(z[None], torch.tensor([label])).backward()
        norm = sum(float((layer.grad**2).sum()) for layer in layers) ** 0.5
        for total, layer in zip(totals, layers, strict=True):
            total += layer.grad.numpy() * min(1.0, dense.NORM / norm)
    for own, total in zip(sums, totals, strict=True):
        assert np.allclose(own, total[None], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_trials_and_measured_losses_are_paid_for(epsilon: float) -> None:
    run, total = families.plan(epsilon), arms.spent(epsilon)
    assert total <= epsilon
    small, large, last = arms.noises_of_trials(epsilon)
    assert small > large > last > run.noise_multiplier
    trials = [(small, arms.TRIALS * run.steps), (large, arms.TRIALS * run.steps)]
    paid = arms.epsilon_of(run.sample_rate, [*trials, (last, run.steps)])
    assert 0.99 * total < paid <= total
    # A loss is measured three times in a fifth of the steps.
    gradients, losses = arms.MORE * run.noise_multiplier, arms.noise_of_losses(epsilon)
    together = (gradients**-2 + 3.0 * losses**-2) ** -0.5
    measured = run.steps // arms.EVERY
    parts = [(gradients, run.steps - measured), (together, measured)]
    assert 0.99 * total < arms.epsilon_of(run.sample_rate, parts) <= total


@pytest.mark.slow
def test_without_factors_the_arm_is_the_shipped_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """So what the arms lose is not the fault of their loop."""
    family = families.FAMILIES["two layers, digits"]
    rate = arms.rehearsed_rate(family, families.plan(3.0), seed=0)
    shipped = arms.fewer_steps(family, 3.0, seed=0, steps=families.plan(3.0).steps)
    monkeypatch.setattr(arms, "roots", lambda training, generator: {})
    assert arms.with_factors(family, 3.0, seed=0, rate=rate) == pytest.approx(shipped, abs=0.3)


def test_a_preconditioned_gradient_has_both_inverse_roots_around_it() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs, signals = (torch.randn(500, size, generator=generator) for size in (5, 3))
    of_inputs, of_signals = arms.inverse_root(inputs), arms.inverse_root(signals)
    covariance = inputs.T @ inputs / 500 + arms.DAMPING * torch.eye(5)
    assert torch.allclose(of_inputs @ covariance @ of_inputs, torch.eye(5), atol=1e-4)
    # Four inputs and a bias, for a record's outer product: it is that of the whitened sides.
    each = {"weight": signals[:, :, None] * inputs[:, None, :4], "bias": signals * inputs[:, 4:]}
    found = arms.preconditioned(each, {"": (of_inputs, of_signals)})
    whole = (signals @ of_signals)[:, :, None] * (inputs @ of_inputs)[:, None, :]
    assert torch.allclose(found["weight"], whole[..., :4], atol=1e-4)
    assert torch.allclose(found["bias"], whole[..., 4], atol=1e-4)
