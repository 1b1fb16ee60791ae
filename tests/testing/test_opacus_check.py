"""``check_objective`` on Opacus trainings. Runs where torch is installed."""

from __future__ import annotations

import pytest

import optuna_dp as odp

torch = pytest.importorskip("torch", reason="needs the extra opacus")
opacus = pytest.importorskip("opacus", reason="needs the extra opacus")

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's and Opacus' own

SIZE, BATCH, EPOCHS, NOISE = 200, 20, 3, 1.5
X = torch.randn(SIZE, 12)
Y = (X[:, 0] > 0).long()
TRAINING = odp.dp_sgd(noise_multiplier=NOISE, sample_rate=BATCH / SIZE, steps=EPOCHS * 10)
EVENT = odp.compose(TRAINING, odp.scoring.score_event(8.0))


def train(trial, *, noise=NOISE, used=None, poisson=True, epochs=EPOCHS, own_loader=False,
          clipping=0.5, generator=None, each=lambda model: None,
          then=lambda engine: None):  # fmt: skip
    model = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    data = torch.utils.data.TensorDataset(X, Y)
    rate = trial.suggest_float("rate", 0.1, 1.0, log=True)
    before = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)
    engine = opacus.PrivacyEngine()
    private, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=rate),
        data_loader=before,
        noise_multiplier=noise,
        max_grad_norm=clipping,
        poisson_sampling=poisson,
        noise_generator=generator,
    )
    if used is not None:
        optimizer.noise_multiplier = used
    for _ in range(epochs):
        for x, y in before if own_loader else loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(private(x), y).backward()
            optimizer.step()
        each(model)
    then(engine)
    return model


def correct(model):
    with torch.no_grad():
        return model(X).argmax(1) == Y


def score(model):
    return odp.scoring.private_accuracy(correct(model).numpy(), size=SIZE, noise_multiplier=8.0)


def honest(trial):
    return score(train(trial))


def seeded(trial):
    torch.manual_seed(0)
    return honest(trial)


def generator_made_in_the_run(trial):
    return score(train(trial, generator=torch.Generator().manual_seed(1)))


def exact(trial):
    return correct(train(trial)).float().mean().item()


def exact_loss(trial):
    model = train(trial)
    with torch.no_grad():
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=50)
        losses = [torch.nn.functional.cross_entropy(model(x), y) for x, y in loader]
    return -float(torch.stack(losses).mean())


def half_the_noise(trial):
    return score(train(trial, used=NOISE / 2))


def shuffled(trial):
    return score(train(trial, poisson=False))


def the_loader_of_before(trial):
    return score(train(trial, own_loader=True))


def best_so_far(trial):
    return max(honest(trial), trial.study.best_value)


CACHE: dict[float, object] = {}


def cached(trial):
    rate = trial.suggest_float("rate", 0.1, 1.0, log=True)
    if rate not in CACHE:
        CACHE[rate] = train(trial)
    return score(CACHE[rate])


MODEL = torch.nn.Linear(12, 2)


def one_model_for_all_runs(trial):
    model = train(trial)
    with torch.no_grad():
        MODEL.weight.neg_()  # so that every run changes the score, which is a share of few records
        MODEL.weight += model(torch.eye(12)).T
    return score(MODEL)


def reports(trial):
    values = iter(range(EPOCHS))
    model = train(
        trial,
        each=lambda model: trial.report(correct(model).float().mean().item(), next(values)),
    )
    return score(model)


def too_many_epochs(trial):
    return score(train(trial, epochs=EPOCHS + 1))


HONEST = {
    "honest": (honest, EVENT),
    "one of several noises": (honest, odp.worst_case(EVENT, odp.dp_sgd(
        noise_multiplier=9.0, sample_rate=0.1, steps=30))),
    "less than stated": (
        lambda trial: score(train(trial, noise=2 * NOISE, epochs=1)), EVENT),
}  # fmt: skip
PLANTED = {
    "torch.manual_seed": (seeded, "fixed seed", "literal seed"),
    "noise_generator": (generator_made_in_the_run, "fixed seed", "literal seed"),
    "exact accuracy": (exact, "exact score"),
    "exact loss": (exact_loss, "exact score"),
    "half the noise": (half_the_noise, "too little noise"),
    "not Poisson": (shuffled, "batches not Poisson"),
    "the loader of before": (the_loader_of_before, "batches not Poisson"),
    "the best so far": (best_so_far, "other trials"),
    "a cache": (cached, "shared state"),
    "one model": (one_model_for_all_runs, "shared state"),
    "reports": (reports, "reported values"),
    "too many epochs": (too_many_epochs, "too many steps"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_nothing_is_found_in_honest_trainings(name) -> None:
    objective, event = HONEST[name]
    report = odp.check_objective(objective, event)
    assert not report.findings, str(report)
    assert not any("Opacus" in sentence for sentence in report.not_checked)
    # One of them with a fresh end; one more asks whether a short training has stopped early.
    assert report.runs == 6 + (name == "less than stated")


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_in_trainings_is_found_and_nothing_else(name) -> None:
    objective, *expected = PLANTED[name]
    report = odp.check_objective(objective, EVENT)
    assert [found.name for found in report.findings] == expected, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, 0.5], ids=["honest", "half the noise"])
def test_trainings_within_a_budget(factor) -> None:
    plan = odp.plan_budget(epsilon=3.0, records=SIZE, batch_size=BATCH, epochs=3, pilots=4)

    def objective(trial):
        run = odp.fidelity(trial)
        noise = run.noise_multiplier
        used = noise if run.is_pilot else factor * noise
        model = train(trial, noise=noise, used=used, epochs=run.steps // 10, then=run.spent)
        return run.score(correct(model).numpy())

    report = odp.check_objective(objective, plan=plan)
    # Opacus' own accountant knows of the noise that was used, so run.spent refuses it.
    expected = [] if factor == 1.0 else ["failure", "too little noise"]
    assert [found.name for found in report.findings] == expected, str(report)


def test_a_sampling_rate_that_is_not_the_stated_one() -> None:
    event = odp.dp_sgd(noise_multiplier=NOISE, sample_rate=0.05, steps=30)
    report = odp.check_objective(honest, odp.compose(event, odp.scoring.score_event(8.0)))
    assert [found.name for found in report.findings] == ["sampling rate"], str(report)


@pytest.mark.slow
def test_a_noise_that_is_searched_is_judged_at_the_end_of_its_range() -> None:
    def searched(trial):
        # Nearly all values have enough noise: a drawn one seldom shows the fault.
        return score(train(trial, noise=trial.suggest_float("amount", 0.5, 500.0)))

    report = odp.check_objective(searched, EVENT)
    assert [f.name for f in report.findings if f.certain] == ["too little noise"], str(report)
    assert "With each hyperparameter at its smallest value" in str(report)


@pytest.mark.slow
def test_a_noise_that_is_searched_within_the_worst_case_is_no_fault() -> None:
    def searched(trial):
        return score(train(trial, noise=trial.suggest_categorical("amount", [NOISE, 3.0])))

    assert odp.check_objective(searched, EVENT).ok
