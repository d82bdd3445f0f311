"""Whether a robot may be touching a body that it pushes, so that it need not follow its commands."""

import math
from collections.abc import Callable, Sequence

from testudo_deploy.control.task_receiver import TaskReading
from testudo_deploy.fleet.fleet_bodies import FleetBody
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import RobotSpec

_POSITION = "_position_world"
_AGED_S = 0.4  # a body may have moved this long, at the speed of the robot that pushes it


class BodyContact:
    """The bodies of one robot's fleet, where the newest values of the task say they are, however old."""

    def __init__(self, bodies: Sequence[FleetBody], spec: RobotSpec, reading: Callable[[], TaskReading | None]) -> None:
        """Take the bodies; ``reading`` returns the values of the task, or None without any."""
        aged_m = _AGED_S * spec.control_point_speed_m_s + 2 * spec.position_error_m
        self._reach_m = {
            body.name + _POSITION: math.hypot(*body.size_m[:2]) / 2 + spec.body_radius_m + aged_m for body in bodies
        }
        self._reading = reading

    def __call__(self, measured: MotionState) -> bool:
        """Return whether a robot at a pose is so near to a body that it may touch it; false if no value says where."""
        reading = self._reading()
        if reading is None:
            return False
        place = [float(value) for value in measured.position_world[:2]]
        known = ((reading.arrays.get(name), reach_m) for name, reach_m in self._reach_m.items())
        return any(where is not None and math.dist(place, where[:2]) < reach_m for where, reach_m in known)
