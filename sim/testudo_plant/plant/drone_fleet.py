"""The drones of a plant: what acts in each, the wakes in which others fly, batteries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from testudo_hardware.motion.attitude_drone import AttitudeDroneParameters
from testudo_hardware.motion.downwash import wake
from testudo_hardware.quaternions import body_up
from testudo_hardware.spec import RobotSpec
from testudo_plant.plant.battery import Battery
from testudo_plant.plant.driver import AppliedCommand
from testudo_plant.plant.drone_driver import FlyingDriver
from testudo_plant.plant.setpoint_radio import RadioModel, SetPointRadio
from testudo_plant.worlds import MujocoWorld

_CRAZYFLIE_N = 0.0338 * 9.81
"""Weight of the drones whose wake was measured."""
_LOOK_S = 0.01


@dataclass(frozen=True)
class DroneOptions:
    """What is simulated around drones."""

    radio: RadioModel = field(default_factory=RadioModel)
    downwash: bool = True
    """Whether drones push down those below them."""
    droop: bool = True
    """Whether the voltage of a battery limits the thrust."""


class Drones:
    """Drones with an attitude, by their index in the world."""

    def __init__(
        self, world: MujocoWorld, drivers: Mapping[int, FlyingDriver], options: DroneOptions, radio: SetPointRadio
    ) -> None:
        self._world, self._drivers, self._options, self._radio = world, dict(drivers), options, radio
        self._specs: dict[int, RobotSpec] = {i: world.robots[i].spec for i in self._drivers}
        self.batteries = {
            i: Battery(spec, float(AttitudeDroneParameters.from_spec(spec).hover_thrust_n))
            for i, spec in self._specs.items()
        }
        self._stands = dict.fromkeys(self._drivers, False)

    def look_around(self, step: int, now_s: float) -> None:
        """Let drones sense where they are, use their batteries, and fly in one another's wakes; at 100 Hz.

        That is the rate of the firmware's controllers, and each costs more than a step of the physics.
        """
        every = max(1, round(_LOOK_S / self._world.step_s))
        if step % every:
            return
        for index, driver in self._drivers.items():
            pose, battery = self._world.pose(index), self.batteries[index]
            up = body_up(np.array(pose.quaternion_xyzw))[2]
            driver.vehicle.sense(pose.position_world, float(up), now_s)
            self._stands[index] = pose.position_world[2] < driver.vehicle.grazing_m
            battery.use(self._world.thrust(index), every * self._world.step_s)
            if self._options.droop:
                self._world.weaken_rotors(index, battery.thrust_most_n)
        self._push()

    def fly(self, index: int, now_s: float) -> AppliedCommand:
        """Return what acts in a drone at ``now_s`` [s], and let the world know what is no velocity."""
        driver = self._drivers[index]
        applied = driver.advance(now_s, dark=self._radio.dark(index, now_s))
        self._world.order(index, level=driver.order.level, off=driver.order.off, stands=self._stands[index])
        return applied

    def may_stand(self, name: str) -> bool:
        """Return whether a robot is a drone that stands, takes off or lands."""
        return any(
            self._world.robots[i].name == name and driver.vehicle.may_stand for i, driver in self._drivers.items()
        )

    def _push(self) -> None:
        """Let the wakes of drones whose motors turn act on those below them."""
        if not self._options.downwash or len(self._drivers) < 2:
            return
        which = list(self._drivers)
        places = np.array([self._world.pose(i).position_world for i in which]).T
        turning = np.array([self._drivers[i].vehicle.flying for i in which])
        weight, radius, mass = np.array(
            [(self.batteries[i].hover_n, self._specs[i].body_radius_m, self._specs[i].mass_kg) for i in which]
        ).T
        # [i, j]: of drone j as drone i sees it
        x, y, z = (row[None, :] - row[:, None] for row in places)
        force = wake(np.where(z > 0, z, 1.0), x**2 + y**2, radius) * weight / _CRAZYFLIE_N
        force = np.where((z > 0) & turning, force, 0.0)
        push = np.zeros((3, len(self._world.robots)))
        push[2, which] = -force.sum(axis=1) / mass
        self._world.push(push)
