"""A run as an animation or a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from testudo_deploy.shield.layer1 import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_sim.rendering.model import View
from testudo_sim.rendering.scene import SceneRenderer

ANIMATIONS = (".gif", ".webp")
PICTURES = (".png",)


@dataclass(frozen=True)
class Trajectory:
    """Where the robots were. Times increase; robots of one run share the dimension."""

    time_s: np.ndarray
    """(K,) [s]."""
    position_world: np.ndarray
    """(K, N, D) [m]."""
    yaw: np.ndarray
    """(K, N) [rad], wrapped or not."""


@dataclass(frozen=True)
class RenderOptions:
    """How a run is drawn."""

    width: int = 640
    """[pixels]."""
    height: int = 448
    """[pixels]."""
    view: View = "oblique"
    frames_per_s: float = 10.0
    """Frames shown each second."""
    speed: float = 2.0
    """Times real time."""
    trail_s: float = 4.0
    """Length of the trail in an animation; a picture shows the whole of it."""


def render_run(
    specs: Sequence[RobotSpec],
    trajectory: Trajectory,
    arena: Arena,
    out_path: Path,
    goals_world: np.ndarray | None = None,
    options: RenderOptions | None = None,
) -> Path:
    """Draw a run into ``out_path``: .gif or .webp for an animation, .png for its last moment.

    Args:
        specs: one for each of the N robots.
        trajectory: where they were.
        arena: the walls.
        out_path: the file to write.
        goals_world: (N, D) [m].
        options: size, view and speed.

    Returns:
        ``out_path``.

    Raises:
        TestudoError: another ending, no moment in the trajectory, or no OpenGL.
    """
    options = options or RenderOptions()
    kind = out_path.suffix.lower()
    if kind not in ANIMATIONS + PICTURES:
        raise TestudoError(
            f"rendering: {out_path}: found the ending {kind!r}, "
            f"expected one of {', '.join(ANIMATIONS + PICTURES)}"
        )
    if len(trajectory.time_s) == 0:
        raise TestudoError("rendering: the trajectory holds no moment; record at least one")
    frame_s = options.speed / options.frames_per_s
    moments = _resample(trajectory, frame_s)
    out_path.parent.mkdir(parents=True, exist_ok=True)
    with SceneRenderer(
        specs, arena, goals_world, (options.width, options.height), options.view
    ) as renderer:
        if kind in PICTURES:
            picture = renderer.render(
                moments.position_world[-1], moments.yaw[-1], moments.position_world
            )
            Image.fromarray(picture).save(out_path)
            return out_path
        reach = max(1, round(options.trail_s / frame_s))
        frames = [
            Image.fromarray(
                renderer.render(
                    moments.position_world[k],
                    moments.yaw[k],
                    moments.position_world[max(0, k - reach) : k + 1],
                )
            )
            for k in range(len(moments.time_s))
        ]
    _save_animation(frames, out_path, round(1000 / options.frames_per_s))
    return out_path


def _resample(trajectory: Trajectory, period_s: float) -> Trajectory:
    """Return the trajectory at a fixed period, its last moment included."""
    times = np.asarray(trajectory.time_s, dtype=float)
    wanted = np.append(np.arange(times[0], times[-1], period_s), times[-1])
    positions = np.asarray(trajectory.position_world, dtype=float)
    yaw = np.unwrap(np.asarray(trajectory.yaw, dtype=float), axis=0)
    columns = positions.reshape(len(times), -1)
    moved = np.stack([np.interp(wanted, times, column) for column in columns.T], axis=1)
    turned = np.stack([np.interp(wanted, times, column) for column in yaw.T], axis=1)
    return Trajectory(wanted, moved.reshape(len(wanted), *positions.shape[1:]), turned)


def _save_animation(frames: list[Image.Image], out_path: Path, frame_ms: int) -> None:
    if out_path.suffix.lower() == ".gif":
        # one palette for all frames: no flicker, and the frames differ only where robots move
        palette = frames[-1].quantize(colors=128)
        frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    frames[0].save(out_path, save_all=True, append_images=frames[1:], duration=frame_ms, loop=0)
