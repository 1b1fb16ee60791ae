"""What a statement says of a vote among clients (DP-HYPE)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from optuna_dp.accounting.event_words import in_words
from optuna_dp.evidence.statement import Description
from optuna_dp.protocol.plan import Design
from optuna_dp.voting.plan import VotePlan

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee


class VoteDescription(Description):
    """See the module's docstring."""

    relations: Mapping[str, str] = {
        "replace_one": "replacing all data of one client by any other data",
        "null_client": "taking all data of one client away, while the client takes part with its "
        "share of the noise alone",
    }

    trust = (
        "each client trusts its own software; what it has to trust the server with is said under "
        "Sum below"
    )

    checked: tuple[str, ...] = (
        "Each client's own software: its share of the noise, drawn from the operating system's "
        "randomness, is in its reply, and what the votes may cost is within its own limits.",
        "The server's: no more clients were lost than planned, every sum lies in its range, and "
        "every attempt is charged for.",
    )

    assumptions: tuple[str, ...] = (
        "Each client's data are its own: no person's records are held by several clients, or they "
        "are protected less.",
        "The candidates, the number of votes and the noise were fixed before looking at data.",
        "At most the stated number of clients told others their share of the noise, and every "
        "other client added its share as the protocol says.",
        "Whether a client takes part, drops out, and how long it takes, does not depend on its "
        "data.",
        "Under secure aggregation the server follows the protocol and runs it once for each "
        "attempt that is counted here; without it, the server is trusted with every noisy vote.",
        "Whatever is trained afterwards with the chosen hyperparameters is covered only if it is "
        "named above as the final training; then each client's whole contribution to it was "
        "clipped and noised as stated.",
    )

    def facts(self, design: Design, guarantee: Guarantee) -> dict[str, str]:
        plan = VotePlan.from_json(design.settings["plan"])
        attempts = design.settings["attempts"]
        protected = self.relations[plan.adjacency]
        secure = design.settings["sum"] != "plain"
        return {
            "What is protected": "each client as a whole: the output hardly depends on "
            f"{protected}",
            "Search": f"{design.sampler}: each client votes for its {plan.votes} best of "
            f"{plan.candidates} candidates; the sum of votes is released, and its largest entry",
            "Clients": f"{plan.clients} asked; the guarantee holds with {plan.max_dropout} lost "
            f"and {plan.max_colluding} others telling what they know",
            "Noise": f"exact Skellam noise on whole numbers, a share of variance "
            f"{float(plan.share_variance):.6g} drawn by each client",
            "Cost": in_words(guarantee.event)
            + (f" ({attempts} attempts, all counted)" if attempts > 1 else ""),
            "Sum": "SecAgg+ with ChaCha20 masks: the server, if it follows the "
            "protocol, sees nothing but the sum"
            if secure
            else "plain: THE SERVER IS TRUSTED, it has seen every client's noisy vote",
            "The score": "the noisy number of votes of the chosen candidate",
        }
