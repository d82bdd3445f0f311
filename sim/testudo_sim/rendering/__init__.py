"""Pictures and animations of runs, drawn off-screen: no display is needed."""

from testudo_sim.rendering.model import PALETTE
from testudo_sim.rendering.offscreen import working_backend
from testudo_sim.rendering.run import RenderOptions, Trajectory, render_run
from testudo_sim.rendering.scene import SceneRenderer

__all__ = [
    "PALETTE",
    "RenderOptions",
    "SceneRenderer",
    "Trajectory",
    "render_run",
    "working_backend",
]
