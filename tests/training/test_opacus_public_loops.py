"""Loops as people publish them: each trains within its plan, or is refused in words that help.

Modelled on the examples of Opacus (mnist, cifar10, char-lstm, imdb, dcgan), torchtext, Lightning
and Hugging Face, at a size that trains in a moment.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
from opacus_support import RECORDS, begin, torch

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError, PlanError

pytestmark = pytest.mark.filterwarnings("ignore")
nn, functional, data = torch.nn, torch.nn.functional, torch.utils.data
IMAGES, LABELS = torch.randn(RECORDS, 1, 8, 8), torch.arange(RECORDS) % 10
LENGTHS = 2 + torch.arange(RECORDS) % 5
TOKENS = torch.where(torch.arange(6) < LENGTHS[:, None], torch.randint(1, 20, (RECORDS, 6)), 0)
LOOPS: dict[str, tuple[Callable[[Any], None], str | None]] = {}


def loop(refusal: str | None = None) -> Any:
    """Registers a loop, with a word of its refusal if it is refused."""

    def register(function: Callable[[Any], None]) -> Callable[[Any], None]:
        LOOPS[function.__name__] = function, refusal
        return function

    return register


def images(**settings: Any) -> Any:
    dataset = data.TensorDataset(IMAGES, LABELS)
    return data.DataLoader(dataset, **{"batch_size": 16, "shuffle": True, **settings})


def sentences(*columns: Any, **settings: Any) -> Any:
    return data.DataLoader(data.TensorDataset(*columns or (TOKENS, LABELS)), **settings)


def make_private(run: Any, model: Any, optimizer: Any, loader: Any, **settings: Any) -> Any:
    return odp.opacus.make_private(
        run, module=model, optimizer=optimizer, data_loader=loader, **settings
    )


def sgd(model: Any, **settings: Any) -> Any:
    weights = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.SGD(weights, **{"lr": 0.05, "momentum": 0.9, **settings})


class SampleConvNet(nn.Module):  # type: ignore[misc]
    """The network of Opacus' mnist.py, smaller."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(32, 16), nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.view(-1, 32))))


@loop()
def mnist(run: Any) -> None:
    model = SampleConvNet()
    model, optimizer, loader = make_private(run, model, sgd(model, momentum=0), images())
    model.train()
    criterion, losses = nn.CrossEntropyLoss(), []
    for _index, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


@loop("epochs")
def mnist_in_epochs(run: Any) -> None:
    model = SampleConvNet()
    model, optimizer, loader = make_private(run, model, sgd(model), images())
    for _epoch in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()


@loop("physical_batch_size")
def cifar10_with_a_memory_manager(run: Any) -> None:
    from opacus.utils.batch_memory_manager import BatchMemoryManager

    model = SampleConvNet()
    model, optimizer, loader = make_private(run, model, sgd(model), images())
    with BatchMemoryManager(
        data_loader=loader, max_physical_batch_size=8, optimizer=optimizer
    ) as small:
        for x, y in small:
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()


@loop()
def cifar10_in_physical_batches(run: Any) -> None:
    model = SampleConvNet()
    model, optimizer, loader = make_private(
        run, model, sgd(model), images(), physical_batch_size=16
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(loader))
    for x, y in loader:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        schedule.step()


def resnet() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(6), nn.Flatten(),
        nn.Linear(8, 10),
    )  # fmt: skip


@loop("ModuleValidator.fix|GroupNorm")
def cifar10_with_batch_normalisation(run: Any) -> None:
    model = resnet()
    make_private(run, model, sgd(model), images())


