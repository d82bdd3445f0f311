"""A node beside the fleet: observes sent and applied commands and true poses, relays inputs, calls services."""

import os
import re
import threading
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import TwistStamped
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from nav_msgs.msg import Odometry
from rclpy.executors import ExternalShutdownException
from rclpy.experimental.events_executor import EventsExecutor
from rclpy.task import Future
from std_msgs.msg import Bool, String, UInt8MultiArray
from std_srvs.srv import Trigger

from testudo_bench.fault_matrix.harness.delayed_calls import DelayedCalls
from testudo_deploy.contract.messages import TickRecord
from testudo_deploy.fleet.fleet import Fleet, FleetRobot
from testudo_deploy.fleet.pose_source import SensedTopic, sensed_topics
from testudo_deploy.launch.topic_names import ESTOP_TOPIC, EVENTS_TOPIC
from testudo_hardware.links.topics import CommandWire
from testudo_hardware.links.wire import read_command, read_odometry
from testudo_nodes.common.messages import envelope_bytes, message_class, status_values
from testudo_nodes.common.process_priority import PRIORITIES, reset_scheduling, set_realtime_priority
from testudo_nodes.common.qos import OFFERED, REQUESTED, measured, recorded

MOVING_M_S = 0.02
_LATE = 1.5  # permitted mean time between true poses, in periods, over half of an interval
_WAKE_S = 0.2
_EPOCH = re.compile(rb'"epoch":"([^"]*)"')
_SERVICES = {"start": "policy/start", "stop": "policy/stop", "rearm": "guard/rearm", "estop": "guard/estop"}
_TRANSITIONS = {"activate": Transition.TRANSITION_ACTIVATE, "deactivate": Transition.TRANSITION_DEACTIVATE}
RELAYED = ("odom", "amcl_pose")
"""Measurements of r0 that pass through the observer."""
Change = Callable[[Any], Any]  # replacement of a relayed message: another one, several in a list, or None
PeerChange = Callable[[str, str, Any], Any]  # the same with sender and receiver as first arguments


@dataclass
class Heard:
    """Messages about one robot, each with its arrival time, steady clock [s]."""

    sent: list = field(default_factory=list)  # (time, command (D,)) on the actuator topic, from the guard
    applied: list = field(default_factory=list)
    """(time since which it acts, command (D,)), after the driver's own dead-man time and its delay."""
    truth: list = field(default_factory=list)  # (time, `OdometryReading`)
    mode: str = ""
    code: str = ""
    sentence: str = ""
    codes: list = field(default_factory=list)  # (time, mode, code), at each change
    guard_code: str = "unheard"
    guard_codes: list = field(default_factory=list)  # (time, code), at each message of the guard
    envelopes: deque = field(default_factory=lambda: deque(maxlen=1))
    """Records of ticks in order of arrival: the newest, or all with ``keep_ticks``."""

    @property
    def record(self) -> TickRecord:
        """Return the newest record."""
        return TickRecord.decode(self.envelopes[-1] if self.envelopes else b"")


def pass_on(message: Any) -> Any:
    """Return the message unchanged."""
    return message


def pass_on_to(_sender: str, _receiver: str, message: Any) -> Any:
    """Return a peer's message unchanged."""
    return message


def relayed_topic(sender: str, receiver: str) -> str:
    """Return the topic on which a robot receives a peer through the relay."""
    return f"/{sender}/peer_state_for_{receiver}"


