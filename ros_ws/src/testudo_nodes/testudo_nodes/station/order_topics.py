"""Receives goals for the robots of a running fleet, from `testudo goal` and from RViz, and answers."""

import math

from geometry_msgs.msg import PointStamped, PoseStamped
from rclpy.node import Node
from std_msgs.msg import String

from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.goal_order import GoalAnswer, GoalOrder
from testudo_deploy.contract.messages import EnvelopeError
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.launch.topic_names import ANSWERS_TOPIC, CLICK_TOPIC, ORDERS_TOPIC, POSE_GOAL_TOPIC
from testudo_nodes.common.clock import NodeClock
from testudo_nodes.common.qos import OFFERED, REQUESTED
from testudo_sim.online_task.goal_orders import GoalOrders
from testudo_sim.online_task.online_task import OnlineTask


class OrderTopics:
    """Topics of the orders; without a fleet key also those of RViz, which cannot sign."""

    def __init__(self, node: Node, clock: NodeClock, live: OnlineTask, contract: Contract, fleet: Fleet) -> None:
        """Connect.

        Raises:
            TestudoError: the scenario has not one goal for each robot.
        """
        self._starts = {robot.name: robot.initial_position_world for robot in fleet.robots}
        self._node, self._frame = node, fleet.frame
        self.exchange(live, contract)
        self._answers = clock.publisher(String, ANSWERS_TOPIC, OFFERED["order"])
        clock.subscribe_outside(String, ORDERS_TOPIC, self._on_order, REQUESTED["order"])
        self._clicked, self._clicks = "", 0
        if fleet.key_file is None:
            clock.subscribe_outside(PoseStamped, POSE_GOAL_TOPIC, self._on_pose, REQUESTED["order"])
            clock.subscribe_outside(PointStamped, CLICK_TOPIC, self._on_click, REQUESTED["order"])

    def exchange(self, live: OnlineTask, contract: Contract) -> None:
        """Take orders for the robots of a task from now on, by the arena of a contract.

        Raises:
            TestudoError: the scenario has not one goal for each robot.
        """
        self._live, self.orders = live, GoalOrders(live, contract, self._starts)

    def _on_order(self, message: String) -> None:
        try:
            order = GoalOrder.decode(message.data.encode())
        except EnvelopeError as error:
            self._node.get_logger().warning(f"{ORDERS_TOPIC}: {error}")
            return
        self._answer(self.orders.take(order))

    def _answer(self, answer: GoalAnswer) -> None:
        said = "; ".join(answer.sentences)
        if answer.accepted:  # rclpy refuses two severities of one line
            self._node.get_logger().info(said)
        else:
            self._node.get_logger().warning(said)
        self._answers.publish(String(data=answer.encode().decode()))

    def _on_click(self, message: PointStamped) -> None:
        """Choose the robot nearest to a click of RViz's "Publish Point"."""
        place = (message.point.x, message.point.y)
        self._clicked = self._nearest(place) if self._is_ours(message.header.frame_id, CLICK_TOPIC) else self._clicked

    def _on_pose(self, message: PoseStamped) -> None:
        """Give the chosen robot, or the nearest one, the goal of RViz's "2D Goal Pose"."""
        if not self._is_ours(message.header.frame_id, POSE_GOAL_TOPIC):
            return
        place = message.pose.position
        robot = self._clicked or self._nearest((place.x, place.y))
        if not robot:
            self._node.get_logger().warning(f"{POSE_GOAL_TOPIC}: no robot is measured")
            return
        height = self._live.goals_world[robot][2:]  # a flat goal keeps the height of the last one
        self._clicks += 1
        order = GoalOrder(f"rviz {self._clicks}", {robot: ((place.x, place.y, *height),)})
        self._answer(self.orders.take(order))

    def _nearest(self, place: tuple[float, float]) -> str:
        poses = {name: pose for name in self._live.robots if (pose := self._live.newest(name)) is not None}
        return min(poses, key=lambda name: math.dist(poses[name].position_world[:2], place), default="")

    def _is_ours(self, frame: str, topic: str) -> bool:
        if frame == self._frame:
            return True
        self._node.get_logger().warning(f"{topic}: found frame {frame!r}, expected {self._frame!r}: set RViz to it")
        return False
