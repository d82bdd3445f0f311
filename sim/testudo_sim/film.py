"""A film of a recorded run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from testudo_deploy.shield.layer1 import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_sim.rendering import Trajectory, render_run
from testudo_sim.run_reader import Run

_FRAMES_PER_S = 15.0


def film_run(run: Run, spec: RobotSpec, arena: Arena | None, out_path: Path,
             tell: Callable[[str], None]) -> Path | None:
    """Render the true motion of a run; where OpenGL is missing, say so and return None."""
    tracks = [run.truth[name] for name in run.robots]
    begin = max(track.stamp_s[0] for track in tracks)
    end = min(track.stamp_s[-1] for track in tracks)
    times = np.arange(begin, end, 1 / _FRAMES_PER_S)
    position = np.stack([_at(times, track.stamp_s, track.position_world) for track in tracks], axis=1)
    yaw = np.stack([np.interp(times, track.stamp_s, np.unwrap(track.yaw)) for track in tracks], axis=1)
    goals = np.array([run.ticks[name][-1].goal_world for name in run.robots])
    try:
        render_run([spec] * len(tracks), Trajectory(times - begin, position, yaw), arena, out_path, goals)
    except TestudoError as error:
        tell(f"no film: {error}")
        return None
    return out_path


def _at(times: np.ndarray, stamps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return values (T, D) at ``times`` by linear interpolation."""
    return np.stack([np.interp(times, stamps, values[:, d]) for d in range(values.shape[1])], axis=-1)
