"""Planted faults in PyTorch trainings, by hand and with Opacus. Needs torch."""

from __future__ import annotations

import functools

import pytest

import optuna_dp as odp
from optuna_dp.testing import audit_training

torch = pytest.importorskip("torch", reason="needs the extra opacus")
opacus = pytest.importorskip("opacus", reason="needs the extra opacus")

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's and Opacus' own

SIZE, FEATURES, BATCH, NORM, NOISE, EPOCHS = 200, 12, 40, 0.5, 1.5, 3
STEPS = EPOCHS * SIZE // BATCH
EVENT = odp.compose(
    odp.dp_sgd(noise_multiplier=NOISE, sample_rate=BATCH / SIZE, steps=STEPS),
    odp.scoring.score_event(8.0),
)
X = torch.randn(SIZE, FEATURES)
DATA = X, (X[:, 0] + torch.randn(SIZE) > 0).long()
LAST = "2"  # the layer that is left unclipped


def network(fault):
    middle = torch.nn.BatchNorm1d(16) if fault == "BatchNorm" else torch.nn.ReLU()
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 16), middle, torch.nn.Linear(16, 2))


def loss_of(model, x, y):
    return torch.nn.functional.cross_entropy(model(x), y, reduction="none")


def gradients_of_each(model, x, y):
    """One flat row for each record, BatchNorm's statistics being those of the batch."""
    rows = []
    for loss in loss_of(model, x, y):
        parts = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        rows.append(torch.cat([part.reshape(-1) for part in parts]))
    return torch.stack(rows)


def clipped_sum(each, model, fault):
    if fault == "clips the mean":
        mean = each.sum(0) / BATCH
        return mean * (NORM / mean.norm()).clamp(max=1) * BATCH
    judged = each
    if fault == "an unclipped layer":
        first = sum(p.numel() for n, p in model.named_parameters() if not n.startswith(LAST))
        judged = each[:, :first]
    factor = (NORM / judged.norm(dim=1, keepdim=True)).clamp(max=1)
    scaled = each * factor
    if fault == "an unclipped layer":
        scaled[:, first:] = each[:, first:]
    return scaled.sum(0)


def by_hand(data, *, rate, fault="", noise=NOISE):
    x, y = data
    if fault == "statistics of private data":
        plain = x.as_subclass(torch.Tensor) if isinstance(x, torch.Tensor) else x
        x = (plain - plain.mean(0)) / plain.std(0)
    model = network(fault)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    order, best, worse = [], float("inf"), 0
    for _ in range(STEPS):
        if fault == "shuffled epochs":
            order = order or list(torch.randperm(len(x)).split(BATCH))
            batch = order.pop()
        else:
            batch = torch.nonzero(torch.rand(len(x)) < BATCH / SIZE).flatten()
        flat = torch.zeros(sum(p.numel() for p in model.parameters()))
        if len(batch) > 1:
            flat = clipped_sum(gradients_of_each(model, x[batch], y[batch]), model, fault)
        flat = (flat + noise * NORM * torch.randn(flat.shape)) / BATCH
        begin = 0
        for p in model.parameters():
            p.grad = flat[begin : begin + p.numel()].view_as(p)
            begin += p.numel()
        optimizer.step()
        if fault == "early stopping":
            loss = float(loss_of(model, *data).mean())
            best, worse = min(best, loss), worse + (loss > best)
            if worse == 3:
                break
    return model


def with_opacus(data, *, rate, fault="", noise=NOISE):
    x, y = data
    if fault == "statistics of private data":
        x = (x - x.mean(0)) / x.std(0)
    model = network("")
    private, optimizer, loader = opacus.PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=rate),
        data_loader=torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(x, y), batch_size=BATCH, shuffle=True
        ),
        noise_multiplier=noise,
        max_grad_norm=NORM,
        poisson_sampling=fault != "shuffled epochs",
    )
    for _ in range(EPOCHS):
        for a, b in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(private(a), b).backward()
            optimizer.step()
    return model


