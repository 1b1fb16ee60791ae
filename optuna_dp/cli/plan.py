"""``optuna-dp plan``: what searches cost, before any data are touched."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated, Any

import typer

from optuna_dp.cli.common import clear_errors
from optuna_dp.cli.plan_table import print_plan
from optuna_dp.errors import InvalidArgumentError


class Unknown(str, Enum):
    """What ``--target-epsilon`` solves for."""

    noise = "noise"
    mean = "mean"
    density_bounds = "density-bounds"


class Policy(str, Enum):
    """What the density may depend on."""

    history = "history"
    data = "data"


class Relation(str, Enum):
    """What neighbouring data sets differ in."""

    add_or_remove_one = "add-or-remove-one"
    replace_one = "replace-one"


def plan(
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Noise of DP-SGD over its clipping norm. Leave out to solve for it."),
    ] = None,
    sample_rate: Annotated[
        float | None, typer.Option(help="Batch size over the number of records, in (0, 1].")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of DP-SGD in one run.")] = None,
    delta: Annotated[float, typer.Option(help="Delta of every epsilon.")] = 1e-5,
    score_noise: Annotated[
        float | None,
        typer.Option(
            help="Noise of the run's score over what one record moves it. Leave out if the "
            "score costs nothing."
        ),
    ] = None,
    event: Annotated[
        str | None,
        typer.Option(help="JSON of the run's event, instead of the DP-SGD options."),
    ] = None,
    law: Annotated[
        list[str] | None,
        typer.Option(
            help="Law of the number of runs: geometric, logarithmic, poisson, "
            "negative-binomial:SHAPE, binomial:N. Give it again for more."
        ),
    ] = None,
    mean: Annotated[
        list[float] | None, typer.Option(help="Mean number of runs. Give it again for more.")
    ] = None,
    adaptive_law: Annotated[
        list[str] | None, typer.Option(help="Law of the adaptive searches (default: geometric).")
    ] = None,
    density_bounds: Annotated[
        list[str] | None,
        typer.Option(help="c,C of adaptive searches, such as 0.75,2; 'none' for none of them."),
    ] = None,
    cap: Annotated[int | None, typer.Option(help="Largest number of runs.")] = None,
    top: Annotated[float, typer.Option(help="A hit is a run in this best part.")] = 0.05,
    policy: Annotated[
        Policy, typer.Option(help="What adaptive searches see: private outputs, or the data.")
    ] = Policy.history,
    relation: Annotated[
        Relation, typer.Option(help="What neighbouring data sets differ in.")
    ] = Relation.add_or_remove_one,
    target_epsilon: Annotated[
        float | None, typer.Option(help="Solve for what keeps each search within this epsilon.")
    ] = None,
    solve: Annotated[
        Unknown | None,
        typer.Option(help="What to solve for; by default the noise if it is left out, else mean."),
    ] = None,
    attacks: Annotated[
        bool | None,
        typer.Option(
            "--attacks/--no-attacks", help="Look for attacks (default: without a target)."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for a program to read.")
    ] = False,
) -> None:
    """Compare what searches cost and find, or solve for a target epsilon.

    Example: optuna-dp plan --noise-multiplier 1.0 --sample-rate 0.0043 --steps 2344 --delta 1e-5
    """
    from rich.console import Console

    with clear_errors():
        # Checked before the accountants are loaded: a typing error should show at once.
        _check(event, noise_multiplier, sample_rate, steps, score_noise, target_epsilon, solve)
        from optuna_dp.accounting import planner

        run = _run(event, noise_multiplier, sample_rate, steps, score_noise)
        bounds = _bounds(density_bounds)
        with Console(stderr=True).status("Accounting ..."):
            found = planner.selection_plan(
                run,
                delta=delta,
                laws=law or planner.LAWS,
                means=mean or planner.MEANS,
                adaptive_laws=adaptive_law or ("geometric",),
                density_bounds=planner.DENSITY_BOUNDS if bounds is None else bounds,
                cap=cap,
                fraction=top,
                policy=policy.value,
                neighboring_relation=relation.value.replace("-", "_"),
                target_epsilon=target_epsilon,
                solve=None if solve is None else _UNKNOWNS[solve],
                attacks=attacks,
            )
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2, sort_keys=True))
        return
    print_plan(Console(), found)


_UNKNOWNS: dict[Unknown, Any] = {
    Unknown.noise: "noise_multiplier",
    Unknown.mean: "mean",
    Unknown.density_bounds: "density_bounds",
}


def _check(
    event: str | None,
    noise: float | None,
    rate: float | None,
    steps: int | None,
    score_noise: float | None,
    target: float | None,
    solve: Unknown | None,
) -> None:
    if event is not None:
        given = {
            "--noise-multiplier": noise,
            "--sample-rate": rate,
            "--steps": steps,
            "--score-noise": score_noise,
        }
        for name, value in given.items():
            if value is not None:
                raise InvalidArgumentError(
                    name, value, "it cannot be combined with --event", "Use one or the other."
                )
        if solve is Unknown.noise:
            raise InvalidArgumentError(
                "--solve", "noise", "the noise of an --event is fixed", "Use the DP-SGD options."
            )
    else:
        for name, missing in (("--sample-rate", rate), ("--steps", steps)):
            if missing is None:
                raise InvalidArgumentError(
                    name, None, "it is needed to say what one run costs", "Or use --event."
                )
        if noise is None and target is None:
            raise InvalidArgumentError(
                "--noise-multiplier", None, "it is needed unless --target-epsilon is given"
            )
        if noise is None and solve not in (None, Unknown.noise):
            raise InvalidArgumentError(
                "--noise-multiplier", None, f"it is needed to solve for {solve.value}"
            )
        if noise is not None and solve is Unknown.noise:
            raise InvalidArgumentError(
                "--noise-multiplier", noise, "it cannot be given and solved for", "Leave it out."
            )
    if solve is not None and target is None:
        raise InvalidArgumentError("--target-epsilon", None, "it is needed to solve for anything")


def _run(
    event: str | None,
    noise: float | None,
    rate: float | None,
    steps: int | None,
    score_noise: float | None,
) -> Any:
    from optuna_dp.accounting import event_json, events

    if event is not None:
        try:
            record = json.loads(event)
        except json.JSONDecodeError as error:
            raise InvalidArgumentError("--event", event, f"it must be JSON ({error})") from None
        return event_json.event_from_json(record)

    def at(multiplier: float) -> Any:
        training = events.dp_sgd(
            noise_multiplier=multiplier,
            sample_rate=rate,  # type: ignore[arg-type]  # _check saw to it
            steps=steps,  # type: ignore[arg-type]
        )
        if score_noise is None:
            return training
        return events.compose(training, events.gaussian(score_noise))

    return at if noise is None else at(noise)


def _bounds(given: list[str] | None) -> list[tuple[float, float]] | None:
    if given is None:
        return None
    if given == ["none"]:
        return []
    found = []
    for text in given:
        try:
            c, big_c = (float(part) for part in text.split(","))
        except ValueError:
            raise InvalidArgumentError(
                "--density-bounds",
                text,
                "it must be two numbers c,C with 0 < c <= 1 <= C, or none",
                "For example 0.75,2.",
            ) from None
        found.append((c, big_c))
    return found
