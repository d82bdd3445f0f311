"""Runs to look at: pictures and films drawn off-screen, a window, and a page for a browser."""

from testudo_analysis.rendering.animation import (
    Animation,
    AnimationMoment,
    AnimationScene,
    Trajectory,
    arena_around,
    turned_at,
)
from testudo_analysis.rendering.offscreen import working_backend
from testudo_analysis.rendering.render_run import RenderOptions, check_film, render_run
from testudo_analysis.rendering.scene_model import PALETTE
from testudo_analysis.rendering.scene_renderer import SceneRenderer

__all__ = [
    "PALETTE",
    "Animation",
    "AnimationMoment",
    "AnimationScene",
    "RenderOptions",
    "SceneRenderer",
    "Trajectory",
    "arena_around",
    "check_film",
    "render_run",
    "turned_at",
    "working_backend",
]
