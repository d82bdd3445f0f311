"""Subscribes to the status of all robots of a ROS domain; `testudo_deploy.station.fleet_status` interprets it."""

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, Self

import rclpy
from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import qos_profile_sensor_data
from rclpy.signals import SignalHandlerOptions

from testudo_deploy.launch.launch_plan import ENCLAVES
from testudo_deploy.launch.ros_domain import LOOPBACK, discover_everything
from testudo_deploy.launch.topic_names import OPERATOR, TOOL_NODES
from testudo_hardware.errors import TestudoError
from testudo_nodes.common.qos import SHOWN
from testudo_nodes.station.operator_listener import STATUS_TOPIC, STATUS_TYPES

_DISCOVERY_S = 0.5  # period of the search for new robots
_STEP_S = 0.05


class StatusReceiver(Protocol):
    """Takes the messages, such as `testudo_deploy.station.fleet_status.FleetStatus`."""

    def on_mode(self, robot: str, sentence: str, values: dict[str, str], received_s: float) -> None:
        """Take a status of the topic `mode`."""

    def on_guard_status(self, robot: str, values: dict[str, str], received_s: float) -> None:
        """Take a status of the topic `guard_status`."""

    def on_battery(self, robot: str, share: float, voltage_v: float) -> None:
        """Take a `sensor_msgs/BatteryState`."""


class StatusListener:
    """Receives the status of the robots of a domain; a context manager, whose ``node`` is open to its user."""

    def __init__(self, receiver: StatusReceiver, domain_id: int, *, local: bool) -> None:
        """Prepare.

        Args:
            receiver: takes the messages.
            domain_id: the ROS domain.
            local: reach this machine only, as `testudo up` does.
        """
        self._receiver, self._domain_id, self._local = receiver, domain_id, local
        self._known: set[str] = set()

    def __enter__(self) -> Self:
        if self._local:
            os.environ.update(LOOPBACK)
        discover_everything()
        self._context = rclpy.Context()
        try:
            self._begin()
        except RuntimeError as error:  # of rcl
            self._context.try_shutdown()
            raise TestudoError(f"ROS 2 refuses to start: {' '.join(str(error).split())}") from error
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown()
        self.node.destroy_node()
        self._context.try_shutdown()

    def _begin(self) -> None:
        # Ctrl-C ends the verb; ROS must not handle it
        rclpy.init(
            args=["--ros-args", "--enclave", f"{ENCLAVES}/{OPERATOR}"],
            context=self._context,
            domain_id=self._domain_id,
            signal_handler_options=SignalHandlerOptions.NO,
        )
        self.node = rclpy.create_node(
            f"{TOOL_NODES}_{os.getpid()}", context=self._context, start_parameter_services=False
        )

    def listen(self, seconds: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Receive messages for some time [s], or until ``enough`` returns True."""
        end_s, next_s = time.monotonic() + seconds, 0.0
        while (now_s := time.monotonic()) < end_s and not enough():
            if now_s >= next_s:
                next_s = now_s + _DISCOVERY_S
                self._discover()
            self._executor.spin_once(timeout_sec=_STEP_S)

    def _discover(self) -> None:
        """Subscribe to the topics of new robots."""
        for topic, types in self.node.get_topic_names_and_types():
            match = STATUS_TOPIC.fullmatch(topic)
            if match is None or topic in self._known:
                continue
            robot, kind = match.groups()
            if types[0] != STATUS_TYPES[kind]:
                continue
            self._known.add(topic)
            profile = SHOWN.get(kind, qos_profile_sensor_data)
            self.node.create_subscription(_message_class(kind), topic, partial(self._take, robot, kind), profile)

    def _take(self, robot: str, kind: str, message: Any) -> None:
        now_s = time.monotonic()
        if kind == "battery_state":
            self._receiver.on_battery(robot, message.percentage, message.voltage)
            return
        values = {pair.key: pair.value for pair in message.values}
        if kind == "mode":
            self._receiver.on_mode(robot, message.message, values, now_s)
        else:
            self._receiver.on_guard_status(robot, values, now_s)


def _message_class(kind: str) -> type:
    if kind != "battery_state":
        return DiagnosticStatus
    from sensor_msgs.msg import BatteryState  # noqa: PLC0415 -- loads NumPy, for which an emergency stop cannot wait

    return BatteryState
