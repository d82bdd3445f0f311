"""The flight of one robot: arming checks, arrival, descent, and the orders for the guard.

Pure, on one injected clock. The phases themselves are modes of the supervisor (`modes.py`). The vehicle climbs by its
own planner, straight up in a column of space that the robot owns while it stands below. It comes down by velocities
that the shield lets through, as in all other flight, and by its own planner on the last `FINAL_M` only, or where
its place is not known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from testudo_deploy.guard.flight_messages import DesiredFlightState
from testudo_deploy.shield.flight_column import ClimbLimits, ClimbVolume
from testudo_deploy.supervision.modes import Event, Mode
from testudo_hardware.links.flight_link import VehicleState
from testudo_hardware.spec import RobotSpec

CLIMB_M_S, DESCENT_M_S = 0.5, 0.3  # mean speed of the take-off, and nominal speed of the descent
FINAL_M = 0.2  # height above the ground at which the vehicle's own planner takes over
FINAL_S = 1.5  # duration of that part
SETTLE_S = 1.0  # added to the time of a climb: the planner accelerates and brakes slowly
REACHED_M, REACHED_M_S = 0.1, 0.1
"""Within this distance of the start height, and below this speed, the climb is complete."""
SETTLED_S = 5.0
"""Time for which the vehicle hovers by itself at the start height before set-points begin: a velocity controller that
has not learnt its thrust yet lets it sink (firmware: 0.37 m/s at first, decaying with 1.7 s)."""
START_M = 0.1  # a robot within this distance of the place below its initial position is at its start
LEVEL_RAD = math.radians(10)
HOVER_S = 2.0  # in an emergency the robot brakes and hovers for this time before it lands
LATE_S = 5.0  # a take-off that takes this much longer than planned is aborted
POSE_LOST_S = 1.0  # without a pose for this time a vehicle in the air drifts, and lands by itself
INVALID_POSE_S = 5.0  # a vehicle that descends without valid poses for this time lands by itself, too
VEHICLE_SILENT_S = 2.0
BATTERY_LOW_S = 5.0  # the voltage drops briefly with thrust; only after this time it counts as low
LATENCY_S = 1.0  # a single slow round trip does not count; a radio that is slow for this time does
_GROUND_M = 0.05  # within this distance of its height before the take-off the body may stand on the ground
_STOOD_S = 1.0


@dataclass(frozen=True)
class BatteryLimits:
    """Voltages of a robot's battery."""

    arm_v: float  # below this it is not armed
    land_v: float  # below this for `BATTERY_LOW_S` it lands

    @staticmethod
    def of(spec: RobotSpec) -> BatteryLimits | None:
        """Return the limits of a robot's file; None if it has none."""
        if not spec.power:
            return None
        return BatteryLimits(spec.power["power.arm"].value, spec.power["power.land"].value)


@dataclass(frozen=True)
class FlightIntent:
    """The order for the guard, and the velocity that replaces the policy's."""

    wanted: DesiredFlightState
    top_m: float  # height of the end of the take-off, above the origin of the world
    climb_s: float
    ground_m: float  # height of the body on the ground
    down_s: float  # time the vehicle takes from here to the ground by itself
    velocity_world: tuple[float, float, float] | None
    """[m/s] nominal velocity; None: the policy decides, or the robot brakes."""


