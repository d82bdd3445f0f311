"""`testudo goal`: gives robots of a running fleet other goals."""

import time
import uuid
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.text import Text

from testudo_deploy.contract.goal_order import GoalAnswer, GoalOrder
from testudo_deploy.contract.messages import EnvelopeError
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_deploy.launch.topic_names import ANSWERS_TOPIC, ORDERS_TOPIC
from testudo_hardware.errors import TestudoError
from testudo_nodes.station.operator_listener import StatusIgnored, check_wait, fleet_listener

_FAILED = 1
_REPEAT_S = 0.2
ALL = "all"


def goal(
    fleet: tyro.conf.Positional[Path],
    robot: tyro.conf.Positional[str],
    places: Annotated[tuple[float, ...], tyro.conf.Positional, tyro.conf.arg(metavar="X Y [Z] ...")] = (),
    home: bool = False,
    patrol: bool = False,
    wait: float = 5.0,
    domain: int | None = None,
    local: bool = False,
) -> int:
    """Give a robot of a running fleet another goal, or several, one after another.

    The fleet file needs `orders: true`. The task node of the station answers with one sentence for each robot: it
    refuses a goal outside the arena, too near to an obstacle, or too near to the goal of another robot, and the robot
    keeps its present one. The shield acts as always. The exit status is 1 if a goal is refused or nobody answers.

    Example:
        testudo goal fleet.yaml r1 1.0 0.5
        testudo goal fleet.yaml r1 1.0 0.5  -1.0 0.5  --patrol    (between two places)
        testudo goal fleet.yaml all --home

    Args:
        fleet: the fleet file.
        robot: the robot, or `all` with --home.
        places: the goals, in the frame of the fleet [m]: two numbers each, three for drones.
        home: back to the initial position in the fleet file.
        patrol: after the last goal comes the first.
        wait: longest time to wait for the answer [s].
        domain: ROS_DOMAIN_ID; by default that of the environment.
        local: reach fleets on this machine only, as `testudo up` starts them.
    """
    check_wait(wait)
    found, heard = load_fleet(fleet), _Answers()
    orders = _orders(found, robot, places, home=home, patrol=patrol)
    with fleet_listener("goal", heard, ros_domain_id(domain), local=local) as listener:
        publish = _connect(listener.node, found, heard)
        end_s = time.monotonic() + wait
        while (missing := [one for one in orders if one.order not in heard.found]) and time.monotonic() < end_s:
            for order in missing:
                publish(order)
            listener.listen(_REPEAT_S)
    for order in orders:
        answer = heard.found.get(order.order)
        text = (
            answer.sentence if answer else f"{order.robot}: nobody answered; does the fleet run, with `orders: true`?"
        )
        Console().print(Text(text, "green" if answer is not None and answer.accepted else "red"), soft_wrap=True)
    answers = [heard.found.get(order.order) for order in orders]
    return 0 if all(answer is not None and answer.accepted for answer in answers) else _FAILED


def _orders(fleet: Fleet, robot: str, places: tuple[float, ...], *, home: bool, patrol: bool) -> tuple[GoalOrder, ...]:
    """Return the orders of a command line.

    Raises:
        TestudoError: a fleet without orders, no such robot, or places that do not fit.
    """
    if not fleet.orders:
        raise TestudoError(f"{fleet.file}: orders: found false, expected true, so that the fleet takes goals")
    if home == bool(places):
        raise TestudoError("goal: found both or none of a place and --home, expected one of them")
    if robot == ALL and not home:
        raise TestudoError(f"goal: found {ALL} with a place, expected the name of one robot: {', '.join(fleet.names)}")
    names = fleet.names if robot == ALL else (fleet.robot(robot).name,)
    size = fleet.robot(names[0]).spec.dimension
    if len(places) % size:
        raise TestudoError(f"goal: found {len(places)} numbers, expected {size} for each place of {robot}")
    goals = tuple(places[k : k + size] for k in range(0, len(places), size))
    if patrol and len(goals) < 2:
        raise TestudoError(f"--patrol: found {len(goals)} place, expected two or more")
    orders = tuple(GoalOrder(uuid.uuid4().hex, name, goals, repeat=patrol) for name in names)
    try:
        for order in orders:
            order.encode()
    except EnvelopeError as error:
        raise TestudoError(f"goal: {error}") from error
    return orders


class _Answers(StatusIgnored):
    """Collects answers."""

    def __init__(self) -> None:
        self.found: dict[str, GoalAnswer] = {}

    def on_answer(self, message: Any) -> None:
        """Take a message of the topic of answers."""
        try:
            answer = GoalAnswer.decode(message.data.encode())
        except EnvelopeError:
            return
        self.found[answer.order] = answer


def _connect(node: Any, fleet: Fleet, heard: _Answers) -> Any:
    """Subscribe to the answers, and return a function that publishes an order; signed if the fleet has a key."""
    from std_msgs.msg import String  # noqa: PLC0415 -- the listener has found ROS

    from testudo_nodes.common.authentication import authentication_of  # noqa: PLC0415
    from testudo_nodes.common.qos import OFFERED, REQUESTED  # noqa: PLC0415

    publisher: Any = node.create_publisher(String, ORDERS_TOPIC, OFFERED["order"])
    take: Any = heard.on_answer
    signed = authentication_of(node, fleet, "hw", time.monotonic)
    if signed is not None:
        publisher, take = signed.signing(publisher), signed.verifying(String, ANSWERS_TOPIC, take, keeps=True)
    node.create_subscription(String, ANSWERS_TOPIC, take, REQUESTED["order"], raw=signed is not None)
    return lambda order: publisher.publish(String(data=order.encode().decode()))
