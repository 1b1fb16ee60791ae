"""The headline's tasks and arms, for ``examples/compare/run.py``: only the learning rate is open.

::

    python examples/compare/run.py --task examples/headline/rates.py \\
        --arms examples/headline/rates.py --real --repetitions 24 --results examples/headline
    python examples/headline/rates.py        # the page's tables, and docs/_static/headline.svg

One number is searched: the noise of a weight, from which each run's learning rate follows. Its
prior is that of the documentation, around what a rehearsal on made-up inputs finds. The clipping
norm is 1. The ceilings, ``free_choice`` and ``no_privacy``, are compared at nobody's cost: they
are not private.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "compare"))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "known_without_data"))

import engine
import numpy as np
import optuna
from bench import Bench, Composed, Outcome, Selection, public
from landscape import DELTA, bare_run
from optuna.distributions import FloatDistribution
from partitions import utilities
from rehearsed import rehearsed as in_numpy
from results import STYLE, interval, read, table
from scipy.stats import norm as normal
from task import Array, Params, Predict, Task
from tasks import EPSILONS, Size, load, rows, size_of

import optuna_dp as odp
from optuna_dp.runs.run import Run

HERE = Path(__file__).parent
SEARCHED = "noise_per_weight"
RULE, NORM = 0.3, 1.0
# A search's range of the noise of a weight: so many times the first guess either way.
REACH = 10.0
DENSITY_BOUNDS = (0.75, 2.0)
CHOICE_SHARE = 0.25
CANDIDATES = 9
# The ceilings compare these: noises of a weight in units of the first guess, and, where there is
# no noise, learning rates.
CEILING_GRID = tuple(float(c) for c in np.exp(np.linspace(-1.6, 1.6, 13)))
RATES_WITHOUT_NOISE = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
WORK = 4.0  # of the arms with a larger batch, at most


@cache
def rehearsed(size: Size, noise: float) -> float:
    """The noise of a weight of the rate that a rehearsal finds: from public numbers alone."""
    about = {"noise_multiplier": noise, "steps": size.steps, "batch_size": size.batch}
    inputs = size.made_up()
    start = size.model.start(1, inputs.shape[1], np.random.default_rng(0))
    rate = in_numpy(engine.logits, [layer[0] for layer in start], inputs, **about)
    return rate / rate_at(1.0, about)


def rate_at(noise_per_weight: float, about: dict[str, Any]) -> float:
    """The rate of SGD at which noise adds up to this, without the package's cap."""
    tiny = 1e-6
    return odp.learning_rate(**about, noise_per_weight=tiny) * noise_per_weight / tiny


@dataclass(frozen=True)
class Rates(Task):
    """A task of the headline, with its splits.

    Attributes:
        size: What is public about it.
    """

    size: Size | None = None

    def split(self, repetition: int) -> tuple[Array, Array]:
        found = rows(self.size.name, repetition)
        return found["private"], found["test"]


def task_of(size: Size) -> Rates:
    """The task of this size; a search begins at what is rehearsed at noise 1."""
    x, y = load(size.name)
    center = rehearsed(size, 1.0)

    def train(x: Array, y: Array, params: Params, run: Run, rng: np.random.Generator) -> Predict:
        rate = params.get("rate")
        if rate is None:
            rate = run.learning_rate(noise_per_weight=params[SEARCHED])
        weights = engine.train(
            replace(size.model, optimiser=params.get("optimiser", "sgd")),
            x,
            y,
            [rate],
            [NORM],
            noise_multiplier=run.noise_multiplier,
            sample_rate=run.sample_rate,
            steps=run.steps,
            batch=run.batch_size,
            rng=rng,
        )
        return lambda at: engine.logits(weights, at)[0]

    return Rates(
        name=f"{size.name}_rate",
        x=x,
        y=y,
        space={SEARCHED: FloatDistribution(center / REACH, center * REACH, log=True)},
        good={SEARCHED: center},
        poor={"rate": 0.1},
        train=train,
        records=size.records,
        test=size.test,
        batch=size.batch,
        epsilons=EPSILONS[size.name],
        steps=size.steps,
        size=size,
    )


TASKS = {f"{name}_rate": partial(lambda name: task_of(size_of(name)), name) for name in EPSILONS}


