"""`SimulatedCrazyflie`: one vehicle behind its radio protocol; bytes and a clock in, bytes out."""

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from testudo_crazyflie.firmware import crtp_packets
from testudo_crazyflie.firmware.commanders import (
    HIGH_LEVEL_PRIORITY,
    OFF,
    RADIO,
    Commander,
    Planner,
    SetPoint,
    decode_set_point,
    is_notification,
)
from testudo_crazyflie.firmware.crtp_packets import MemoryService, Packet, answer_link, answer_version, console
from testudo_crazyflie.firmware.firmware_supervisor import FirmwareSupervisor, State
from testudo_crazyflie.firmware.log_and_parameters import TICK_S, LogService, Parameter, ParameterService, Variable
from testudo_crazyflie.firmware.vehicle import AttitudeFlight, FlightModel, PointFlight, Vehicle
from testudo_hardware.links.crazyflie.vehicle_messages import compressed
from testudo_hardware.spec import RobotSpec, load_robot

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


def _add_axes(found: dict[str, Variable], group: str, kind: str, read: Callable, *, small: bool = False) -> None:
    """Add a vector by its axes: as floats, or in thousandths."""
    for k, axis in enumerate("xyz"):
        name = {"x": axis, "v": f"v{axis}", "X": axis.upper()}[kind]
        if small:
            found[f"{group}.{name}"] = Variable("int16", lambda k=k: 1000 * read()[k])
        else:
            found[f"{group}.{name}"] = Variable("float", lambda k=k: read()[k])


RADIO_SILENT_S = 1.0
"""Time without packets after which the vehicle counts as disconnected and deletes its log blocks."""
_LOW_FOR_S = 5.0
_ON_BATTERY, _LOW_POWER = 0, 3
_POSE = struct.Struct("<fffffff")
_ARM, _RECOVER = 1, 2
_VERSION = 1


@dataclass(frozen=True)
class SimulatedCrazyflieSettings:
    """Type and initial pose of a vehicle."""

    spec: RobotSpec
    position_world: tuple[float, float, float] = (0.0, 0.0, 0.0)  # [m]
    yaw: float = 0.0  # [rad]
    auto_arm: bool = True
    """Brushed vehicles (Crazyflie 2.1) arm themselves; brushless ones and those on a Bolt wait to be armed."""
    onboard_brake: bool = False  # an app on board brakes after the dead-man time of the robot file without set-points
    as_point: bool = False  # simulates a point that follows velocities, even if the robot file has `[attitude]`
    clock_ahead_s: float = 0.0  # time since power-on

    @classmethod
    def create(cls, robot: str = "crazyflie_2x", **changes: Any) -> "SimulatedCrazyflieSettings":
        """Return the settings of a registered robot."""
        return cls(load_robot(robot), **changes)