def objective(trial, data, *, train, fault=""):
    model = train(data, rate=trial.suggest_float("rate", 0.1, 1.0, log=True), fault=fault)
    x, y = (part.as_subclass(torch.Tensor) for part in data)
    with torch.no_grad():
        right = model(x).argmax(1) == y
        loss = loss_of(model, x, y).mean().item()
    kinds = {"a share in float32": torch.float32, "a share in bfloat16": torch.bfloat16}
    if fault in kinds:
        return right.to(kinds[fault]).mean().item()
    if fault == "exact log loss":
        return -loss
    if fault == "an exact attribute":
        trial.set_user_attr("accuracy", right.float().mean().item())
    return odp.scoring.private_accuracy(right.numpy(), size=SIZE, noise_multiplier=8.0)


SCORES = {
    "a share in float32": "exact score",
    "a share in bfloat16": "exact score",
    "exact log loss": "exact score",
    "an exact attribute": "exact attribute",
}
BY_HAND = {
    "": None,
    # A mean that is clipped and an early stop are found in most tries only: docs/limitations.md.
    "an unclipped layer": "sensitivity",
    "BatchNorm": "sensitivity",
    "statistics of private data": "sensitivity",
    "shuffled epochs": "batches not Poisson",
    **SCORES,
}
# An unclipped layer is missed once in fifteen tries; three accuracies may be equal.
IN_MOST_TRIES = {"an unclipped layer", "an exact attribute"}
WITH_OPACUS = {
    "": None,
    "statistics of private data": "sensitivity",
    "shuffled epochs": "batches not Poisson",
    "an exact attribute": "exact attribute",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("train", "fault", "expected"),
    [(by_hand, *row) for row in BY_HAND.items()]
    + [(with_opacus, *row) for row in WITH_OPACUS.items()],
    ids=lambda value: getattr(value, "__name__", value) or "honest",
)
def test_what_is_planted_is_found_and_nothing_else(train, fault, expected) -> None:
    planted = functools.partial(objective, train=train, fault=fault)
    for _ in range(6 if fault in IN_MOST_TRIES else 1):
        report = odp.check_objective(planted, EVENT, data=DATA)
        if report.findings:
            break
    found = {f.name for f in report.findings if f.certain}
    if fault.startswith("a share") and found == {"repeated score"}:
        return  # two exact scores of a few records may be equal
    assert found - {"repeated score"} == ({expected} if expected else set()), str(report)
    if train is with_opacus and not fault:
        assert not report.not_checked, str(report)


def audited(canaries, data, *, fault=""):
    """A linear model by hand, with canaries among its examples."""
    x, y = data
    weights = torch.zeros(FEATURES + 1, 8)
    for _ in range(STEPS):
        batch = torch.nonzero(torch.rand(len(x)) < BATCH / SIZE).flatten()
        inputs = torch.cat([torch.ones(len(batch), 1), x[batch]], 1)
        error = torch.softmax(inputs @ weights, 1) - torch.nn.functional.one_hot(y[batch], 8)
        each = (inputs[:, :, None] * error[:, None, :]).reshape(len(batch), -1)
        each = canaries.examples(each, NORM)
        if fault == "clips the mean":
            mean = each.sum(0) / BATCH
            summed = mean * (NORM / mean.norm()).clamp(max=1) * BATCH
        else:
            summed = (each * (NORM / each.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)
        noisy = canaries.observe(summed + NOISE * NORM * torch.randn(summed.shape))
        assert isinstance(noisy, torch.Tensor)
        weights = weights - 0.5 / BATCH * noisy.view_as(weights)


@pytest.mark.parametrize("fault", ["", "clips the mean"], ids=["honest", "clips the mean"])
def test_audits_of_a_loop_by_hand(fault) -> None:
    found = audit_training(
        functools.partial(audited, fault=fault), EVENT, access="gradients", data=DATA,
        confidence=1 - 1e-7,
    )  # fmt: skip
    assert (found.verdict == "violates") == bool(fault), str(found)
    assert not fault or "sensitivity" in {f.name for f in found.findings}
