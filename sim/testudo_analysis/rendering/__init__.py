"""Runs to look at: pictures and films drawn off-screen, a window, and a page for a browser."""

from testudo_analysis.rendering.model import PALETTE
from testudo_analysis.rendering.offscreen import working_backend
from testudo_analysis.rendering.run import RenderOptions, check_film, render_run
from testudo_analysis.rendering.scene import SceneRenderer
from testudo_analysis.rendering.show import Moment, Scenery, Show, Trajectory, arena_around, turned_at

__all__ = [
    "PALETTE",
    "Moment",
    "RenderOptions",
    "SceneRenderer",
    "Scenery",
    "Show",
    "Trajectory",
    "arena_around",
    "check_film",
    "render_run",
    "turned_at",
    "working_backend",
]
