"""The flight part of the guard: it sends set-points and requests to the vehicle; pure, on an injected clock.

On the ground no set-point is sent: a velocity of zero would start the motors. In the air one is sent at every tick,
zero if no command may pass: a Crazyflie without set-points levels out, which is not a brake, and then cuts its motors.
After a restart the guard sends nothing until its policy or the vehicle reports whether it flies.

Only the guard sends requests to the vehicle. Without a policy the vehicle hovers for `ALONE_S` and lands.
"""

import math
from collections.abc import Sequence
from enum import StrEnum

from testudo_deploy.guard.command_guard import GuardReply
from testudo_deploy.guard.flight_messages import DesiredFlightState, FlightOrder
from testudo_hardware.links.flight_link import FlightAct, FlightRequest, VehicleState

ORDER_SILENT_S = 0.5  # the supervisor sends orders ten times a second
ALONE_S = 10.0
"""A vehicle that hovers because its policy is gone lands after this time, straight down: otherwise it would fall when
its battery is empty."""
HOVER_S = 2.0  # in an emergency stop no command passes for this time; after it, commands to descend pass
DESCENT_M_S, ASIDE_M_S = 0.35, 0.1  # largest downward and sideways speed of a command to descend
REPEAT_S = 1.0  # a request without effect is repeated after this time
LAND_REPEAT_S = 3.0
"""The same for a landing, after its end: the firmware reports for two seconds after its motors ran that it flies, and a
request to land on the ground starts them again."""
ARM_REPEAT_S = 0.5  # the same for arming
LIFTS_S = 0.5  # after a take-off request a vehicle may report for this time that it stands
REMAIN_VALID_S = 0.1  # time for which the last set-point is valid while the vehicle's own planner takes over
SETTLE_S, SHOWS_S, BRIDGE_S = 0.1, 0.4, 0.2
"""Times after a landing request: reports before the first are older than the request; by the second the planner must
be active, otherwise set-points are sent again for the third, before 0.5 s of silence, and the request is repeated."""
TRIES = 5
"""After this many the end of the set-points is sent anyway: a vehicle that hovers until its battery is empty falls."""
LATE_S = 3.0
LAST_S = 2.0  # longest time for which a guard that ends waits for the planner; its parent process kills it after 4 s


_END = FlightRequest(FlightAct.NOTIFY_SETPOINTS_STOP, remain_valid_s=REMAIN_VALID_S)


class GuardPhase(StrEnum):
    """Phase of the flight as the guard knows it."""

    UNKNOWN = "unknown"
    GROUND = "ground"
    TAKE_OFF = "take_off"  # the vehicle climbs by its own planner, which a set-point would end
    FLY = "fly"  # set-points are sent at every tick
    LAND = "land"  # the vehicle lands by its own planner; this is final
    OFF = "off"  # an operator switched the motors off, at any place