class Observer:
    """Observes in its own thread; mappings are by robot."""

    def __init__(
        self,
        fleet: Fleet,
        domain_id: int,
        environment: Mapping[str, str],
        *,
        receivers: Sequence[str] = ("r0",),
        keep_ticks: bool = False,
    ) -> None:
        """Begin to listen in the domain and environment of a fleet.

        ``receivers`` receive their peers through relays; with ``keep_ticks`` the records of all ticks are stored.
        """
        self.robots = {name: Heard() for name in fleet.names}
        self.contacts = 0
        self._truth_period_s = fleet.robots[0].spec.control_period_s
        self.epochs: dict[str, str] = {}
        """Newest epoch of each robot, from its peer messages."""
        self.peer_states: dict[str, UInt8MultiArray] = {}
        """Newest peer message of each robot."""
        self.odometry: Change = pass_on
        """Change applied to the odometry of r0."""
        self.localisation: Change = pass_on
        """Change applied to the poses beside the odometry of r0, if it has some."""
        self.peers: PeerChange = pass_on_to
        """Change applied to peer messages."""
        self._context = rclpy.Context()
        os.environ.update({name: environment[name] for name in environment if name.startswith(("ROS_A", "FAST"))})
        rclpy.init(context=self._context, domain_id=domain_id)
        self.node = rclpy.create_node("observer", context=self._context)
        self.button = self.node.create_publisher(Bool, ESTOP_TOPIC, OFFERED["estop"])
        self.fault = self.node.create_publisher(String, "/r0/plant_fault", REQUESTED["plant_fault"])
        self._clients: dict[tuple[str, str], Any] = {}
        self._ways = {
            (peer, name): self.node.create_publisher(UInt8MultiArray, relayed_topic(peer, name), OFFERED["peer_state"])
            for name in receivers
            for peer in fleet.peers(name)
        }
        for robot in fleet.robots:
            if keep_ticks:
                self.robots[robot.name].envelopes = deque()
            self._observe(robot)
        topics = sensed_topics(fleet.robots[0])
        self.is_localised_apart = any(topic.kind == "amcl_pose" for topic in topics)
        """r0 gets poses beside its odometry, which `localisation` changes."""
        for topic in topics:
            if topic.kind in RELAYED:
                self._relay(topic)
        self.node.create_subscription(String, EVENTS_TOPIC, self._on_event, recorded(EVENTS_TOPIC))
        self._executor = EventsExecutor(context=self._context)
        self._executor.add_node(self.node)
        self.host, self._later = HostWatch(), DelayedCalls()
        self._closing = False
        self.failure: Exception | None = None
        """Error that ended the observer; from then on nothing is relayed or observed."""
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()
        set_realtime_priority(PRIORITIES["observer"], alone=True)

    def close(self) -> None:
        """Stop listening."""
        reset_scheduling()
        self.host.close()
        self._later.close()
        self._closing = True
        self._thread.join(5)  # a context that ends while the executor logs waits for it, and it for the context
        self._context.try_shutdown()

    def pass_everything(self) -> None:
        """Make the relays pass all messages unchanged."""
        self.odometry, self.localisation, self.peers = pass_on, pass_on, pass_on_to

    def deliver(self, sender: str, receiver: str, message: UInt8MultiArray) -> None:
        """Deliver a delayed peer message to a robot."""
        self._ways[sender, receiver].publish(message)

    def deliver_later(self, delay_s: float, sender: str, receiver: str, message: UInt8MultiArray) -> None:
        """Deliver a peer message to a robot after a delay."""
        self._later.after(delay_s, self.deliver, sender, receiver, message)

    def ask(self, name: str, what: str) -> Any:
        """Ask for a service: activate, deactivate, start, stop, rearm, estop; return the future of its answer."""
        client = self._clients[name, what]
        if what in _TRANSITIONS:
            return client.call_async(ChangeState.Request(transition=Transition(id=_TRANSITIONS[what])))
        return client.call_async(Trigger.Request())

    def drives(self, name: str, for_s: float, until_s: float | None = None) -> bool:
        """Return whether a robot moved for the whole time before now or before a time."""
        end_s = time.monotonic() if until_s is None else until_s
        truth = self.robots[name].truth
        begin = bisect_left(truth, end_s - for_s, key=lambda item: item[0])
        speeds = [reading.velocity[0] for at_s, reading in truth[begin:] if at_s <= end_s]
        return len(speeds) * _LATE * self._truth_period_s > for_s / 2 and min(speeds) > MOVING_M_S

    def brake_after(self, name: str, fault_s: float, series: str = "sent") -> float | None:
        """Return when the first zero command of a series came after a fault, None if none has yet."""
        found = getattr(self.robots[name], series)
        begin = bisect_left(found, fault_s, key=lambda item: item[0])
        return next((at_s for at_s, command in found[begin:] if not any(command)), None)

    def rests(self, name: str, since_s: float) -> bool:
        """Return whether the newest true pose after a time shows the robot at rest."""
        truth = self.robots[name].truth
        return bool(truth) and truth[-1][0] > since_s and abs(truth[-1][1].velocity[0]) < 0.003

    def place(self, name: str, at_s: float | None = None) -> tuple[float, ...]:
        """Return the true place of a robot (D,) [m], now or at a time."""
        truth = self.robots[name].truth
        index = -1 if at_s is None else min(bisect_left(truth, at_s, key=lambda item: item[0]), len(truth) - 1)
        return truth[index][1].position_world

    def codes_since(self, name: str, time_s: float) -> set[str]:
        """Return every code that a robot's mode had since a time."""
        heard = self.robots[name]
        return {code for at_s, _, code in heard.codes if at_s >= time_s} | {heard.code}

    def guard_codes_since(self, name: str, time_s: float) -> set[str]:
        """Return every code that a robot's guard had since a time."""
        heard = self.robots[name]
        return {code for at_s, code in heard.guard_codes if at_s >= time_s} | {heard.guard_code}

    def _relay(self, topic: SensedTopic) -> None:
        """Pass the measurements of one topic of r0 on, as its driver or localisation offers them."""
        kind = message_class(topic.type)
        publisher = self.node.create_publisher(
            kind, f"{topic.absolute}_relayed", measured(reliable=topic.wire.reliable)
        )
        name = "odometry" if topic.kind == "odom" else "localisation"
        self.node.create_subscription(
            kind,
            topic.absolute,
            lambda message: _publish(publisher, getattr(self, name)(message)),
            REQUESTED[topic.kind],
        )

    def _observe(self, robot: FleetRobot) -> None:
        name, heard = robot.name, self.robots[robot.name]
        ways = [(receiver, publisher) for (sender, receiver), publisher in self._ways.items() if sender == name]

        def peer_state(message: UInt8MultiArray) -> None:
            found = _EPOCH.search(envelope_bytes(message))
            self.peer_states[name] = message
            if found:
                self.epochs[name] = found[1].decode()
            for receiver, publisher in ways:
                _publish(publisher, self.peers(name, receiver, message))

        def tick(message: UInt8MultiArray) -> None:
            heard.envelopes.append(envelope_bytes(message))

        listeners = (
            *_motion_listeners(robot, heard),
            *_mode_listeners(heard),
            (UInt8MultiArray, "tick", tick),
            (UInt8MultiArray, "peer_state", peer_state),
        )
        for kind, topic, callback in listeners:
            self.node.create_subscription(kind, f"/{name}/{topic}", callback, recorded(topic))
        for what, service in _SERVICES.items():
            self._clients[name, what] = self.node.create_client(Trigger, f"/{name}/{service}")
        change = self.node.create_client(ChangeState, f"/{name}/policy/change_state")
        self._clients.update({(name, what): change for what in _TRANSITIONS})

    def _on_event(self, message: String) -> None:
        self.contacts += '"contact"' in message.data

    def _spin(self) -> None:
        never = Future()
        try:
            # a wait without an end spins at full load in the wheels' EventsExecutor
            while self._context.ok() and not self._closing:
                self._executor.spin_until_future_complete(never, timeout_sec=_WAKE_S)
        except ExternalShutdownException:
            pass
        except Exception as error:  # noqa: BLE001 -- raised by the harness: without the observer no row means anything
            self.failure = error


