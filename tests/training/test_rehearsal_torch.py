"""The rehearsal of PyTorch modules, by itself and within odp.train."""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from typing import Any

import pytest
from refusals import refuses
from started import claimed, started

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.errors import InvalidArgumentError  # noqa: E402
from optuna_dp.study.entries import TRAININGS  # noqa: E402

RECORDS = 200
PLAN: dict[str, Any] = {"noise_multiplier": 2.0, "batch_size": 64.0, "steps": 60}
INPUTS = odp.made_up_inputs(*[(0.0, 1.0)] * 64)
CONSTANT = odp.Schedule("constant")
cross_entropy = nn.functional.cross_entropy


def softmax(classes: int = 10) -> nn.Module:
    module = nn.Linear(64, classes, bias=False)
    nn.init.zeros_(module.weight)
    return module


def grouped(classes: int = 10) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, classes)
    )


class Text(nn.Module):
    """A layer of attention over token ids."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(40, 16), nn.Embedding(6, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, classes)

    def forward(self, ids: Any) -> Any:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.block(x).mean(1))


def target(module: nn.Module) -> float:
    """What the logits may move by: 0.85 with attention, 1.7 without."""
    names = {type(part).__name__ for part in module.modules()}
    return 0.85 if names & {"TransformerEncoderLayer", "GPT2Attention"} else 1.7


def rehearsal(module: Any, inputs: Any, **arguments: Any) -> odp.Rehearsal:
    found = odp.rehearse_module(started(RECORDS, **PLAN), module, inputs, **arguments)
    assert found.size == pytest.approx(arguments.get("size", target(module)), rel=0.06)
    return found


def by_rmsprop(parameters: Any, rate: float) -> Any:
    return torch.optim.RMSprop(parameters, lr=rate, weight_decay=0.01)


def heavily_decayed(parameters: Any, rate: float) -> Any:
    return torch.optim.SGD(parameters, lr=rate, weight_decay=0.05)


def network(*widths: int, norm: bool = False) -> nn.Sequential:
    """Linear layers from 64 numbers to 10 classes, with tanh between them."""
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for before, after in itertools.pairwise((64, *widths, 10)):
        parts += [nn.Linear(before, after), *([nn.LayerNorm(after)] if norm else []), nn.Tanh()]
    return nn.Sequential(*(parts[: -2 if norm else -1]))


def with_frozen(model: nn.Sequential, layers: int) -> nn.Sequential:
    model[: 2 * layers].requires_grad_(False)
    return model


class Convolved(nn.Module):
    """A convolution before a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mix, self.head = nn.Conv1d(8, 8, 1), nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        return self.head(torch.tanh(self.mix(x.reshape(-1, 8, 8))).flatten(1))


@pytest.mark.parametrize(
    ("make", "optimizer"),
    [
        (lambda: network(32), "sgd"),
        (lambda: network(32, 32), "sgd"),
        (lambda: network(16, 16, 16), "adam"),
        (lambda: network(32, norm=True), "adam"),
        (Convolved, "adam"),
        (lambda: with_frozen(network(32), 1), "sgd"),
        (lambda: with_frozen(network(32, 32), 1), "adam"),
    ],
)
def test_small_dense_networks_and_last_layers_are_trained_with_sgd_and_others_with_adam(
    make: Any, optimizer: str
) -> None:
    records = torch.zeros(RECORDS, 64), torch.zeros(RECORDS, dtype=torch.long)
    run = started(RECORDS, **PLAN)
    trained = odp.train(run, make(), records, loss=cross_entropy, inputs=INPUTS, score=None)
    assert trained.rehearsal == rehearsal(make(), INPUTS, optimizer=optimizer)


