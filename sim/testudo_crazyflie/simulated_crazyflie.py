"""`SimulatedCrazyflie`: one vehicle behind its radio protocol; bytes and a clock in, bytes out."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from testudo_crazyflie.flight.firmware_supervisor import FirmwareSupervisor, State, SupervisedBody
from testudo_crazyflie.flight.flight_models import PointFlight, flight_model
from testudo_crazyflie.flight.high_level_commander import Planner
from testudo_crazyflie.flight.low_level_commander import (
    HIGH_LEVEL,
    OFF,
    RADIO,
    Commander,
    SetPoint,
    decode_set_point,
    is_notification,
)
from testudo_crazyflie.flight.vehicle import Vehicle
from testudo_crazyflie.services import crtp_packets
from testudo_crazyflie.services.crtp_packets import Packet
from testudo_crazyflie.services.log_service import TICK_S, LogService
from testudo_crazyflie.services.parameter_service import ParameterService
from testudo_crazyflie.services.small_services import MemoryService, answer_link, answer_version, console
from testudo_crazyflie.variable_tables import MELLINGER, PARAMETERS, log_variables
from testudo_hardware.spec import RobotSpec, load_robot

RADIO_SILENT_S = 1.0
"""After so long without a packet the vehicle counts as disconnected and forgets its log blocks."""
_LOW_FOR_S = 5.0
_ON_BATTERY, _LOW_POWER = 0, 3
_POSE = struct.Struct("<fffffff")
_ARM, _RECOVER = 1, 2
_VERSION = 1


@dataclass(frozen=True)
class SimulatedCrazyflieSettings:
    """What kind of vehicle it is, and where it stands."""

    spec: RobotSpec
    position_world: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """[m]."""
    yaw: float = 0.0
    """[rad]."""
    auto_arm: bool = True
    """Brushed vehicles (Crazyflie 2.1) arm themselves; brushless ones and those on a Bolt wait to be armed."""
    onboard_brake: bool = False
    """An app on board stands still once the radio's set-points are silent for the dead-man time of the robot file."""
    as_point: bool = False
    """It follows velocities as a point, also if its file tells how it tilts."""
    clock_ahead_s: float = 0.0
    """How long ago it was switched on."""

    @classmethod
    def create(cls, robot: str = "crazyflie_2x", **changes: object) -> SimulatedCrazyflieSettings:
        """Return the settings of a registered robot."""
        return cls(load_robot(robot), **changes)