@dataclass(frozen=True)
class Arm:
    """What the harness asks for.

    Attributes:
        planned: What is charged for, from task and epsilon.
        searched: A search, from a bench and what was planned.
        larger: Whether batch and steps are those that accounting favors for more computing.
    """

    planned: Callable[[Rates, float], Any]
    searched: Callable[[Bench, Any], Outcome]
    larger: bool = False

    def sized(self, task: Rates, epsilon: float) -> Rates:
        if not self.larger:
            return task
        size = task.size
        found = odp.batch_choices(
            epsilon=epsilon, delta=DELTA, records=size.records, epochs=size.epochs, work=WORK
        ).favored
        return task_of(replace(size, batch=found.batch_size, epochs=found.epochs))

    def plan(self, task: Rates, epsilon: float) -> Any:
        return self.planned(self.sized(task, epsilon), epsilon)

    def search(self, bench: Bench, plan: Any) -> Outcome:
        own = replace(bench, task=self.sized(bench.task, bench.epsilon))
        found = self.searched(own, plan)
        one = bench.task.steps * bench.task.batch
        return replace(found, work=found.work * own.task.steps * own.task.batch / one)


def alone(task: Task, epsilon: float) -> Composed:
    """One training without a score."""
    return Composed.planned(epsilon, lambda noise: [bare_run(task, noise, task.steps)])


def usual(bench: Bench, plan: Composed, **params: Any) -> Outcome:
    return bench.outcome(bench.run(params, plan.runs[0]))


def with_pilots(task: Task, epsilon: float, pilots: int | tuple[int, ...]) -> odp.BudgetPlan:
    """Pilots as long as the last run, or none."""
    about = public(task, epsilon)
    length = {"pilot_epochs": about["epochs"]} if pilots else {}
    return odp.plan_budget(**about, pilots=pilots, **length)


def budget(bench: Bench, plan: odp.BudgetPlan, first: float | None = None) -> Outcome:
    """One run at a guess, or pilots around it and then one run."""
    if not plan.pilots:
        guess = bench.task.good if first is None else {SEARCHED: first}
        return bench.outcome(bench.run(guess, plan.final))
    guess = odp.around(bench.task.good)
    sampler = odp.BudgetSampler(plan, search_space=dict(bench.task.space), proposer=guess)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(bench.objective())
    return bench.released(study, plan.guarantee)


def default_model(size: Size) -> tuple[Any, Any, Any, dict[str, Any]]:
    """What a user of ``odp.train`` gives for a task: model, prediction, inputs, further arguments.

    A softmax regression sees the constant; a network of PyTorch has biases of its own.
    """
    features = size.made_up().shape[1]
    if not size.model.hidden:
        model = odp.SoftmaxRegression(features, size.model.classes)
        return model, model.predict, size.made_up(), {}
    import torch  # The flights alone need it.
    from torch import nn

    network = nn.Sequential(
        nn.Linear(features - 1, size.model.hidden),
        nn.Tanh(),
        nn.Linear(size.model.hidden, size.model.classes),
    )

    def predict(x: Array) -> Array:
        with torch.no_grad():
            return network(torch.as_tensor(x)).argmax(1).numpy()

    inputs = odp.made_up_inputs(*size.schema).astype(np.float32)
    return network, predict, inputs, {"loss": nn.functional.cross_entropy}


def by_train(bench: Bench, plan: odp.BudgetPlan, **others: Any) -> Outcome:
    """One run by ``odp.train``, as a user calls it: nothing is chosen but the model."""
    task = bench.task
    rows_of = [task.split(bench.repetition)[part] for part in range(2)]
    kept = slice(None, -1 if task.size.model.hidden else None)
    (x, y), (test_x, test_y) = ((task.x[rows, kept], task.y[rows]) for rows in rows_of)
    rates = []

    def objective(trial: optuna.Trial) -> float:
        model, predict, inputs, named = default_model(task.size)
        trained = odp.train(
            odp.start_run(trial), model, (x, y), inputs=inputs, score="accuracy", **named, **others
        )
        rates.append((trained.learning_rate, float(np.mean(predict(test_x) == test_y))))
        return trained.score

    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    bench.check(odp.release(study), plan.guarantee)
    ((rate, accuracy),) = rates
    return Outcome(accuracy, 1, 1.0, {"rate": float(f"{rate:.3g}")})


