"""The noisy votes of a federated search as a figure."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from optuna.distributions import json_to_distribution

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.releasing.release import Release
from optuna_dp.visualization import theme
from optuna_dp.voting.plan import VotePlan

if TYPE_CHECKING:
    import plotly.graph_objects as go

_LARGEST_BARS = 30


def plot_votes(release: Release) -> go.Figure:
    """Plots the noisy number of votes of each candidate, the most votes first.

    Bars beyond the thirtieth are left out. The whisker is one standard deviation of the noise.

    **Public**: the noisy votes are what the vote releases.

    Args:
        release: What :meth:`optuna_dp.federated.FederatedVote.start` returned.

    Raises:
        InvalidArgumentError: If it is not the release of a vote.
        MissingExtraError: If plotly is not installed.
    """
    if (
        not isinstance(release, Release)
        or release.design.procedure != "vote"
        or "noisy_votes" not in release.attributes
    ):
        raise InvalidArgumentError(
            "release", type(release).__name__, "it must be the release of a vote"
        )
    plan = VotePlan.from_json(release.design.settings["plan"])
    votes = [float(count) for count in release.attributes["noisy_votes"]]
    names = _names(release.design.settings["search"], len(votes))
    order = sorted(range(len(votes)), key=lambda i: -votes[i])[:_LARGEST_BARS]
    colours = [theme.GUARANTEE] + [theme.rgba(theme.OTHER, 0.6)] * (len(order) - 1)
    figure = theme.figure("Noisy votes", x="votes, with noise", y="")
    go = theme.graph_objects()
    figure.add_trace(
        go.Bar(
            x=[votes[i] for i in order],
            y=[names[i] for i in order],
            orientation="h",
            marker={"color": colours},
            error_x={"type": "constant", "value": math.sqrt(plan.variance), "color": theme.ATTACK},
            showlegend=False,
        )
    )
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_layout(height=170 + 24 * len(order))
    return figure


def _names(search: dict[str, Any], count: int) -> list[str]:
    space = {name: json_to_distribution(json.dumps(d)) for name, d in search["space"].items()}
    names = []
    for i in range(count):
        parts = [
            f"{name}={_short(d.to_external_repr(float(search['internal'][name][i])))}"
            for name, d in space.items()
        ]
        names.append(", ".join(parts))
    return names


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