@contextmanager
def repeating(action: Callable[[], None], period_s: float) -> Iterator[None]:
    """Call ``action`` every ``period_s`` in a thread of its own, which has ended when the context is left.

    A timer of a node may still be in its callback, in the thread of the executor, when its publishers are destroyed.
    """
    closing = threading.Event()

    def repeat() -> None:
        while not closing.wait(period_s):
            action()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join()


def _publish(publisher: Any, changed: Any) -> None:
    """Publish the result of a change."""
    for one in changed if isinstance(changed, list) else [changed]:
        if one is not None:
            publisher.publish(one)


_Listener = tuple[type, str, Callable[[Any], None]]


def _motion_listeners(robot: FleetRobot, heard: Heard) -> list[_Listener]:
    name, spec = robot.name, robot.spec
    wire = CommandWire(name, spec, robot.link.profile)

    def sent(message: Any) -> None:
        now_s = time.monotonic()
        heard.sent.append((now_s, wire.decode(message, now_s).command))

    def applied(message: TwistStamped) -> None:
        reading = read_command(message, name, spec)  # stamped with the time since which it acts
        heard.applied.append((reading.stamp_s, reading.command))

    def truth(message: Odometry) -> None:
        heard.truth.append((time.monotonic(), read_odometry(message, name, spec)))

    commanded = (message_class(wire.type), "cmd_vel", sent)
    return [commanded, (TwistStamped, "applied_cmd_vel", applied), (Odometry, "truth", truth)]


