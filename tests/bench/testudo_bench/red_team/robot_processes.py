"""The processes of one robot as they are deployed, without ROS: policy, guard and driver, on the robot's own clock.

Control loop, peer tracker, supervisor, guard, content checks and driver are the deployed classes; the code here only
connects them, as the nodes do.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from testudo_bench.red_team.bodies import STEP_S, Bodies
from testudo_bench.red_team.signed_network import Defences, Network, Process
from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.lost_robot import LostRobot
from testudo_deploy.contract.messages import EnvelopeError, PeerMessage
from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.control.deadlock_resolver import DeadlockResolver
from testudo_deploy.control.peer_tracker import PeerMeasurement, PeerTracker
from testudo_deploy.guard.command_checks import CommandChecks
from testudo_deploy.guard.command_guard import CommandGuard
from testudo_deploy.guard.guard_bounds import guard_bounds, segment_limits
from testudo_deploy.guard.own_segment import OwnSegment
from testudo_deploy.launch.topic_names import ESTOP_TOPIC, LOST_TOPIC
from testudo_deploy.shield.reservations import ReservedSpace, ShieldInputs
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.velocity_projection import PeerTable, ShieldResult
from testudo_deploy.supervision.modes import READY, RESTING, Event, Mode
from testudo_deploy.supervision.supervisor import GuardReport, Supervisor
from testudo_hardware.links.wire import body_forward_command
from testudo_hardware.spec import RobotSpec
from testudo_plant.plant.driver import Driver

HUNTER = "x"
_STATUS_S, _ASK_S = 0.1, 0.2
_SENSE_TICKS = 0.8  # time between two poses, in control periods
Vector = tuple[float, ...]


class CommandWords(msgspec.Struct):
    """A command as it travels."""

    stamp_s: float
    values: Vector


class PoseWords(msgspec.Struct):
    """A pose as it travels."""

    stamp_s: float
    position_world: Vector
    yaw: float
    velocity: Vector


class WantedMotion:
    """What a `ControlLoop` uses of a policy file; ``want()`` is the wanted velocity (D,) [m/s]."""

    def __init__(self, contract: Contract, want: Callable[[], np.ndarray]) -> None:
        self.contract, self._want = contract, want

    def step(self, signals: Any, hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the wanted velocity, and the memory unchanged."""
        return self._want(), hidden


@dataclass(frozen=True)
class _NoShield(Shield):
    """Sends what is wanted: the control of the shield."""

    def step(
        self, inputs: ShieldInputs, own: ReservedSpace, nominal_world: np.ndarray, number: np.ndarray
    ) -> tuple[ShieldResult, ReservedSpace]:
        return self._unchecked(inputs.stop, nominal_world), own


@dataclass(frozen=True)
class _Layer1(Shield):
    """Layer 1 alone."""

    def step(
        self, inputs: ShieldInputs, own: ReservedSpace, nominal_world: np.ndarray, number: np.ndarray
    ) -> tuple[ShieldResult, ReservedSpace]:
        return self.layer1(inputs.stop, inputs.table, nominal_world), own


class _EagerTracker(PeerTracker):
    """Takes every new process of a peer at once: the control of the rule for a take-over."""

    def _may_begin(self, message: PeerMessage, received_s: float) -> bool:
        return True


class _StraightOn(DeadlockResolver):
    """Leaves every nominal velocity as it is."""

    def resolved(
        self, control_point_world: np.ndarray, table: PeerTable, first: np.ndarray, nominal_world: np.ndarray
    ) -> np.ndarray:
        self._resolved = self.wanted_world = nominal_world
        return nominal_world


class _Loop(ControlLoop):
    """A control loop from which a control can take out one part."""

    _looks = True

    def take_out(self, defences: Defences, *, layer1: bool, reserves: bool, gives_way: bool) -> None:
        self._shield, self._looks = replace(self._shield, project=layer1), defences.in_space and reserves
        if not reserves:
            own = self._shield
            self._shield = _Layer1(own.model, own.parameters, own.space, own.arena)
        if not gives_way:
            self._deadlock.__class__ = _StraightOn
        if not defences.takeover:
            self._peers.__class__ = _EagerTracker
        if not defences.shield:
            own = self._shield
            self._shield = _NoShield(own.model, own.parameters, own.space, own.arena)
        if not defences.growth:
            self._shield = replace(self._shield, space=replace(self._shield.space, untrusted_speed_m_s=0.0))

    def _reject_peers(self, code: str, which: np.ndarray) -> None:
        if self._looks or code != "peer_in_space":
            super()._reject_peers(code, which)


@dataclass(frozen=True)
class FleetWorld:
    """What the robots of one episode share."""

    spec: RobotSpec
    contract: Contract
    network: Network
    bodies: Bodies
    defences: Defences
    random: np.random.Generator
    names: tuple[str, ...]
    hunted: bool
    untrusted_speed_m_s: float
    layer1: bool
    reserves: bool
    gives_way: bool


