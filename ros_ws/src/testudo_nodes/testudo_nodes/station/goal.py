"""`testudo goal`: gives robots of a running fleet other goals."""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
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
from testudo_deploy.station.order_words import NO_FORMATION, InFormation, Wants, order_of
from testudo_nodes.station.operator_listener import StatusIgnored, check_wait, fleet_listener

_FAILED = 1
_REPEAT_S = 0.2


@dataclass(frozen=True)
class Reach:
    """Where the fleet is, and how long to wait for it."""

    wait: float = 5.0
    """Longest time to wait for the answer [s]."""
    domain: int | None = None
    """ROS_DOMAIN_ID; by default that of the environment."""
    local: bool = False
    """Reach fleets on this machine only, as `testudo up` starts them."""


_HERE = Reach()


def goal(
    fleet: tyro.conf.Positional[Path],
    robot: tyro.conf.Positional[str],
    places: Annotated[tuple[float, ...], tyro.conf.Positional, tyro.conf.arg(metavar="X Y [Z] ...")] = (),
    *,
    home: bool = False,
    patrol: bool = False,
    formation: Annotated[InFormation, tyro.conf.arg(name="")] = NO_FORMATION,
    pause: bool = False,
    go_on: bool = False,
    reach: Annotated[Reach, tyro.conf.arg(name="")] = _HERE,
) -> int:
    """Give robots of a running fleet other goals: one, several one after another, or a formation; or pause them.

    The fleet file needs `orders: true`. The task node of the station answers with a sentence for each robot: it refuses
    a goal outside the arena, too near to an obstacle, to the goal of another robot, or to a robot that is silent; the
    robots then keep their present goals. The shield acts as always. The exit status is 1 if a goal is refused or nobody
    answers.

    Example:
        testudo goal fleet.yaml r1 1.0 0.5
        testudo goal fleet.yaml r1 1.0 0.5  -1.0 0.5  --patrol    (between two places)
        testudo goal fleet.yaml all 0 0 --formation wedge --heading 90
        testudo goal fleet.yaml all --home
        testudo goal fleet.yaml r1 --pause; testudo goal fleet.yaml r1 --go-on

    Args:
        fleet: the fleet file.
        robot: the robot; several with commas, or `all`, with --formation, --home, --pause or --go-on.
        places: the goals, in the frame of the fleet [m]: two numbers each, three for drones; with --formation its
            centre.
        home: back to the initial position in the fleet file.
        patrol: after the last goal comes the first.
        formation: the fleet.
        pause: stand until --go-on, and give way meanwhile: in the course of a task. To let robots brake, with nobody
            else to start them, use `testudo pause`; where somebody may be hurt `testudo estop`.
        go_on: drive on to the goals.
        reach: the fleet.
    """
    check_wait(reach.wait)
    found, heard = load_fleet(fleet), OrderAnswers()
    wants = Wants(home=home, patrol=patrol, formation=formation, pause=pause, go_on=go_on)
    order = order_of(found, robot, places, wants, uuid.uuid4().hex)
    with fleet_listener("goal", heard, ros_domain_id(reach.domain), local=reach.local) as listener:
        publish = order_publisher(listener.node, found, heard)
        end_s = time.monotonic() + reach.wait
        while order.order not in heard.found and time.monotonic() < end_s:
            publish(order)
            listener.listen(_REPEAT_S)
    answer = heard.found.get(order.order)
    lines = answer.sentences if answer else (unanswered_text(order),)
    accepted = answer is not None and answer.accepted
    for line in lines:
        Console().print(Text(line, "green" if accepted else "red"), soft_wrap=True)
    return 0 if accepted else _FAILED


def unanswered_text(order: GoalOrder) -> str:
    """Return the sentence for an order without an answer."""
    return f"{', '.join(order.goals_world)}: nobody answered; does the fleet run, with `orders: true`?"


class OrderAnswers(StatusIgnored):
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


def order_publisher(node: Any, fleet: Fleet, heard: OrderAnswers) -> Callable[[GoalOrder], None]:
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
