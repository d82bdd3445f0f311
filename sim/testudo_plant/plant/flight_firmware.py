"""What a Crazyflie does with what it hears: its commanders, its watchdog and its supervisor, as its firmware has them.

Set-points over the radio are held until the next one comes. `silence.level_after` the last one it levels out, which is
no brake: its last climb rate goes on, and only drag slows it down. `silence.cut_after` the last one its motors stop,
and it is locked. With an app on board (`silence.onboard_brake`) it brakes `timing.dead_man` after the last one instead,
and hovers. Take-off and landing are flown by its own planner, which needs no radio; a set-point ends them.

Sources: the firmware's `supervisor.c`, `commander.c`, `crtp_commander_high_level.c`, `position_controller_pid.c`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from testudo_hardware.links.flight_link import FlightAct, FlightRequest
from testudo_hardware.spec import RobotSpec

POSITION_GAIN_HZ = 2.0
"""Velocity over position error where the planner leads: `posCtlPid.xKp` and its like."""
TUMBLED_COSINE = 0.5
"""Of the tilt, 60 degrees, beyond which it is tumbled after `TUMBLED_S`."""
TUMBLED_S = 1.0
READY_S = 0.08
"""From being armed to where it may fly: until then the firmware blocks its planner."""
_TOUCH_M = 0.02
"""So near the floor it stands on it."""


class FlightPhase(StrEnum):
    """What leads the drone now."""

    OFF = "off"
    """Its motors stand still."""
    PLANNER = "planner"
    """Its own planner: take-off, hover, landing."""
    SET_POINT = "set_point"
    HELD = "held"
    """The last set-point, though a newer one is due."""
    LEVEL = "level"
    """Silence: it levels out."""
    BRAKE = "onboard_brake"
    """Silence, and an app on board that brakes."""
    LOCKED = "locked"
    """Motors off, until it is started anew by hand."""


@dataclass(frozen=True)
class CommandSilence:
    """What a drone does when set-points stop: the table `[silence]` of its file."""

    level_after_s: float = 0.5
    """Since the last set-point."""
    cut_after_s: float = 2.0
    """Since the last set-point; its motors stop."""
    brake_after_s: float = math.inf
    """Since the last set-point; an app on board brakes, and does so until one comes."""

    @classmethod
    def of(cls, spec: RobotSpec) -> CommandSilence:
        """Return that of a robot; one whose file does not say has a driver that brakes."""
        if spec.brakes_in_silence:
            return cls(brake_after_s=spec.dead_man_s)
        return cls(spec.silence["silence.level_after"].value, spec.silence["silence.cut_after"].value)


@dataclass(frozen=True)
class FlightCommand:
    """What the inner loops follow now."""

    velocity_world: tuple[float, float, float]
    """[m/s]."""
    level: bool
    """Roll and pitch are held at zero; only the climb follows the velocity."""
    off: bool
    """Motors stand still."""
    yaw_rate: float = 0.0
    """[rad/s], anticlockwise."""


@dataclass(frozen=True)
class _Way:
    """A way straight up or down by the planner."""

    begin_s: float
    duration_s: float
    start_world: tuple[float, float, float]
    end_m: float
    lands: bool

    def at(self, now_s: float) -> tuple[tuple[float, float, float], float]:
        """Return where it leads (3,) [m] and how fast it climbs [m/s]; from rest to rest, gently."""
        share = min(max((now_s - self.begin_s) / self.duration_s, 0.0), 1.0)
        rise = self.end_m - self.start_world[2]
        done = share**3 * (10 - 15 * share + 6 * share**2)
        rate = 30 * share**2 * (1 - share) ** 2 / self.duration_s
        return (*self.start_world[:2], self.start_world[2] + rise * done), rise * rate


class CrazyflieFirmware:
    """The part of one drone between the radio and its velocity controller; every time [s] is passed in."""

    def __init__(
        self, silence: CommandSilence, start_world: Sequence[float], *, rest_m: float, hovers: bool, start_s: float
    ) -> None:
        """Begin at a place (3,) [m], in the air held there by its planner, or on the floor with its motors off.

        Args:
            silence: what it does when set-points stop.
            start_world: where it is.
            rest_m: height [m] of its middle when it stands on the floor.
            hovers: whether it is in the air.
            start_s: now.
        """
        self._silence, self._rest_m = silence, rest_m
        self.armed, self.tumbled = hovers, False
        self._armed_s = -math.inf
        self.phase = FlightPhase.PLANNER if hovers else FlightPhase.OFF
        x, y, z = start_world
        self._way = _Way(start_s, 1.0, (x, y, z), z, lands=False)
        self._place, self._up = (x, y, z), 1.0
        self._set_point, self._yaw_rate, self._heard_s = (0.0, 0.0, 0.0), 0.0, -math.inf
        self._tilted_since_s = math.inf
        self._streamed = False
        """Set-points came and their end was not notified: the planner is not listened to."""
        self._waits = False
        """The planner has a landing to fly once the set-points end."""

    @property
    def flying(self) -> bool:
        """Return whether its motors turn."""
        return self.phase not in (FlightPhase.OFF, FlightPhase.LOCKED)

    def can_fly(self, now_s: float) -> bool:
        """Return whether nothing speaks against flying; before it is armed: against arming it."""
        well = self.phase is not FlightPhase.LOCKED and not self.tumbled
        return well and (not self.armed or now_s - self._armed_s >= READY_S)

    @property
    def may_stand(self) -> bool:
        """Return whether it may touch the floor: it stands, takes off or lands, by order of its planner."""
        leaves = self.phase is FlightPhase.PLANNER and (self._way.lands or self._way.start_world[2] <= self.grazing_m)
        return self.phase is FlightPhase.OFF or leaves

    @property
    def grazing_m(self) -> float:
        """Return the height [m] of its middle below which it touches the floor, nearly."""
        return self._rest_m + _TOUCH_M

    def hear(self, velocity_world: Sequence[float], now_s: float, yaw_rate: float = 0.0) -> None:
        """Take a set-point (3,) [m/s] with a yaw rate [rad/s] that came by radio; it ends what the planner does."""
        x, y, z = velocity_world
        self._set_point, self._yaw_rate, self._heard_s = (x, y, z), yaw_rate, now_s
        self._streamed, self._waits = True, False
        if self.armed and self.phase is not FlightPhase.LOCKED:
            self.phase = FlightPhase.SET_POINT

    def ask(self, request: FlightRequest, now_s: float) -> bool:
        """Take a request that came over the radio; return whether it is obeyed."""
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
            return self._end_set_points()
        return self._plan(request, now_s)

    def sense(self, place_world: Sequence[float], up: float, now_s: float) -> None:
        """Take its place (3,) [m] and the cosine of its tilt: what it estimates of itself."""
        x, y, z = place_world
        self._place, self._up = (x, y, z), up
        self._tilted_since_s = min(self._tilted_since_s, now_s) if up < TUMBLED_COSINE else math.inf
        self.tumbled = now_s - self._tilted_since_s > TUMBLED_S
        if self.tumbled and self.flying:
            self._lock()

    def command(self, now_s: float, late_s: float) -> FlightCommand:
        """Return what the inner loops follow; a set-point older than ``late_s`` [s] counts as held."""
        if self.phase in (FlightPhase.SET_POINT, FlightPhase.HELD, FlightPhase.LEVEL, FlightPhase.BRAKE):
            self._watch(now_s - self._heard_s, late_s)
        if not self.flying:
            return FlightCommand((0.0, 0.0, 0.0), level=True, off=True)
        if self.phase is FlightPhase.PLANNER:
            return self._led(now_s)
        if self.phase is FlightPhase.BRAKE:
            return FlightCommand((0.0, 0.0, 0.0), level=False, off=False)
        level = self.phase is FlightPhase.LEVEL  # supervisor.c: it turns no more, either
        return FlightCommand(self._set_point, level=level, off=False, yaw_rate=0.0 if level else self._yaw_rate)

    def _plan(self, request: FlightRequest, now_s: float) -> bool:
        """Take off or land; from set-points a landing begins once their end is notified, they have priority."""
        lands = request.act is FlightAct.LAND
        if not (self.armed and self.can_fly(now_s)) or (self._streamed and not lands) or (lands and not self.flying):
            return False
        end_m = max(request.height_m, self._rest_m)
        self._way = _Way(now_s, request.duration_s, self._place, end_m, lands=lands)
        if self._streamed:
            self._waits = True
        else:
            self.phase = FlightPhase.PLANNER
        return True

    def _end_set_points(self) -> bool:
        """Give the word to the planner; since 2023 one that is idle wants the motors off."""
        if self._streamed and self.phase not in (FlightPhase.OFF, FlightPhase.LOCKED):
            if self._waits:
                self.phase = FlightPhase.PLANNER
            else:
                self._lock()
        self._streamed = self._waits = False
        return True

    def _led(self, now_s: float) -> FlightCommand:
        """Return what the planner's way asks for; motors stop at the end of a landing."""
        way = self._way
        lead, climb_m_s = way.at(now_s)
        over = now_s - way.begin_s > way.duration_s
        if way.lands and over and (self._place[2] < self.grazing_m or way.end_m > self.grazing_m):
            self.phase = FlightPhase.OFF
            return FlightCommand((0.0, 0.0, 0.0), level=True, off=True)
        back = [POSITION_GAIN_HZ * (wanted - here) for wanted, here in zip(lead, self._place, strict=True)]
        return FlightCommand((back[0], back[1], back[2] + climb_m_s), level=False, off=False)

    def _watch(self, age_s: float, late_s: float) -> None:
        """Say what leads, by the age of the last set-point."""
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