def selection(
    task: Task, epsilon: float, mean: int, bounds: tuple[float, float] = (1.0, 1.0)
) -> Selection:
    startup = int(bounds[0] < 1.0)
    return Selection.planned(task, epsilon, odp.Geometric(mean), bounds, startup)


def selected(bench: Bench, plan: Selection, sampler: Callable[..., Any]) -> Outcome:
    """The best of a secret number of runs around the guess."""
    prior = odp.around(bench.task.good)
    made = sampler(dict(bench.task.space), trials=plan.trials, prior=prior, run=plan.run.event)
    study = optuna.create_study(direction="maximize", sampler=made)
    study.optimize(bench.objective(plan.run), callbacks=[odp.PrivacyCallback()])
    return bench.released(study, plan.guarantee)


randtune = partial(selected, sampler=odp.RandTuneSampler)
dp_hypo = partial(selected, sampler=partial(odp.DPHyPOSampler, density_bounds=DENSITY_BOUNDS))


def for_a_choice(task: Rates, epsilon: float) -> Composed | None:
    """A private choice for a quarter of epsilon, then one training."""
    if task.size.name == "flights":
        return None  # a hundred trainings' computing
    choice = odp.bounded_range(CHOICE_SHARE * epsilon)
    return Composed.planned(epsilon, lambda noise: [bare_run(task, noise, task.steps)], choice)


def noisy_max(bench: Bench, plan: Composed) -> Outcome:
    """Trainings without privacy on partitions, a private choice, one private training."""
    (run,), size = plan.runs, bench.task.size
    at = normal.ppf((np.arange(CANDIDATES) + 0.5) / CANDIDATES)
    places = [{SEARCHED: float(c)} for c in bench.task.good[SEARCHED] * np.exp(0.7 * at)]
    parts, k = rows(size.name, bench.repetition), size.partitions
    train, valid = parts["train"], parts["valid"]
    known = utilities(
        bench.task.x[train],
        bench.task.y[train],
        classes=size.model.classes,
        part_of=np.asarray(odp.partition(len(train), k)),
        valid=(bench.task.x[valid], bench.task.y[valid]),
        rates=[run.learning_rate(noise_per_weight=one[SEARCHED]) for one in places],
        norms=[NORM] * len(places),
        partitions=k,
        noise=run.noise_multiplier / size.batch,
        steps=size.steps,
    )
    with warnings.catch_warnings():
        # That the noise hides differences is known; it is what is measured here.
        warnings.simplefilter("ignore")
        sampler = odp.NoisyMaxSampler(
            candidates=places,
            n_partitions=k,
            epsilon=CHOICE_SHARE * bench.epsilon,
            training=run.event,
        )
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def objective(trial: optuna.Trial) -> float:
        found = known[places.index(bench.task.suggest(trial))]
        return odp.report_utilities(trial, [None if np.isnan(u) else float(u) for u in found])

    study.optimize(objective)
    choice = odp.release(study)
    model = bench.run(choice.params, run)
    bench.check(choice.with_training(run.event, artifact=str(model).encode()), plan.guarantee)
    return bench.outcome(model)


def ceiling(bench: Bench, run: Run, rates: list[float]) -> Outcome:
    """The best of the rates by exact accuracy on the training's own records: not private."""
    models = [bench.run({"rate": rate}, run) for rate in rates]
    return bench.outcome(max(models, key=lambda model: bench.exact(model, "score")))


def free_choice(bench: Bench, plan: Composed) -> Outcome:
    (run,) = plan.runs
    about = {
        "noise_multiplier": run.noise_multiplier,
        "steps": run.steps,
        "batch_size": run.batch_size,
    }
    noises = [bench.task.good[SEARCHED] * times for times in CEILING_GRID]
    return ceiling(bench, run, [rate_at(c, about) for c in noises])


def no_privacy(bench: Bench, plan: Composed) -> Outcome:
    return ceiling(bench, replace(plan.runs[0], noise_multiplier=0.0), list(RATES_WITHOUT_NOISE))


