"""An intruder in the domain of a fleet: it hears every message, sends on every topic, and has no key."""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from testudo_bench.red_team.bodies import Bodies
from testudo_bench.red_team.robot_processes import CommandWords, PoseWords, RobotProcesses, decoded, encoded
from testudo_bench.red_team.signed_network import Network, ended_process, former_signer
from testudo_deploy.authentication.message_codes import split_trailer
from testudo_deploy.authentication.process_epochs import EPOCHS_TOPIC
from testudo_deploy.contract.lost_robot import LostRobot
from testudo_deploy.contract.messages import PeerMessage
from testudo_deploy.launch.topic_names import ESTOP_TOPIC, LOST_TOPIC
from testudo_deploy.supervision.modes import Event
from testudo_hardware.links.wire import body_forward_command
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

_LOG = 200  # messages of a topic that are kept for replays
_AHEAD_S = 0.04  # stamps of forged commands are up to this far in the future
_DRIFT_M_S, _FARTHEST_M = 0.08, 1.0  # of forged poses; a faster one looks like a failure
_NEWEST_S = 0.0015  # stamp of a forged pose in the future: newer than true ones, and still taken for rounding
_FAR_M = 4.0  # where forged announcements place a robot
_LONG_S = 100.0
_AGO_S = 0.6  # age of what is repeated with new numbers and stamps
_REPLAYS = 4  # messages for each step
_REQUEST_CHANCE = 0.03  # of a request on a robot's services, for each step and robot


@dataclass(frozen=True)
class Heard:
    """One message as it was sent."""

    sent_s: float
    data: bytes

    @property
    def content(self) -> bytes:
        """Return it without its code."""
        split = split_trailer(self.data)
        return self.data if split is None else split[0]


class Intruder:
    """Knows everything but the key: every message, all clocks, all places."""

    def __init__(
        self,
        network: Network,
        spec: RobotSpec,
        robots: Sequence[RobotProcesses],
        bodies: Bodies,
        random: np.random.Generator,
    ) -> None:
        self.network, self.spec, self.random, self._bodies = network, spec, random, bodies
        self.robots: Mapping[str, RobotProcesses] = {robot.name: robot for robot in robots}
        self.log: dict[str, deque[Heard]] = defaultdict(lambda: deque(maxlen=_LOG))
        self.begins_s = network.now_s
        self.favourite = str(random.choice(["odom", "cmd_vel", "peer_state"]))
        """The topic of which it repeats messages with new numbers and stamps."""
        self._former = None if network.key is None else ended_process(network.key)
        self._signers: dict[str, Callable[[bytes], bytes]] = {}
        network.taps.append(self._hear)

    def _hear(self, topic: str, data: bytes) -> None:
        self.log[topic].append(Heard(self.network.now_s, data))

    def say(self, topic: str, content: bytes, readers: tuple[str, ...] = ()) -> None:
        """Send a message without a code, and with the code of the newest true message of the topic."""
        self.network.inject(topic, content, readers)
        split = split_trailer(self.log[topic][-1].data) if self.log[topic] else None
        if split is not None:
            self.network.inject(topic, content + bytes(-len(content) % 4) + split[1], readers)

    def say_as_former(self, topic: str, content: bytes) -> None:
        """Send a message with the code of a process of a former run, as if it had been recorded then."""
        if self._former is None or self.network.key is None:
            return
        if topic not in self._signers:
            self._signers[topic] = former_signer(self.network.key, topic, self._former)
        self.network.inject(topic, self._signers[topic](content))

    def announced(self, name: str, age_s: float = 0.0) -> PeerMessage | None:
        """Return the newest true announcement of a robot that is at least so old."""
        for heard in reversed(self.log[f"/{name}/peer_state"]):
            if self.network.now_s - heard.sent_s >= age_s:
                return PeerMessage.decode(heard.content)
        return None

    def others(self, name: str) -> list[str]:
        """Return the other robots, the nearest first."""
        here = self.place(name)
        rest = [other for other in self.robots if other != name]
        return sorted(rest, key=lambda other: math.dist(here, self.place(other)))

    def place(self, name: str) -> np.ndarray:
        """Return where a robot is (2,) [m]."""
        return self._bodies.position(self.robots[name].index)

    def towards(self, name: str) -> np.ndarray:
        """Return the direction (2,) from a robot to the nearest other one."""
        way = self.place(self.others(name)[0]) - self.place(name)
        return way / max(float(np.hypot(*way)), 1e-9)

    def ramming(self, name: str) -> tuple[float, ...]:
        """Return a command of a robot that drives at the nearest other one at top speed."""
        spec, (_, yaw, _) = self.spec, self._bodies.pose(self.robots[name].index)
        way = self.towards(name)
        if spec.kind == DIFFERENTIAL_DRIVE:
            off = math.remainder(math.atan2(way[1], way[0]) - yaw, 2 * math.pi)
            turn = max(-spec.turn_rate_limit_rad_s, min(spec.turn_rate_limit_rad_s, 4 * off))
            most = max(0.0, spec.wheel_limit_m_s - abs(turn) * spec.wheel_base_m / 2)
            return (min(spec.speed_limit_m_s, most) * max(0.0, math.cos(off)), turn)
        return tuple(map(float, body_forward_command(spec, tuple(0.99 * spec.speed_limit_m_s * way), yaw)))

    def shifted_pose(self, name: str) -> PoseWords:
        """Return a pose of a robot that drifts away from the nearest other one, just measured."""
        place, yaw, velocity = self._bodies.pose(self.robots[name].index)
        drift_m = min(_FARTHEST_M, _DRIFT_M_S * max(0.0, self.network.now_s - self.begins_s))
        shifted = np.array(place) - drift_m * self.towards(name)
        return PoseWords(self.robots[name].clock_s() + _NEWEST_S, tuple(shifted.tolist()), yaw, velocity)

    def acknowledging(self, message: PeerMessage) -> PeerMessage:
        """Return an announcement that answers the newest message of every other robot, at this moment."""
        echoes = dict(message.echoes)
        for name, robot in self.robots.items():
            theirs = self.announced(name)
            if name != message.robot and theirs is not None:
                echoes[name] = (theirs.epoch, robot.clock_s(), theirs.sequence)
        return replace(message, echoes=echoes)

    def lie(self, name: str, forged: PeerMessage) -> None:
        """Send an announcement of a robot to all others."""
        self.say(f"/{name}/peer_state", forged.encode(), tuple(f"{other}/policy" for other in self.others(name)))


