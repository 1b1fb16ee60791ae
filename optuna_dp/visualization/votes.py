"""The noisy votes of a federated search as a figure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.federated.query import read_search
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
    _, candidates = read_search(release.design.settings["search"])
    names = [", ".join(f"{key}={_short(v)}" for key, v in c.items()) for c in candidates]
    order = sorted(range(len(votes)), key=lambda i: -votes[i])[:_LARGEST_BARS]
    colours = [theme.GUARANTEE] + [theme.rgba(theme.OTHER, 0.6)] * (len(order) - 1)
    figure = theme.figure("Noisy votes", x="votes, with noise", y="")
    noise = {"type": "constant", "value": math.sqrt(plan.variance), "color": theme.ATTACK}
    bars = theme.graph_objects().Bar(
        x=[votes[i] for i in order],
        y=[names[i] for i in order],
        orientation="h",
        marker={"color": colours},
        error_x=noise,
        showlegend=False,
    )
    figure.add_trace(bars)
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_layout(height=170 + 24 * len(order))
    return figure


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
