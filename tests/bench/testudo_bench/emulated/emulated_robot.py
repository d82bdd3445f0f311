"""Policy, guard and driver of one emulated robot, connected as the nodes connect them, without ROS.

Robot, guard, pose source, checks, plant and driver are the deployed classes. Every process of the robot has the clock
of its computer; commands and poses between them take no time, what the driver adds is in the plant.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from testudo_deploy.contract.messages import PeerMessage
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.fleet.localiser import localiser
from testudo_deploy.guard.command_checks import CommandChecks
from testudo_deploy.guard.command_guard import CommandGuard
from testudo_deploy.guard.foreign_motion import ForeignMotion
from testudo_deploy.guard.guard_bounds import guard_bounds, segment_limits
from testudo_deploy.guard.own_segment import OwnSegment
from testudo_deploy.monitoring.diagnostics import diagnostic_text
from testudo_deploy.shield.arena import Arena
from testudo_deploy.supervision.modes import READY, RESTING, Event
from testudo_deploy.supervision.robot import Robot
from testudo_deploy.supervision.supervisor import GuardReport
from testudo_hardware.links.link_profile import TWIST
from testudo_hardware.links.wire import (
    Measurement,
    OdometryReading,
    TransformReading,
    body_forward_command,
)
from testudo_plant.plant.link_emulation import LinkEmulation
from testudo_plant.plant.odometry_sensor import OdometrySample
from testudo_plant.plant.plant import Plant

STATUS_S, _ASK_S, _GUARD_CHECK_S = 0.1, 0.2, 0.1
_KEPT = 100  # true places that are remembered, one for each step
Vector = tuple[float, ...]


@dataclass
class PoseErrors:
    """How wrong the poses are that a robot acts on."""

    count: int = 0
    square_m2: float = 0.0
    worst_m: float = 0.0
    beyond: int = 0  # farther off than the robot file states

    def add(self, off_m: float, stated_m: float) -> None:
        """Add the distance of one pose from the truth of its moment."""
        self.count += 1
        self.square_m2 += off_m**2
        self.worst_m = max(self.worst_m, off_m)
        self.beyond += off_m > stated_m


class EmulatedRobot:
    """One robot of a fleet; times of the caller are simulated ones, each robot adds the offset of its own clock."""

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        plant: Plant,
        arena: Arena | None,
        offset_s: float,
        announce: Callable[[str, bytes], None],
    ) -> None:
        """Load the policy; ``announce`` sends an encoded message to the peers."""
        entry = fleet.robot(name)
        self.name, self.spec, self._plant, self._offset_s, self._announce = name, entry.spec, plant, offset_s, announce
        self._link = LinkEmulation(entry, emulates=True)
        self._stamped = entry.link.profile.command_type != TWIST
        self.robot = Robot(
            fleet, name, str(fleet.team_of(name).policy), epoch=f"{name}-1", now_s=offset_s, simulated_time=True
        )
        self._places = (localiser(entry), localiser(entry))  # of policy and guard, which are two processes
        self.guard = CommandGuard(dimension=self.spec.dimension, dead_man_s=self.spec.dead_man_s)
        self._segment = OwnSegment(segment_limits(self.spec))
        self._checks = CommandChecks(
            self.spec,
            None if arena is None else guard_bounds(self.spec, arena),
            oldest_pose_s=entry.pose.max_age_s + self.spec.control_period_s,
            segment=self._segment,
            lands=entry.has_flight_phases,
        )
        self._motion = ForeignMotion(self.spec) if self.spec.dimension == 2 else None  # a braked drone drifts
        self._next_s: dict[str, float] = {}
        self._tick_s = self._pulse_s = 0.0
        self._truth: deque[tuple[float, Vector]] = deque(maxlen=_KEPT)
        self.errors = PoseErrors()
        self.ticks: dict[str, int] = {}
        """Ticks while it was active, by the status of the shield or the reason to brake."""
        self.policy_lives = self.guard_lives = True
        self.senses: Callable[[OdometrySample], OdometrySample | None] = lambda sample: sample
        """What becomes of a measurement on its way; None loses it."""

    def clock_s(self, now_s: float) -> float:
        """Return the time of its computer."""
        return now_s + self._offset_s

    def step(self, now_s: float) -> None:
        """Take what the plant measured, and do what is due."""
        here_s = self.clock_s(now_s)
        for sample in map(self.senses, self._plant.odometry(self.name)):
            if sample is not None:
                self._sense(sample, here_s)
        if here_s >= self._tick_s:
            self._tick(here_s, on_pose=False)
        self._do_due(now_s, (STATUS_S, self._report), (_ASK_S, self._ask), (_GUARD_CHECK_S, self._check))
        if self.guard.watch(here_s) and here_s >= self._pulse_s:
            self._brake(here_s)

    def _do_due(self, now_s: float, *duties: tuple[float, Callable[[float], None]]) -> None:
        """Call what is due by its period [s] with the time of its computer; all is due at first."""
        for period_s, act in duties:
            if now_s >= self._next_s.get(act.__name__, 0.0):
                self._next_s[act.__name__] = now_s + period_s
                act(self.clock_s(now_s))

    def hear_peer(self, data: bytes, now_s: float) -> None:
        """Take a peer's announcement."""
        self.robot.loop.on_peer(PeerMessage.decode(data), self.clock_s(now_s))

    def note_truth(self, now_s: float) -> None:
        """Remember where the robot is, to compare its poses of that moment."""
        self._truth.append((now_s, self._plant.truth(self.name).position_world))

    def _sense(self, sample: OdometrySample, here_s: float) -> None:
        reading = OdometryReading(sample.stamp_s + self._offset_s, sample.position_world, sample.yaw, sample.velocity)
        ways = ((self._on_pose, self._on_lost_place), (self._on_guard_pose, lambda _: None))
        for _, measured in self._link.say(reading, here_s, here_s, sample.reckoned):
            for place, (take, lose) in zip(self._places, ways, strict=True):
                restarts, located = place.restarts, None
                if isinstance(measured, TransformReading):
                    place.correct(measured, here_s)
                else:
                    located = place.take(measured, here_s)
                if place.restarts != restarts:
                    lose(here_s)
                if located is not None:
                    take(located.reading, here_s)

    def _on_lost_place(self, here_s: float) -> None:
        self.robot.loop.lose_place()
        self._tick(here_s, on_pose=True)

    def _on_pose(self, reading: OdometryReading, here_s: float) -> None:
        robot = self.robot
        if robot.loop.located:
            at_s = reading.stamp_s - self._offset_s
            true = min(self._truth, key=lambda one: abs(one[0] - at_s))[1]
            self.errors.add(math.dist(reading.position_world, true), self.spec.position_error_m)
        taken = robot.loop.on_odometry(reading.stamp_s, here_s, reading.position_world, reading.yaw, reading.velocity)
        if taken and (robot.pacer.is_due(here_s) or not robot.loop.located):
            self._tick(here_s, on_pose=True)

    def _on_guard_pose(self, reading: Measurement, here_s: float) -> None:
        if self._motion is not None:
            self._motion.see_pose(reading.stamp_s, reading.position_world)
        if isinstance(reading, OdometryReading):
            self._checks.see_pose(reading.stamp_s, reading.position_world, reading.yaw, reading.velocity)

    def _tick(self, here_s: float, *, on_pose: bool) -> None:
        if not self.policy_lives:
            return
        robot = self.robot
        output = robot.tick(here_s, on_pose=on_pose)
        self._tick_s = here_s + robot.pacer.alone_s(here_s)
        record = output.record
        if robot.supervisor.mode.name == "ACTIVE":
            key = record.reason.partition(":")[0] or record.status
            self.ticks[key] = self.ticks.get(key, 0) + 1
        if output.announcement is not None:
            data = output.announcement.encode()
            self._segment.hear(output.announcement, here_s)
            self._announce(self.name, data)
        if output.commands:
            command = body_forward_command(self.spec, record.sent_command, record.estimate_yaw or 0.0)
            self._on_command(record.stamp_s, tuple(map(float, command)), here_s)

    def _on_command(self, stamp_s: float, values: Vector, here_s: float) -> None:
        refusal = self._checks.refusal(values, here_s)
        if self.guard.command(stamp_s, values, here_s, refusal=refusal):
            self._send(stamp_s, values, here_s)
        elif self.guard.watch(here_s):
            self._brake(here_s)

    def _brake(self, here_s: float) -> None:
        self._pulse_s = here_s + self.spec.control_period_s
        self._send(here_s, (0.0,) * self.spec.dimension, here_s)

    def _send(self, stamp_s: float, values: Vector, here_s: float) -> None:
        if not self.guard_lives:
            return
        self._checks.note_sent(here_s, values)
        if self._motion is not None:
            self._motion.note_sent(here_s, values)
        stamp_s = stamp_s if self._stamped else here_s  # a Twist has the age of its arrival
        self._plant.command(self.name, values, stamp_s - self._offset_s, here_s - self._offset_s)

    def _check(self, here_s: float) -> None:
        if self._motion is not None and self._motion.found(here_s):
            self.guard.see_foreign_motion()

    def _report(self, here_s: float) -> None:
        if not self.guard_lives:
            return
        guard = self.guard
        values = {"code": guard.code, "life": "1", "rearms": diagnostic_text(guard.rearms), "stops": str(guard.stops)}
        values["flight"] = self._flight_phase()
        self.robot.hear_guard(GuardReport.of(values, here_s))

    def _flight_phase(self) -> str:
        """Return the phase of the guard's flight; empty for a robot on the ground."""
        return ""

    def _ask(self, here_s: float) -> None:
        """Arm and start, as the station does."""
        mode = self.robot.supervisor.mode
        if mode in (*RESTING, *READY):
            self.robot.request(Event.ARM if mode in RESTING else Event.START, here_s)
