"""Axes by convention: what a recording calls x, y and z, in the axes of REP-103 (x forward, y left, z up)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from testudo_hardware import frames
from testudo_runs.recording.recording import QUATERNION, ROLES

Axes = Literal["rep103", "ned", "y_up", "unity"]
REP103: Axes = "rep103"

_HALF = np.sqrt(0.5)
_PLACE, _VELOCITY, _FORCE, _RATES = ("x", "y", "z"), ("vx", "vy", "vz"), ("ax", "ay", "az"), ("wx", "wy", "wz")


@dataclass(frozen=True)
class Convention:
    """Rotations x y z w from the axes of a convention to ours; ``sign`` is -1 where one hand is the other's mirror."""

    world: tuple[float, ...]
    body: tuple[float, ...]
    sign: float = 1.0

    def vector(self, vector: np.ndarray, *, in_world: bool) -> np.ndarray:
        """Return vectors (3, R) of the world or of the body in our axes."""
        return self.sign * self._turned(vector, self.world if in_world else self.body)

    def rates(self, rates_body: np.ndarray) -> np.ndarray:
        """Return turn rates (3, R) of the body: the mirror turns axes and the sense of rotation, which cancel."""
        return self._turned(rates_body, self.body)

    def attitude(self, quaternion_xyzw: np.ndarray) -> np.ndarray:
        """Return attitudes (4, R), body to world: world R body^T, where two mirrors cancel."""
        world, body = (np.array(turn)[:, None] for turn in (self.world, self.body))
        return frames.multiply(frames.multiply(world, quaternion_xyzw), frames.conjugate(body))

    def _turned(self, vector: np.ndarray, turn: tuple[float, ...]) -> np.ndarray:
        return frames.rotate(np.array(turn)[:, None], vector)


CONVENTIONS: Mapping[str, Convention] = {
    "ned": Convention((_HALF, _HALF, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)),
    "y_up": Convention((_HALF, 0.0, 0.0, _HALF), (_HALF, 0.0, 0.0, _HALF)),
    "unity": Convention((-0.5, -0.5, 0.5, 0.5), (-0.5, -0.5, 0.5, 0.5), sign=-1.0),
}
"""By name, beside `rep103`. `ned`: world north, east, down; body forward, right, down (PX4, aerospace).

`y_up`: x right, y up, z backward, in world and body (OptiTrack, graphics; right-handed). `unity`: x right, y up, z
forward, in world and body (left-handed).
"""


def in_rep103(
    channels: Mapping[str, np.ndarray],
    attitude: np.ndarray,
    axes: Axes,
    *,
    velocity_in_world: bool,
    force_in_world: bool = False,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return channels (R,) by name and attitudes (R, 4), x y z w, of a convention in our axes.

    A missing axis of a vector is zero. Velocities are in the world or the body, and so are specific forces.
    """
    if axes == REP103:
        return dict(channels), attitude
    found, nothing = CONVENTIONS[axes], np.zeros(len(attitude))
    made = dict(channels)
    for names, in_world in ((_PLACE, True), (_VELOCITY, velocity_in_world), (_FORCE, force_in_world), (_RATES, None)):
        if any(name in channels for name in names):
            vector = np.stack([channels.get(name, nothing) for name in names])
            turned = found.rates(vector) if in_world is None else found.vector(vector, in_world=in_world)
            made.update(zip(names, turned, strict=True))
    return made, found.attitude(attitude.T).T


def table_in_rep103(role: str, values: np.ndarray, axes: Axes, *, velocity_in_world: bool) -> np.ndarray:
    """Return the rows (R, C) of a role, in the order of its channels, in our axes; see `in_rep103`."""
    if axes == REP103 or not len(values):
        return values
    names = ROLES[role].channels
    turns = set(QUATERNION) <= set(names)
    at = [names.index(name) for name in QUATERNION] if turns else []
    attitude = values[:, at] if turns else np.tile((0.0, 0.0, 0.0, 1.0), (len(values), 1))
    channels = {name: values[:, k] for k, name in enumerate(names) if name not in QUATERNION}
    made, attitude = in_rep103(channels, attitude, axes, velocity_in_world=velocity_in_world)
    made.update(zip(QUATERNION, attitude.T, strict=True))
    return np.stack([made[name] for name in names], axis=1)