def command_drivers(intruder: Intruder) -> None:
    """Command every driver towards the next robot."""
    for name, robot in intruder.robots.items():
        stamp_s = robot.clock_s() + intruder.random.uniform(0, _AHEAD_S)
        intruder.say(f"/{name}/cmd_vel", encoded(CommandWords(stamp_s, intruder.ramming(name))))


def command_guards(intruder: Intruder) -> None:
    """Command every guard as its policy, and tell it of a segment that reaches to the next robot."""
    for name, robot in intruder.robots.items():
        told = intruder.announced(name)
        if told is None:
            continue
        here, there = intruder.place(name), intruder.place(intruder.others(name)[0])
        ends = (tuple(here - 0.5 * intruder.towards(name)), tuple(there))
        segment = tuple(tuple(map(float, end)) for end in ends)
        forged = replace(told, sequence=told.sequence + 1, reserved_segment_world=segment)
        intruder.say(f"/{name}/peer_state", forged.encode(), (f"{name}/guard",))
        intruder.say(f"/{name}/cmd_vel_policy", encoded(CommandWords(robot.clock_s(), intruder.ramming(name))))


def shift_poses(intruder: Intruder) -> None:
    """Make every robot believe that it is farther from the next one than it is."""
    for name in intruder.robots:
        intruder.say(f"/{name}/odom", encoded(intruder.shifted_pose(name)))


def speak_as_peer(intruder: Intruder) -> None:
    """Be a second process of every robot: far away, and content with everything."""
    for name in intruder.robots:
        told = intruder.announced(name)
        if told is not None:
            far = _moved(told, -_FAR_M * intruder.towards(name))
            intruder.lie(name, replace(intruder.acknowledging(far), sequence=told.sequence + 1))


def _moved(told: PeerMessage, way: np.ndarray) -> PeerMessage:
    def shift(place: Sequence[float]) -> tuple[float, ...]:
        return tuple(float(p + w) for p, w in zip(place, way, strict=True))

    return replace(
        told,
        control_point_world=shift(told.control_point_world),
        position_world=shift(told.position_world),
        reserved_segment_world=tuple(map(shift, told.reserved_segment_world)),
        requested_segment_world=tuple(map(shift, told.requested_segment_world)),
    )


def lie_in(field: str) -> Callable[[Intruder], None]:
    """Return an attack that sends true announcements with one wrong field, each before the next true one."""
    age_s = _SLOW_LIES_S.get(field, 0.0)

    def act(intruder: Intruder) -> None:
        for name in intruder.robots:
            newest, told = intruder.announced(name), intruder.announced(name, age_s)
            if newest is not None and told is not None:
                intruder.lie(name, _LIES[field](intruder, replace(told, sequence=newest.sequence + 1)))

    return act


def _in_place(intruder: Intruder, told: PeerMessage) -> PeerMessage:
    far = _moved(told, -_FAR_M * intruder.towards(told.robot))
    return replace(
        far,
        reserved_segment_world=told.reserved_segment_world,
        requested_segment_world=told.requested_segment_world,
    )


def _in_reserved(intruder: Intruder, told: PeerMessage) -> PeerMessage:
    far = _moved(told, -_FAR_M * intruder.towards(told.robot))
    return replace(told, reserved_segment_world=far.reserved_segment_world)


def _in_requested(intruder: Intruder, told: PeerMessage) -> PeerMessage:
    end = told.reserved_segment_world[0]
    return replace(told, requested_segment_world=(end, end))


