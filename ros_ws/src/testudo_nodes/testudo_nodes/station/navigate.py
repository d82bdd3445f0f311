"""`testudo navigate`: nav2's action `NavigateToPose` for each robot of a running fleet that takes orders."""

import importlib
import time
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.text import Text

from testudo_deploy.contract.goal_order import GoalAnswer, GoalOrder
from testudo_deploy.contract.messages import EnvelopeError
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_deploy.station.navigation import RobotNavigation
from testudo_hardware.errors import TestudoError
from testudo_nodes.station.goal import OrderAnswers
from testudo_nodes.station.operator_listener import fleet_listener

_STEP_S = 0.2


def navigate(fleet: tyro.conf.Positional[Path], domain: int | None = None, local: bool = False) -> int:
    """Serve nav2's action NavigateToPose for each robot of a running fleet, as `/ROBOT/navigate_to_pose`.

    A goal becomes an order as that of `testudo goal`: the task node accepts it, or it is aborted with the sentence of
    the refusal. The feedback holds the distance that remains. A cancelled goal lets the robot stand, as `testudo goal
    --pause` does. It needs the package nav2_msgs of the robot's own ROS 2, and ends with Ctrl-C.

    Example:
        testudo navigate fleet.yaml

    Args:
        fleet: the fleet file, with `orders: true`.
        domain: ROS_DOMAIN_ID; by default that of the environment.
        local: reach fleets on this machine only, as `testudo up` starts them.
    """
    found = load_fleet(fleet)
    if not found.orders:
        raise TestudoError(f"{fleet}: orders: found false, expected true for goals while the fleet runs")
    if any(robot.spec.dimension != 2 for robot in found.robots):
        raise TestudoError(f"{fleet}: robots: found some that fly, expected robots on the ground for NavigateToPose")
    action = navigate_action()
    heard = _Messages({robot.name: RobotNavigation(robot.name, found.frame) for robot in found.robots})
    with fleet_listener("navigate", heard, ros_domain_id(domain), local=local) as listener:
        from testudo_nodes.station.navigate_servers import connect  # noqa: PLC0415 -- the listener has found ROS

        servers = connect(listener.node, found, heard, action)
        Console().print(Text(f"serving {', '.join(f'/{name}/navigate_to_pose' for name in heard.robots)}"))
        while True:
            listener.listen(_STEP_S)
            for server in servers:
                server.step(time.monotonic())


def navigate_action() -> Any:
    """Return the type of nav2's action.

    Raises:
        TestudoError: nav2_msgs is not installed for this Python.
    """
    try:
        return importlib.import_module("nav2_msgs.action").NavigateToPose
    except ImportError as error:
        raise TestudoError(
            f"navigate: nav2_msgs is not within reach ({error}): apt install ros-$ROS_DISTRO-nav2-msgs, "
            "and source the setup file of that ROS 2 before"
        ) from error


class _Messages(OrderAnswers):
    """Passes on what is heard to the robots that it is about."""

    def __init__(self, robots: dict[str, RobotNavigation]) -> None:
        super().__init__()
        self.robots = robots

    def on_mode(self, robot: str, sentence: str, values: dict[str, str], received_s: float) -> None:
        """Take the mode of a robot."""
        if robot in self.robots:
            self.robots[robot].hear_holds(values.get("holds", ""), received_s)

    def on_answer(self, message: Any) -> None:
        """Take a message of the topic of answers."""
        try:
            answer = GoalAnswer.decode(message.data.encode())
        except EnvelopeError:
            return
        for robot in self.robots.values():
            robot.hear_answer(answer, time.monotonic())

    def on_order(self, message: Any) -> None:
        """Take a message of the topic of orders."""
        try:
            order = GoalOrder.decode(message.data.encode())
        except EnvelopeError:
            return
        for robot in self.robots.values():
            robot.hear_order(order)
