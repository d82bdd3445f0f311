"""Simulates the driver of one robot: delay, limits and dead-man time, or radio and firmware of a drone.

The driver of a ground robot brakes by itself when commands stop for the dead-man time or are not finite. It never acts
on an old command, so that a sender that resumes after a pause moves nothing.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from testudo_hardware.frames import PlanarTransform
from testudo_hardware.links.flight_link import FlightRequest
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import RobotSpec
from testudo_plant.plant.flight_firmware import CrazyflieFirmware, FlightCommand, FlightPhase

_CLIP_TOLERANCE = 1e-9


class DriverReason(StrEnum):
    """Why the driver applies its present command."""

    COMMAND = "command"
    CLIPPED = "clipped"
    START = "start"
    DEAD_MAN = "dead_man"
    NON_FINITE = "non_finite"
    MOTORS_OFF = "motors_off"  # this and the following for drones only, see `flight_firmware.FlightPhase`
    PLANNER = "planner"
    HELD = "held"
    LEVELLED = "levelled"
    ONBOARD_BRAKE = "onboard_brake"
    LOCKED = "locked"


class CommandVerdict(StrEnum):
    """Result of one received command."""

    ACCEPTED = "accepted"
    CLIPPED = "clipped"
    BRAKED_NON_FINITE = "braked_non_finite"
    DROPPED_OLD = "dropped_old"
    DROPPED_FUTURE = "dropped_future"  # stamped more than a control period ahead of the driver's clock
    DROPPED_NOT_NEWER = "dropped_not_newer"
    REFUSED_NON_FINITE = "refused_non_finite"  # refused by the link to a drone
    LOST = "lost"  # lost by the radio to a drone


@dataclass(frozen=True)
class AppliedCommand:
    """The command that acts, in the channels of the robot, with its reason."""

    values: tuple[float, ...]
    """(D,): (forward [m/s], turn rate [rad/s]) or (x, y) [m/s] in the body, or (x, y, z) [m/s] in the world."""
    reason: DriverReason
    since_s: float  # start time of this command [s]
    sentence: str  # the reason as a sentence
    yaw_rate: float = 0.0  # [rad/s], anticlockwise; of a drone


class _CommandReceiver:
    """Stamps, limits and verdicts of the commands to one robot."""

    def __init__(self, spec: RobotSpec, command_delay_s: float, dead_man_s: float | None = None) -> None:
        self._model, self._spec, self._delay_s = motion_model(spec), spec, command_delay_s
        self._dead_man_s = spec.dead_man_s if dead_man_s is None else dead_man_s
        self._last_stamp_s = -math.inf
        self.verdicts: Counter[CommandVerdict] = Counter()

    def _is_valid(self, values: Sequence[float], yaw_rate: float = 0.0) -> bool:
        return len(values) == self._spec.dimension and all(math.isfinite(value) for value in (*values, yaw_rate))

    def _dropped(self, stamp_s: float, received_s: float) -> CommandVerdict | None:
        """Return why a command is dropped by its stamp; None if it is accepted."""
        if not received_s - stamp_s <= self._dead_man_s:  # also true for NaN
            return CommandVerdict.DROPPED_OLD
        if stamp_s - received_s > self._spec.control_period_s:  # it would outdate the brakes that follow
            return CommandVerdict.DROPPED_FUTURE
        return CommandVerdict.DROPPED_NOT_NEWER if stamp_s <= self._last_stamp_s else None

    def _limited(self, values: Sequence[float], yaw_rate: float = 0.0) -> tuple[tuple[float, ...], float, bool]:
        """Return a command (D,) and yaw rate [rad/s] within the limits, and whether they were clipped."""
        limited = self._model.limit_command(np.array(values, dtype=float)).tolist()
        most = self._spec.yaw_rate_limit_rad_s if yaw_rate else 0.0
        turn = min(max(float(yaw_rate), -most), most)
        changes = (abs(a - b) for a, b in zip((*limited, turn), (*values, yaw_rate), strict=True))
        return tuple(limited), turn, max(changes) > _CLIP_TOLERANCE


class Driver(_CommandReceiver):
    """Delay, limits and dead-man time of one ground robot; every time is an argument."""

    def __init__(
        self,
        spec: RobotSpec,
        command_delay_s: float,
        start_s: float,
        look_s: float = 0.0,
        dead_man_s: float | None = None,
    ) -> None:
        """Start without a command; ``look_s`` [s] is the time between two calls of `advance`.

        ``dead_man_s`` is the dead-man time of a base that does not keep the one of its file.
        """
        super().__init__(spec, command_delay_s, dead_man_s)
        self._look_s = look_s
        self._queue: deque[tuple[float, AppliedCommand]] = deque()
        self.applied = self._zero(DriverReason.START, start_s, "no command yet: the robot stands")

    def receive(self, values: Sequence[float], stamp_s: float, received_s: float) -> CommandVerdict:
        """Take a command (D,) sent at ``stamp_s`` that arrives at ``received_s`` [s]."""
        verdict = self._judge(values, stamp_s, received_s)
        self.verdicts[verdict] += 1
        return verdict

    def advance(self, now_s: float) -> AppliedCommand:
        """Return the command that acts at ``now_s`` [s], never decreasing."""
        while self._queue and self._queue[0][0] <= now_s:
            self.applied = self._queue.popleft()[1]
        # the next call would be too late
        self._watch_silence(now_s, self._look_s)
        return self.applied

    def _judge(self, values: Sequence[float], stamp_s: float, received_s: float) -> CommandVerdict:
        if not self._is_valid(values):
            self._queue.clear()
            size, found = self._spec.dimension, [*map(float, values)]
            sentence = f"the command is not {size} finite numbers but {found}: braking"
            self.applied = self._zero(DriverReason.NON_FINITE, received_s, sentence)
            return CommandVerdict.BRAKED_NON_FINITE
        if dropped := self._dropped(stamp_s, received_s):
            return dropped
        self._watch_silence(received_s)
        limited, _, clipped = self._limited(values)
        reason = DriverReason.CLIPPED if clipped else DriverReason.COMMAND
        sentence = "the command, clipped to the limits" if clipped else "the command"
        due_s = received_s + self._delay_s
        self._queue.append((due_s, AppliedCommand(limited, reason, due_s, sentence)))
        self._last_stamp_s = stamp_s
        return CommandVerdict.CLIPPED if clipped else CommandVerdict.ACCEPTED

    def _watch_silence(self, now_s: float, look_s: float = 0.0) -> None:
        # counted from the stamp: a command with a long delay acts for less time
        if now_s + look_s - self._last_stamp_s <= self._dead_man_s or self._last_stamp_s == -math.inf:
            return
        if self.applied.reason is not DriverReason.DEAD_MAN or self._queue:
            self._queue.clear()
            sentence = f"no command within the dead-man time of {self._dead_man_s:g} s: braking"
            self.applied = self._zero(DriverReason.DEAD_MAN, now_s, sentence)

    def _zero(self, reason: DriverReason, since_s: float, sentence: str) -> AppliedCommand:
        return AppliedCommand((0.0,) * self._spec.dimension, reason, since_s, sentence)


class ReverseLimit:
    """The backup limit of a base that sees cliffs only ahead: it backs out only as far as it drove forward before.

    As the motion control of irobot_create_nodes does with `safety_override` none.
    """

    def __init__(self, way_m: float) -> None:
        """Start with nothing earned; ``way_m`` [m] is the most that counts."""
        self._way_m, self._left_m = way_m, 0.0
        self._before: PlanarTransform | None = None

    def bounded(self, values: Sequence[float], place: PlanarTransform) -> tuple[float, ...]:
        """Return a command (forward [m/s], turn rate [rad/s]) of a robot at a place as the wheels get it."""
        moved_m = 0.0 if self._before is None else self._before.inverse().then(place).position[0]
        self._before, self._left_m = place, min(self._left_m + moved_m, self._way_m)
        forward, *turn = values
        return (max(forward, 0.0) if self._left_m <= 0 else forward, *turn)


_REASONS = {
    FlightPhase.OFF: (DriverReason.MOTORS_OFF, "its motors stand still"),
    FlightPhase.PLANNER: (DriverReason.PLANNER, "its own planner leads"),
    FlightPhase.SET_POINT: (DriverReason.COMMAND, "the command"),
    FlightPhase.HELD: (DriverReason.HELD, "no set-point came: it holds the last one"),
    FlightPhase.LEVEL: (DriverReason.LEVELLED, "silence: it levels out and drifts"),
    FlightPhase.BRAKE: (DriverReason.ONBOARD_BRAKE, "silence: the app on board brakes"),
    FlightPhase.LOCKED: (DriverReason.LOCKED, "motors cut and locked"),
}
_LATE_TICKS = 2.0  # a set-point older than this many ticks counts as held


class FlyingDriver(_CommandReceiver):
    """Radio, delay and firmware of one drone, with the interface of `Driver`; every time is an argument."""

    def __init__(
        self,
        spec: RobotSpec,
        command_delay_s: float,
        start_s: float,
        vehicle: CrazyflieFirmware,
        carry: Callable[[float], float | None],
    ) -> None:
        """Start; ``carry`` returns the additional delay [s] of a set-point sent at a time [s], None if it is lost."""
        super().__init__(spec, command_delay_s)
        self.vehicle, self._carry = vehicle, carry
        self._queue: deque[tuple[float, tuple[float, ...], float, bool]] = deque()
        """Due time [s], velocity [m/s], yaw rate [rad/s], and whether they were clipped."""
        self._requests: deque[tuple[float, FlightRequest]] = deque()
        self._clipped = False
        self.order = vehicle.command(start_s, math.inf)
        self.applied = self._applied(start_s)

    def receive(
        self, values: Sequence[float], stamp_s: float, received_s: float, yaw_rate: float = 0.0
    ) -> CommandVerdict:
        """Send a command (3,) [m/s] with a yaw rate [rad/s] by radio; the station has it at ``received_s`` [s]."""
        verdict = self._judge(values, yaw_rate, stamp_s, received_s)
        self.verdicts[verdict] += 1
        return verdict

    def ask(self, request: FlightRequest, now_s: float) -> None:
        """Send a request and repeat it until the radio delivers it; it overtakes no set-point."""
        self._requests.append((now_s + self._delay_s, request))

    def advance(self, now_s: float, *, dark: bool = False) -> AppliedCommand:
        """Return the command at ``now_s`` [s], never decreasing; requests wait while the radio is ``dark``."""
        while self._requests and self._requests[0][0] <= now_s and not dark:
            asked_s, request = self._requests.popleft()
            self._deliver_until(asked_s)
            self.vehicle.ask(request, now_s)
        self._deliver_until(now_s)
        order = self.vehicle.command(now_s, _LATE_TICKS * self._spec.control_period_s)
        reason = self._reason()
        if (order, reason) != (self.order, self.applied.reason):
            self.order = order
            self.applied = self._applied(now_s)
        return self.applied

    def _deliver_until(self, now_s: float) -> None:
        while self._queue and self._queue[0][0] <= now_s:
            due_s, values, yaw_rate, self._clipped = self._queue.popleft()
            self.vehicle.hear(values, due_s, yaw_rate)

    def _judge(self, values: Sequence[float], yaw_rate: float, stamp_s: float, received_s: float) -> CommandVerdict:
        if not self._is_valid(values, yaw_rate):
            return CommandVerdict.REFUSED_NON_FINITE
        if dropped := self._dropped(stamp_s, received_s):
            return dropped
        self._last_stamp_s = stamp_s
        late_s = self._carry(received_s)
        if late_s is None:
            return CommandVerdict.LOST
        limited, turn, clipped = self._limited(values, yaw_rate)
        due_s = received_s + self._delay_s + late_s
        if not self._queue or due_s >= self._queue[-1][0]:  # set-points never overtake each other
            self._queue.append((due_s, limited, turn, clipped))
        return CommandVerdict.CLIPPED if clipped else CommandVerdict.ACCEPTED

    def _reason(self) -> DriverReason:
        reason = _REASONS[self.vehicle.phase][0]
        return DriverReason.CLIPPED if reason is DriverReason.COMMAND and self._clipped else reason

    def _applied(self, since_s: float) -> AppliedCommand:
        order: FlightCommand = self.order
        sentence = _REASONS[self.vehicle.phase][1] + (", clipped to the limits" if self._clipped else "")
        return AppliedCommand(order.velocity_world, self._reason(), since_s, sentence, order.yaw_rate)
