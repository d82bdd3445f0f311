"""Hears what the robots of a ROS domain say of themselves; what it means is in `testudo_deploy.fleet_status`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from functools import partial
from importlib import resources
from typing import Any, Self

import rclpy
from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import qos_profile_sensor_data
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import BatteryState

from testudo_deploy.fleet_status import FleetStatus
from testudo_nodes.qos import SHOWN

_LOOK_S = 0.5
"""How often it looks for robots that are new."""
_STEP_S = 0.05
_TYPES = {"mode": DiagnosticStatus, "guard_status": DiagnosticStatus, "battery_state": BatteryState}
_TOPIC = re.compile(rf"/([a-z][a-z0-9_]*)/({'|'.join(_TYPES)})")


class StatusListener:
    """Hears the robots of a domain; a context manager."""

    def __init__(self, heard: FleetStatus, domain_id: int, *, local: bool) -> None:
        """Prepare.

        Args:
            heard: takes what is heard.
            domain_id: the ROS domain.
            local: hear this machine only, as `testudo up` speaks.
        """
        self._heard, self._domain_id, self._local = heard, domain_id, local
        self._known: set[str] = set()

    def __enter__(self) -> Self:
        if self._local:
            profile = resources.files("testudo_deploy") / "fastdds_localhost.xml"
            os.environ["FASTDDS_DEFAULT_PROFILES_FILE"] = str(profile)
            os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "SYSTEM_DEFAULT"  # that of the profile
        self._context = rclpy.Context()
        # Ctrl-C is the terminal's way to end, not an error of ROS
        rclpy.init(
            context=self._context, domain_id=self._domain_id, signal_handler_options=SignalHandlerOptions.NO
        )
        self._node = rclpy.create_node(
            f"testudo_status_{os.getpid()}", context=self._context, start_parameter_services=False
        )
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown()
        self._node.destroy_node()
        self._context.try_shutdown()

    def listen(self, seconds: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Listen for some time [s], or until it is enough."""
        end_s, look_s = time.monotonic() + seconds, 0.0
        while (now_s := time.monotonic()) < end_s and not enough():
            if now_s >= look_s:
                look_s = now_s + _LOOK_S
                self._look_around()
            self._executor.spin_once(timeout_sec=_STEP_S)

    def _look_around(self) -> None:
        """Subscribe to what robots publish that are new."""
        for topic, types in self._node.get_topic_names_and_types():
            match = _TOPIC.fullmatch(topic)
            if match is None or topic in self._known:
                continue
            robot, kind = match.groups()
            package, _, message = types[0].split("/")
            expected = _TYPES[kind]
            if (package, message) != (expected.__module__.split(".")[0], expected.__name__):
                continue
            self._known.add(topic)
            profile = SHOWN.get(kind, qos_profile_sensor_data)
            self._node.create_subscription(expected, topic, partial(self._take, robot, kind), profile)

    def _take(self, robot: str, kind: str, message: Any) -> None:
        now_s = time.monotonic()
        if kind == "battery_state":
            self._heard.hear_battery(robot, message.percentage, message.voltage)
            return
        values = {pair.key: pair.value for pair in message.values}
        if kind == "mode":
            self._heard.hear_mode(robot, message.message, values, now_s)
        else:
            self._heard.hear_guard(robot, values, now_s)