class FlightGuard:
    """The flight part of one vehicle's guard."""

    def __init__(self) -> None:
        self.phase = GuardPhase.UNKNOWN
        self._order: FlightOrder | None = None
        self._order_s = -math.inf
        self._vehicle: VehicleState | None = None
        self._vehicle_s = -math.inf
        self._since_s = -math.inf
        self._requested_s = -math.inf
        self._alone_since_s: float | None = None
        self._stopped_since_s: float | None = None
        self._ends_s = -math.inf
        self._armed_s = self._lifted_s = -math.inf
        """Times of the last requests to arm and to take off since it stood."""
        self._end_sent = True
        """The end of the set-points was sent to the vehicle."""
        self._bridge_s: float | None = None
        """Since when set-points are sent again in a landing that did not begin."""
        self._tries = 0

    @property
    def streams(self) -> bool:
        """Return whether a set-point must be sent at every tick."""
        return self.phase is GuardPhase.FLY or self._bridge_s is not None

    def hear_vehicle(self, state: VehicleState, now_s: float) -> None:
        """Take a report of the vehicle; a repeated report keeps its age."""
        heard_s = state.heard_s(now_s)
        if heard_s is not None:
            self._vehicle, self._vehicle_s = state, heard_s

    def hear_order(self, order: FlightOrder, now_s: float) -> None:
        """Take an order of the supervisor; old orders and those of the future are ignored."""
        if abs(now_s - order.stamp_s) <= ORDER_SILENT_S:
            self._order, self._order_s = order, now_s

    def may_descend(self, values: Sequence[float], now_s: float) -> bool:
        """Return whether a command (3,) [m/s] may pass although the emergency stop is pressed."""
        since_s = self._stopped_since_s
        return (
            self.phase is GuardPhase.FLY
            and since_s is not None
            and now_s - since_s >= HOVER_S
            and len(values) == 3
            and -DESCENT_M_S <= values[2] <= 0.0
            and math.hypot(values[0], values[1]) <= ASIDE_M_S
        )

    def step(self, now_s: float, *, stopped: bool) -> tuple[FlightRequest, ...]:
        """Return the requests to the vehicle now; ``stopped``: the emergency stop is pressed or latched."""
        if not stopped:
            self._stopped_since_s = None
        elif self._stopped_since_s is None:
            self._stopped_since_s = now_s
        wanted = self._wanted(now_s)
        if self.phase is GuardPhase.UNKNOWN:
            return self._begin(wanted, now_s)
        if self.phase is GuardPhase.GROUND:
            return self._on_ground(wanted, now_s, stopped=stopped)
        if self.phase is GuardPhase.TAKE_OFF:
            return self._climbing(wanted, now_s, stopped=stopped)
        if self.phase is GuardPhase.FLY:
            return self._flying(wanted, now_s)
        if self.phase is GuardPhase.LAND:
            return self._landing(wanted, now_s)
        return self._off(now_s, stopped=stopped)

    def motors_off(self, now_s: float, *, stopped: bool) -> GuardReply:
        """Switch the motors off; this requires an emergency stop before."""
        if not stopped:
            return GuardReply(
                False,
                "motors_off refused: press the emergency stop first; in the air the vehicle then hovers and lands",
            )
        self._go(GuardPhase.OFF, now_s)
        self._requested_s = now_s
        return GuardReply(
            True, "the motors are switched off; in the air the vehicle falls", (FlightRequest(FlightAct.EMERGENCY),)
        )

    def close(self, now_s: float) -> tuple[FlightRequest, ...]:
        """Return the first requests of a guard that ends: a vehicle in the air lands; after silence it would fall.

        The caller then calls `step` until `ended`, for `LAST_S` at most, and finally `last_requests`.
        """
        if self.phase is GuardPhase.TAKE_OFF and self._stands(now_s):
            self._go(GuardPhase.GROUND, now_s)
            return (FlightRequest(FlightAct.DISARM),)
        return self._land(now_s) if self.phase in (GuardPhase.FLY, GuardPhase.TAKE_OFF) else ()

    @property
    def ended(self) -> bool:
        """Return whether the guard may end: its vehicle needs no further set-points."""
        return not self.streams and self._end_sent

    def last_requests(self, now_s: float) -> tuple[FlightRequest, ...]:
        """Return the last requests: a landing that did not visibly begin, or whose request may be lost, is repeated."""
        if self.phase is not GuardPhase.LAND:
            return ()
        if not self.ended:
            land, *_ = self._request_landing(now_s)
            return (land, _END)
        vehicle, left_s = self._vehicle, self._ends_s - now_s
        repeats = vehicle is not None and vehicle.planner_active is not None and left_s > LIFTS_S
        return (self._landing_request(left_s),) if repeats else ()  # a vehicle that lands already ignores it

    def _wanted(self, now_s: float) -> DesiredFlightState | None:
        """Return the desired state of the supervisor; None if it is silent."""
        if self._order is None or now_s - self._order_s > ORDER_SILENT_S:
            return None
        return DesiredFlightState(self._order.wanted)

    def _reports_flying(self, now_s: float) -> bool | None:
        """Return whether the vehicle reports that it flies; None if it does not report that."""
        vehicle = self._heard(now_s)
        return None if vehicle is None else vehicle.flying

    def _heard(self, now_s: float) -> VehicleState | None:
        """Return the last report of the vehicle; None if it is older than `LATE_S`."""
        return self._vehicle if now_s - self._vehicle_s <= LATE_S else None

    def _stands(self, now_s: float) -> bool:
        """Return whether the vehicle reports that it stands, in a report later than a take-off request."""
        return self._reports_flying(now_s) is False and self._vehicle_s > self._lifted_s + LIFTS_S

    def _begin(self, wanted: DesiredFlightState | None, now_s: float) -> tuple[FlightRequest, ...]:
        flying = self._reports_flying(now_s)
        if flying or (flying is None and wanted in (DesiredFlightState.FLY, DesiredFlightState.LAND)):
            self._go(GuardPhase.FLY, now_s)
        elif wanted is not None and (flying is False or wanted is DesiredFlightState.GROUND):
            self._go(GuardPhase.GROUND, now_s)
        return ()

    def _on_ground(
        self, wanted: DesiredFlightState | None, now_s: float, *, stopped: bool
    ) -> tuple[FlightRequest, ...]:
        if self._reports_flying(now_s) and now_s - self._since_s > LATE_S:  # carried, or controlled by another program
            self._go(GuardPhase.FLY, now_s)
            return ()
        if wanted is not DesiredFlightState.TAKE_OFF or stopped:
            return ()
        self._go(GuardPhase.TAKE_OFF, now_s)
        self._armed_s = self._lifted_s = -math.inf
        return self._lift(now_s)

    def _lift(self, now_s: float) -> tuple[FlightRequest, ...]:
        """Arm, then take off once the vehicle reports that it can fly; both are repeated until they have an effect."""
        vehicle, order = self._heard(now_s), self._order
        if order is None or vehicle is None or vehicle.flying:
            return ()
        if vehicle.planner_active and self._vehicle_s > self._lifted_s:
            return ()
        unreported = vehicle.armed is None and ARM_REPEAT_S <= now_s - self._armed_s < math.inf
        if not (vehicle.armed or unreported):
            if now_s - self._armed_s < ARM_REPEAT_S:
                return ()
            self._armed_s = now_s
            return (FlightRequest(FlightAct.ARM),)
        if vehicle.can_fly is False or now_s - self._lifted_s < REPEAT_S:
            return ()
        if not math.isfinite(self._lifted_s):
            self._ends_s = now_s + order.climb_s
        self._lifted_s = now_s
        # an earlier set-point would block the planner
        return (_END, FlightRequest(FlightAct.TAKE_OFF, height_m=order.top_m, duration_s=order.climb_s))

    def _climbing(self, wanted: DesiredFlightState | None, now_s: float, *, stopped: bool) -> tuple[FlightRequest, ...]:
        if wanted is DesiredFlightState.TAKE_OFF and not stopped:
            return self._lift(now_s)
        lifted = math.isfinite(self._lifted_s)
        if wanted is None and not stopped and lifted and now_s < self._ends_s:
            return ()
        if not lifted or self._stands(now_s):  # a set-point would start its motors
            self._go(GuardPhase.GROUND, now_s)
            return (FlightRequest(FlightAct.DISARM),)
        if wanted in (DesiredFlightState.LAND, DesiredFlightState.GROUND) or self._reports_flying(now_s) is False:
            return self._land(now_s)
        self._go(GuardPhase.FLY, now_s)
        return ()

    def _flying(self, wanted: DesiredFlightState | None, now_s: float) -> tuple[FlightRequest, ...]:
        if self._reports_flying(now_s) is False and wanted is DesiredFlightState.GROUND:
            self._go(GuardPhase.GROUND, now_s)
            return (_END, FlightRequest(FlightAct.DISARM))
        if wanted is DesiredFlightState.LAND:
            return self._land(now_s)
        if wanted is DesiredFlightState.FLY:
            self._alone_since_s = None
        elif self._alone_since_s is None:
            self._alone_since_s = now_s
        elif now_s - self._alone_since_s >= ALONE_S:
            return self._land(now_s)
        return ()

    def _landing(self, wanted: DesiredFlightState | None, now_s: float) -> tuple[FlightRequest, ...]:
        flying, stands = self._reports_flying(now_s), self._stands(now_s)
        down = stands and wanted is DesiredFlightState.GROUND
        if now_s < self._ends_s and not down:
            return self._hand_over(now_s)
        if stands or (flying is None and now_s >= self._ends_s + LATE_S):
            ends = () if self._end_sent else (_END,)
            self._go(GuardPhase.GROUND, now_s)
            return (*ends, FlightRequest(FlightAct.DISARM))
        if now_s - self._ends_s >= LAND_REPEAT_S:
            return self._land(now_s)
        return ()

    def _hand_over(self, now_s: float) -> tuple[FlightRequest, ...]:
        """Send the end of the set-points once the vehicle's planner is active, and hold the vehicle until then.

        Firmware since 2023 finds its planner idle when set-points end without a landing, and cuts the motors.
        """
        vehicle = self._heard(now_s)
        active = None if vehicle is None else vehicle.planner_active
        news = self._vehicle_s > self._requested_s + SETTLE_S
        if self._bridge_s is not None:
            if now_s - self._bridge_s < BRIDGE_S:
                return ()
            self._tries += 1
            return self._request_landing(now_s)
        if self._end_sent:
            # at the end of its path the planner is idle, too, and a set-point would lift the vehicle again
            flies = vehicle is not None and vehicle.flying and vehicle.armed is not False
            if flies and active is False and news and self._vehicle_s < self._ends_s - LIFTS_S:
                self._end_sent, self._bridge_s = False, now_s
            return ()
        if vehicle is None or active is None or (active and news) or self._tries >= TRIES:
            self._end_sent = True
            return (_END,)
        if now_s - self._requested_s >= SHOWS_S and vehicle.flying is not False:
            self._bridge_s = now_s
        return ()

    def _off(self, now_s: float, *, stopped: bool) -> tuple[FlightRequest, ...]:
        vehicle = self._vehicle
        obeyed = vehicle is not None and (vehicle.locked or vehicle.armed is False)
        if not stopped and (obeyed or self._reports_flying(now_s) is False):
            self._go(GuardPhase.GROUND, now_s)
            return ()
        if obeyed or now_s - self._requested_s < REPEAT_S:
            return ()
        self._requested_s = now_s
        return (FlightRequest(FlightAct.EMERGENCY),)

    def _land(self, now_s: float) -> tuple[FlightRequest, ...]:
        self._go(GuardPhase.LAND, now_s)
        self._tries = 0
        return self._request_landing(now_s)

    def _request_landing(self, now_s: float) -> tuple[FlightRequest, ...]:
        """Request a landing; a vehicle that does not report its planner gets the end of the set-points immediately."""
        vehicle = self._heard(now_s)
        duration_s = ALONE_S if self._order is None else self._order.down_s
        self._requested_s, self._ends_s, self._bridge_s = now_s, now_s + duration_s, None
        self._end_sent = vehicle is None or vehicle.planner_active is None
        land = self._landing_request(duration_s)
        return (land, _END) if self._end_sent else (land,)

    def _landing_request(self, duration_s: float) -> FlightRequest:
        ground_m = 0.0 if self._order is None else self._order.ground_m
        return FlightRequest(FlightAct.LAND, height_m=ground_m, duration_s=duration_s)

    def _go(self, phase: GuardPhase, now_s: float) -> None:
        self.phase, self._since_s, self._alone_since_s = phase, now_s, None
        self._bridge_s, self._end_sent = None, True