def _in_age(_: Intruder, told: PeerMessage) -> PeerMessage:
    """Answer stamps of long ago: the age of the announcement has no bound."""
    echoes = {name: (epoch, stamp_s - _LONG_S, number) for name, (epoch, stamp_s, number) in told.echoes.items()}
    return replace(told, echoes=echoes)


_LIES: Mapping[str, Callable[[Intruder, PeerMessage], PeerMessage]] = {
    "place": _in_place,
    "reserved segment": _in_reserved,
    "requested segment": _in_requested,
    "acknowledgement": lambda intruder, told: intruder.acknowledging(told),
    "age": _in_age,
    # once, and silent from then on: true announcements are older, or of a process that has ended
    "number": lambda _, told: replace(told, sequence=1_000_000),
    "epoch": lambda _, told: replace(told, epoch="another", sequence=1_000_000),
    "stamp": lambda _, told: replace(told, stamp_s=told.stamp_s + _LONG_S),
}
_SLOW_LIES_S = {"requested segment": 0.4, "acknowledgement": 0.8}
"""Ages of the announcements that are changed, where a lie acts only while requests are under way."""


def replay(intruder: Intruder) -> None:
    """Repeat what was said, on all topics: as it was, and with new numbers and stamps."""
    random = intruder.random
    topics = [topic for topic, heard in intruder.log.items() if heard]
    for topic in random.choice(topics, _REPLAYS) if topics else ():
        old = intruder.log[topic][int(random.integers(len(intruder.log[topic])))]
        intruder.network.inject(topic, old.data)
    for name in intruder.robots:
        _restamped(intruder, name, intruder.favourite)


def _restamped(intruder: Intruder, name: str, topic: str) -> None:
    """Repeat what a robot said on a topic a moment ago as if it said it now."""
    now_s = intruder.network.now_s
    old = next((heard for heard in intruder.log[f"/{name}/{topic}"] if now_s - heard.sent_s < _AGO_S), None)
    if old is None:
        return
    if topic == "peer_state":
        told, newest = PeerMessage.decode(old.content), intruder.announced(name)
        if newest is not None:
            intruder.lie(name, replace(intruder.acknowledging(told), sequence=newest.sequence + 1))
        return
    words = decoded(old.content, PoseWords if topic == "odom" else CommandWords)
    if words is not None:
        words.stamp_s = intruder.robots[name].clock_s() + _NEWEST_S
        intruder.say(f"/{name}/{topic}", encoded(words))


def replay_former_run(intruder: Intruder) -> None:
    """Send what processes of a former run signed, at the same time after the start of the machine.

    Stamps fit. What was recorded is whatever the intruder wishes for, which is more than it can have. Recorded
    challenges and answers are repeated, too.
    """
    for name, robot in intruder.robots.items():
        stamp_s = robot.clock_s() + intruder.random.uniform(0, _AHEAD_S)
        intruder.say_as_former(f"/{name}/cmd_vel", encoded(CommandWords(stamp_s, intruder.ramming(name))))
        intruder.say_as_former(f"/{name}/odom", encoded(intruder.shifted_pose(name)))
        other = intruder.others(name)[0]
        intruder.say_as_former(LOST_TOPIC, LostRobot(other, _far_place(intruder, name)).encode())
    for heard in tuple(intruder.log[EPOCHS_TOPIC])[-_REPLAYS:]:
        intruder.network.inject(EPOCHS_TOPIC, heard.data)
        intruder.network.inject(EPOCHS_TOPIC, bytes([2]) + heard.data[1:])


def _far_place(intruder: Intruder, name: str) -> tuple[float, ...]:
    return tuple(float(x) for x in intruder.place(name) - _FAR_M * intruder.towards(name))


def declare_lost(intruder: Intruder) -> None:
    """Declare every robot lost, far from where it is."""
    for name in intruder.robots:
        other = intruder.others(name)[0]
        content = LostRobot(other, _far_place(intruder, name)).encode()
        intruder.say(LOST_TOPIC, content, (f"{name}/policy",))


def report_as_guard(intruder: Intruder) -> None:
    """Report an emergency stop as the guard of every robot."""
    words = msgspec.json.encode({"code": "estop", "life": "g", "rearms": "0", "stops": "1"})
    for name in intruder.robots:
        intruder.say(f"/{name}/guard_status", words)


def use_services(intruder: Intruder) -> None:
    """Arm, start, stop and deactivate robots at random."""
    events = (Event.ARM, Event.START, Event.START, Event.STOP, Event.DEACTIVATE)
    for robot in intruder.robots.values():
        robot.by_hand = True
        if intruder.random.uniform() < _REQUEST_CHANCE:
            robot.request(events[int(intruder.random.integers(len(events)))])
            robot.request(Event.ARM)


def press_stop(intruder: Intruder) -> None:
    """Press the emergency stop."""
    intruder.network.inject(ESTOP_TOPIC, b"1")


def do_everything(intruder: Intruder) -> None:
    """Do all of the above that needs no service and no emergency stop."""
    for act in (command_drivers, command_guards, shift_poses, speak_as_peer, replay, replay_former_run, declare_lost):
        act(intruder)