def test_a_small_dense_network_is_trained_with_adam_where_steps_of_sgd_would_be_too_long() -> None:
    plan = {**PLAN, "noise_multiplier": 0.2}
    with pytest.warns(UserWarning, match="optimizer='adam'"):
        odp.rehearse_module(started(RECORDS, **plan), network(32), INPUTS, optimizer="sgd")
    records = torch.zeros(RECORDS, 64), torch.zeros(RECORDS, dtype=torch.long)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained = odp.train(
            started(RECORDS, **plan),
            network(32),
            records,
            loss=cross_entropy,
            inputs=INPUTS,
            score=None,
        )
    assert trained.rehearsal == odp.rehearse_module(
        started(RECORDS, **plan), network(32), INPUTS, optimizer="adam"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (softmax, INPUTS),
        (lambda k: nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, k)), INPUTS),
        (grouped, odp.made_up_images(1, 8, 8)),
        (Text, odp.made_up_tokens(40, 6)),
    ],
)
@pytest.mark.parametrize(
    ("optimizer", "schedule"),
    [
        ("adam", odp.Schedule("linear")),
        ("sgd", odp.Schedule("constant", 0.25)),
        (by_rmsprop, CONSTANT),
    ],
)
def test_training_on_nothing_moves_the_logits_by_what_was_rehearsed(
    make: Any, inputs: Any, optimizer: Any, schedule: odp.Schedule
) -> None:
    """The private training itself, of records that have no gradient: noise is all there is."""
    torch.manual_seed(0)
    module = make(40).eval()
    shown = torch.as_tensor(inputs)
    shown = shown.float() if shown.is_floating_point() else shown
    with torch.no_grad():
        before = module(shown)
    trained = odp.train(
        started(RECORDS, **PLAN),
        module,
        (torch.zeros((RECORDS, *shown.shape[1:]), dtype=shown.dtype), torch.zeros(RECORDS)),
        record_loss=lambda model, x, y: 0.0 * model(x[None]).sum(),
        inputs=inputs,
        optimizer=optimizer,
        schedule=schedule,
        score=None,
    )
    with torch.no_grad():
        moved = module(shown) - before
    # One draw of noise, which all inputs may share. The variance over 40 classes is off by a
    # factor of 6.25 in less than 1 in 10^9 (chi-square, 39 degrees of freedom).
    size = float(moved.var(dim=1, unbiased=False).mean().sqrt()) / target(module)
    assert abs(math.log(size)) < math.log(2.5)
    assert trained.rehearsal is not None
    assert trained.rehearsal.size == pytest.approx(target(module), rel=0.06)


def test_a_schedule_and_an_average_are_rehearsed() -> None:
    constant = rehearsal(softmax(), INPUTS, optimizer="sgd", schedule=CONSTANT).learning_rate
    for schedule in (odp.Schedule("linear"), odp.Schedule("constant", 0.5)):
        found = rehearsal(softmax(), INPUTS, optimizer="sgd", schedule=schedule).learning_rate
        factor = schedule.noise_factor(PLAN["steps"])
        assert factor < 0.9
        # The noise is the same, so only the tolerance of the search is between them.
        assert found / constant == pytest.approx(1.0 / factor, rel=0.15)


def test_a_decay_that_bends_the_walk_is_followed() -> None:
    """Strong decay forgets early noise; how much is a geometric sum."""
    found = rehearsal(softmax(), INPUTS, optimizer=heavily_decayed, schedule=CONSTANT, size=1.0)
    kept = 1.0 - 0.05 * found.learning_rate
    assert kept < 0.97
    walked = math.sqrt((1.0 - kept ** (2 * PLAN["steps"])) / (1.0 - kept**2))
    wanted = found.learning_rate * 2.0 / 64 * walked
    assert found.noise_per_weight == pytest.approx(wanted, rel=0.1)


def test_the_module_is_as_it_was_to_the_last_bit() -> None:
    module = nn.Sequential(
        nn.Linear(64, 32), nn.Dropout(0.5), nn.BatchNorm1d(32), nn.Linear(32, 4)
    )
    module[0].requires_grad_(False)
    module[2].eval()
    before, modes = copy.deepcopy(module.state_dict()), [m.training for m in module.modules()]
    random = torch.random.get_rng_state()
    rehearsal(module, INPUTS)

    class Failing(torch.optim.SGD):
        steps = 0

        def step(self, closure: Any = None) -> Any:
            Failing.steps += 1
            if Failing.steps > 10:
                raise RuntimeError("in the middle")
            return super().step(closure)

    with pytest.raises(RuntimeError, match="in the middle"):
        rehearsal(module, INPUTS, optimizer=lambda weights, rate: Failing(weights, lr=rate))
    assert [m.training for m in module.modules()] == modes
    assert all(p.grad is None for p in module.parameters())
    assert torch.equal(random, torch.random.get_rng_state())
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_module_in_double_precision_is_rehearsed_and_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    before = copy.deepcopy(module.state_dict())
    rehearsal(module, INPUTS)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_only_what_is_trained_makes_noise() -> None:
    """The frozen part is 64 x 64 weights, of which a tenth of the noise would be far too much."""
    body, head = nn.Linear(64, 64), nn.Linear(64, 10)
    whole = rehearsal(nn.Sequential(body, head), INPUTS, size=1.0).noise_per_weight
    body.requires_grad_(False)
    last = rehearsal(nn.Sequential(body, head), INPUTS, size=1.0).noise_per_weight
    with torch.no_grad():
        features = body(torch.as_tensor(INPUTS, dtype=torch.float32))
    assert last > 1.2 * whole
    assert last == pytest.approx(rehearsal(head, features, size=1.0).noise_per_weight, rel=0.05)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_lora_by_peft_and_the_output_of_hugging_face() -> None:
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    config = transformers.GPT2Config(
        vocab_size=40, n_positions=8, n_embd=16, n_layer=1, n_head=2, pad_token_id=0, num_labels=3
    )
    model = transformers.GPT2ForSequenceClassification(config)
    lora = peft.LoraConfig(
        r=2, target_modules=["c_attn"], task_type="SEQ_CLS", fan_in_fan_out=True
    )
    adapted = peft.get_peft_model(model, lora)
    found = rehearsal(adapted, {"input_ids": odp.made_up_tokens(40, 6)})
    assert 0.0 < found.noise_per_weight < 10.0


