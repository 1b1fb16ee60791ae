"""``optuna-dp budget``: from an epsilon to a plan, what else it would buy, and a script."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optuna_dp.cli.common import AsJson, Relation, clear_errors, option, table
from optuna_dp.errors import InvalidArgumentError

if TYPE_CHECKING:
    from rich.console import Console

    from optuna_dp.budget.plan import BudgetPlan
    from optuna_dp.planning.batch import BatchChoices
    from optuna_dp.planning.budget_alternatives import Alternative
    from optuna_dp.planning.pilot_worth import PilotWorth


_TRAINED, _SPENT = "What is trained", "What is spent"
# A first guess and the five of odp.short_list: docs/explanation/searches.md.
_CANDIDATES = 6
# Epsilon times records below which nothing was found to beat a good guess (the same page).
_FEW = 1_300
_NOISE_OF_A_WEIGHT = (
    "A noise of a weight that was found once, on public data or at one epsilon, is kept at every "
    "epsilon."
)


def budget(
    epsilon: Annotated[float, option("NUMBER", "Epsilon of all runs together.", _SPENT)],
    records: Annotated[int, option("COUNT", "Number of training records.", _TRAINED)],
    epochs: Annotated[float, option("NUMBER", "Epochs of the last run.", _TRAINED)],
    batch_size: Annotated[
        float | None,
        option("NUMBER", "Mean records per batch (default: chosen for you).", _TRAINED),
    ] = None,
    work: Annotated[
        float | None,
        option("NUMBER", "Computing, as a multiple of --epochs; without --batch-size.", _TRAINED),
    ] = None,
    delta: Annotated[float, option("NUMBER", "Delta of epsilon, in (0, 1).", _SPENT)] = 1e-5,
    pilots: Annotated[
        str | None,
        option("N,N", "Pilots of each rung, such as 12,3; 0 for none.", _SPENT),
    ] = None,
    candidates: Annotated[
        int | None,
        option("COUNT", "Candidates of a short list (default: 6, or one run).", _SPENT),
    ] = None,
    pilot_epochs: Annotated[
        float | None,
        option("NUMBER", "Epochs of a pilot or candidate (default: chosen).", _TRAINED),
    ] = None,
    noise_increase: Annotated[
        float | None,
        option("NUMBER", "Noise of the last run, divided by that without pilots.", _SPENT),
    ] = None,
    spare_runs: Annotated[int, option("COUNT", "Spare last runs, in case one fails.", _SPENT)] = 0,
    relation: Relation = "add-or-remove-one",
    script: Annotated[Path | None, option("FILE", "Write a script to start from.")] = None,
    as_json: AsJson = False,
) -> None:
    """Plan private tuning with DP-SGD: a short list of candidates, then one last run.

    Prints the plan, what other methods get for the same epsilon, and a recommendation.

    Example: optuna-dp budget --epsilon 3 --records 20000 --epochs 10
    """
    from rich.console import Console  # start-up time

    with clear_errors(budget):
        # Start-up time: the accountants are slow to load, and --help needs none.
        from optuna_dp.planning.batch import batch_choices, remark_on_batch
        from optuna_dp.planning.budget import is_blind, plan_budget
        from optuna_dp.planning.budget_alternatives import alternatives
        from optuna_dp.planning.calibration import profile_epsilon
        from optuna_dp.planning.pilot_worth import noise_of_twice, pilot_worth

        if script is not None and script.exists():
            raise InvalidArgumentError("--script", str(script), "the file exists already")
        is_default_relation = relation == "add-or-remove-one"
        arguments: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": delta,
            "records": records,
            "batch_size": batch_size,
            "epochs": epochs,
            "work": work,
            "spare_runs": spare_runs or None,
            "pilots": None if pilots is None else _rungs(pilots),
            "candidates": candidates,
            "pilot_epochs": pilot_epochs,
            "noise_increase": noise_increase,
            "neighboring_relation": None if is_default_relation else relation.replace("-", "_"),
        }
        settings = {name: value for name, value in arguments.items() if value is not None}
        is_default = pilots is None and candidates is None
        with Console(stderr=True).status("Accounting ..."):
            if is_default:
                settings["candidates"] = _CANDIDATES
            plan = plan_budget(**settings)
            if is_default and pilot_epochs is None and noise_increase is None and is_blind(plan):
                del settings["candidates"]
                settings["pilots"] = 0
                plan = plan_budget(**settings)
            options = alternatives(plan)
            batches = batch_choices(
                epsilon=epsilon,
                delta=delta,
                records=records,
                epochs=epochs,
                work=1.0 if work is None else work,
                neighboring_relation=plan.neighboring_relation,
            )
            remark = remark_on_batch(plan)
            worth = pilot_worth(plan)
            noise_of_double = noise_of_twice(plan)
            # As in plan_budget: Renyi accounting takes a second more and is never smaller.
            spent = profile_epsilon(plan.guarantee, plan.delta)
        if script is not None:
            script.write_text(_script(settings, plan))
    if as_json:
        record = {
            "plan": plan.to_json(),
            "epsilon": spent,
            "batches": {
                "rows": [asdict(row) for row in batches.rows],
                "favored": asdict(batches.favored),
                "doubled": asdict(batches.doubled),
            },
            "remark": remark or None,
            "pilots": [rung.to_json() for rung in worth],
            "noise_of_twice_the_pilots": noise_of_double
            if math.isfinite(noise_of_double)
            else None,
            "alternatives": [option.to_json() for option in options],
            "recommendation": _recommendation(plan, is_default),
        }
        typer.echo(json.dumps(record, indent=2, sort_keys=True))
        return
    _print(
        Console(),
        plan,
        spent,
        batches,
        remark,
        worth,
        noise_of_double,
        options,
        settings,
        script,
        is_default,
    )


def _rungs(text: str) -> tuple[int, ...]:
    try:
        return () if text.strip() == "0" else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgumentError(
            "--pilots", text, "it must be whole numbers with commas between them, such as 16,4"
        ) from None


def _recommendation(plan: BudgetPlan, is_default: bool) -> str:
    """Returns what to do; ``is_default`` says whether the pilots were chosen here.

    What it depends on is in docs/explanation/what-tuning-costs.md and searches.md.
    """
    from optuna_dp.planning.budget import MOST_SPREAD  # Lazy: start-up time.

    final = plan.final
    if not plan.pilots and is_default:
        return (
            f"Train once at noise multiplier {final.noise_multiplier:.3g}, with your best guess. "
            "With so few records and so small an epsilon, noise alone moves a candidate's "
            f"accuracy by more than {100 * MOST_SPREAD:.0f} points, so candidates would cost more "
            f"than they find. --candidates {_CANDIDATES} plans them all the same."
        )
    if not plan.pilots:
        return (
            f"Train once at noise multiplier {final.noise_multiplier:.3g}, with clipping norm 1 "
            "and the learning rate that odp.train rehearses. If you search the rate all the same, "
            "search the noise of a weight, once: a model's best one is about the same at every "
            "epsilon, so take it from public data or from one epsilon and keep it. If the model "
            "or its features are still to be chosen, try a short list of candidates (--candidates "
            f"{_CANDIDATES})."
        )
    advice = (
        "If you only choose learning rate, clipping norm and batch size, train once without "
        "pilots instead (--pilots 0)."
    )
    if plan.candidates is None:
        rungs = ", then ".join(str(size) for size in plan.rung_sizes)
        return (
            f"Run {rungs} pilots, then train once at noise multiplier "
            f"{final.noise_multiplier:.3g}. A random space like this costs one to four points "
            f"where a short list of good guesses can be written down (--candidates "
            f"{_CANDIDATES}). {advice} {_NOISE_OF_A_WEIGHT}"
        )
    doubt = ""
    if final.records is not None and plan.epsilon * final.records < _FEW:
        doubt = (
            " With so few records at this epsilon nothing was found to beat a good first guess: "
            "if you trust yours, train once (--pilots 0)."
        )
    return (
        f"Where features or models are open, try {plan.candidates} candidates of a short list, "
        f"then train once at noise multiplier {final.noise_multiplier:.3g} with the best.{doubt} "
        f"{advice} {_NOISE_OF_A_WEIGHT}"
    )


def _print(
    console: Console,
    plan: BudgetPlan,
    spent: float,
    batches: BatchChoices,
    remark: str,
    worth: list[PilotWorth],
    noise_of_double: float,
    options: list[Alternative],
    arguments: dict[str, Any],
    script: Path | None,
    is_default: bool,
) -> None:
    from optuna_dp.budget.plan_table import BUDGET_HEADS, budget_rows  # Lazy: start-up time.

    console.print(f"[bold]All runs together: epsilon {spent:.3f} at delta {plan.delta:g}[/bold]\n")
    console.print("Batch sizes, for one run that uses the whole epsilon")
    console.print(f"{batches}\n", highlight=False)
    console.print("signal: share of the signal with every record in every step.\n", style="dim")
    if remark:
        console.print(f"[bold]Remark:[/bold] {remark}\n", highlight=False)
    console.print(table("The plan", BUDGET_HEADS, budget_rows(plan)))
    console.print(
        "noise: standard deviation over the clipping norm. SGD, Adam: learning rates by the "
        "closed rule, for small dense models, clipping norm 1 and features of size about 1. "
        "odp.train rehearses a better one.\n",
        style="dim",
    )
    if worth:
        _print_worth(console, worth, noise_of_double)
    rows = [
        (
            option.name,
            "out of reach"
            if option.noise_multiplier is None
            else f"{option.noise_multiplier:.3g}",
            option.trainings,
            f"{option.computing:.3g} x",
        )
        for option in options
    ]
    heads = ("method", "noise", "runs", "computing")
    console.print(table("What the same epsilon buys", heads, rows))
    console.print(
        "noise: of the released run; every method scores on the training records. computing: "
        "mean number of steps, in units of one run.\n",
        style="dim",
    )
    console.print(f"[bold]Recommended:[/bold] {_recommendation(plan, is_default)}\n")
    if script is None:
        console.print("A script to start from (--script FILE writes it):\n")
        # Not console.print: nothing of it may be wrapped or taken for markup.
        typer.echo(_script(arguments, plan))
    else:
        console.print(f"A script to start from is in {script}.")


def _print_worth(console: Console, worth: list[PilotWorth], noise_of_double: float) -> None:
    from optuna_dp.planning.pilot_worth import BLIND  # Lazy: start-up time.

    rows = [
        (
            f"{rung.pilots} pilots",
            str(rung.steps),
            f"{rung.epsilon:.2g}",
            "" if rung.spread is None else f"{100 * rung.spread:.2g}",
        )
        for rung in worth
    ]
    heads = ("rung", "steps", "epsilon of one", "spread, points")
    console.print(table("What pilots can see", heads, rows))
    cost = (
        f"{100 * (noise_of_double - 1):.2g} % more noise"
        if math.isfinite(noise_of_double)
        else "out of reach"
    )
    console.print(
        "epsilon of one: a pilot sees as much as one run at this epsilon. spread: standard "
        "deviation of an accuracy, from the noise of the score. Twice as many pilots: "
        f"{cost} for the last run.\n",
        style="dim",
    )
    if any(rung.spread is not None and rung.spread > BLIND for rung in worth):
        console.print(
            "[bold]Remark:[/bold] Some pilots are too noisy to see small differences. A good "
            "first guess (study.enqueue_trial) helps more than pilots here. If you trust it, "
            "train once (--pilots 0).\n"
        )


def _script(arguments: dict[str, Any], plan: BudgetPlan) -> str:
    call = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    script = _SCRIPT
    if not plan.pilots:
        script = script.replace(_SEARCHED, _FIXED).replace(_AROUND, _PLAIN)
    if plan.candidates is not None:
        assert _MODEL + _SEARCHED in script
        script = script.replace(_MODEL + _SEARCHED, _LISTED).replace(_AROUND, _LIST)
        script = script.replace("records = schema.encode(table, labels)\n", "")
        entries = "".join(f'    {{"features": "{name}"}},\n' for name in _NAMES[: plan.candidates])
        missing_count = plan.candidates - len(_NAMES)
        if missing_count > 0:
            entries += f"    # HERE: {missing_count} more\n"
        script = script.replace("    CANDIDATES\n", entries)
    return script.replace("ARGUMENTS", call).replace("RECORDS", str(arguments["records"]))


# Maps of odp.public_maps, the best on other tables first.
_NAMES = ("joined", "squares", "raw", "cosines", "bins", "signs")
_MODEL = """\
    # HERE: your model. With PyTorch any torch.nn.Module of this width and these outputs.
    model = odp.SoftmaxRegression(schema.width, schema.outputs)