@loop()
def cifar10_with_a_fixed_model(run: Any) -> None:
    from opacus.validators import ModuleValidator

    model = ModuleValidator.fix(resnet())
    model, optimizer, loader = make_private(run, model, sgd(model), images())
    for x, y in loader:
        functional.cross_entropy(model(x), y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.zero_grad()
        model.eval()
        with torch.no_grad():
            model(x)
        model.train()


class CharLSTM(nn.Module):  # type: ignore[misc]
    """The network of Opacus' char-lstm-classification.py, smaller."""

    def __init__(self, kind: str = "DPLSTM") -> None:
        from opacus import layers

        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.lstm = getattr(layers, kind)(6, 8, num_layers=1, batch_first=True)
        self.out = nn.Linear(8, 10)

    def forward(self, x: Any, hidden: Any = None) -> Any:
        out, _ = self.lstm(self.embedding(x), hidden)
        return self.out(out[:, -1, :])


def padded(batch: list[Any]) -> Any:
    """Pads to the longest of the batch."""
    x = nn.utils.rnn.pad_sequence([tokens[tokens > 0] for tokens, _ in batch], batch_first=True)
    return x, torch.stack([label for _, label in batch])


def char_lstm(run: Any, kind: str = "DPLSTM", **loading: Any) -> None:
    model = CharLSTM(kind)
    model, optimizer, loader = make_private(
        run, model, torch.optim.SGD(model.parameters(), lr=2.0), sentences(**loading)
    )
    for x, y in loader:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()


@loop("padding|other records")
def char_lstm_padded_by_batch(run: Any) -> None:
    # The last state depends on how long the longest name of the batch is.
    one_long = lambda batch: padded([*batch[:-1], (torch.ones(6 + len(batch) % 7), batch[-1][1])])  # noqa: E731
    char_lstm(run, collate_fn=lambda batch: tuple(t.long() for t in one_long(batch)))


@loop()
def char_lstm_of_one_length(run: Any) -> None:
    char_lstm(run)


@loop()
def char_gru_of_one_length(run: Any) -> None:
    char_lstm(run, "DPGRU")


class Packed(CharLSTM):
    def forward(self, x: Any, hidden: Any = None) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(x), (x > 0).sum(1), batch_first=True, enforce_sorted=False
        )
        _, (last, _) = self.lstm(packed, hidden)
        return self.out(last[-1])


# Opacus 1.6 has the gradients of a packed LSTM in the order of lengths, and those of other layers
# in that of the batch, so a row that is clipped is made of two records.
@loop("LSTM")
def packed_lstm(run: Any) -> None:
    model = Packed()
    model, optimizer, loader = make_private(
        run, model, torch.optim.SGD(model.parameters(), lr=2.0), sentences()
    )
    for x, y in loader:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()