class SimulatedCrazyflie:
    """One vehicle; every method takes the time [s] on one clock of the caller, which never goes back."""

    def __init__(self, settings: SimulatedCrazyflieSettings, now_s: float) -> None:
        """Switch it on."""
        self._settings = settings
        self._heard_s = now_s
        self._switch_on(now_s - settings.clock_ahead_s, now_s)

    def _switch_on(self, zero_s: float, now_s: float) -> None:
        settings = self._settings
        self._zero_s, self._stepped_s = zero_s, now_s
        model = PointFlight(settings.spec, TICK_S) if settings.as_point else flight_model(settings.spec, TICK_S)
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
        self.logs = LogService(log_variables(self))
        self._services: dict[int, Callable[[Packet], list[Packet] | None]] = {
            crtp_packets.PARAMETERS: self.parameters.handle,
            crtp_packets.LOG: self.logs.handle,
            crtp_packets.MEMORY: self._memory.handle,
            crtp_packets.LINK: answer_link,
            crtp_packets.PLATFORM: self._platform,
            crtp_packets.SUPERVISOR: lambda packet: self.supervisor.handle(packet, self.bits, self._time_s),
            crtp_packets.HIGH_LEVEL: lambda packet: self.planner.handle(packet, self._place(), self._time_s),
            crtp_packets.COMMANDER: self._command,
            crtp_packets.GENERIC: self._command,
            crtp_packets.LOCALISATION: self._localise,
        }

    def _place(self) -> tuple[np.ndarray, float]:
        return self.vehicle.position, self.vehicle.yaw

    @property
    def bits(self) -> int:
        """Return the supervisor's bit field."""
        return self.supervisor.bits(self.planner.is_active, self.planner.is_finished(self._time_s))

    @property
    def _time_s(self) -> float:
        """Return the time since it was switched on."""
        return self._stepped_s - self._zero_s

    def restart(self, now_s: float) -> None:
        """Switch it off and on, where it is; what was stored is lost, too."""
        body = self.vehicle.body
        self._switch_on(now_s, now_s)
        self.vehicle.body = body

    def advance(self, now_s: float) -> list[bytes]:
        """Let time pass; return what the vehicle sent meanwhile."""
        sent: list[Packet] = []
        while self._stepped_s + TICK_S <= now_s + 1e-9:
            self._stepped_s += TICK_S
            sent += self._tick()
        return [crtp_packets.encode(packet) for packet in sent]

    def receive(self, raw: bytes, now_s: float) -> list[bytes]:
        """Take what came by radio, at the present; return what the vehicle sent up to now, answers last."""
        sent = self.advance(now_s)
        packet = crtp_packets.decode(raw)
        if packet is None:
            return sent
        self._heard_s = now_s
        return sent + [crtp_packets.encode(answer) for answer in self._answers(packet)]

    def _answers(self, packet: Packet) -> list[Packet]:
        if packet.is_null or packet.port not in self._services:
            return []
        return self._services[packet.port](packet) or []

    def _command(self, packet: Packet) -> None:
        if is_notification(packet):
            self.commander.relax()
            return
        set_point = decode_set_point(packet)
        self.set_points += set_point is not None
        if set_point is not None and self.commander.take(set_point, RADIO, self._time_s):
            self.planner.stop()
            self._commanded_s = self._time_s

    def _brake_on_board(self, now_s: float) -> None:
        """Do what the app on board does: take the radio's place while that is silent."""
        settings, commander = self._settings, self.commander
        silent = now_s - self._commanded_s > settings.spec.dead_man_s
        if settings.onboard_brake and silent and commander.priority == RADIO and commander.set_point.kind != "off":
            commander.take(SetPoint("velocity"), RADIO, now_s)

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
        """Go on by one tick, as the firmware's loop does; yield what is sent."""
        now_s, supervisor = self._time_s, self.supervisor
        self.planner.block(not supervisor.can_fly)
        if supervisor.can_fly:
            self.commander.take(self.planner.set_point(now_s), HIGH_LEVEL, now_s)
            self._brake_on_board(now_s)
        asked = self.commander.set_point
        age_s = now_s - asked.stamp_s if supervisor.can_fly else math.inf
        self._supervise(age_s, now_s)
        self.set_point = asked if supervisor.can_fly else OFF
        level = supervisor.state == State.LEVEL_OUT
        follows = asked.kind != "velocity" or self.parameters["stabilizer.controller"] != MELLINGER
        self.vehicle.step(self.set_point, level=level, follows=follows)
        self._watch_battery(now_s)
        for text in supervisor.said:
            yield from console(text)
        supervisor.said.clear()
        if self._stepped_s - self._heard_s > RADIO_SILENT_S:
            self.logs.reset()
        yield from self.logs.tick(now_s)

    def _supervise(self, age_s: float, now_s: float) -> None:
        supervisor, values = self.supervisor, self.parameters
        supervisor.preflight_s = values["supervisor.prefltTimeout"] / 1000
        supervisor.landed_s = values["supervisor.landedTimeout"] / 1000
        supervisor.emergency |= bool(values["stabilizer.stop"])
        up = self.vehicle.up if values["supervisor.tmblChckEn"] else 1.0
        supervisor.update(SupervisedBody(self.vehicle.motors_on, up), age_s, now_s)

    def _watch_battery(self, now_s: float) -> None:
        if self.vehicle.battery_v >= self.parameters["pm.lowVoltage"]:
            self._low_since_s, self.battery_state = None, _ON_BATTERY
        elif self._low_since_s is None:
            self._low_since_s = now_s
        elif now_s - self._low_since_s > _LOW_FOR_S:
            self.battery_state = _LOW_POWER