"""
_LISTED = """\
    records = prepared(trial.suggest_categorical("features", sorted(maps)))
    # HERE: your model. With PyTorch any torch.nn.Module of this width and these outputs. The
    # learning rate follows from public numbers.
    model = odp.SoftmaxRegression(records.width, schema.outputs)
    trained = odp.train(run, model, records)
"""
_LIST = """\
maps = odp.public_maps(schema.made_up_inputs())


def prepared(name):
    def features(rows):  # of each record by itself
        mapped = maps[name](schema.encode(rows).x)
        return np.hstack([mapped, np.ones((len(mapped), 1))])

    return schema.encode(table, labels, prepare=features)


# HERE: your candidates, as many as the plan has: what you would train without a search, and other
# good guesses by public knowledge. odp.short_list("table"), "image" or "fine-tuning" has some with
# a hidden layer as well, for PyTorch.
candidates = [
    CANDIDATES
]
sampler = odp.BudgetSampler(plan, candidates=candidates)
"""
_SEARCHED = """\
    # The learning rate follows from this number, so it may differ between pilots and last run.
    # An example: search features, model or width instead, which only your data can answer.
    noise = trial.suggest_float("noise_per_weight", 0.03, 3, log=True)
    rate = run.learning_rate("adam", noise_per_weight=noise)
    trained = odp.train(run, model, records, learning_rate=rate)
