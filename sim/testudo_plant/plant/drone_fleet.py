"""Simulates the drones of a plant: their drivers, batteries and downwash."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from testudo_hardware.frames import body_up
from testudo_hardware.motion.attitude_drone import AttitudeDroneParameters
from testudo_hardware.motion.battery import BatteryParameters, discharged, load_of, maximum_thrust, voltage
from testudo_hardware.motion.propellers import wake
from testudo_hardware.spec import RobotSpec
from testudo_plant.plant.driver import AppliedCommand, FlyingDriver
from testudo_plant.plant.injected_faults import RadioModel, SetPointRadio
from testudo_plant.worlds.world import MujocoWorld


class Battery:
    """Charge and voltage of one drone, by the model `testudo_hardware.motion.battery`."""

    def __init__(self, spec: RobotSpec, hover_thrust_n: float) -> None:
        """Start full; ``hover_thrust_n`` is the total commanded thrust in hover [N]."""
        self._law = BatteryParameters.from_spec(spec, hover_thrust_n)
        self.hover_n, self.charge, self._load = hover_thrust_n, 1.0, 0.0

    @property
    def voltage_v(self) -> float:
        """Return the voltage under load [V]."""
        return voltage(self.charge, self._load)

    @property
    def thrust_most_n(self) -> float:
        """Return the maximum total thrust at this voltage [N]; infinite if the robot file gives none."""
        return float(maximum_thrust(self._law, np.float64(self.voltage_v)))

    def use(self, thrust_n: float, duration_s: float) -> None:
        """Discharge by a thrust [N] for a time [s]."""
        self._load = float(load_of(self._law, np.float64(thrust_n)))
        self.charge = max(0.0, self.charge - discharged(self._load, duration_s))


_CRAZYFLIE_N = 0.0338 * 9.81  # weight [N] of the drone whose wake was measured
_UPDATE_PERIOD_S = 0.01


@dataclass(frozen=True)
class DroneOptions:
    """Simulated effects on drones."""

    radio: RadioModel = field(default_factory=RadioModel)
    downwash: bool = True  # whether wakes push down drones below
    droop: bool = True  # whether the battery voltage limits the thrust


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

    def update(self, step: int, now_s: float) -> None:
        """Update state estimates, batteries and downwash, at 100 Hz.

        That is the rate of the controllers in the firmware; an update costs more than a physics step.
        """
        every = max(1, round(_UPDATE_PERIOD_S / self._world.step_s))
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
        """Return the command of a drone at ``now_s`` [s], and pass its other orders to the world."""
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
        """Apply the wakes of drones with running motors to drones below."""
        if not self._options.downwash or len(self._drivers) < 2:
            return
        which = list(self._drivers)
        places = np.array([self._world.pose(i).position_world for i in which]).T
        turning = np.array([self._drivers[i].vehicle.flying for i in which])
        weight, radius, mass = np.array(
            [(self.batteries[i].hover_n, self._specs[i].body_radius_m, self._specs[i].mass_kg) for i in which]
        ).T
        # [i, j]: position of drone j relative to drone i
        x, y, z = (row[None, :] - row[:, None] for row in places)
        force = wake(np.where(z > 0, z, 1.0), x**2 + y**2, radius) * weight / _CRAZYFLIE_N
        force = np.where((z > 0) & turning, force, 0.0)
        push = np.zeros((3, len(self._world.robots)))
        push[2, which] = -force.sum(axis=1) / mass
        self._world.push(push)