def _mode_listeners(heard: Heard) -> list[_Listener]:
    def mode(message: DiagnosticStatus) -> None:
        values = status_values(message)
        heard.mode, heard.code, heard.sentence = values["mode"], values["code"], message.message
        heard.codes.append((time.monotonic(), heard.mode, heard.code))

    def guard(message: DiagnosticStatus) -> None:
        heard.guard_code = status_values(message)["code"]
        heard.guard_codes.append((time.monotonic(), heard.guard_code))

    return [(DiagnosticStatus, "mode", mode), (DiagnosticStatus, "guard_status", guard)]


_STAT = Path("/proc/stat")
_PERIOD_S = 0.01
_STOLEN = 8
"""The place of `steal` in the first line of /proc/stat: cpu, user, nice, system, idle, iowait, irq, softirq, steal."""


def stolen_s(stat: str) -> float:
    """Return the time [s], over all cores, that the text of /proc/stat counts as stolen; 0 where it counts none."""
    words = stat.partition("\n")[0].split()
    return int(words[_STOLEN]) / os.sysconf("SC_CLK_TCK") if len(words) > _STOLEN else 0.0


class HostWatch:
    """Samples the stolen processor time every 10 ms in its own thread, until closed."""

    def __init__(self) -> None:
        """Begin to sample, if the system counts stolen time."""
        self._at_s: list[float] = []
        self._total_s: list[float] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if _STAT.exists():
            self._thread.start()

    def close(self) -> None:
        """Stop sampling."""
        self._closing.set()

    def taken_s(self, begin_s: float, end_s: float) -> float:
        """Return the processor time [s] stolen between two times of the steady clock.

        Seen from the last look before the first to the first look after the second, if that came already.
        """
        if not self._total_s:
            return 0.0
        first = max(bisect_right(self._at_s, begin_s) - 1, 0)
        last = min(bisect_left(self._at_s, end_s), len(self._total_s) - 1)
        return max(0.0, self._total_s[last] - self._total_s[first])

    def _watch(self) -> None:
        while not self._closing.wait(_PERIOD_S):
            total_s = stolen_s(_STAT.read_text(encoding="ascii"))
            self._total_s.append(total_s)  # before its time, so that a reader finds a total for every time
            self._at_s.append(time.monotonic())