"""
_FIXED = """\
    trained = odp.train(run, model, records)
"""
_AROUND = """\
# The first pilot uses the value computed from public numbers, the others are around it.
guess = odp.around({"noise_per_weight": 0.3})
sampler = odp.BudgetSampler(plan, proposer=guess)
"""
_PLAIN = """\
sampler = odp.BudgetSampler(plan)
"""
_SCRIPT = '''\
"""Private tuning within a budget. Put your data and model where it says HERE."""

import numpy as np
import optuna

import optuna_dp as odp

plan = odp.plan_budget(ARGUMENTS)

# HERE: your records, as they come: a data frame, say. These are made up, and there are as many as
# the plan says.
rng = np.random.default_rng()
table = rng.normal(size=(RECORDS, 10))
labels = np.where(table @ rng.normal(size=10) > 0, "yes", "no")

# HERE: what is public about your columns. A range is where most values lie, clipped beyond; a list
# has categories. For images and texts: odp.Schema.images, odp.Schema.tokens.
columns = {f"column {place}": (-2, 2) for place in range(10)}
schema = odp.Schema(columns, ill=["no", "yes"], target="ill")
records = schema.encode(table, labels)


def objective(trial):
    run = odp.fidelity(trial)  # what this trial may spend
    # HERE: your model. With PyTorch any torch.nn.Module of this width and these outputs.
    model = odp.SoftmaxRegression(schema.width, schema.outputs)
    # The learning rate follows from this number, so it may differ between pilots and last run.
    # An example: search features, model or width instead, which only your data can answer.
    noise = trial.suggest_float("noise_per_weight", 0.03, 3, log=True)
    rate = run.learning_rate("adam", noise_per_weight=noise)
    trained = odp.train(run, model, records, learning_rate=rate)
    return trained.score  # has noise


# The first pilot uses the value computed from public numbers, the others are around it.
guess = odp.around({"noise_per_weight": 0.3})
sampler = odp.BudgetSampler(plan, proposer=guess)
study = optuna.create_study(direction="maximize", sampler=sampler)
study.optimize(objective, callbacks=[odp.PrivacyCallback()])  # stops by itself
release = odp.release(study)

print(release.params, release.value)
print(release.guarantee.epsilon(plan.delta))
print(release.statement())
'''
