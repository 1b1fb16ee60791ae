"""The text of the statement of a vote among clients (DP-HYPE)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from optuna_dp.accounting.event_words import in_words
from optuna_dp.core.value_types import JsonObject
from optuna_dp.evidence.assumptions import Assumption
from optuna_dp.evidence.facts import Fact, enforced
from optuna_dp.evidence.statement import Description
from optuna_dp.study.plan import Design
from optuna_dp.voting.plan import VotePlan

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee


_ASSUMPTIONS = (
    Assumption("No person has records at more than one client.", "row *What is protected*"),
    Assumption(
        "The candidates, the number of votes and the noise were fixed before anybody had looked "
        "at "
        "the clients' data.",
        "rows *Search* and *Noise*",
    ),
    Assumption(
        "At most the stated number of clients work together, and told each other their shares of "
        "the noise.",
        "rows *Clients* and *Noise*",
    ),
    Assumption("Every other client added its share of the noise.", "rows *Clients* and *Noise*"),
    Assumption(
        "Whether a client takes part, drops out or is slow does not depend on its data.",
        "row *Clients*",
    ),
    Assumption(
        "The server is trusted with what the row *Sum* says, and ran the protocol once for each "
        "attempt that is counted here.",
        "row *Sum*",
    ),
    Assumption(
        "If a model was trained afterwards: it is the row *Final training*, and each client's "
        "whole contribution to it was clipped and noised as stated there.",
        "row *Final training*",
    ),
)


class VoteDescription(Description):
    """See the module's docstring."""

    must_not = (
        "votes, scores and models of single clients",
        "what the secure sum keeps: keys, masks and shares",
    )

    touches = "The vote, with all its attempts"

    relations: Mapping[str, str] = {
        "replace_one": "replacing all data of one client by any other data",
        "null_client": "taking all data of one client away, while the client takes part with its "
        "share of the noise alone",
    }

    trust = "each client trusts its own software; the row Sum says what it trusts the server with"

    checked: tuple[str, ...] = (
        "Each client's own software checked that its reply has its share of the noise, drawn from "
        "the operating system's randomness, and that the votes cost no more than its own limits.",
        "The server's software checked that no more clients were lost than planned, that every "
        "sum lies in its range, and that every attempt is charged for.",
    )

    def assumptions(self, design: Design, content: JsonObject) -> tuple[Assumption, ...]:
        """See :class:`Description`; the same for every vote."""
        return _ASSUMPTIONS

    def facts(self, design: Design, guarantee: Guarantee) -> list[Fact]:
        """See :class:`Description`."""
        plan = VotePlan.from_json(design.settings["plan"])
        attempts = design.settings["attempts"]
        secure = design.settings["sum"] != "plain"
        rows = {
            "Search": f"planned: {design.sampler}: each client votes for its {plan.votes} best of "
            f"{plan.candidates} candidates; the sum of votes is released, and its largest entry",
            "Clients": f"planned: {plan.clients} asked; the guarantee holds if at most "
            f"{plan.max_dropout} are lost and {plan.max_colluding} others collude",
            "Noise": f"planned: exact Skellam noise on whole numbers; each client draws a share "
            f"of variance {float(plan.share_variance):.6g}",
            "Cost": f"planned: {in_words(guarantee.event)}"
            + (f" ({attempts} attempts, all counted)" if attempts > 1 else ""),
            "Sum": "planned: secure, under ChaCha20 masks: the server, if it follows the "
            "protocol and breaks no cryptography, sees nothing but the sum"
            if secure
            else "planned: plain. THE SERVER IS TRUSTED, it has seen every client's noisy vote",
            "The score": "the noisy number of votes of the chosen candidate",
        }
        return enforced(rows)


def guarantee_of_design(design: Design) -> Guarantee:
    """Returns the guarantee of the vote that a design describes, all its attempts together."""
    # Lazy: the words of a statement do not need it.
    from optuna_dp.voting.plan import VotePlan

    plan = VotePlan.from_json(design.settings["plan"])
    return plan.guarantee(design.settings["attempts"])
