"""Which parameters and log variables the simulated vehicle has: names and types as the firmware declares them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

from testudo_crazyflie.flight.firmware_supervisor import FirmwareSupervisor
from testudo_crazyflie.flight.low_level_commander import SetPoint
from testudo_crazyflie.flight.vehicle import Vehicle
from testudo_crazyflie.services.log_service import Variable
from testudo_crazyflie.services.parameter_service import Parameter
from testudo_hardware.links.crazyflie.quaternion_compression import compressed

PID, MELLINGER, KALMAN = 1, 2, 2

PARAMETERS = (
    Parameter("commander.enHighLevel", "uint8", 0),
    Parameter("cpu.flash", "uint16", 1024, read_only=True),
    Parameter("crtpsrv.echoDelay", "uint16", 0),
    Parameter("deck.bcFlow2", "uint8", 0, read_only=True),
    Parameter("deck.bcLighthouse4", "uint8", 0, read_only=True),
    Parameter("firmware.modified", "uint8", 0, read_only=True),
    Parameter("firmware.revision0", "uint32", 0, read_only=True),
    Parameter("firmware.revision1", "uint16", 0, read_only=True),
    Parameter("hlCommander.groupmask", "uint8", 0),
    Parameter("hlCommander.vland", "float", 0.5),
    Parameter("hlCommander.vtoff", "float", 0.5),
    Parameter("kalman.resetEstimation", "uint8", 0),
    Parameter("locSrv.extPosStdDev", "float", 0.01),
    Parameter("locSrv.extQuatStdDev", "float", 4.5e-3),
    Parameter("pm.criticalLowVoltage", "float", 3.0, persistent=True),
    Parameter("pm.lowVoltage", "float", 3.2, persistent=True),
    Parameter("posCtlPid.xVelMax", "float", 1.0, persistent=True),
    Parameter("posCtlPid.yVelMax", "float", 1.0, persistent=True),
    Parameter("posCtlPid.zVelMax", "float", 1.0, persistent=True),
    Parameter("ring.effect", "uint8", 6, persistent=True),
    Parameter("stabilizer.controller", "uint8", PID),
    Parameter("stabilizer.estimator", "uint8", KALMAN),
    Parameter("stabilizer.stop", "uint8", 0),
    Parameter("supervisor.infdmp", "uint8", 0),
    Parameter("supervisor.landedTimeout", "uint16", 3000, persistent=True),
    Parameter("supervisor.prefltTimeout", "uint16", 30000, persistent=True),
    Parameter("supervisor.tmblChckEn", "uint8", 1, persistent=True),
    Parameter("velCtlPid.vxKp", "float", 25.0, persistent=True),
    Parameter("velCtlPid.vyKp", "float", 25.0, persistent=True),
    Parameter("velCtlPid.vzKp", "float", 25.0, persistent=True),
)

_AXES = ("x", "y", "z")


class LoggedVehicle(Protocol):
    """What log variables are read from: the simulated vehicle."""

    vehicle: Vehicle
    supervisor: FirmwareSupervisor
    set_point: SetPoint
    external_position: tuple[float, float, float]
    battery_state: int

    @property
    def bits(self) -> int:
        """Return the supervisor's state as bits."""
        ...


def log_variables(craft: LoggedVehicle) -> Mapping[str, Variable]:
    """Return every variable that can be logged, read from a vehicle."""
    body = craft.vehicle
    found: dict[str, Variable] = {}
    for name, read in {"x": lambda: craft.set_point.position_world, "v": lambda: craft.set_point.velocity}.items():
        _add_axes(found, "ctrltarget", name, read)
        _add_axes(found, "ctrltargetZ", name, read, small=True)
    found["ctrltarget.yaw"] = Variable("float", lambda: math.degrees(craft.set_point.yaw_rate))
    _add_axes(found, "ext_pos", "X", lambda: craft.external_position)
    found["pm.batteryLevel"] = Variable("uint8", lambda: min(max(100 * (body.battery_v - 3.0) / 1.2, 0), 100))
    found["pm.state"] = Variable("int8", lambda: craft.battery_state)
    found["pm.vbat"] = Variable("float", lambda: body.battery_v)
    found["pm.vbatMV"] = Variable("uint16", lambda: round(1000 * body.battery_v))
    found["radio.rssi"] = Variable("uint8", lambda: 45)
    for name, read in {"x": lambda: body.position, "v": lambda: body.velocity}.items():
        _add_axes(found, "stateEstimate", name, read)
        _add_axes(found, "stateEstimateZ", name, read, small=True)
    for k, name in enumerate(("qx", "qy", "qz", "qw")):
        found[f"stateEstimate.{name}"] = Variable("float", lambda k=k: body.quaternion_xyzw[k])
    found["stateEstimate.yaw"] = Variable("float", lambda: math.degrees(body.yaw))
    found["stateEstimateZ.quat"] = Variable("uint32", lambda: compressed(body.quaternion_xyzw))
    found["supervisor.info"] = Variable("uint16", lambda: craft.bits)
    found["sys.canfly"] = Variable("uint8", lambda: craft.supervisor.can_fly)
    found["sys.isFlying"] = Variable("uint8", lambda: craft.supervisor.is_flying)
    found["sys.isTumbled"] = Variable("uint8", lambda: craft.supervisor.tumbled)
    return dict(sorted(found.items()))


def _add_axes(found: dict[str, Variable], group: str, kind: str, read: Callable, *, small: bool = False) -> None:
    """Add a vector by its axes: as floats, or in thousandths."""
    for k, axis in enumerate(_AXES):
        name = {"x": axis, "v": f"v{axis}", "X": axis.upper()}[kind]
        if small:
            found[f"{group}.{name}"] = Variable("int16", lambda k=k: 1000 * read()[k])
        else:
            found[f"{group}.{name}"] = Variable("float", lambda k=k: read()[k])
