"""Decides what is sent to one Crazyflie: flight phases, set-points, repeated requests, reactions to faults; pure.

Every request that the radio may lose is repeated until the vehicle's supervisor shows its effect. While the vehicle
flies, set-points are sent at every step: the command, or standstill after any fault. A landing is requested *before*
the end of set-points is announced: since 2023 the firmware's planner is idle while set-points arrive, an idle planner
requests motors off, and the announcement would let it do so until the landing arrives.
"""

import math
from collections.abc import Sequence

from testudo_hardware.links.crazyflie.link_monitor import LinkMonitor
from testudo_hardware.links.crazyflie.vehicle_messages import (
    SENTENCES,
    STANDSTILL,
    Info,
    LinkPhase,
    RadioSample,
    VehicleAction,
    VehicleRequest,
)
from testudo_hardware.links.flight_link import FlightAct, FlightRequest

REPEAT_S, NOTIFY_S = 0.2, 0.05  # period of repeated requests, and of repeated announcements
GIVE_UP_S = 2.0  # time without effect after which a request is given up
LANDING_HEIGHT_M, LANDING_SPEED_M_S, FASTEST_LANDING_M_S = 0.04, 0.3, 0.4
"""Mean speeds: a planner faster than the vehicle would stop the motors in the air."""
CYCLE_S, PAUSE_S, SETTLE_S = 0.28, 0.08, 0.05
"""Of a requested landing: period of attempts, time between standstill and landing, and time for which the planner must
be active afterwards."""
BATTERY_V = (3.4, 3.1)  # voltages for take-off and landing if the robot file gives no values
EARLY_COMMANDS_S = 0.1  # commands that arrive within this time after a take-off request were sent before it
UNCOMMANDED_S = 15.0
"""Time after take-off without commands after which a drone lands; its supervisor lets it hover for 5 s."""
_BLIND_TRIES = 4
_BLIND_S, _BLIND_REPEAT_S = 0.16, 0.5
"""Of a landing without telemetry: time of sending at every step, then the period of repetition."""
_LIFTS_WITHIN_S = 0.5  # time within which a request that may lift the drone off shows its effect
_DOWN_M = 0.1
_UP = (LinkPhase.TAKING_OFF, LinkPhase.HOVERING, LinkPhase.FLYING)
_NO_ORDER = VehicleRequest(VehicleAction.NOTIFY)


