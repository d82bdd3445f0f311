"""The boxes of a plant: where they start, and how a tracking system measures them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_plant.plant.odometry_sensor import OdometryModel, OdometrySample, OdometrySensor
from testudo_plant.worlds.robot_bodies import Box
from testudo_plant.worlds.world import MujocoWorld, RobotPose

_RATE_HZ = 60.0


@dataclass(frozen=True)
class PlantBody:
    """A box and its initial pose, at rest."""

    box: Box
    initial_position_world: tuple[float, float]  # [m]: centre
    initial_yaw: float  # [rad]


class PushedBodies:
    """The boxes in the world of a plant, measured as late and as exactly as the first robot on the ground."""

    def __init__(
        self,
        world: MujocoWorld,
        bodies: Sequence[PlantBody],
        specs: Sequence[RobotSpec],
        model: OdometryModel,
        rngs: Sequence[np.random.Generator],
        start_s: float,
    ) -> None:
        """Place the boxes; ``specs`` are those of the robots, ``rngs`` the noise of each box.

        Raises:
            TestudoError: there is a box, and no robot on the ground.
        """
        self._world = world
        ground = next((spec for spec in specs if spec.dimension == 2), None)
        self._sensors: dict[str, OdometrySensor] = {}
        for body, rng in zip(bodies, rngs, strict=True):
            name = body.box.name
            if ground is None:
                raise TestudoError(f"plant: {name}: found a box and no robot on the ground, which pushes it")
            world.place_box(name, body.initial_position_world, body.initial_yaw)
            measured = replace(model, rate_hz=_RATE_HZ)
            self._sensors[name] = OdometrySensor(ground, measured, rng, start_s, phase=0.5)

    def measure(self, time_s: float) -> None:
        """Measure the boxes whose measurement is due at a time [s]."""
        for name, sensor in self._sensors.items():
            if sensor.wants(time_s):
                sensor.measure(time_s, self.truth(name))

    def truth(self, name: str) -> RobotPose:
        """Return the true pose of a box; its velocity is not measured and zero."""
        position_world, yaw = self._world.box_pose(name)
        return RobotPose(position_world, yaw, (0.0, 0.0))

    def take(self, name: str, now_s: float) -> tuple[OdometrySample, ...]:
        """Return the samples of a box that arrived since the last call, oldest first."""
        return self._sensors[name].take(now_s)
