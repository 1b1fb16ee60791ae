"""``optuna-dp plan``: what searches cost, before any data are touched."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from optuna_dp import validation
from optuna_dp.cli.common import AsJson, Relation, clear_errors, option
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.selection_planner.table import print_plan


def plan(
    noise_multiplier: Annotated[
        float | None,
        option("NUMBER", "Noise of DP-SGD over its clipping norm, unless it is solved for."),
    ] = None,
    sample_rate: Annotated[
        float | None, option("RATE", "Batch size over the number of records, in (0, 1].")
    ] = None,
    steps: Annotated[int | None, option("COUNT", "Steps of DP-SGD in one run.")] = None,
    delta: Annotated[float, option("NUMBER", "Delta of every epsilon, in (0, 1).")] = 1e-5,
    score_noise: Annotated[
        float | None,
        option(
            "NUMBER",
            "Noise of the run's score over what one record moves it. Leave out if the score "
            "costs nothing.",
        ),
    ] = None,
    event: Annotated[
        str | None, option("JSON", "The run's event, instead of the options above but --delta.")
    ] = None,
    law: Annotated[
        list[str] | None,
        option(
            "LAW",
            "Distribution of the number of runs: geometric, logarithmic, poisson, "
            "negative-binomial:SHAPE or binomial:N. Repeat for more.",
        ),
    ] = None,
    mean: Annotated[
        list[float] | None,
        option("NUMBER", "Mean number of runs. Repeat for more."),
    ] = None,
    density_bounds: Annotated[
        list[str] | None,
        option(
            "c,C",
            "Also searches whose density stays between c and C times the prior (default: 0.75,2 "
            "at the smallest mean); 'none' for no such search. Repeat for more.",
        ),
    ] = None,
    relation: Relation = "add-or-remove-one",
    target_epsilon: Annotated[
        float | None,
        option("NUMBER", "Find the noise multiplier with which each search costs this."),
    ] = None,
    attacks: Annotated[
        bool | None,
        typer.Option(
            "--attacks/--no-attacks", help="Look for attacks (default: without a target)."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare private selections (RandTune, DP-HyPO), or find the noise for an epsilon.

    Each row has one distribution of the secret number of runs, and runs that learn from earlier
    ones within density bounds, or not at all. optuna-dp budget is the recommended method.

    Example: optuna-dp plan --noise-multiplier 1 --sample-rate .0043 --steps 2344
    """
    with clear_errors(plan, **_FLAGS):
        # Checked before the accountants are loaded: a typing error should show at once.
        _check(event, noise_multiplier, sample_rate, steps, score_noise, target_epsilon)
        # Lazy: start-up time.
        from threadpoolctl import threadpool_limits

        from optuna_dp.selection_planner import selection_plan

        table = selection_plan.selection_plan(
            _run(event, noise_multiplier, sample_rate, steps, score_noise),
            delta=delta,
            laws=law or selection_plan.LAWS,
            means=mean or selection_plan.MEANS,
            density_bounds=None if density_bounds is None else _bounds(density_bounds),
            neighboring_relation=relation.replace("-", "_"),
            target_epsilon=target_epsilon,
        )
        attacks = target_epsilon is None if attacks is None else attacks
        # Rows are computed here. Their linear systems are small: on a busy machine several threads
        # spend four times as long, most of it waiting for each other.
        with threadpool_limits(1):
            if as_json:
                typer.echo(json.dumps(table.to_json(attack=attacks), indent=2, sort_keys=True))
            else:
                print_plan(table, attacks=attacks)


# What the library calls differently, beside what the user typed.
_FLAGS = {
    "data": "--event",
    "shape": "--law: shape",
    "n": "--law: n",
    "means": "--mean",
    "density_bounds[0]": "--density-bounds: c",
    "density_bounds[1]": "--density-bounds: C",
}


def _check(
    event: str | None,
    noise: float | None,
    rate: float | None,
    steps: int | None,
    score_noise: float | None,
    target: float | None,
) -> None:
    training = {
        "--noise-multiplier": noise,
        "--sample-rate": rate,
        "--steps": steps,
        "--score-noise": score_noise,
    }
    if event is not None:
        for name, value in training.items():
            if value is not None:
                raise InvalidArgumentError(
                    name, value, "it cannot be combined with --event", "Use one or the other."
                )
        if target is not None:
            raise InvalidArgumentError(
                "--target-epsilon",
                target,
                "the noise of an --event is fixed",
                "Use the DP-SGD options.",
            )
    else:
        for name in ("--sample-rate", "--steps"):
            if training[name] is None:
                raise InvalidArgumentError(
                    name, None, "it is needed to say what one run costs", "Or use --event."
                )
        if noise is None and target is None:
            raise InvalidArgumentError(
                "--noise-multiplier", None, "it is needed unless --target-epsilon is given"
            )
        if noise is not None and target is not None:
            raise InvalidArgumentError(
                "--noise-multiplier",
                noise,
                "it is what --target-epsilon solves for",
                "Leave out one of the two. odp.calibrate finds a mean or density bounds.",
            )


def _run(
    event: str | None,
    noise: float | None,
    rate: float | None,
    steps: int | None,
    score_noise: float | None,
) -> Any:
    """Returns the run's event, or the function of the noise that makes it."""
    from optuna_dp.accounting import event_json, events  # start-up time

    if event is not None:
        try:
            record = json.loads(event)
        except json.JSONDecodeError as error:
            raise InvalidArgumentError("--event", event, f"it must be JSON ({error})") from None
        return event_json.event_from_json(record)

    score = None
    if score_noise is not None:
        score = events.gaussian(validation.positive("score_noise", score_noise))

    def at(multiplier: float) -> Any:
        training = events.dp_sgd(
            noise_multiplier=multiplier,
            sample_rate=rate,  # type: ignore[arg-type]  # _check saw to it
            steps=steps,  # type: ignore[arg-type]
        )
        return training if score is None else events.compose(training, score)

    return at if noise is None else at(noise)


def _bounds(texts: list[str]) -> list[tuple[float, float]]:
    """Returns pairs of what was typed as "c,C"; none of them for "none"."""
    bounds = []
    for text in [] if texts == ["none"] else texts:
        try:
            c, big_c = map(float, text.split(","))
        except ValueError:
            raise InvalidArgumentError(
                "--density-bounds",
                text,
                "it must be two numbers c,C with 0 < c <= 1 <= C, or none",
                "For example 0.75,2.",
            ) from None
        bounds.append((c, big_c))
    return bounds
