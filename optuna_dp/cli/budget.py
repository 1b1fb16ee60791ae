"""``optuna-dp budget``: from an epsilon to a plan, what else it would buy, and a script."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optuna_dp.cli.budget_script import budget_script
from optuna_dp.cli.common import AsJson, Relation, clear_errors, option, table
from optuna_dp.core.numbers_shown import finite
from optuna_dp.errors import InvalidArgumentError

if TYPE_CHECKING:
    from rich.console import Console

    from optuna_dp.planning.batch import BatchChoices
    from optuna_dp.planning.guidance import Alternative, PilotWorth
    from optuna_dp.samplers.budget.plan import BudgetPlan

_TRAINED, _SPENT = "What is trained", "What is spent"
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
        if script is not None and script.exists():
            raise InvalidArgumentError("--script", str(script), problem="the file exists already")
        arguments = {
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
            "neighboring_relation": relation.replace("-", "_"),
        }
        if relation == "add-or-remove-one":
            del arguments["neighboring_relation"]
        settings = {name: value for name, value in arguments.items() if value is not None}
        with Console(stderr=True).status("Accounting ..."):
            answer = _answer(settings)
        if script is not None:
            script.write_text(budget_script(settings, answer.plan))
    if as_json:
        typer.echo(json.dumps(answer.to_json(), indent=2, sort_keys=True))
        return
    console = Console()
    _print(console, answer)
    if script is None:
        console.print("A script to start from (--script FILE writes it):\n")
        # Not console.print: nothing of it may be wrapped or taken for markup.
        typer.echo(budget_script(settings, answer.plan))
    else:
        console.print(f"A script to start from is in {script}.")


@dataclass(frozen=True)
class _Answer:
    """What the command shows.

    Attributes:
        plan: The plan.
        epsilon: What all its runs cost together.
        batches: Batch sizes for one run that uses the whole epsilon.
        remark: What is unfavorable about the batch and the pilots; may be empty.
        pilots: What the pilots of each rung can see.
        noise_of_twice_the_pilots: Times the last run's noise; infinite if out of reach.
        alternatives: What the same epsilon buys.
        recommendation: What to do.
    """

    plan: BudgetPlan
    epsilon: float
    batches: BatchChoices
    remark: str
    pilots: list[PilotWorth]
    noise_of_twice_the_pilots: float
    alternatives: list[Alternative]
    recommendation: str

    def to_json(self) -> dict[str, object]:
        return {
            "plan": self.plan.to_json(),
            "epsilon": self.epsilon,
            "batches": {
                "rows": [asdict(row) for row in self.batches.rows],
                "favored": asdict(self.batches.favored),
                "doubled": asdict(self.batches.doubled),
            },
            "remark": self.remark or None,
            "pilots": [rung.to_json() for rung in self.pilots],
            "noise_of_twice_the_pilots": finite(self.noise_of_twice_the_pilots),
            "alternatives": [way.to_json() for way in self.alternatives],
            "recommendation": self.recommendation,
        }


def _answer(settings: dict[str, Any]) -> _Answer:
    """Returns the plan of these arguments and what to say of it.

    If nothing is said of pilots it plans a short list, or one run where candidates would only see
    noise, and adds that to the arguments.
    """
    # Start-up time: the accountants are slow to load, and --help needs none.
    from optuna_dp.planning import batch, guidance
    from optuna_dp.planning.budget import AUTO_CANDIDATES, is_blind, plan_budget
    from optuna_dp.planning.calibration import profile_epsilon

    is_default = "pilots" not in settings and "candidates" not in settings
    if is_default:
        settings["candidates"] = AUTO_CANDIDATES
    plan = plan_budget(**settings)
    are_pilots_set = "pilot_epochs" in settings or "noise_increase" in settings
    if is_default and not are_pilots_set and is_blind(plan):
        del settings["candidates"]
        settings["pilots"] = 0
        plan = plan_budget(**settings)
    return _Answer(
        plan=plan,
        # As in plan_budget: Renyi accounting takes a second more and is never smaller.
        epsilon=profile_epsilon(plan.guarantee, plan.delta),
        batches=batch.batch_choices(
            epsilon=settings["epsilon"],
            delta=settings["delta"],
            records=settings["records"],
            epochs=settings["epochs"],
            work=settings.get("work", 1.0),
            neighboring_relation=plan.neighboring_relation,
        ),
        remark=guidance.remark_on_plan(plan),
        pilots=guidance.pilot_worth(plan),
        noise_of_twice_the_pilots=guidance.noise_of_twice(plan),
        alternatives=guidance.alternatives(plan),
        recommendation=_recommendation(plan, is_default),
    )


def _rungs(text: str) -> tuple[int, ...]:
    try:
        return () if text.strip() == "0" else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgumentError(
            "--pilots",
            text,
            allowed="it must be whole numbers with commas between them, such as 16,4",
        ) from None


def _recommendation(plan: BudgetPlan, is_default: bool) -> str:
    """Returns what to do; ``is_default`` says whether the pilots were chosen here.

    What it depends on is in docs/explanation/what-tuning-costs.md and searches.md.
    """
    from optuna_dp.planning.budget import AUTO_CANDIDATES  # Lazy: start-up time.

    final = plan.final
    if not plan.pilots and is_default:
        return (
            f"Train once at noise multiplier {final.noise_multiplier:.3g}, with your best guess. "
            "With so few records at so small an epsilon, the noise of a candidate's training "
            "hides nearly all that it learns, so candidates would cost more than they find. "
            f"--candidates {AUTO_CANDIDATES} plans them all the same."
        )
    if not plan.pilots:
        return (
            f"Train once at noise multiplier {final.noise_multiplier:.3g}, with clipping norm 1 "
            "and the learning rate that odp.train rehearses. If you search the rate all the same, "
            "search the noise of a weight, once: a model's best one is about the same at every "
            "epsilon, so take it from public data or from one epsilon and keep it. If the model "
            "or its features are still to be chosen, try a short list of candidates (--candidates "
            f"{AUTO_CANDIDATES})."
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
            f"{AUTO_CANDIDATES}). {advice} {_NOISE_OF_A_WEIGHT}"
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


def _print(console: Console, answer: _Answer) -> None:
    from optuna_dp.planning.guidance import PLAN_HEADS, plan_rows  # Lazy: start-up time.

    plan = answer.plan
    console.print(
        f"[bold]All runs together: epsilon {answer.epsilon:.3f} at delta {plan.delta:g}[/bold]\n"
    )
    console.print("Batch sizes, for one run that uses the whole epsilon")
    console.print(f"{answer.batches}\n", highlight=False)
    console.print("signal: share of the signal with every record in every step.\n", style="dim")
    if answer.remark:
        console.print(f"[bold]Remark:[/bold] {answer.remark}\n", highlight=False)
    console.print(table("The plan", PLAN_HEADS, plan_rows(plan)))
    console.print(
        "noise: standard deviation over the clipping norm. SGD, Adam: learning rates by the "
        "closed rule, for small dense models, clipping norm 1 and features of size about 1. "
        "odp.train rehearses a better one.\n",
        style="dim",
    )
    if answer.pilots:
        _print_pilots(console, answer)
    rows = [
        (
            way.name,
            "out of reach" if way.noise_multiplier is None else f"{way.noise_multiplier:.3g}",
            way.trainings,
            f"{way.computing:.3g} x",
        )
        for way in answer.alternatives
    ]
    heads = ("method", "noise", "runs", "computing")
    console.print(table("What the same epsilon buys", heads, rows))
    console.print(
        "noise: of the released run; every method scores on the training records. computing: "
        "mean number of steps, in units of one run.\n",
        style="dim",
    )
    console.print(f"[bold]Recommended:[/bold] {answer.recommendation}\n")


def _print_pilots(console: Console, answer: _Answer) -> None:
    from optuna_dp.planning.guidance import BLIND  # Lazy: start-up time.

    rows = [
        (
            f"{rung.pilots} pilots",
            str(rung.steps),
            f"{rung.epsilon:.2g}",
            f"{rung.signal:.3g}",
            "" if rung.spread is None else f"{100 * rung.spread:.2g}",
        )
        for rung in answer.pilots
    ]
    heads = ("rung", "steps", "epsilon of one", "signal", "spread, points")
    console.print(table("What pilots can see", heads, rows))
    times = answer.noise_of_twice_the_pilots
    cost = f"{100 * (times - 1):.2g} % more noise" if math.isfinite(times) else "out of reach"
    console.print(
        "epsilon of one: a pilot sees as much as one run at this epsilon. signal: what its "
        "training can learn, in standard deviations of its noise (batch size x sqrt(steps) / "
        "noise). spread: standard deviation of an accuracy, from the noise of the score. Twice as "
        f"many pilots: {cost} for the last run.\n",
        style="dim",
    )
    if any(rung.spread is not None and rung.spread > BLIND for rung in answer.pilots):
        console.print(
            "[bold]Remark:[/bold] Some pilots are too noisy to see small differences. A good "
            "first guess (study.enqueue_trial) helps more than pilots here. If you trust it, "
            "train once (--pilots 0).\n"
        )
