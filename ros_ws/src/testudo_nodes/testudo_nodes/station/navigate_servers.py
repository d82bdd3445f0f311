"""The servers of nav2's action `NavigateToPose`; the logic is in `testudo_deploy.station.navigation`."""

import uuid
from collections.abc import Callable
from typing import Any

from rclpy.action.server import ActionServer, CancelResponse, GoalResponse
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.task import Future
from std_msgs.msg import String, UInt8MultiArray

from testudo_deploy.contract.goal_order import GoalOrder
from testudo_deploy.contract.messages import EnvelopeError, PeerMessage
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.launch.topic_names import ORDERS_TOPIC, PEER_TOPIC
from testudo_deploy.station.navigation import ARRIVED, DRIVES, RobotNavigation
from testudo_nodes.common.messages import envelope_bytes
from testudo_nodes.common.qos import REQUESTED, SHOWN
from testudo_nodes.station.goal import order_publisher

_FAILED = 9000  # `UNKNOWN` of nav2's action, where its result has codes


class NavigateServer:
    """The action of one robot; a new goal replaces the one before."""

    def __init__(
        self,
        node: Node,
        navigation: RobotNavigation,
        name: str,
        action: Any,
        publish: Callable[[GoalOrder], None],
        make_server: Callable[..., Any] = ActionServer,
    ) -> None:
        """Serve.

        Args:
            node: of the servers.
            navigation: of the robot.
            name: of the robot.
            action: the type of the action.
            publish: sends an order.
            make_server: makes the server.
        """
        self._node, self._navigation, self._action, self._publish = node, navigation, action, publish
        self._handle: Any = None
        self._result: Future = Future()
        self._paused = False
        self._server = make_server(
            node,
            action,
            f"/{name}/navigate_to_pose",
            execute_callback=self._execute,
            goal_callback=self._on_goal,
            handle_accepted_callback=self._on_accepted,
            cancel_callback=lambda _: CancelResponse.ACCEPT,
        )
        self._begun_s: float | None = None

    def step(self, now_s: float) -> None:
        """Send what is due, give feedback, and end the goal once it is decided; ``now_s`` is on a steady clock."""
        handle = self._handle
        if handle is None:
            return
        if self._begun_s is None:
            self._begun_s = now_s
            goal = handle.request.pose.pose.position
            self._navigation.begin((goal.x, goal.y), uuid.uuid4().hex, now_s)
        if handle.is_cancel_requested:
            self._publish(self._navigation.cancel(uuid.uuid4().hex))
            self._paused = True
            self._end(handle.canceled, "cancelled: the robot stands where it is")
            return
        order = self._navigation.to_send(now_s)
        if order is not None:
            self._publish(order)
        elif self._paused:
            self._paused = False
            self._publish(self._navigation.go_on(uuid.uuid4().hex))
        progress = self._navigation.progress(now_s)
        if progress.state != DRIVES:
            self._end(handle.succeed if progress.state == ARRIVED else handle.abort, progress.sentence)
            return
        feedback = self._action.Feedback()
        feedback.navigation_time = Duration(seconds=progress.time_s).to_msg()
        if progress.distance_m is not None:
            feedback.distance_remaining = progress.distance_m
        handle.publish_feedback(feedback)

    def _on_goal(self, request: Any) -> GoalResponse:
        place = request.pose.pose.position
        fault = self._navigation.fault(request.pose.header.frame_id, (place.x, place.y))
        if not fault and request.behavior_tree:
            fault = f"behavior_tree: found {request.behavior_tree!r}, expected none: no behaviour tree runs here"
        if fault:
            self._node.get_logger().warning(fault)
        return GoalResponse.REJECT if fault else GoalResponse.ACCEPT

    def _on_accepted(self, handle: Any) -> None:
        if self._handle is not None:
            self._end(self._handle.abort, "another goal of this action replaced this one")
        self._handle, self._result, self._begun_s = handle, Future(), None
        handle.execute()

    async def _execute(self, _: Any) -> Any:
        return await self._result

    def _end(self, finish: Callable[[], None], sentence: str) -> None:
        """End the present goal with a sentence, where the result has room for it."""
        result = self._action.Result()
        if hasattr(result, "error_msg"):
            result.error_msg = sentence
        if hasattr(result, "error_code") and finish == self._handle.abort:
            result.error_code = _FAILED
        self._node.get_logger().info(sentence)
        finish()
        self._handle, waiting = None, self._result
        waiting.set_result(result)


def connect(node: Node, fleet: Fleet, heard: Any, action: Any) -> list[NavigateServer]:
    """Return the servers of a fleet, connected to its orders, answers and places.

    ``heard`` has the `RobotNavigation` of each robot in ``robots``, and takes answers and orders.
    """
    publish = order_publisher(node, fleet, heard)
    node.create_subscription(String, ORDERS_TOPIC, heard.on_order, REQUESTED["order"])
    for name, navigation in heard.robots.items():

        def see(message: UInt8MultiArray, navigation: RobotNavigation = navigation) -> None:
            try:
                navigation.see(PeerMessage.decode(envelope_bytes(message)).position_world)
            except EnvelopeError:
                return

        node.create_subscription(UInt8MultiArray, f"/{name}/{PEER_TOPIC}", see, SHOWN[PEER_TOPIC])
    return [NavigateServer(node, navigation, name, action, publish) for name, navigation in heard.robots.items()]