class SimulatedCrazyflie:
    """One vehicle; every method takes the time [s] on one clock of the caller, never decreasing."""

    def __init__(self, settings: SimulatedCrazyflieSettings, now_s: float) -> None:
        """Switch it on."""
        self._settings = settings
        self._heard_s = now_s
        self._switch_on(now_s - settings.clock_ahead_s, now_s)

    def _switch_on(self, zero_s: float, now_s: float) -> None:
        settings = self._settings
        self._zero_s, self._stepped_s = zero_s, now_s
        flight = PointFlight if settings.as_point or not settings.spec.attitude else AttitudeFlight
        model: FlightModel = flight(settings.spec, TICK_S)
        self.vehicle = Vehicle(model, TICK_S, settings.position_world, settings.yaw)
        self.supervisor = FirmwareSupervisor(auto_arm=settings.auto_arm)
        self.commander, self.planner = Commander(), Planner()
        self.parameters = ParameterService(PARAMETERS)
        self.set_point: SetPoint = OFF
        self._commanded_s = 0.0
        self.external_position = (0.0, 0.0, 0.0)
        self.external_poses = self.set_points = 0
        self.battery_state = _ON_BATTERY
        self._low_since_s: float | None = None
        self._memory = MemoryService()
        # every variable that can be logged, read from a vehicle
        body = self.vehicle
        found: dict[str, Variable] = {}
        for name, read in {"x": lambda: self.set_point.position_world, "v": lambda: self.set_point.velocity}.items():
            _add_axes(found, "ctrltarget", name, read)
            _add_axes(found, "ctrltargetZ", name, read, small=True)
        found["ctrltarget.yaw"] = Variable("float", lambda: math.degrees(self.set_point.yaw_rate))
        _add_axes(found, "ext_pos", "X", lambda: self.external_position)
        found["pm.batteryLevel"] = Variable("uint8", lambda: min(max(100 * (body.battery_v - 3.0) / 1.2, 0), 100))
        found["pm.state"] = Variable("int8", lambda: self.battery_state)
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
        found["supervisor.info"] = Variable("uint16", lambda: self.bits)
        found["sys.canfly"] = Variable("uint8", lambda: self.supervisor.can_fly)
        found["sys.isFlying"] = Variable("uint8", lambda: self.supervisor.is_flying)
        found["sys.isTumbled"] = Variable("uint8", lambda: self.supervisor.tumbled)
        self.logs = LogService(dict(sorted(found.items())))
        self._services: dict[int, Callable[[Packet], list[Packet] | None]] = {
            crtp_packets.PARAMETERS: self.parameters.handle,
            crtp_packets.LOG: self.logs.handle,
            crtp_packets.MEMORY: self._memory.handle,
            crtp_packets.LINK: answer_link,
            crtp_packets.PLATFORM: self._platform,
            crtp_packets.SUPERVISOR: lambda packet: self.supervisor.handle(packet, self.bits, self._time_s),
            crtp_packets.HIGH_LEVEL: lambda packet: self.planner.handle(packet, self._pose(), self._time_s),
            crtp_packets.COMMANDER: self._command,
            crtp_packets.GENERIC: self._command,
            crtp_packets.LOCALISATION: self._localise,
        }

    def _pose(self) -> np.ndarray:
        return np.append(self.vehicle.position, self.vehicle.yaw)

    @property
    def bits(self) -> int:
        """Return the supervisor's bit field."""
        return self.supervisor.bits(self.planner.is_active, self.planner.is_finished(self._time_s))

    @property
    def _time_s(self) -> float:
        """Return the time since it was switched on."""
        return self._stepped_s - self._zero_s

    def restart(self, now_s: float) -> None:
        """Power-cycle it in place; stored values are lost."""
        body = self.vehicle.body
        self._switch_on(now_s, now_s)
        self.vehicle.body = body

    def advance(self, now_s: float) -> list[bytes]:
        """Advance to ``now_s``; return the packets sent meanwhile."""
        sent: list[Packet] = []
        while self._stepped_s + TICK_S <= now_s + 1e-9:
            self._stepped_s += TICK_S
            sent += self._tick()
        return [crtp_packets.encode(packet) for packet in sent]

    def receive(self, raw: bytes, now_s: float) -> list[bytes]:
        """Receive a packet at ``now_s``; return the packets sent until now, answers last."""
        sent = self.advance(now_s)
        packet = crtp_packets.decode(raw)
        if packet is None:
            return sent
        self._heard_s = now_s
        if packet.is_null or packet.port not in self._services:
            return sent
        return sent + [crtp_packets.encode(answer) for answer in self._services[packet.port](packet) or []]

    def _command(self, packet: Packet) -> None:
        if is_notification(packet):
            self.commander.relax()
            return
        set_point = decode_set_point(packet)
        self.set_points += set_point is not None
        if set_point is not None and self.commander.take(set_point, RADIO, self._time_s):
            self.planner.stop()
            self._commanded_s = self._time_s

    def _platform(self, packet: Packet) -> list[Packet]:
        """Answer the commands that have moved to the supervisor, and echo the rest."""
        data = packet.data
        if packet.channel == _VERSION:
            return answer_version(data)
        if data[:1] == bytes([_ARM]) and len(data) >= 2:
            data = data[:1] + self.supervisor.request_arming(bool(data[1]))
        elif data[:1] == bytes([_RECOVER]):
            data = data[:1] + self.supervisor.request_recovery()
        return [Packet(packet.port, packet.channel, data)]

    def _localise(self, packet: Packet) -> None:
        stop, watchdog, pose = 3, 4, 8
        if packet.channel == 0 and len(packet.data) == 12:
            self.external_position, self.external_poses = struct.unpack("<fff", packet.data), self.external_poses + 1
        elif packet.channel == 1 and packet.data[:1] == bytes([stop]):
            self.supervisor.emergency = True
        elif packet.channel == 1 and packet.data[:1] == bytes([watchdog]):
            self.supervisor.feed_watchdog(self._time_s)
        elif packet.channel == 1 and packet.data[:1] == bytes([pose]) and len(packet.data) == 1 + _POSE.size:
            self.external_position = _POSE.unpack(packet.data[1:])[:3]
            self.external_poses += 1

    def _tick(self) -> Iterator[Packet]:
        """Advance by one tick of the firmware loop; yield the sent packets."""
        now_s, supervisor = self._time_s, self.supervisor
        self.planner.block(not supervisor.can_fly)
        if supervisor.can_fly:
            self.commander.take(self.planner.set_point(now_s), HIGH_LEVEL_PRIORITY, now_s)
            # simulate the app on board, which brakes without set-points
            settings, commander = self._settings, self.commander
            silent = now_s - self._commanded_s > settings.spec.dead_man_s
            if settings.onboard_brake and silent and commander.priority == RADIO and commander.set_point.kind != "off":
                commander.take(SetPoint("velocity"), RADIO, now_s)
        asked = self.commander.set_point
        age_s = now_s - asked.stamp_s if supervisor.can_fly else math.inf
        values = self.parameters
        supervisor.preflight_s = values["supervisor.prefltTimeout"] / 1000
        supervisor.landed_s = values["supervisor.landedTimeout"] / 1000
        supervisor.emergency |= bool(values["stabilizer.stop"])
        up = self.vehicle.up if values["supervisor.tmblChckEn"] else 1.0
        supervisor.update(age_s, now_s, motors_on=self.vehicle.motors_on, up=up)
        self.set_point = asked if supervisor.can_fly else OFF
        level = supervisor.state == State.LEVEL_OUT
        follows = asked.kind != "velocity" or self.parameters["stabilizer.controller"] != MELLINGER
        self.vehicle.step(self.set_point, level=level, follows=follows)
        if self.vehicle.battery_v >= self.parameters["pm.lowVoltage"]:
            self._low_since_s, self.battery_state = None, _ON_BATTERY
        elif self._low_since_s is None:
            self._low_since_s = now_s
        elif now_s - self._low_since_s > _LOW_FOR_S:
            self.battery_state = _LOW_POWER
        for text in supervisor.messages:
            yield from console(text)
        supervisor.messages.clear()
        if self._stepped_s - self._heard_s > RADIO_SILENT_S:
            self.logs.reset()
        yield from self.logs.tick(now_s)
