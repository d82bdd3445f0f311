"""Data of an animation: trajectories of robots and boxes, and the scene around them."""

from dataclasses import dataclass

import numpy as np

from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.robot_bodies import Box

_MARGIN_M = 0.3


@dataclass(frozen=True)
class AnimationMoment:
    """Poses of N robots and B boxes at one time; D axes."""

    position_world: np.ndarray  # (N, D) [m]
    yaw: np.ndarray  # (N,) [rad]
    boxes_world: np.ndarray | None = None  # (B, 2) [m]: horizontal centres; None without boxes
    boxes_yaw: np.ndarray | None = None  # (B,) [rad]
    quaternion_xyzw: np.ndarray | None = None  # (N, 4): body to world, for robots that tilt; None: all are upright


@dataclass(frozen=True)
class Trajectory:
    """Poses of robots and boxes over increasing times; all robots have the same number of axes."""

    time_s: np.ndarray  # (K,) [s]
    position_world: np.ndarray  # (K, N, D) [m]
    yaw: np.ndarray  # (K, N) [rad], wrapped or not
    boxes_world: np.ndarray | None = None  # (K, B, 2) [m]
    boxes_yaw: np.ndarray | None = None  # (K, B) [rad], wrapped or not
    quaternion_xyzw: np.ndarray | None = None  # (K, N, 4): body to world, for robots that tilt; None: all are upright

    @property
    def duration_s(self) -> float:
        """Return the time [s] from the first to the last sample."""
        return float(self.time_s[-1] - self.time_s[0])

    def moment(self, k: int) -> AnimationMoment:
        """Return the poses at index ``k``."""
        optional = (self.boxes_world, self.boxes_yaw, self.quaternion_xyzw)
        boxes, yaw, quaternions = (None if values is None else values[k] for values in optional)
        return AnimationMoment(self.position_world[k], self.yaw[k], boxes, yaw, quaternions)

    def resampled(self, period_s: float) -> "Trajectory":
        """Return the trajectory at a fixed period [s], including its last sample."""
        times = np.asarray(self.time_s, dtype=float)
        wanted = np.append(np.arange(times[0], times[-1], period_s), times[-1])

        def between(values: np.ndarray, angle: bool = False) -> np.ndarray:
            values = np.asarray(values, dtype=float)
            columns = (np.unwrap(values, axis=0) if angle else values).reshape(len(times), -1).T
            resampled = np.empty((len(wanted), len(columns)))
            for i, column in enumerate(columns):
                resampled[:, i] = np.interp(wanted, times, column)
            return resampled.reshape(len(wanted), *values.shape[1:])

        return Trajectory(
            wanted,
            between(self.position_world),
            between(self.yaw, angle=True),
            None if self.boxes_world is None else between(self.boxes_world),
            None if self.boxes_yaw is None else between(self.boxes_yaw, angle=True),
            None if self.quaternion_xyzw is None else interpolate_quaternions(wanted, times, self.quaternion_xyzw),
        )


@dataclass(frozen=True)
class AnimationScene:
    """Robots, boxes, goals and the arena of an animation."""

    specs: tuple[RobotSpec, ...]  # one for each of the N robots
    arena: Arena
    goals_world: np.ndarray | None = None
    """(N, D) [m], in the robots' colours; equal goals of all robots are the goal of the first box."""
    boxes: tuple[Box, ...] = ()  # the B boxes of the trajectory


@dataclass(frozen=True)
class Animation:
    """A run to show as a picture, a film, in a window or on a page."""

    scenery: AnimationScene
    trajectory: Trajectory
    title: str = "run"

    def __post_init__(self) -> None:
        """Check that scene and trajectory match.

        Raises:
            TestudoError: the trajectory is empty, or lacks poses of robots or boxes.
        """
        trajectory, scenery = self.trajectory, self.scenery
        if len(trajectory.time_s) == 0:
            raise TestudoError("rendering: found an empty trajectory, expected at least one sample")
        check_moment(trajectory.moment(0), scenery)


def check_moment(moment: AnimationMoment, scenery: AnimationScene) -> None:
    """Check that poses match the scene.

    Raises:
        TestudoError: there is not one pose for each robot and box.
    """
    robots, boxes = len(scenery.specs), len(scenery.boxes)
    if len(moment.position_world) != robots or len(moment.yaw) != robots:
        raise TestudoError(
            f"rendering: found {len(moment.position_world)} positions and {len(moment.yaw)} headings, "
            f"expected one for each of {robots} robots"
        )
    found = 0 if moment.boxes_world is None else len(moment.boxes_world)
    if found != boxes:
        raise TestudoError(f"rendering: found poses of {found} boxes, expected one for each of {boxes} boxes")


def interpolate_quaternions(wanted_s: np.ndarray, times_s: np.ndarray, quaternion_xyzw: np.ndarray) -> np.ndarray:
    """Return quaternions (K, ..., 4) at other times by normalised linear interpolation, for small steps."""
    values = np.asarray(quaternion_xyzw, dtype=float)
    flips = np.cumprod(np.where(np.sum(values[1:] * values[:-1], axis=-1) < 0, -1.0, 1.0), axis=0)
    values = np.concatenate([values[:1], values[1:] * flips[..., None]])  # both signs are the same rotation
    columns = values.reshape(len(values), -1).T
    found = np.stack([np.interp(wanted_s, times_s, column) for column in columns], axis=-1)
    found = found.reshape(len(wanted_s), *values.shape[1:])
    return found / np.linalg.norm(found, axis=-1, keepdims=True)


def arena_around(trajectory: Trajectory, goals_world: np.ndarray | None = None) -> Arena:
    """Return an arena around all positions, for a run without walls."""
    positions = np.asarray(trajectory.position_world, dtype=float)
    positions = positions.reshape(-1, positions.shape[-1])
    if goals_world is not None:
        positions = np.concatenate([positions, np.asarray(goals_world, dtype=float)])
    low, high = positions.min(axis=0) - _MARGIN_M, positions.max(axis=0) + _MARGIN_M
    if len(low) == 3:
        low[2] = 0.0
    return Arena(tuple(low.tolist()), tuple(high.tolist()))
