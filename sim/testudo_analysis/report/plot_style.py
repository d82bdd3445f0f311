"""Common style of all plots, with one colour for each robot."""

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from testudo_analysis.rendering.scene_model import PALETTE

INK, FAINT, LIGHT = "#1d2733", "#6b7785", "#e4e8ec"
GOOD, WARN, BAD = "#2a9075", "#d9822b", "#c2483d"
_DPI = 170
_SETTINGS: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelsize": 8.5,
    "axes.labelcolor": FAINT,
    "axes.edgecolor": "#b8c0c8",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LIGHT,
    "grid.linewidth": 0.7,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.5,
    "lines.solid_capstyle": "round",
    "text.color": INK,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


@dataclass(frozen=True)
class PlotImage:
    """A plot as a PNG image."""

    png: bytes
    description: str  # alternative text

    @property
    def data_uri(self) -> str:
        """Return the image as a data URI."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode()


def robot_colour(index: int) -> str:
    """Return the colour of a robot by its index in the fleet, the same as in films."""
    return to_hex(PALETTE[index % len(PALETTE)])


@contextmanager
def drawing(width: float, height: float) -> Iterator[Figure]:
    """Yield a figure of this size [inch] in the common style."""
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure


def picture(figure: Figure, description: str) -> PlotImage:
    """Return a finished figure as an image."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})
    return PlotImage(buffer.getvalue(), description)


def legend_above(axes: Axes, columns: int | None = None) -> None:
    """Place the legend above the axes, right-aligned."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(
            handles,
            labels,
            ncols=columns or len(labels),
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            borderaxespad=0.2,
            handlelength=1.4,
            columnspacing=1.2,
        )