def of_softmax(task: Rates, epsilon: float) -> odp.BudgetPlan | None:
    """One run, where no network takes too long."""
    return None if task.size.model.hidden else with_pilots(task, epsilon, 0)


ONE_RUN = partial(with_pilots, pilots=0)
LINEAR = partial(by_train, optimizer="sgd", schedule=odp.Schedule("linear"))
_BOTH = {
    "train": (ONE_RUN, by_train),
    "train_adam": (ONE_RUN, partial(by_train, optimizer="adam")),
    "one_rule": (ONE_RUN, partial(budget, first=RULE)),
    "one_rehearsed": (ONE_RUN, budget),
    "randtune": (partial(selection, mean=10), randtune),
    "pilots4": (partial(with_pilots, pilots=4), budget),
    "free_choice": (alone, free_choice),
}
ARMS = {
    "train": Arm(*_BOTH["train"]),
    "one_rehearsed": Arm(*_BOTH["one_rehearsed"]),
    "usual_sgd": Arm(alone, partial(usual, rate=0.1)),
    "usual_adam": Arm(alone, partial(usual, rate=0.001, optimiser="adam")),
    "randtune30": Arm(partial(selection, mean=30), randtune),
    "dp_hypo": Arm(partial(selection, mean=10, bounds=DENSITY_BOUNDS), dp_hypo),
    "pilots16": Arm(partial(with_pilots, pilots=(16, 4)), budget),
    "noisy_max": Arm(for_a_choice, noisy_max),
    "no_privacy": Arm(alone, no_privacy),
    "train_linear": Arm(of_softmax, LINEAR),
    "train_linear_4x": Arm(ONE_RUN, LINEAR, larger=True),
    **{
        name: Arm(*parts)
        for name, parts in _BOTH.items()
        if name not in ("train", "one_rehearsed")
    },
    **{f"{name}_4x": Arm(*parts, larger=True) for name, parts in _BOTH.items()},
}

# What the page shows: each table's first arm is what the others are compared with.
TABLES = (
    ["train", "one_rehearsed", "usual_sgd", "randtune", "dp_hypo", "noisy_max", "pilots4"],
    ["train_4x", "one_rehearsed_4x", "one_rule_4x", "pilots4_4x"],
    ["train", "train_adam", "train_linear", "free_choice", "no_privacy"],
    ["train_4x", "train_adam_4x", "train_linear_4x", "free_choice_4x"],
    # What a search around the rate adds to one run with the same steps.
    ["one_rehearsed", "randtune", "dp_hypo", "noisy_max", "pilots4", "free_choice"],
)
# For the page's sentences: what a larger batch adds.
PAIRS = (["train", "train_4x"], ["one_rehearsed", "one_rehearsed_4x"])
# Arm -> (colour, marker, line); the first is drawn bold.
STYLES = {
    "odp.train, one run": ("#e8590c", "o", "-"),
    "free choice (not private)": ("#7a7a7a", "", ":"),
    "pilots or a short list, one run": ("#8f7fe8", "^", "-"),
    "RandTune, 10 runs": ("#3d85e0", "s", "-"),
    "usual rate (fine-tuning: from scratch)": ("#7a7a7a", "x", "-"),
}
SEARCHED_ARMS = dict(
    zip(STYLES, ("train_4x", "free_choice_4x", "pilots4", "randtune", "usual_sgd"), strict=True)
)
PANELS = {"digits_rate": "digits", "flights_rate": "flights"}
FASHION = HERE.parent / "fashion_mnist" / "results.json"
LISTS = HERE.parent / "compare" / "network_lists.json"
FASHION_ARMS = dict(zip(STYLES, ("default", None, "list", None, None), strict=True))
LIST_ARMS = dict(
    zip(
        STYLES,
        (
            None,  # The points of all others are beyond it.
            "free choice (not private)",
            "short list, none",
            "RandTune 10",
            "one run: poor default",
        ),
        strict=True,
    )
)
# By the arm's words: epsilon, mean, half of the interval.
Lines = dict[str, list[tuple[str, float, float]]]