class MeanOfWords(nn.Module):  # type: ignore[misc]
    """The network of Opacus' imdb.py, smaller."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.pool = nn.Embedding(20, 8), nn.AdaptiveAvgPool1d(1)
        self.fc1, self.fc2 = nn.Linear(8, 8), nn.Linear(8, 10)

    def forward(self, x: Any) -> Any:
        x = self.pool(self.emb(x).transpose(1, 2)).squeeze(2)
        return self.fc2(functional.relu(self.fc1(x)))


@loop()
def imdb(run: Any) -> None:
    model = MeanOfWords()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    model, optimizer, loader = make_private(run, model, optimizer, sentences())
    criterion = nn.CrossEntropyLoss()
    for words, labels in loader:
        optimizer.zero_grad()
        criterion(model(words).squeeze(1), labels).backward()
        optimizer.step()


@loop("torch.nn.Embedding")
def torchtext_with_bags(run: Any) -> None:
    model = nn.EmbeddingBag(20, 10)
    make_private(run, model, sgd(model), sentences())


def discriminator_and_generator() -> Any:
    discriminator = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.LeakyReLU(), nn.Linear(16, 1)
    )
    return discriminator, nn.Sequential(nn.Linear(4, 64), nn.Unflatten(1, (1, 8, 8)))


@loop("once")
def dcgan(run: Any) -> None:
    discriminator, generator = discriminator_and_generator()
    optimizer = torch.optim.Adam(discriminator.parameters(), lr=0.01)
    discriminator, optimizer, loader = make_private(run, discriminator, optimizer, images())
    criterion = nn.BCEWithLogitsLoss()
    for real, _ in loader:
        fake = generator(torch.randn(len(real), 4))
        for shown, label in ((fake.detach(), 0.0), (real, 1.0)):
            optimizer.zero_grad()
            out = discriminator(shown)
            criterion(out, torch.full_like(out, label)).backward()
            optimizer.step()


def dcgan_of_one_step(run: Any, first: int) -> None:
    discriminator, generator = discriminator_and_generator()
    optimizer = torch.optim.Adam(discriminator.parameters(), lr=0.01)
    of_generator = torch.optim.Adam(generator.parameters(), lr=0.01)
    discriminator, optimizer, loader = make_private(run, discriminator, optimizer, images())
    criterion = nn.BCEWithLogitsLoss()
    for number, (real, _) in enumerate(loader):
        fake = generator(torch.randn(len(real), 4))
        on_real, on_fake = discriminator(real), discriminator(fake.detach())
        loss = criterion(on_real, torch.ones_like(on_real))
        loss = loss + criterion(on_fake, torch.zeros_like(on_fake))
        loss.backward()
        optimizer.step()
        of_generator.zero_grad()
        out = discriminator(fake)
        criterion(out, torch.ones_like(out)).backward()
        if number >= first:
            of_generator.step()


@loop("third")
def dcgan_with_one_step(run: Any) -> None:
    dcgan_of_one_step(run, first=0)


@loop()
def dcgan_whose_generator_begins_with_the_third_batch(run: Any) -> None:
    dcgan_of_one_step(run, first=2)


@loop()
def lightning_by_hand(run: Any) -> None:
    class Module:
        def __init__(self, network: Any) -> None:
            self.network = network

        def training_step(self, batch: Any) -> Any:
            return functional.cross_entropy(self.network(batch[0]), batch[1])

    network = SampleConvNet()
    network, optimizer, loader = make_private(run, network, sgd(network), images())
    module = Module(network)
    for batch in loader:

        def closure(batch: Any = batch) -> Any:
            loss = module.training_step(batch)
            optimizer.zero_grad()
            loss.backward()
            return loss

        optimizer.step(closure)


@loop("physical_batch_size")
def gradient_accumulation(run: Any) -> None:
    model = SampleConvNet()
    model, optimizer, loader = make_private(run, model, sgd(model), images())
    for number, (x, y) in enumerate(loader):
        (functional.cross_entropy(model(x), y) / 4).backward()
        if (number + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()


@loop()
def one_cycle_and_adamw(run: Any) -> None:
    model = SampleConvNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)
    model, optimizer, loader = make_private(run, model, optimizer, images())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=run.steps)
    for x, y in loader:
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        schedule.step()


@loop()
def double_precision(run: Any) -> None:
    model = SampleConvNet().double()
    model, optimizer, loader = make_private(run, model, sgd(model), images())
    for x, y in loader:
        functional.cross_entropy(model(x.double()), y).backward()
        optimizer.step()


@loop()
def half_precision(run: Any) -> None:
    model = SampleConvNet().bfloat16()
    model, optimizer, loader = make_private(run, model, sgd(model), images())
    for x, y in loader:
        functional.cross_entropy(model(x.bfloat16()).float(), y).backward()
        optimizer.step()


@loop()
def autocast(run: Any) -> None:
    model = SampleConvNet()
    model, optimizer, loader = make_private(run, model, sgd(model), images())
    for x, y in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
        functional.cross_entropy(out.float(), y).backward()
        optimizer.step()


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        from opacus.layers import DPMultiheadAttention

        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.attention = DPMultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.norm, self.out = nn.LayerNorm(8), nn.Linear(8, 10)

    def forward(self, x: Any) -> Any:
        hidden = self.words(x)
        mixed, _ = self.attention(hidden, hidden, hidden, need_weights=False)
        return self.out(self.norm(hidden + mixed).mean(1))


@loop()
def dp_multihead_attention(run: Any) -> None:
    model = Attention()
    model, optimizer, loader = make_private(run, model, sgd(model), sentences())
    for x, y in loader:
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()


class Tied(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x: Any) -> Any:
        return self.out(torch.tanh(self.words(x)))


@loop()
def language_model_with_tied_weights(run: Any) -> None:
    model = Tied()
    model, optimizer, loader = make_private(run, model, sgd(model), sentences(TOKENS))
    for (x,) in loader:
        out = model(x[:, :-1])
        functional.cross_entropy(out.transpose(1, 2), x[:, 1:], reduction="none").mean(
            1
        ).mean().backward()
        optimizer.step()


@loop("ignore_index|tokens")
def language_model_with_padding(run: Any) -> None:
    model = Tied()
    model, optimizer, loader = make_private(run, model, sgd(model), sentences(TOKENS))
    for (x,) in loader:
        out = model(x[:, :-1]).flatten(0, 1)
        functional.cross_entropy(out, x[:, 1:].flatten(), ignore_index=0).backward()
        optimizer.step()


@loop()
def low_rank_adapters(run: Any) -> None:
    class Adapted(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(64, 10).requires_grad_(False)
            self.down, self.up = nn.Linear(64, 2, bias=False), nn.Linear(2, 10, bias=False)

        def forward(self, x: Any) -> Any:
            return self.base(x) + self.up(self.down(x))

    model = nn.Sequential(nn.Flatten(), Adapted())
    model, optimizer, loader = make_private(run, model, sgd(model), images())
    for x, y in loader:
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()


@loop("contrastive")
def simclr(run: Any) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16))
    model, optimizer, loader = make_private(run, model, sgd(model), images())
    for x, _ in loader:
        views = [functional.normalize(model(x + 0.1 * torch.randn_like(x))) for _ in range(2)]
        similarity = views[0] @ views[1].T / 0.1
        functional.cross_entropy(similarity, torch.arange(len(x))).backward()
        optimizer.step()


@loop("weights")
def imbalanced_classes(run: Any) -> None:
    model = SampleConvNet()
    criterion = nn.CrossEntropyLoss(weight=torch.linspace(1.0, 9.0, 10))
    model, optimizer, loader = make_private(run, model, sgd(model), images())
    for x, y in loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()


@loop("sampler")
def balanced_sampling(run: Any) -> None:
    model = SampleConvNet()
    sampler = data.WeightedRandomSampler([1.0] * RECORDS, RECORDS)
    make_private(run, model, sgd(model), images(shuffle=False, sampler=sampler))


@loop()
def averaged_weights(run: Any) -> None:
    model = SampleConvNet()
    average = torch.optim.swa_utils.AveragedModel(copy.deepcopy(model))
    private, optimizer, loader = make_private(run, model, sgd(model), images())
    for x, y in loader:
        functional.cross_entropy(private(x), y).backward()
        optimizer.step()
        average.update_parameters(model)
    average.module(IMAGES)


@loop()
def variational_autoencoder(run: Any) -> None:
    class Autoencoder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.Linear(64, 8), nn.Linear(4, 64)

        def forward(self, x: Any) -> Any:
            mean, log_variance = self.encoder(x).chunk(2, 1)
            code = mean + torch.exp(log_variance / 2) * torch.randn_like(mean)
            return self.decoder(code), mean, log_variance

    model = Autoencoder()
    model, optimizer, loader = make_private(run, model, sgd(model), images())
    for x, _ in loader:
        out, mean, log_variance = model(x.flatten(1))
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1)
        (functional.mse_loss(out, x.flatten(1)) + divergence.mean()).backward()
        optimizer.step()


@loop()
def siamese_triplets(run: Any) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8))
    dataset = data.TensorDataset(IMAGES, IMAGES + 0.1, IMAGES.flip(0))
    model, optimizer, loader = make_private(run, model, sgd(model), data.DataLoader(dataset))
    for anchor, positive, negative in loader:
        functional.triplet_margin_loss(model(anchor), model(positive), model(negative)).backward()
        optimizer.step()


@loop()
def segmentation_of_dicts(run: Any) -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Conv2d(4, 2, 1))
    records = [{"image": i, "mask": (i[0] > 0).long(), "name": "a"} for i in IMAGES]
    loader = data.DataLoader(records, batch_size=4)
    model, optimizer, loader = make_private(run, model, sgd(model), loader)
    for batch in loader:
        functional.cross_entropy(model(batch["image"]), batch["mask"]).backward()
        optimizer.step()


def bert() -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=8, max_position_embeddings=6, num_labels=10,
        )
    )  # fmt: skip


def hugging_face(run: Any, **settings: Any) -> None:
    model = bert().train()
    records = [
        {"input_ids": x, "position_ids": torch.arange(6), "labels": y}
        for x, y in zip(TOKENS, LABELS, strict=True)
    ]
    if settings.pop("without_positions", False):
        records = [{k: v for k, v in r.items() if k != "position_ids"} for r in records]
    model, optimizer, loader = make_private(
        run, model, torch.optim.AdamW(model.parameters(), lr=0.01), data.DataLoader(records)
    )
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()


@loop()
def hugging_face_bert(run: Any) -> None:
    hugging_face(run)


@loop("repeat")
def hugging_face_bert_without_positions(run: Any) -> None:
    hugging_face(run, without_positions=True)


# Loading transformers takes seconds.
SLOW = {"hugging_face_bert", "hugging_face_bert_without_positions"}
NAMES = [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in LOOPS]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_loop_trains_within_its_plan_or_is_told_what_to_do(name: str) -> None:
    function, refusal = LOOPS[name]
    begun = begin()
    if refusal is None:
        function(begun.run)
        begun.end()
        assert begun.is_finished
        assert begun.recorded_steps == begun.run.steps
        return
    # Two batches can be alike by chance, in one training of fifty at most.
    said = ""
    for _ in range(5):
        try:
            function(begin().run)
        except (InvalidArgumentError, PlanError) as error:
            said = str(error)
            break
    assert re.search(refusal, said), said