class FlightSupervisor:
    """The state of one robot's flight."""

    def __init__(
        self,
        start_world: Sequence[float],
        battery: BatteryLimits | None,
        *,
        controller: str = "",
        estimator: str = "",
        latency_s: float = math.inf,
        room: ClimbVolume | None = None,
        climb: ClimbLimits | None = None,
    ) -> None:
        """Begin on the ground.

        Args:
            start_world: (3,) [m]: where the flight begins; it stands below that.
            battery: its limits; None where the robot file has none, and it is not checked.
            controller: the one that its set-points need, such as `pid`; empty: any.
            estimator: the one that its poses need, such as `kalman`; empty: any.
            latency_s: longest of its radio.
            room: the volume for the climb; None: a world without walls and obstacles.
            climb: how far the climb may be from its column; None: not checked.
        """
        self._room, self._climb = room, climb
        self._start, self._battery = tuple(start_world), battery
        self._controller, self._estimator, self._latency_s = controller, estimator, latency_s
        self._vehicle: VehicleState | None = None
        self._heard_s = -math.inf
        self._tilt_rad = 0.0
        self._low_since_s: float | None = None
        self._slow_since_s: float | None = None
        self._latest_latency_s = 0.0
        """The latest reported latency of its radio."""
        self._volts: float | None = None
        """The latest reported voltage."""
        self._ground_m: float | None = None
        """Height of the body where it stood before the take-off."""
        self._foot: tuple[float, ...] | None = None
        """Where it stood then (3,) [m]."""
        self._place: tuple[float, ...] | None = None
        """The newest valid place (3,) [m]."""
        self._climb_m_s = 0.0
        self._pose_s = self._valid_pose_s = -math.inf
        self._final = False
        """The vehicle's own planner flies the last part; this is final."""
        self._up_since_s: float | None = None
        self._down_since_s: float | None = None

    @property
    def battery_v(self) -> float | None:
        """Return the latest reported voltage."""
        return self._volts

    @property
    def top_world(self) -> tuple[float, ...]:
        """Return where the column of a take-off ends (3,) [m]."""
        return self._start

    def hear_vehicle(self, state: VehicleState, received_s: float) -> None:
        """Take a report of the vehicle; a repeated report keeps its age."""
        heard_s = state.heard_s(received_s)
        if heard_s is None:
            return
        self._vehicle, self._heard_s = state, heard_s
        limits, volts, latency_s = self._battery, state.battery_v, state.latency_s
        if volts is not None:  # a missing measurement does not count as a good one
            self._volts = volts
            low = limits is not None and volts < limits.land_v
            self._low_since_s = _since(self._low_since_s, received_s) if low else None
        if latency_s is not None:
            self._latest_latency_s = latency_s
            self._slow_since_s = _since(self._slow_since_s, received_s) if latency_s > self._latency_s else None

    def hear_tilt(self, tilt_rad: float) -> None:
        """Take the angle between the body's z axis and the vertical, of the newest pose."""
        self._tilt_rad = tilt_rad

    def hear_pose(self, position_world: Sequence[float], climb_m_s: float, stamp_s: float, *, valid: bool) -> None:
        """Take a pose; the height of an invalid one, as after a jump, is ignored."""
        self._pose_s = stamp_s
        if valid:
            self._place, self._climb_m_s, self._valid_pose_s = tuple(position_world), climb_m_s, stamp_s

    def begin(self, now_s: float) -> None:
        """Store the height of the ground when the robot is armed."""
        self._foot, self._ground_m, self._final = self._place, self._height_m, False
        self._up_since_s = self._down_since_s = None
        self._low_since_s = None

    def reasons(
        self, mode: Mode, since_s: float, now_s: float, position_world: Sequence[float] | None, guard: str
    ) -> tuple[str, ...]:
        """Return the reasons not to continue, ``code: details`` each.

        ``since_s`` is when the mode began, ``position_world`` (3,) [m] the newest pose, None without one, and ``guard``
        the phase that the guard reports; empty if it reports none.
        """
        if mode is Mode.DISARMED:
            checks = (self._vehicle_check(now_s), self._place_check(position_world, guard), self._battery_check())
            return tuple(reason for reason in checks if reason)
        found: list[str] = []
        vehicle = self._vehicle
        if vehicle is not None and (vehicle.tumbled or vehicle.locked):
            found.append("vehicle_tumbled")
        if vehicle is not None and vehicle.holds:
            found.append(f"vehicle_holds: {vehicle.holds}")
        if self._low_since_s is not None and now_s - self._low_since_s >= BATTERY_LOW_S:
            found.append(f"battery_low: {self.battery_v:.2f} V")
        if self._slow_since_s is not None and now_s - self._slow_since_s >= LATENCY_S:
            found.append(f"radio_late: {self._slow_radio}")
        if now_s - self._heard_s > VEHICLE_SILENT_S:
            found.append("vehicle_silent")
        if now_s - self._pose_s > POSE_LOST_S:
            found.append(f"pose_lost: for {now_s - self._pose_s:.1f} s")
        if mode is Mode.TAKE_OFF:
            astray = self._climb_fault(now_s)
            found += [f"climb_astray: {astray}"] if astray else []
            found += ["no_take_off"] if now_s - since_s > self._climb_s + SETTLED_S + LATE_S else []
        if guard in ("land", "off") and mode is not Mode.TAKE_OFF:
            found.append("guard_lands")
        return tuple(found)

    def arrival(self, mode: Mode, now_s: float) -> Event | None:
        """Return whether the start height is reached, or the ground."""
        if mode is Mode.TAKE_OFF:
            fresh = now_s - self._valid_pose_s <= POSE_LOST_S
            near = self._height_m is not None and abs(self._height_m - self._start[2]) <= REACHED_M
            if not (near and fresh and abs(self._climb_m_s) <= REACHED_M_S):
                self._up_since_s = None
                return None
            self._up_since_s = _since(self._up_since_s, now_s)
            return Event.REACH if now_s - self._up_since_s >= SETTLED_S else None
        if mode is Mode.DISARMED:
            return None
        if not self._is_down(now_s):
            self._down_since_s = None
            return None
        self._down_since_s = _since(self._down_since_s, now_s)
        return Event.TOUCH if now_s - self._down_since_s >= _STOOD_S else None

    def intent(self, mode: Mode, since_s: float, now_s: float) -> FlightIntent:
        """Return what the guard and the control loop have to do now."""
        if mode is Mode.DISARMED:
            self._final = False
            return self._intent(DesiredFlightState.GROUND)
        if mode is Mode.TAKE_OFF:
            return self._intent(DesiredFlightState.TAKE_OFF)
        if mode not in (Mode.LAND, Mode.EMERGENCY):
            self._final = False
            return self._intent(DesiredFlightState.FLY)
        waits = mode is Mode.EMERGENCY and now_s - since_s < HOVER_S
        if not waits:
            near = self._height_m is not None and self._height_m - (self._ground_m or 0.0) <= FINAL_M
            unknown = now_s - self._pose_s > POSE_LOST_S or now_s - self._valid_pose_s > INVALID_POSE_S
            self._final |= near or unknown
        if self._final:
            return self._intent(DesiredFlightState.LAND)
        return self._intent(DesiredFlightState.FLY, None if waits else (0.0, 0.0, -DESCENT_M_S))

    def _intent(
        self, wanted: DesiredFlightState, velocity_world: tuple[float, float, float] | None = None
    ) -> FlightIntent:
        return FlightIntent(wanted, self._start[2], self._climb_s, self._ground_m or 0.0, self._fall_s, velocity_world)

    @property
    def _height_m(self) -> float | None:
        return None if self._place is None else float(self._place[2])

    def _climb_fault(self, now_s: float) -> str:
        """Return how the climb leaves the checked column; empty if it does not."""
        if now_s - self._valid_pose_s > POSE_LOST_S:
            return f"its poses have not been valid for {now_s - self._valid_pose_s:.1f} s"
        if self._climb is None or self._foot is None or self._place is None:
            return ""
        return self._climb.fault(self._foot, self._start[2], self._place, self._climb_m_s)

    @property
    def _climb_s(self) -> float:
        return max(self._start[2] - (self._ground_m or 0.0), 0.0) / CLIMB_M_S + SETTLE_S

    @property
    def _fall_s(self) -> float:
        """Return how long the vehicle may take from here to the ground by itself."""
        above_m = max((self._height_m or 0.0) - (self._ground_m or 0.0), 0.0)
        return above_m / DESCENT_M_S + FINAL_S

    def _is_down(self, now_s: float) -> bool:
        """Return whether the vehicle is on the ground: by its report, else by its height once it should be there."""
        vehicle = self._vehicle if now_s - self._heard_s <= VEHICLE_SILENT_S else None
        if vehicle is not None and vehicle.flying is not None:  # some are always armed
            return not vehicle.flying and (self._final or vehicle.armed is False)
        low = self._height_m is not None and self._height_m - (self._ground_m or 0.0) <= _GROUND_M
        return self._final and low and now_s - self._valid_pose_s <= POSE_LOST_S

    def _vehicle_check(self, now_s: float) -> str:
        vehicle = self._vehicle
        if vehicle is None or now_s - self._heard_s > VEHICLE_SILENT_S:
            return "vehicle_unheard"
        wrong, lost = (
            "" not in (needed, found) and needed != found
            for needed, found in ((self._controller, vehicle.controller), (self._estimator, vehicle.estimator))
        )
        checks = (
            (vehicle.tumbled or vehicle.locked, "vehicle_tumbled"),
            (vehicle.can_fly is False, "vehicle_not_ready"),
            (vehicle.flying, "in_the_air"),
            (vehicle.latency_s is not None and vehicle.latency_s > self._latency_s, f"radio_slow: {self._slow_radio}"),
            (wrong, f"wrong_controller: found {vehicle.controller}, expected {self._controller}"),
            (lost, f"wrong_estimator: found {vehicle.estimator}, expected {self._estimator}"),
        )
        return next((reason for speaks_against, reason in checks if speaks_against), "")

    @property
    def _slow_radio(self) -> str:
        return f"found {1000 * self._latest_latency_s:.0f} ms, expected {1000 * self._latency_s:.0f} ms"

    def _place_check(self, position_world: Sequence[float] | None, guard: str) -> str:
        if guard not in ("", "unknown", "ground"):
            return "in_the_air"
        if position_world is None:
            return ""  # the loop says so
        away_m = math.dist(position_world[:2], self._start[:2])
        if away_m > START_M or position_world[2] > self._start[2] - REACHED_M:
            return (
                f"not_at_start: {away_m:.2f} m beside it and {self._start[2] - position_world[2]:.2f} m below the "
                "start height"
            )
        if not self._tilt_rad <= LEVEL_RAD:
            return f"not_level: tilted by {math.degrees(self._tilt_rad):.0f} degrees"
        outside = "" if self._room is None else self._room.fault(position_world, self._start[2])
        return outside and f"outside_arena: {outside}"

    def _battery_check(self) -> str:
        limits = self._battery
        if limits is None:
            return ""
        volts = None if self._vehicle is None else self._vehicle.battery_v
        if volts is None:
            return "battery_not_full: the vehicle does not tell its voltage"
        if volts < limits.arm_v:
            return f"battery_not_full: found {volts:.2f} V, expected {limits.arm_v:g} V or more"
        return ""


def _since(begin_s: float | None, now_s: float) -> float:
    return now_s if begin_s is None else begin_s