class RobotProcesses:
    """Policy, guard and driver of one robot, each with its own epoch."""

    def __init__(self, world: FleetWorld, index: int, want: Callable[[], np.ndarray]) -> None:
        self._world, self.index, self.name = world, index, world.names[index]
        spec, random = world.spec, world.random
        self._offset_s = float(random.uniform(-100, 1000))
        self._error_world = self._drawn_error()
        self.by_hand = False
        """Somebody asks it by its services: the station leaves it alone."""
        period_s = spec.control_period_s
        self._due_s = dict(zip(("tick", "sense", "status", "ask"), random.uniform(0, period_s, 4), strict=True))
        self._period_s = {"tick": period_s, "sense": _SENSE_TICKS * period_s, "status": _STATUS_S, "ask": _ASK_S}
        self._act = {"tick": self._tick, "sense": self._sense, "status": self._report, "ask": self._ask}
        self._begin_policy(want)
        self._begin_guard()
        self._begin_driver(float(world.bodies.delay_s[index]))

    def clock_s(self) -> float:
        """Return the robot's own time [s]."""
        return self._world.network.now_s + self._offset_s

    def _drawn_error(self) -> np.ndarray:
        spec = self._world.spec
        angle = self._world.random.uniform(0, 2 * math.pi)
        return 0.5 * spec.position_error_m * np.array([math.cos(angle), math.sin(angle)])

    def _begin_policy(self, want: Callable[[], np.ndarray]) -> None:
        world, name = self._world, self.name
        others = tuple(other for other in world.names if other != name)
        hunters = (HUNTER,) if world.hunted else ()
        self.loop = _Loop(
            WantedMotion(world.contract, want),  # type: ignore[arg-type]
            world.spec,
            robot=name,
            peers=(*others, *hunters),
            goal_world=(0.0,) * world.spec.dimension,
            epoch=f"{name}-{world.random.integers(1 << 60):x}",
            untrusted=dict.fromkeys(hunters, world.untrusted_speed_m_s),
        )
        self.loop.take_out(world.defences, layer1=world.layer1, reserves=world.reserves, gives_way=world.gives_way)
        self.supervisor = Supervisor(now_s=self.clock_s())
        process = Process(world.network, f"{name}/policy")
        self._say_command = process.publisher(f"/{name}/cmd_vel_policy")
        self._announce = process.publisher(f"/{name}/peer_state")
        process.subscribe(f"/{name}/odom", self._on_pose)
        process.subscribe(f"/{name}/guard_status", self._on_guard)
        process.subscribe(LOST_TOPIC, self._on_lost)
        for other in others:
            process.subscribe(f"/{other}/peer_state", self._on_peer)

    def _begin_guard(self) -> None:
        world, name, spec = self._world, self.name, self._world.spec
        self.guard = CommandGuard(dimension=spec.dimension, dead_man_s=spec.dead_man_s)
        self._segment = OwnSegment(segment_limits(spec)) if world.defences.shield and world.reserves else None
        arena = world.contract.arena
        self._checks = CommandChecks(
            spec,
            None if arena is None else guard_bounds(spec, arena),
            oldest_pose_s=spec.pose_max_age_s + spec.control_period_s,
            segment=self._segment,
        )
        process = Process(world.network, f"{name}/guard")
        self._drive = process.publisher(f"/{name}/cmd_vel")
        self._say_status = process.publisher(f"/{name}/guard_status")
        process.subscribe(f"/{name}/cmd_vel_policy", self._on_policy_command)
        process.subscribe(f"/{name}/peer_state", self._on_own_announcement)
        process.subscribe(f"/{name}/odom", self._on_guard_pose)
        # everyone may press the emergency stop: the topic has no codes
        world.network.subscribe(ESTOP_TOPIC, f"{name}/guard", self._on_estop)

    def _begin_driver(self, delay_s: float) -> None:
        world, name = self._world, self.name
        self.driver = Driver(world.spec, delay_s, self.clock_s(), 2 * STEP_S)
        process = Process(world.network, f"{name}/driver")
        self._measure = process.publisher(f"/{name}/odom")
        process.subscribe(f"/{name}/cmd_vel", self._on_command)

    def step(self) -> None:
        """Do what is due."""
        now_s = self._world.network.now_s
        for what, due_s in self._due_s.items():
            if due_s <= now_s:
                self._due_s[what] = due_s + self._period_s[what]
                self._act[what]()
        if self.guard.watch(self.clock_s()) and self._due_s["tick"] - now_s < STEP_S:
            self._brake()

    def applied(self) -> Vector:
        """Return the command that the driver applies."""
        return self.driver.advance(self.clock_s() + STEP_S / 2).values

    def request(self, event: Event) -> None:
        """Answer a request on the robot's services, as `supervision.robot.Robot`."""
        answer = self.supervisor.request(event, self.clock_s())
        if answer.granted and event is Event.DEACTIVATE and self.supervisor.mode in RESTING:
            self.loop.release_space()

    def _ask(self) -> None:
        """Arm and start, as the station."""
        if not self.by_hand and self.supervisor.mode in (*RESTING, *READY):
            self.request(Event.ARM if self.supervisor.mode in RESTING else Event.START)

    def _tick(self) -> None:
        now_s, supervisor = self.clock_s(), self.supervisor
        if supervisor.mode in RESTING:
            self.loop.release_space()
        order = supervisor.order
        record = self.loop.tick(now_s, 0.0, order)
        supervisor.observe(now_s, "" if record.reason == order else record.reason)
        if supervisor.mode not in RESTING:
            values = body_forward_command(self._world.spec, record.sent_command, record.estimate_yaw or 0.0)
            self._say_command(encoded(CommandWords(record.stamp_s, tuple(map(float, values)))))
        message = self.loop.announcement(now_s)
        if message is not None:
            self._announce(message.encode())

    def _sense(self) -> None:
        world = self._world
        place, yaw, velocity = world.bodies.pose(self.index)
        noise = world.random.uniform(-0.3, 0.3, len(place)) * world.spec.position_error_m
        seen = np.array(place) + self._error_world + noise
        turn = world.random.uniform(-1, 1) * world.spec.yaw_error_rad
        self._measure(encoded(PoseWords(self.clock_s(), tuple(seen.tolist()), yaw + turn, velocity)))
        if world.hunted:
            hunter = world.bodies.position(len(world.names))
            self.loop.on_sighting(HUNTER, PeerMeasurement(self.clock_s(), tuple(map(float, hunter))))

    def _on_pose(self, data: bytes) -> None:
        pose = decoded(data, PoseWords)
        if pose is not None:
            now_s = self.clock_s()
            self.loop.on_odometry(pose.stamp_s, now_s, pose.position_world, pose.yaw, pose.velocity)

    def _on_guard(self, data: bytes) -> None:
        values = decoded(data, dict[str, str])
        if values is not None:
            report = GuardReport.of(values, self.clock_s())
            self.supervisor.hear_guard(report)
            self.loop.on_guard(passes=not report.code and not report.slows, received_s=report.received_s)

    def _on_peer(self, data: bytes) -> None:
        try:
            message = PeerMessage.decode(data)
        except EnvelopeError:
            return
        self.loop.on_peer(message, self.clock_s())

    def _on_lost(self, data: bytes) -> None:
        try:
            found = LostRobot.decode(data)
        except EnvelopeError:
            return
        self.loop.declare_lost(found.robot, found.place_world)

    def _on_own_announcement(self, data: bytes) -> None:
        try:
            message = PeerMessage.decode(data)
        except EnvelopeError:
            return
        if self._segment is not None:
            self._segment.hear(message, self.clock_s())

    def _on_guard_pose(self, data: bytes) -> None:
        pose = decoded(data, PoseWords)
        if pose is not None:
            self._checks.see_pose(pose.stamp_s, pose.position_world, pose.yaw, pose.velocity)

    def _on_policy_command(self, data: bytes) -> None:
        words, now_s = decoded(data, CommandWords), self.clock_s()
        if words is None:
            return
        refusal = self._checks.refusal(words.values, now_s)
        if self.guard.command(words.stamp_s, words.values, now_s, refusal=refusal):
            self._send(words)
        elif self.guard.watch(now_s):
            self._brake()

    def _on_estop(self, data: bytes) -> None:
        self.guard.hear_estop(data == b"1", ESTOP_TOPIC)

    def _on_command(self, data: bytes) -> None:
        words = decoded(data, CommandWords)
        if words is not None:
            self.driver.receive(words.values, words.stamp_s, self.clock_s())

    def _brake(self) -> None:
        self._send(CommandWords(self.clock_s(), (0.0,) * self._world.spec.dimension))

    def _send(self, words: CommandWords) -> None:
        self._checks.note_sent(self.clock_s(), words.values)
        self._drive(encoded(words))

    def _report(self) -> None:
        guard = self.guard
        values = {"code": guard.code, "life": "g", "rearms": str(guard.rearms), "stops": str(guard.stops)}
        self._say_status(msgspec.json.encode(values))

    @property
    def drives(self) -> bool:
        """Return whether its policy drives it."""
        return self.supervisor.mode is Mode.ACTIVE


def encoded(words: msgspec.Struct) -> bytes:
    """Return words as bytes."""
    return msgspec.json.encode(words)


def decoded[T](data: bytes, kind: type[T]) -> T | None:
    """Return words; None if they cannot be read, which a node only logs."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
