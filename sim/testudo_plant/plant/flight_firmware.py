"""Models the commanders, the set-point watchdog and the supervisor of the Crazyflie firmware.

A set-point is held until the next one. After `silence.level_after` without one the drone levels out, which does not
brake: it keeps the last climb rate, and only drag slows it down. After `silence.cut_after` its motors stop and it is
locked. With an app on board (`silence.onboard_brake`) it brakes after `timing.dead_man` instead, and hovers. Its own
planner flies take-off and landing without radio; a set-point ends them.

Sources: firmware files `supervisor.c`, `commander.c`, `crtp_commander_high_level.c`, `position_controller_pid.c`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from testudo_hardware.links.flight_link import FlightAct, FlightRequest
from testudo_hardware.spec import RobotSpec

POSITION_GAIN_HZ = 2.0
"""Velocity over position error [1/s] under the planner: `posCtlPid.xKp` and similar."""
TUMBLED_COSINE = 0.5
"""Cosine of the tilt, 60 degrees, beyond which it counts as tumbled after `TUMBLED_S`."""
TUMBLED_S = 1.0
READY_S = 0.08
"""Time from arming until the firmware releases its planner."""
_TOUCH_M = 0.02  # height below which it stands on the floor


class FlightPhase(StrEnum):
    """Source of the command that the drone follows."""

    OFF = "off"  # motors off
    PLANNER = "planner"  # its own planner: take-off, hover, landing
    SET_POINT = "set_point"
    HELD = "held"  # the last set-point after its period
    LEVEL = "level"  # no set-points: levelled out
    BRAKE = "onboard_brake"  # no set-points: braked by an app on board
    LOCKED = "locked"  # motors off until a manual restart


@dataclass(frozen=True)
class CommandSilence:
    """Reactions of a drone to missing set-points: table `[silence]` of the robot file."""

    level_after_s: float = 0.5  # levels out, this time after the last set-point
    cut_after_s: float = 2.0  # stops its motors, this time after the last set-point
    brake_after_s: float = math.inf
    """An app on board brakes, from this time after the last set-point until the next one."""

    @classmethod
    def of(cls, spec: RobotSpec) -> "CommandSilence":
        """Return the reactions of a robot; a robot without the table has a driver that brakes."""
        if spec.brakes_in_silence:
            return cls(brake_after_s=spec.dead_man_s)
        return cls(spec.silence["silence.level_after"].value, spec.silence["silence.cut_after"].value)


@dataclass(frozen=True)
class FlightCommand:
    """Input of the inner control loops."""

    velocity_world: tuple[float, float, float]  # [m/s]
    level: bool  # whether roll and pitch are zero and only the climb follows the velocity
    off: bool  # whether the motors are off
    yaw_rate: float = 0.0  # [rad/s], anticlockwise


@dataclass(frozen=True)
class _VerticalMove:
    """A vertical trajectory of the planner."""

    begin_s: float
    duration_s: float
    start_world: tuple[float, float, float]
    end_m: float
    lands: bool

    def at(self, now_s: float) -> tuple[tuple[float, float, float], float]:
        """Return position (3,) [m] and climb rate [m/s] on a quintic from rest to rest."""
        share = min(max((now_s - self.begin_s) / self.duration_s, 0.0), 1.0)
        rise = self.end_m - self.start_world[2]
        done = share**3 * (10 - 15 * share + 6 * share**2)
        rate = 30 * share**2 * (1 - share) ** 2 / self.duration_s
        return (*self.start_world[:2], self.start_world[2] + rise * done), rise * rate


class CrazyflieFirmware:
    """The firmware of one drone between radio and velocity controller; every time [s] is an argument."""

    def __init__(
        self, silence: CommandSilence, start_world: Sequence[float], *, rest_m: float, hovers: bool, start_s: float
    ) -> None:
        """Start in hover under the planner, or on the floor with motors off.

        ``silence`` are the reactions to missing set-points, ``start_world`` (3,) [m] is the position, ``rest_m`` [m]
        the height of its centre on the floor, and ``hovers`` says that it is in the air.
        """
        self._silence, self._rest_m = silence, rest_m
        self.armed, self.tumbled = hovers, False
        self._armed_s = -math.inf
        self.phase = FlightPhase.PLANNER if hovers else FlightPhase.OFF
        x, y, z = start_world
        self._move = _VerticalMove(start_s, 1.0, (x, y, z), z, lands=False)
        self._place, self._up = (x, y, z), 1.0
        self._set_point, self._yaw_rate, self._heard_s = (0.0, 0.0, 0.0), 0.0, -math.inf
        self._tilted_since_s = math.inf
        self._streamed = False
        """Set-points have come without a notification of their end, so that the planner is blocked."""
        self._waits = False
        """A landing starts at the end of the set-points."""

    @property
    def flying(self) -> bool:
        """Return whether its motors are running."""
        return self.phase not in (FlightPhase.OFF, FlightPhase.LOCKED)

    @property
    def planner_active(self) -> bool:
        """Return whether its own planner leads, or will once the set-points end."""
        return self.phase is FlightPhase.PLANNER or self._waits

    def can_fly(self, now_s: float) -> bool:
        """Return whether it can fly, or before arming, whether it can be armed."""
        well = self.phase is not FlightPhase.LOCKED and not self.tumbled
        return well and (not self.armed or now_s - self._armed_s >= READY_S)

    @property
    def may_stand(self) -> bool:
        """Return whether it may touch the floor: it stands, takes off or lands under its planner."""
        leaves = self.phase is FlightPhase.PLANNER and (self._move.lands or self._move.start_world[2] <= self.grazing_m)
        return self.phase is FlightPhase.OFF or leaves

    @property
    def grazing_m(self) -> float:
        """Return the height [m] of its centre below which it counts as on the floor."""
        return self._rest_m + _TOUCH_M

    def hear(self, velocity_world: Sequence[float], now_s: float, yaw_rate: float = 0.0) -> None:
        """Receive a set-point (3,) [m/s] with a yaw rate [rad/s]; it ends the motion of the planner."""
        x, y, z = velocity_world
        self._set_point, self._yaw_rate, self._heard_s = (x, y, z), yaw_rate, now_s
        self._streamed, self._waits = True, False
        if self.armed and self.phase is not FlightPhase.LOCKED:
            self.phase = FlightPhase.SET_POINT

    def ask(self, request: FlightRequest, now_s: float) -> bool:
        """Receive a request; return whether it is accepted."""
        if request.act is FlightAct.EMERGENCY:
            self._lock()
            return True
        if self.phase is FlightPhase.LOCKED:
            return False
        if request.act is FlightAct.ARM:
            if not self.armed:
                self._armed_s = now_s
            self.armed = not self.tumbled
            return self.armed
        if request.act is FlightAct.DISARM:
            self.armed, self.phase = False, FlightPhase.OFF
            return True
        if request.act is FlightAct.NOTIFY_SETPOINTS_STOP:
            # hand over to the planner; since firmware 2023 an idle planner switches the motors off
            if self._streamed and self.phase not in (FlightPhase.OFF, FlightPhase.LOCKED):
                if self._waits:
                    self.phase = FlightPhase.PLANNER
                else:
                    self._lock()
            self._streamed = self._waits = False
            return True
        return self._plan(request, now_s)

    def sense(self, place_world: Sequence[float], up: float, now_s: float) -> None:
        """Update the state estimate: position (3,) [m] and cosine of the tilt."""
        x, y, z = place_world
        self._place, self._up = (x, y, z), up
        self._tilted_since_s = min(self._tilted_since_s, now_s) if up < TUMBLED_COSINE else math.inf
        self.tumbled = now_s - self._tilted_since_s > TUMBLED_S
        if self.tumbled and self.flying:
            self._lock()

    def command(self, now_s: float, late_s: float) -> FlightCommand:
        """Return the input of the inner loops; a set-point older than ``late_s`` [s] counts as held."""
        if self.phase in (FlightPhase.SET_POINT, FlightPhase.HELD, FlightPhase.LEVEL, FlightPhase.BRAKE):
            self._watch(now_s - self._heard_s, late_s)
        if not self.flying:
            return FlightCommand((0.0, 0.0, 0.0), level=True, off=True)
        if self.phase is FlightPhase.PLANNER:
            # command of the planner; motors stop at the end of a landing
            move = self._move
            lead, climb_m_s = move.at(now_s)
            over = now_s - move.begin_s > move.duration_s
            if move.lands and over and (self._place[2] < self.grazing_m or move.end_m > self.grazing_m):
                self.phase = FlightPhase.OFF
                return FlightCommand((0.0, 0.0, 0.0), level=True, off=True)
            back = [POSITION_GAIN_HZ * (wanted - here) for wanted, here in zip(lead, self._place, strict=True)]
            return FlightCommand((back[0], back[1], back[2] + climb_m_s), level=False, off=False)
        if self.phase is FlightPhase.BRAKE:
            return FlightCommand((0.0, 0.0, 0.0), level=False, off=False)
        level = self.phase is FlightPhase.LEVEL  # supervisor.c: the yaw rate is zero, too
        return FlightCommand(self._set_point, level=level, off=False, yaw_rate=0.0 if level else self._yaw_rate)

    def _plan(self, request: FlightRequest, now_s: float) -> bool:
        """Take off or land; set-points have priority, so that a landing waits for the notification of their end."""
        lands = request.act is FlightAct.LAND
        if not (self.armed and self.can_fly(now_s)) or (self._streamed and not lands) or (lands and not self.flying):
            return False
        end_m = max(request.height_m, self._rest_m)
        self._move = _VerticalMove(now_s, request.duration_s, self._place, end_m, lands=lands)
        if self._streamed:
            self._waits = True
        else:
            self.phase = FlightPhase.PLANNER
        return True

    def _watch(self, age_s: float, late_s: float) -> None:
        """Set the phase by the age of the last set-point."""
        silence = self._silence
        if age_s > silence.brake_after_s:
            self.phase = FlightPhase.BRAKE
        elif age_s > silence.cut_after_s:
            self._lock()
        elif age_s > silence.level_after_s:
            self.phase = FlightPhase.LEVEL
        else:
            self.phase = FlightPhase.HELD if age_s > late_s else FlightPhase.SET_POINT

    def _lock(self) -> None:
        self.phase, self.armed = FlightPhase.LOCKED, False