class FlightSequencer:
    """Sequencer of one vehicle; times are seconds on one clock that the caller provides."""

    def __init__(
        self, *, dead_man_s: float, speed_limit_m_s: float, battery_v: tuple[float, float] = BATTERY_V
    ) -> None:
        """Start on the ground, without data of the vehicle.

        Args:
            dead_man_s: time for which a command holds.
            speed_limit_m_s: limit of the length of commands.
            battery_v: voltages below which it does not take off, and below which it finally lands.
        """
        self.watch = LinkMonitor(dead_man_s, battery_v)
        self.phase = LinkPhase.GROUND
        self.refusal = ""
        """Why the last request was refused; empty if it was accepted."""
        self._speed_limit_m_s = speed_limit_m_s
        self._command: tuple[float, ...] = (0.0, 0.0, 0.0)
        self._yaw_rate = 0.0
        self._order = _NO_ORDER
        self._ended = ""
        self._arm: bool | None = None
        self._since_s = self._sent_s = -math.inf
        self._tries, self._cycle_s = 0, -math.inf
        self._taken = False
        """The vehicle's planner is active."""
        self._down = False
        """The vehicle reported that it is on the ground after the last request that may have lifted it."""
        self._lifted_s, self._top_m = -math.inf, 0.0
        """Time of the last such request, and its height."""
        self._blind_since_s = math.inf
        """Start of a landing without telemetry."""

    @property
    def code(self) -> str:
        """Return the code of the fault; empty without one."""
        return self.watch.code

    @property
    def sentence(self) -> str:
        """Return the state as one plain sentence."""
        if self.phase == LinkPhase.STOPPED and not self.code:
            return self._ended
        return SENTENCES[self.code].format(detail=self.watch.detail)

    def see(self, sample: RadioSample) -> None:
        """Take a telemetry sample."""
        self.watch.see(sample, streaming=self.phase == LinkPhase.FLYING)

    def command(self, velocity_world: Sequence[float], now_s: float, yaw_rate: float = 0.0) -> None:
        """Take a finite velocity (3,) [m/s] in the world, limited to the speed limit, and a yaw rate [rad/s]."""
        length = math.hypot(*velocity_world)
        share = min(1.0, self._speed_limit_m_s / length) if length > 0 else 1.0
        self._command = tuple(share * value for value in velocity_world)
        self._yaw_rate = yaw_rate
        self.watch.hear_command(now_s)

    def ask(self, request: FlightRequest, now_s: float) -> str:
        """Take a request; return why it is refused, empty if it is accepted. A request in progress is not restarted."""
        self.look(now_s)
        act = request.act
        if act == FlightAct.EMERGENCY:
            self._enter(LinkPhase.STOPPED, now_s)
            self.watch.stopped = True
            self.refusal = ""
        elif act in (FlightAct.ARM, FlightAct.DISARM):
            self.refusal = self._ask_arming(act == FlightAct.ARM, now_s)
        elif act == FlightAct.TAKE_OFF:
            self.refusal = self._ask_take_off(request, now_s)
        elif act == FlightAct.LAND and self.phase == LinkPhase.TAKING_OFF and self._down and not self._flies:
            self._enter(LinkPhase.GROUND, now_s)  # a set-point would start the motors
        elif act == FlightAct.LAND and (self.phase in _UP or (self.phase == LinkPhase.GROUND and not self._down)):
            self._land(request.height_m, request.duration_s, now_s)
        return self.refusal if act in (FlightAct.ARM, FlightAct.DISARM, FlightAct.TAKE_OFF) else ""

    def step(self, now_s: float) -> list[VehicleRequest]:
        """Return the requests to send now; called at the rate of set-points."""
        self.look(now_s)
        self._follow_vehicle(now_s)
        steps = {
            LinkPhase.GROUND: self._on_ground,
            LinkPhase.TAKING_OFF: self._take_off,
            LinkPhase.HOVERING: self._hover,
            LinkPhase.FLYING: self._fly,
            LinkPhase.LANDING: self._come_down,
            LinkPhase.STOPPED: self._stop,
        }
        orders = steps[self.phase](now_s)
        for order in orders:
            if order.act == VehicleAction.SET_POINT:
                self.watch.sent(order.velocity_world, now_s)
            if order.act in (VehicleAction.SET_POINT, VehicleAction.TAKE_OFF):
                self._down, self._lifted_s, self._top_m = False, now_s, max(self._top_m, order.height_m)
        return orders

    def holds(self, now_s: float) -> str:
        """Return the code of why it sends standstill in place of commands; empty if commands pass."""
        self.look(now_s)
        if self.phase == LinkPhase.FLYING:
            return self.watch.holds(now_s)
        return str(self.phase) if self.phase in (LinkPhase.LANDING, LinkPhase.STOPPED) else ""

    def look(self, now_s: float) -> None:
        """Update the faults, without sending anything."""
        in_air = self._is_up or self.phase == LinkPhase.LANDING
        self.watch.judge(now_s, in_air=in_air, streaming=self.phase == LinkPhase.FLYING)
        info = self.watch.info_since(self._lifted_s + _LIFTS_WITHIN_S)
        if info is not None and not info.flying:
            self._down, self._top_m = True, 0.0

    @property
    def _climbs(self) -> bool:
        """Return whether the vehicle has begun to take off."""
        return self.phase == LinkPhase.TAKING_OFF and self._taken

    @property
    def _is_up(self) -> bool:
        """Return whether it is in the air and no landing was requested."""
        return self._climbs or self.phase in (LinkPhase.HOVERING, LinkPhase.FLYING)

    @property
    def _rests(self) -> bool:
        """Return whether the vehicle reports that it is on the ground and that its planner is idle."""
        info = self.watch.info
        return info is not None and not info.flying and not info.planner_active

    @property
    def _flies(self) -> bool:
        """Return whether the vehicle reports that it flies, or reports nothing."""
        info = self.watch.info
        return info is None or info.flying

    def _follow_vehicle(self, now_s: float) -> None:
        """Update the phase by what the vehicle does by itself."""
        info = self.watch.info
        if self.code in ("emergency", "locked", "tumbled", "restarted", "disarmed"):
            if self.phase not in (LinkPhase.STOPPED, LinkPhase.GROUND):
                self._enter(LinkPhase.STOPPED, now_s)
                self._ended = self.sentence
        elif self.phase == LinkPhase.GROUND and info is not None and info.flying and info.can_fly and not self._taken:
            self._enter(LinkPhase.FLYING, now_s)  # a previous sender has stopped
        elif (self._is_up or (self.phase == LinkPhase.TAKING_OFF and not self._down)) and self.watch.must_land:
            self._come_down_alone(now_s)

    def _ask_arming(self, arm: bool, now_s: float) -> str:
        info = self.watch.info
        if self.phase == LinkPhase.STOPPED and info is not None and not info.locked and not self.code:
            self._enter(LinkPhase.GROUND, now_s)
        if self.phase == LinkPhase.TAKING_OFF and not arm:
            if not self._rests:
                self._come_down_alone(now_s)
                return ""
            self._enter(LinkPhase.GROUND, now_s)
        if self.phase != LinkPhase.GROUND:
            return f"{'arming' if arm else 'disarming'} refused: {self._where()}"
        if arm and (reason := self._not_ready(info)):
            return f"arming refused: {reason}"
        if self._arm is not arm:
            self._arm, self._since_s, self._sent_s = arm, now_s, -math.inf
        return ""

    def _where(self) -> str:
        return self.sentence if self.phase == LinkPhase.STOPPED else f"the drone is {self.phase}"

    def _not_ready(self, info: Info | None) -> str:
        """Return why the vehicle cannot be armed now; empty if it can."""
        if self.code:
            return self.sentence
        if info is None:
            return "no telemetry from the drone"
        if not (info.armed or info.can_be_armed or info.arms_itself):
            return "the drone does not accept it yet; it must be upright and have passed its checks"
        return f"the battery is at {self.watch.battery_v:.2f} V" if self.watch.battery_is_low else ""

    def _ask_take_off(self, request: FlightRequest, now_s: float) -> str:
        if self.phase in _UP:
            return ""
        info = self.watch.info
        reason = self._not_ready(info)
        if not reason and self.phase != LinkPhase.GROUND:
            reason = self._where()
        if not reason and info is not None and not (info.armed or info.arms_itself or self._arm):
            reason = "the drone is not armed"
        if reason:
            return f"take-off refused: {reason}"
        self._order = VehicleRequest(VehicleAction.TAKE_OFF, height_m=request.height_m, duration_s=request.duration_s)
        self._enter(LinkPhase.TAKING_OFF, now_s)
        return ""

    def _come_down_alone(self, now_s: float) -> None:
        self._land(LANDING_HEIGHT_M, max(1.0, (self._height_m - LANDING_HEIGHT_M) / LANDING_SPEED_M_S), now_s)

    @property
    def _height_m(self) -> float:
        """Return the largest possible height: without telemetry, the end of its climb."""
        return self.watch.height_m if self.watch.info else max(self.watch.height_m, self._top_m)

    def _land(self, height_m: float, duration_s: float, now_s: float) -> None:
        least_s = (self._height_m - height_m) / FASTEST_LANDING_M_S
        self._order = VehicleRequest(VehicleAction.LAND, height_m=height_m, duration_s=max(duration_s, least_s))
        unseen = self.watch.info is None and not self._is_up
        self._enter(LinkPhase.LANDING, now_s)
        self._blind_since_s = (
            now_s if unseen else math.inf
        )  # standstill would start the motors of a drone on the ground

    def _enter(self, phase: LinkPhase, now_s: float) -> None:
        self.phase, self._since_s, self._sent_s = phase, now_s, -math.inf
        self._tries, self._taken, self._arm, self._cycle_s = 0, False, None, -math.inf
        self.watch.begin_phase(now_s)

    def _is_due(self, now_s: float, every_s: float = REPEAT_S) -> bool:
        if now_s - self._sent_s < every_s - 1e-6:
            return False
        self._sent_s, self._tries = now_s, self._tries + 1
        return True

    def _on_ground(self, now_s: float) -> list[VehicleRequest]:
        info = self.watch.info
        if self._arm is None or info is None:
            return []
        if info.armed == self._arm or (not self._arm and info.arms_itself):
            self._arm = None
        elif now_s - self._since_s > GIVE_UP_S:
            self.refusal = f"the drone {'was not armed' if self._arm else 'stayed armed'} within {GIVE_UP_S:g} s"
            self._arm = None
        elif self._is_due(now_s):
            return [VehicleRequest(VehicleAction.ARM if self._arm else VehicleAction.DISARM)]
        return []

    def _take_off(self, now_s: float) -> list[VehicleRequest]:
        info = self.watch.info if self._tries == 0 else self.watch.info_since(self._sent_s)
        if info is not None and info.flying and self.watch.commanded_after(self._since_s + EARLY_COMMANDS_S):
            self._enter(LinkPhase.FLYING, now_s)  # set-points end a climb
            return self._fly(now_s)
        if self._taken:
            late = now_s - self._since_s > self._order.duration_s + GIVE_UP_S
            if info is not None and info.planner_active and info.planner_finished:
                self._enter(LinkPhase.HOVERING, now_s)
            elif late or (info is not None and not info.planner_active):
                self._enter(LinkPhase.FLYING, now_s)
                return [STANDSTILL]
            return []
        self._taken = info is not None and info.planner_active
        if now_s - self._since_s > GIVE_UP_S and not self._taken and (self._down or self.watch.info is not None):
            self.refusal = f"the drone did not {'take off' if info and info.armed else 'arm'} within {GIVE_UP_S:g} s"
            self._enter(LinkPhase.GROUND, now_s)
        elif not self._taken and (info is not None or self._down) and self._is_due(now_s):
            ready = info is not None and info.armed and info.can_fly
            return [VehicleRequest(VehicleAction.NOTIFY), self._order] if ready else [VehicleRequest(VehicleAction.ARM)]
        return []

    def _hover(self, now_s: float) -> list[VehicleRequest]:
        info = self.watch.info
        if self.watch.commanded_after(self._since_s) or (info is not None and not info.planner_active):
            self._enter(LinkPhase.FLYING, now_s)
            return self._fly(now_s)
        if now_s - self._since_s > UNCOMMANDED_S:
            self._come_down_alone(now_s)
        return []

    def _fly(self, now_s: float) -> list[VehicleRequest]:
        command = VehicleRequest(VehicleAction.SET_POINT, self._command, self._yaw_rate)
        return [STANDSTILL if self.watch.holds(now_s) else command]

    def _come_down(self, now_s: float) -> list[VehicleRequest]:
        if math.isfinite(self._blind_since_s):
            if self.watch.info is None:
                return self._land_blindly(now_s)
            self._blind_since_s, self._taken = math.inf, not self.watch.info.flying
            self._sent_s = self._cycle_s = -math.inf  # telemetry is back: use it from now on
        if self._rests and not self._taken:  # standstill would start its motors
            return self._touch_down(now_s) if self._down else []
        return self._begin_landing(now_s)

    def _begin_landing(self, now_s: float) -> list[VehicleRequest]:
        """Send standstill, then the landing; leave the rest to the planner once telemetry shows that it has begun."""
        # before the landing was sent, an active planner is that of the climb
        info = self.watch.info_since(self._sent_s + SETTLE_S) if math.isfinite(self._sent_s) else None
        if not self._taken and info is not None and info.planner_active:
            self._taken, self._sent_s = True, -math.inf
        if self._taken:
            return self._leave_to_planner(self.watch.info_since(self._sent_s), now_s)
        if now_s - self._cycle_s > CYCLE_S - 1e-6:
            self._cycle_s, self._tries = now_s, self._tries + 1
        if self.watch.info is None and self._tries > _BLIND_TRIES:
            self._blind_since_s = now_s
            return self._land_blindly(now_s)
        # standstill first, which holds the vehicle until telemetry shows the landing; then a pause, so that no late
        # set-point stops the planner again
        passed_s = now_s - self._cycle_s
        if passed_s < PAUSE_S / 2:
            return [STANDSTILL]
        if PAUSE_S <= passed_s < 1.5 * PAUSE_S:
            self._sent_s = now_s
            return [self._order]
        return []

    def _leave_to_planner(self, info: Info | None, now_s: float) -> list[VehicleRequest]:
        if info is not None:
            if not info.flying or (not info.planner_active and self.watch.height_m < _DOWN_M):
                return self._touch_down(now_s)
            if not info.planner_active:  # a foreign set-point stopped it in the air
                self._taken, self._cycle_s = False, -math.inf
                return []
        return [VehicleRequest(VehicleAction.NOTIFY)] if self._is_due(now_s, NOTIFY_S) else []

    def _touch_down(self, now_s: float) -> list[VehicleRequest]:
        info = self.watch.info
        self._enter(LinkPhase.GROUND, now_s)
        self._down = True
        self._taken = True  # it reports flying until two seconds later
        self._arm = None if info is not None and info.arms_itself else False
        return []

    def _land_blindly(self, now_s: float) -> list[VehicleRequest]:
        """Without telemetry: send the landing several times, then the announcement that lets it begin, and repeat both.

        A landing in progress refuses another one; after its duration another would lift the drone off the ground.
        """
        passed_s = now_s - self._blind_since_s
        if passed_s < _BLIND_S:
            return [self._order]
        if not self._is_due(now_s, NOTIFY_S):
            return []
        if passed_s + _BLIND_REPEAT_S + CYCLE_S < self._order.duration_s and now_s - self._cycle_s >= _BLIND_REPEAT_S:
            self._cycle_s = now_s
            return [self._order]
        return [VehicleRequest(VehicleAction.NOTIFY)]

    def _stop(self, now_s: float) -> list[VehicleRequest]:
        info = self.watch.info_since(self._since_s)
        if self.watch.stopped and (info is None or not info.locked) and self._is_due(now_s):
            return [VehicleRequest(VehicleAction.EMERGENCY)]
        return []
