"""What the station page shows of a fleet: robots, goals, the task and the resident emergency stop."""

import json
import math
import os
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import rclpy
from rclpy.node import Node
from std_msgs.msg import String
from visualization_msgs.msg import MarkerArray

from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.launch.topic_names import GOALS_TOPIC, SCORE_SCHEMA, SCORE_TOPIC, TOOL_NODES
from testudo_deploy.station.markers import GoalView, read_goals
from testudo_deploy.station.stop_channel import STATUS, StopClients
from testudo_deploy.station_page.fleet_picture import picture
from testudo_nodes.common.node_runner import WARN_EVERY_S
from testudo_nodes.common.qos import SHOWN
from testudo_nodes.station.polled_topics import PolledTopics
from testudo_nodes.station.quick_stop import StopOrder
from testudo_nodes.station.robot_messages import TYPES, RobotMessages

_NEWEST, _LATCHED = SHOWN["odom"], SHOWN["mode"]
_RESIDENT_S, _ANSWER_S = 1.0, 0.05  # how often the resident emergency stop is asked, and how long it may take
_GOALS_OLD_S = 5.0  # the task node repeats them once a second


class PageView:
    """Topics of a fleet that are read when a picture is made."""

    def __init__(self, fleet: Fleet, heard: Any, node: Node, stop_order: StopOrder) -> None:
        """Subscribe.

        Args:
            fleet: the robots.
            heard: status of the robots with the time of each battery message, see `page.PageMessages`.
            node: the listener's node; another one beside it is not spun.
            stop_order: domain and reach.
        """
        self._heard, self._stop_order = heard, stop_order
        polled = rclpy.create_node(
            f"{TOOL_NODES}_{os.getpid()}_page", context=node.context, start_parameter_services=False
        )
        self._topics = PolledTopics(polled)
        warn = partial(node.get_logger().warning, throttle_duration_sec=WARN_EVERY_S)
        self._robots = [RobotMessages(robot, warn) for robot in fleet.robots]
        for robot in self._robots:
            for kind, topic in robot.topics.items():
                take = partial(self._take, robot, kind)
                self._topics.add(TYPES[kind], topic, _LATCHED if kind == "mode" else _NEWEST, take, raw=True)
        self._topics.add(MarkerArray, GOALS_TOPIC, _LATCHED, self._on_goals)
        self._topics.add(String, SCORE_TOPIC, _LATCHED, self._on_score)
        self._goals: tuple[GoalView, ...] = ()
        self._score: dict[str, Any] = {}
        self._goals_s = self._score_s = self._asked_s = -math.inf
        self._resident: dict[str, Any] = {}
        self._places: dict[str, tuple[float, ...]] = {}

    def position_world(self, robot: str) -> tuple[float, ...] | None:
        """Return the last known position (D,) of a robot [m]; None without one."""
        return self._places.get(robot)

    def picture(self, answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the picture of this moment, with answers to requests."""
        self._topics.poll()
        now_s = time.monotonic()
        views = [robot.view(now_s) for robot in self._robots]
        self._places.update({view.name: view.position_world for view in views if view.position_world is not None})
        if now_s - self._asked_s > _RESIDENT_S:
            self._asked_s, self._resident = now_s, self._ask_resident()
        more = {
            "stop": self._resident,
            "task": self._task(now_s),
            "answers": answers,
            "battery_age": {name: now_s - heard_s for name, heard_s in self._heard.battery_s.items()},
        }
        goals = self._goals if now_s - self._goals_s <= _GOALS_OLD_S else ()
        return picture(views, self._heard.robots(now_s), goals, now_s=now_s, more=more)

    def _take(self, robot: RobotMessages, kind: str, data: bytes) -> None:
        robot.take(kind, time.monotonic(), data)

    def _on_goals(self, message: MarkerArray) -> None:
        self._goals, self._goals_s = read_goals(message), time.monotonic()

    def _on_score(self, message: String) -> None:
        try:
            values = json.loads(message.data)
        except ValueError:
            return
        if isinstance(values, dict) and values.get("schema") == SCORE_SCHEMA:
            self._score, self._score_s = values, time.monotonic()

    def _task(self, now_s: float) -> dict[str, Any] | None:
        """Return name and state of the task; None without one."""
        if not self._score:
            return None
        waits, time_s = self._score.get("waits_for", []), self._score.get("time_s")
        is_time = isinstance(time_s, int | float) and math.isfinite(time_s)
        return {
            "scenario": str(self._score.get("scenario", "")),
            "state": str(self._score.get("state", "")),
            "time": time_s if is_time else None,
            "waits": [str(sentence) for sentence in waits] if isinstance(waits, list) else [],
            "age": now_s - self._score_s,
        }

    def _ask_resident(self) -> dict[str, Any]:
        """Return the state of the resident emergency stop: whether it answers, is pressed, and by what."""
        order = self._stop_order
        with StopClients(order.domain or 0, STATUS, local=order.local) as residents:
            residents.listen(_ANSWER_S, enough=lambda: residents.complete)
            found = [answer for answer in residents.answers if answer.get("pressed")]
            sources = sorted({source for answer in found for source in answer.get("sources", [])})
            return {"answers": residents.complete, "pressed": bool(found), "sources": sources}
