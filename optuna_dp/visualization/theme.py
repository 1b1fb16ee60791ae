"""What all figures share: colours, layout, and plotly loaded when it is first needed."""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING, Any

from optuna_dp.errors import MissingExtraError

if TYPE_CHECKING:
    import plotly.graph_objects as go

GUARANTEE = "#3551c9"
ATTACK = "#d1495b"
OTHER = "#8a8f9c"
NAIVE = "#e08e1b"
GOOD = "#2a9d6f"
SERIES = (GUARANTEE, NAIVE, GOOD, ATTACK, "#7b4bb7", "#1b9aaa", OTHER)
FILL = "rgba(53, 81, 201, 0.12)"
CURATOR = "For the curator only"


def graph_objects() -> Any:
    """Returns ``plotly.graph_objects``; says which extra brings it if it is missing."""
    try:
        return importlib.import_module("plotly.graph_objects")
    except ModuleNotFoundError as error:
        raise MissingExtraError("plotly", "visualization") from error


def figure(title: str, *, x: str, y: str, curator: bool = False) -> go.Figure:
    """Returns an empty figure.

    Args:
        title: What it shows.
        x: Title of the horizontal axis.
        y: Title of the vertical axis.
        curator: Whether the title says that the figure is for the curator only.
    """
    found: go.Figure = graph_objects().Figure()
    found.update_layout(
        title={"text": titled(title, curator=curator), "x": 0.02, "xanchor": "left"},
        template="plotly_white",
        xaxis={"title": {"text": x}, "zeroline": False},
        yaxis={"title": {"text": y}, "zeroline": False},
        legend={"orientation": "h", "yanchor": "top", "y": -0.2, "x": 0.0},
        margin={"l": 70, "r": 30, "t": 70, "b": 60},
        hovermode="closest",
    )
    return found


def titled(title: str, *, curator: bool) -> str:
    """Returns a title, marked if the figure is for the curator only."""
    if not curator:
        return title
    return f'{title}<br><span style="font-size:0.75em;color:{ATTACK}">{CURATOR}</span>'


def rounded_up(value: float) -> str:
    """Two decimals, never less than the value."""
    return "infinite" if math.isinf(value) else f"{math.ceil(value * 100 - 1e-9) / 100:.2f}"


def rgba(colour: str, alpha: float) -> str:
    """Returns a hexadecimal colour with an opacity."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {alpha})"
