"""A publisher of `/estop` that is ready sooner than a node of `rclpy.node`.

That class brings parameters, logging, services and the imports for them: 0.2 s of processor time, which beside a
driving fleet are seconds. This one uses the bindings below it, which have no promise to stay as they are: `quick_stop`
takes a `StatusListener` where they fail.
"""

import contextlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from testudo_deploy.launch.launch_plan import ENCLAVES
from testudo_deploy.launch.ros_domain import LOOPBACK
from testudo_deploy.launch.topic_names import ESTOP_TOPIC, OPERATOR, TOOL_NODES
from testudo_nodes.station.operator_listener import STATUS_TOPIC

_DISCOVERY_S = 0.2  # period of the search for new robots
_STEP_S = 0.01
_TAKEN = ("guard_status", "mode")
_LATE_IMPORTS = ("numpy", "yaml")
"""ROS imports them for fields of messages and for parameters, none of which are used here."""
_UNUSED_IMPORT = "rosidl_generator_py.generate_py_impl"
"""Makes Python modules from message files; the package above it does without, if this one cannot be imported."""


class StopPort:
    """Publishes that the stop is pressed, and receives the status of the robots; a context manager."""

    def __init__(self, receiver: Any, domain_id: int, *, local: bool) -> None:
        """Prepare; see `StatusListener` for the arguments."""
        self._receiver, self._domain_id, self._local = receiver, domain_id, local
        self._subscriptions: dict[tuple[str, str], Any] = {}
        """By robot and topic."""
        self._look_s = 0.0

    def __enter__(self) -> Self:
        """Start ROS, and press: guards that are discovered from now on get the level with their discovery."""
        if self._local:
            os.environ.update(LOOPBACK)
        with _few_imports():
            self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        for end in (*self._subscriptions.values(), self._publisher, self._node):
            end.destroy_when_not_in_use()
        with self._context:
            self._context.shutdown()
        self._context.destroy_when_not_in_use()

    def publish(self) -> None:
        """Send the level again: a guard that is discovered late does not get earlier messages."""
        with self._publisher:
            self._publisher.publish(self._level)

    def expect(self, robots: Iterable[str]) -> None:
        """Subscribe to the status of these robots before they are discovered."""
        for robot in robots:
            for kind in _TAKEN:
                self._subscribe(robot, kind)

    def listen(self, seconds: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Receive messages for some time [s], or until ``enough`` returns True."""
        end_s = time.monotonic() + seconds
        while (now_s := time.monotonic()) < end_s and not enough():
            if now_s >= self._look_s:
                self._look_s = now_s + _DISCOVERY_S
                self._discover()
            for (robot, kind), subscription in self._subscriptions.items():
                self._take(robot, kind, subscription)
            time.sleep(_STEP_S)

    def _begin(self) -> None:
        from rclpy.impl.implementation_singleton import rclpy_implementation  # noqa: PLC0415 -- there may be no ROS
        from rclpy.qos import qos_profile_rosout_default  # noqa: PLC0415
        from std_msgs.msg import Bool  # noqa: PLC0415

        from testudo_nodes.common.qos import OFFERED  # noqa: PLC0415

        _load_type_support(Bool)
        self._ros: Any = rclpy_implementation
        self._context = self._ros.Context(["--ros-args", "--enclave", f"{ENCLAVES}/{OPERATOR}"], self._domain_id)
        with self._context:
            rosout = qos_profile_rosout_default.get_c_qos_profile()
            name = f"{TOOL_NODES}_{os.getpid()}"
            self._node = self._ros.Node(name, "", self._context, None, True, False, rosout)
        with self._node:
            quality = OFFERED["estop"].get_c_qos_profile()
            self._publisher = self._ros.Publisher(self._node, Bool, ESTOP_TOPIC, quality)
        self._level = Bool(data=True)
        self.publish()

        from diagnostic_msgs.msg import DiagnosticStatus  # noqa: PLC0415 -- after the press

        _load_type_support(DiagnosticStatus)
        self._kind = DiagnosticStatus

    def _discover(self) -> None:
        with self._node:
            topics = self._ros.rclpy_get_topic_names_and_types(self._node, False)
        for topic, _ in topics:
            match = STATUS_TOPIC.fullmatch(topic)
            if match is not None and match[2] in _TAKEN:
                self._subscribe(match[1], match[2])

    def _subscribe(self, robot: str, kind: str) -> None:
        from testudo_nodes.common.qos import SHOWN  # noqa: PLC0415 -- there is ROS

        if (robot, kind) not in self._subscriptions:
            with self._node:
                self._subscriptions[robot, kind] = self._ros.Subscription(
                    self._node, self._kind, f"/{robot}/{kind}", SHOWN[kind].get_c_qos_profile()
                )

    def _take(self, robot: str, kind: str, subscription: Any) -> None:
        with subscription:
            taken = subscription.take_message(self._kind, False)
        if taken is None:
            return
        message, now_s = taken[0], time.monotonic()
        values = {pair.key: pair.value for pair in message.values}
        if kind == "mode":
            self._receiver.on_mode(robot, message.message, values, now_s)
        else:
            self._receiver.on_guard_status(robot, values, now_s)


def _load_type_support(kind: Any) -> None:
    if kind._TYPE_SUPPORT is None:  # noqa: SLF001 -- as rclpy does
        kind.__class__.__import_type_support__()


@contextlib.contextmanager
def _few_imports() -> Iterator[None]:
    """Leave out an import of ROS that is not used here, and delay others to their first use."""
    for name in _LATE_IMPORTS:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
    left_out = _UNUSED_IMPORT not in sys.modules
    if left_out:
        sys.modules[_UNUSED_IMPORT] = None  # type: ignore[assignment] -- its import fails, as documented of this value
    try:
        yield
    finally:
        if left_out:
            del sys.modules[_UNUSED_IMPORT]
