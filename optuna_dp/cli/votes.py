"""``optuna-dp vote``: what a private vote among clients can see, before anybody is asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from optuna_dp.cli.common import AsJson, clear_errors, option, table

if TYPE_CHECKING:
    from optuna_dp.voting.plan import VotePlan

_VOTE, _SPENT = "The vote", "What is spent"
_CHANCES = (0.5, 0.75, 0.9, 0.95, 0.99)


def vote(
    clients: Annotated[int, option("COUNT", "Number of clients that are asked.", _VOTE)],
    candidates: Annotated[int, option("COUNT", "Number of candidates.", _VOTE)],
    epsilon: Annotated[float, option("NUMBER", "Epsilon of the vote, for one client.", _SPENT)],
    k: Annotated[int, option("COUNT", "Candidates that each client votes for.", _VOTE)] = 5,
    good: Annotated[int, option("COUNT", "Candidates that would be a good choice.", _VOTE)] = 1,
    delta: Annotated[float, option("NUMBER", "Delta of epsilon, in (0, 1).", _SPENT)] = 1e-5,
    adjacency: Annotated[
        Literal["replace-one", "null-client"],
        option("RELATION", "A client's data are others (replace-one), or gone.", _SPENT),
    ] = "replace-one",
    max_dropout: Annotated[int, option("COUNT", "Clients that may be lost.", _VOTE)] = 0,
    max_colluding: Annotated[
        int, option("COUNT", "Clients that may tell their share of the noise.", _VOTE)
    ] = 0,
    attempts: Annotated[
        int, option("COUNT", "How often clients may be asked, all counted.", _VOTE)
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Plan a private vote among clients (DP-HYPE): which lead can be seen through the noise.

    A lead is the votes of the least good candidate less those of the best of the others. No data
    are looked at.

    Example: optuna-dp vote --clients 50 --candidates 100 --epsilon 1
    """
    with clear_errors(vote, votes="--k"):
        # Lazy: start-up time.
        from optuna_dp.voting.plan import VotePlan

        plan = VotePlan.calibrated(
            clients=clients,
            candidates=candidates,
            votes=k,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency.replace("-", "_"),
            max_dropout=max_dropout,
            max_colluding=max_colluding,
            attempts=attempts,
        )
        gaps = {chance: plan.visible_gap(chance, good=good) for chance in _CHANCES}
        if as_json:
            record = {
                "plan": plan.to_json(),
                "noise": plan.variance_of_sum**0.5,
                "good": good,
                "lead": [{"chance": chance, "votes": gap} for chance, gap in gaps.items()],
                "chance_if_all_agree": plan.chance(clients, good=good),
            }
            typer.echo(json.dumps(record, indent=2, sort_keys=True))
        else:
            _print(plan, good, gaps)


def _print(plan: VotePlan, good: int, gaps: dict[float, int]) -> None:
    from rich.console import Console  # Lazy: start-up time.

    console = Console()
    console.print(
        f"[bold]{plan.clients} clients, {plan.candidates} candidates, k = {plan.votes}, "
        f"epsilon {plan.epsilon:g} at delta {plan.delta:g}[/bold]"
    )
    console.print(
        f"Noise of one candidate's votes: standard deviation {plan.variance_of_sum**0.5:.1f}, "
        "whatever the number of clients.",
        highlight=False,
    )
    title = "Lead at which a good candidate wins" + ("" if good == 1 else f" ({good} are good)")
    rows = [
        (
            f"{chance:.0%}",
            f"{gap}",
            f"{gap / plan.clients:.0%}" if gap <= plan.clients else "more than all",
        )
        for chance, gap in gaps.items()
    ]
    console.print(table(title, ("in at least", "votes", "of the clients"), rows))
    console.print(
        f"If all clients agree on {'it' if good == 1 else 'them'}, a good candidate wins in "
        f"{plan.chance(plan.clients, good=good):.0%}. The lead is the votes of the least good "
        "candidate less those of the best of the others, and the bound holds for all such votes.",
        highlight=False,
    )
