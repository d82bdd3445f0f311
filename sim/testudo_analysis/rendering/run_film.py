"""A recorded run as a show, its film and its page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from testudo_analysis.rendering import Animation, AnimationScene, Trajectory, arena_around, render_run, turned_at
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.errors import TestudoError
from testudo_runs.run_reader import RecordedRun, RunError

_SAMPLES_PER_S = 30.0


def recorded_show(run: RecordedRun, arena: Arena | None, title: str | None = None) -> Animation:
    """Return the true motion of a run; where only odometry was recorded, as on real robots, that.

    Args:
        run: the recording.
        arena: the walls; if there are none, some are drawn around the ways.
        title: its name; that of the folder if not given.

    Raises:
        RunError: no time at which all robots were seen.
    """
    tracks = [run.located(name) for name in run.robots]
    begin = max((track.stamp_s[0] for track in tracks if len(track.stamp_s)), default=0.0)
    end = min(track.stamp_s[-1] if len(track.stamp_s) else begin for track in tracks)
    if begin >= end:
        raise RunError(f"{run.folder}: there is no time at which the poses of all robots were recorded")
    times = np.arange(begin, end, 1 / _SAMPLES_PER_S)
    position = np.stack([_at(times, track.stamp_s, track.position_world) for track in tracks], axis=1)
    yaw = np.stack([np.interp(times, track.stamp_s, np.unwrap(track.yaw)) for track in tracks], axis=1)
    robots = [run.fleet.robot(name) for name in run.robots]
    goals = np.array([robot.goal_world for robot in robots])
    turns = None
    if all(track.quaternion_xyzw is not None for track in tracks):
        turns = np.stack([turned_at(times, track.stamp_s, track.quaternion_xyzw) for track in tracks], axis=1)
    trajectory = Trajectory(times - begin, position, yaw, quaternion_xyzw=turns)
    specs = tuple(robot.spec for robot in robots)
    scenery = AnimationScene(specs, arena or arena_around(trajectory, goals), goals)
    return Animation(scenery, trajectory, title or run.folder.resolve().name)


def film_run(show: Animation, out_path: Path, tell: Callable[[str], None]) -> Path | None:
    """Render a film; where OpenGL is missing, say so and return None."""
    try:
        return render_run(show, out_path)
    except TestudoError as error:
        tell(f"no film: {error}")
        return None


def _at(times: np.ndarray, stamps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return values (T, D) at ``times`` by linear interpolation."""
    return np.stack([np.interp(times, stamps, values[:, d]) for d in range(values.shape[1])], axis=-1)