def test_a_language_model_is_rehearsed_on_the_logits_of_all_tokens() -> None:
    found = rehearsal(nn.Sequential(nn.Embedding(40, 16), nn.Linear(16, 40)),
                      odp.made_up_tokens(40, 6))  # fmt: skip
    assert found.noise_per_weight > 0.0


# -- odp.train ------------------------------------------------------------------------------------


def train(module: Any, x: Any, **arguments: Any) -> Any:
    run = started(len(x), noise_multiplier=2.0, batch_size=16.0, steps=20)
    y = torch.zeros(len(x), dtype=torch.long)
    try:
        return odp.train(run, module, (x, y), loss=cross_entropy, **{"score": None, **arguments})
    except InvalidArgumentError:
        assert claimed(run, TRAININGS) == []
        raise


PICTURES, IDS = torch.rand(40, 1, 8, 8), torch.randint(40, (40, 6))


@pytest.mark.parametrize(("make", "x"), [(grouped, PICTURES), (Text, IDS)])
def test_a_model_whose_inputs_cannot_be_known_needs_a_schema_or_a_rate(make: Any, x: Any) -> None:
    with refuses("inputs"):
        train(make(), x)
    schema = odp.made_up_images(1, 8, 8) if make is grouped else odp.made_up_tokens(40, 6)
    assert train(make(), x, inputs=schema).rehearsal.learning_rate > 0.0
    assert train(make(), x, learning_rate=0.01).rehearsal is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Conv1d(1, 1, 3),
        lambda: nn.MultiheadAttention(64, 1),
        lambda: nn.Linear(64, 64).requires_grad_(False),
    ],
)
def test_what_is_not_dense_and_trained_needs_a_schema(make: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part, self.head = make(), nn.Linear(64, 2)

        def forward(self, x: Any) -> Any:
            return self.head(x)

    with pytest.raises(InvalidArgumentError) as refused:
        train(Model(), torch.rand(40, 64))
    assert refused.value.argument == "inputs"


@pytest.mark.parametrize("norm", [nn.Identity(), nn.LayerNorm(8), nn.GroupNorm(2, 8)], ids=str)
def test_a_dense_model_needs_no_schema(norm: nn.Module) -> None:
    """A norm between linear layers neither: the model's inputs are plain features."""
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 8), norm, nn.GELU(), nn.Dropout(), nn.Linear(8, 3)
    )
    trained = train(module, torch.rand(40, 8, 8))
    assert trained.rehearsal.size == pytest.approx(1.7, rel=0.06)


def test_inputs_do_not_come_from_the_records() -> None:
    torch.manual_seed(0)
    module = nn.Linear(64, 3)
    twin = copy.deepcopy(module)
    assert train(module, torch.rand(40, 64)).learning_rate == (
        train(twin, 1e6 + 1e6 * torch.rand(40, 64)).learning_rate
    )


@pytest.mark.parametrize(
    ("argument", "module", "arguments"),
    [
        ("inputs", nn.Linear(64, 2), {"inputs": odp.made_up_inputs((0, 1), (0, 1))}),
        ("inputs", nn.Linear(64, 2), {"inputs": torch.full((5, 64), math.nan)}),
    ],
)
def test_what_cannot_be_rehearsed_names_the_argument(
    argument: str, module: Any, arguments: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        train(module, torch.rand(40, 64), **arguments)
    assert refused.value.argument == argument


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("run", {"run": 3.0}),
        ("module", {"module": "model"}),
        ("schedule", {"schedule": "linear"}),
        ("size", {"size": 0.0}),
        ("clipping_norm", {"clipping_norm": -1.0}),
        ("optimizer", {"optimizer": "rmsprop"}),
    ],
)
def test_bad_arguments_of_a_rehearsal_are_named(argument: str, changes: dict[str, Any]) -> None:
    arguments = {"run": started(RECORDS, **PLAN), "module": softmax(), "inputs": INPUTS, **changes}
    with pytest.raises(InvalidArgumentError) as refused:
        odp.rehearse_module(**arguments)
    assert refused.value.argument == argument


@pytest.mark.parametrize("ends", [nn.Identity(), nn.Flatten(0)])
def test_a_single_logit_has_a_rate(ends: nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.rand(400, 5, generator=generator) - 1
    y = ends((x[:, :1] > x[:, 1:2]).float())
    trained = odp.train(
        started(400, batch_size=100, steps=60),
        nn.Sequential(nn.Linear(5, 1), ends),
        (x, y),
        loss=nn.BCEWithLogitsLoss(),
        score="accuracy",
    )
    assert trained.rehearsal is not None
    right = (trained.predict(x).ravel() > 0) == (y.numpy().ravel() > 0)
    assert right.mean() > 0.8
