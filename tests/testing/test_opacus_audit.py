"""Canaries in Opacus' own steps. Runs where torch is installed."""

from __future__ import annotations

import pytest

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.testing import GradientCanaries, audit_training

torch = pytest.importorskip("torch", reason="needs the extra opacus")
opacus = pytest.importorskip("opacus", reason="needs the extra opacus")

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's and Opacus' own

NOISE, STEPS = 1.5, 120
EVENT = odp.dp_sgd(noise_multiplier=NOISE, sample_rate=0.1, steps=STEPS)
SURE = 1 - 1e-7


def train(*, fault="", poisson=True, clipping="flat", pieces=False, unseen=lambda optimizer: None):
    """A small network on random records; returns its weights."""
    x, y = torch.randn(200, 12), torch.randint(0, 3, (200,))
    model = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    data = torch.utils.data.TensorDataset(x, y)
    private, optimizer, loader = opacus.PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.2),
        data_loader=torch.utils.data.DataLoader(data, batch_size=20),
        noise_multiplier=NOISE,
        max_grad_norm=[0.5] * 4 if clipping == "per_layer" else 0.5,
        clipping=clipping,
        poisson_sampling=poisson,
    )
    if fault == "half the noise":
        optimizer.noise_multiplier = NOISE / 2
    if fault == "no clipping":
        optimizer.clip_and_accumulate = lambda: unclipped(optimizer)
    steps = 0
    while steps < STEPS:
        for a, b in loader:
            optimizer.zero_grad()
            halves = (
                (slice(None, len(a) // 2), slice(len(a) // 2, None)) if pieces else (slice(None),)
            )
            for i, part in enumerate(halves):
                optimizer.signal_skip_step(do_skip=i + 1 < len(halves))
                torch.nn.functional.cross_entropy(private(a[part]), b[part]).backward()
                optimizer.step()
                optimizer.zero_grad()
            unseen(optimizer)
            steps += 1
    return [p.detach().clone() for p in model.parameters()]


def unclipped(optimizer):
    for p in optimizer.params:
        p.summed_grad = p.grad_sample.sum(dim=0)


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [False, True], ids=["whole", "in pieces"])
def test_an_honest_opacus_training_is_not_refuted(pieces) -> None:
    found = audit_training(lambda: train(pieces=pieces), EVENT, access="opacus", confidence=SURE)
    assert found.verdict == "not refuted", str(found)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["half the noise", "no clipping"])
def test_faults_in_the_optimizer_are_found(fault) -> None:
    found = audit_training(lambda: train(fault=fault), EVENT, access="opacus", confidence=SURE)
    assert found.verdict == "violates", str(found)


def test_the_canaries_leave_the_gradients_and_the_optimizer() -> None:
    """With hardly any noise, the step that is taken is the one of the records alone."""
    from optuna_dp.testing.opacus_canaries import canaries_in_opacus

    model = torch.nn.Linear(30, 1, bias=False)
    x = torch.randn(10, 30)
    private, optimizer, _ = opacus.PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        data_loader=torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=10),
        noise_multiplier=1e-9,
        max_grad_norm=0.5,
    )
    canaries, before = GradientCanaries(20), model.weight.detach().clone()
    with canaries_in_opacus(canaries):
        private(x).mean().backward()
        optimizer.step()
    clipped = (x * (0.5 / x.norm(dim=1, keepdim=True)).clamp(max=1)).sum(dim=0)
    moved = before - model.weight.detach()
    assert torch.allclose(moved[0] * optimizer.expected_batch_size, clipped, atol=1e-4)
    assert canaries.shares == [1.0]
    assert "add_noise" not in vars(optimizer)
    assert opacus.optimizers.DPOptimizer.pre_step.__module__.startswith("opacus")


def test_clipping_by_layer_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="one clipping norm"):
        audit_training(lambda: train(clipping="per_layer"), EVENT, access="opacus")


def test_a_training_without_opacus_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="no canary was in any step"):
        audit_training(lambda: None, EVENT, access="opacus")