def of_searches(path: Path, task: str) -> Lines:
    """The lines of a task of this file."""
    cells = sorted((float(at[1]), cell) for at, cell in read(path).items() if at[0] == task)
    return {
        words: [
            (f"{epsilon:g}", *interval(np.array([*cell[arm].values()])))
            for epsilon, cell in cells
            if arm in cell
        ]
        for words, arm in SEARCHED_ARMS.items()
    }


def of_fashion() -> Lines:
    """The lines of examples/fashion_mnist: means, where there are several searches."""
    found: dict[tuple[str, float], list[float]] = {}
    for row in json.loads(FASHION.read_text()):
        found.setdefault((row["arm"], row["epsilon"]), []).append(row["accuracy"])
    return {
        words: [
            (f"{epsilon:g}", float(np.mean(values)), 0.0)
            for (own, epsilon), values in sorted(found.items(), key=lambda item: item[0][1])
            if own == arm
        ]
        for words, arm in FASHION_ARMS.items()
    }


def of_fine_tuning() -> Lines:
    """The lines of the fine-tuning task of examples/compare; needs PyTorch."""
    import network_lists
    from landscape import Landscape, stored_name
    from task import from_file

    name = str(network_lists.NETWORK_TASKS / "text.py")
    task, land = from_file(Path(name)).task(), Landscape.read(stored_name(name), beyond=True)
    lines: Lines = {words: [] for words in STYLES}
    for row in json.loads(LISTS.read_text())["cells"]:
        if row["task"] != task.name:
            continue
        cell = network_lists.Cell(task, land, row["epsilon"])
        lora = float(cell.alone()[land.place(task.good)])
        for words, arm in LIST_ARMS.items():
            beyond = row["points"][arm] if arm else 0.0
            lines[words].append((f"{row['epsilon']:g}", lora + beyond, 0.0))
    return lines


def made_of() -> str:
    """What the figure is drawn from."""
    files = (HERE / "searches.csv", FASHION, LISTS)
    return ", ".join(f"{file.name} {sha256(file.read_bytes()).hexdigest()}" for file in files)


def draw(to: Path) -> None:
    """Draws test accuracy by total epsilon, a panel a task; needs matplotlib and PyTorch."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.style.use(STYLE)
    # A telephone shows the figure at 60 %, and words of 9 pixels.
    plt.rcParams.update({"font.size": 12})
    drawn, axes = plt.subplots(2, 2, figsize=(6.4, 7.0))
    panels = {title: of_searches(HERE / "searches.csv", task) for task, title in PANELS.items()}
    panels["Fashion-MNIST"] = of_fashion()
    panels["fine-tuning (LoRA), text"] = of_fine_tuning()
    for axis, (title, lines) in zip(axes.flat, panels.items(), strict=True):
        epsilons = [epsilon for epsilon, _, _ in lines[next(iter(STYLES))]]
        for place, (words, (colour, marker, line)) in enumerate(STYLES.items()):
            axis.errorbar(
                [epsilons.index(at) + 0.03 * (place - 2) for at, _, _ in lines[words]],
                [mean for _, mean, _ in lines[words]],
                [half if np.isfinite(half) else 0.0 for _, _, half in lines[words]],
                color=colour,
                marker=marker,
                linestyle=line,
                linewidth=1.4 if place else 2.2,
                markersize=5,
                label=words,
            )
        axis.set_title(title, fontsize=12)
        axis.set_xticks(range(len(epsilons)), epsilons)
        axis.set_xlim(-0.3, len(epsilons) - 0.7)
    for axis in axes[:, 0]:
        axis.set_ylabel("test accuracy, per cent")
    for axis in axes[1]:
        axis.set_xlabel("total epsilon")
    handles, labels = axes[0][0].get_legend_handles_labels()
    drawn.legend(
        handles, labels, loc="lower center", ncols=2, fontsize=11, frameon=False, columnspacing=1.0
    )
    drawn.tight_layout(rect=(0, 0.13, 1, 1))
    drawn.savefig(to, metadata={"Date": None, "Description": made_of()}, transparent=True)
    plt.close(drawn)


def main() -> None:
    path, static = HERE / "searches.csv", HERE.parents[1] / "docs" / "_static"
    for arms in (*TABLES, *PAIRS):
        print(table(path, arms) + "\n")
    draw(static / "headline.svg")


if __name__ == "__main__":
    main()
