"""`testudo lost`: an operator declares a robot lost, so that the others need no answer of it any more."""

import time
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.text import Text

from testudo_deploy.commands.report import table
from testudo_deploy.contract.lost_robot import LostRobot
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_deploy.launch.topic_names import LOST_TOPIC
from testudo_hardware.errors import TestudoError
from testudo_nodes.station.operator_listener import StatusIgnored, check_wait, fleet_listener

_FAILED = 1
_REPEAT_S = 0.1


def lost(
    fleet: tyro.conf.Positional[Path],
    robot: tyro.conf.Positional[str],
    at: Annotated[tuple[float, ...], tyro.conf.arg(metavar="X Y [Z]")] = (),
    where_last_seen: bool = False,
    wait: float = 5.0,
    domain: int | None = None,
    local: bool = False,
) -> int:
    """Declare a robot lost: it stays an obstacle, but the others need no answer of it any more.

    The majority of a fleet goes on beside a silent robot; fewer wait, since the others may still move. With this you
    say that somebody looked: the robot is off, and rests at the place given, or within the space that it announced
    last. It is a peer again with its next message.

    Example:
        testudo lost fleet.yaml r3 --at 1.2 -0.4
        testudo lost fleet.yaml r3 --where-last-seen

    Args:
        fleet: the fleet file.
        robot: the robot that is lost.
        at: where it rests, in the frame of the fleet [m].
        where_last_seen: it rests in the space that it announced last.
        wait: longest time to wait for the confirmations of the others [s].
        domain: ROS_DOMAIN_ID; by default that of the environment.
        local: reach fleets on this machine only, as `testudo up` starts them.
    """
    check_wait(wait)
    found = load_fleet(fleet)
    size = found.robot(robot).spec.dimension
    if where_last_seen == bool(at):
        raise TestudoError("lost: found both or none of --at and --where-last-seen, expected one of them")
    if at and len(at) != size:
        raise TestudoError(f"--at: found {len(at)} numbers, expected {size} for {robot}")
    message = LostRobot(robot, tuple(at) or None)
    message.encode()  # refuses numbers that are not finite before anything is sent
    others, heard = found.peers(robot), _Confirmations(robot)
    with fleet_listener("lost", heard, ros_domain_id(domain), local=local) as listener:
        publisher, end_s = _publisher(listener.node, found), time.monotonic() + wait
        while not heard.names >= set(others) and time.monotonic() < end_s:
            publisher(message)
            listener.listen(_REPEAT_S)
    rows = [(name, "yes" if name in heard.names else "NO") for name in others]
    Console().print(table(f"{robot} is lost", ("robot", "confirmed"), rows))
    missing = [name for name in others if name not in heard.names]
    if missing:
        Console().print(Text(f"not confirmed by {', '.join(missing)}: these robots wait for {robot}", "red"))
        return _FAILED
    return 0


class _Confirmations(StatusIgnored):
    """Collects the robots that report another one as lost; takes the messages of a `StatusListener`."""

    def __init__(self, robot: str) -> None:
        self._robot = robot
        self.names: set[str] = set()

    def on_mode(self, robot: str, sentence: str, values: dict[str, str], received_s: float) -> None:
        """Take a status of the topic `mode`."""
        if self._robot in values.get("lost", "").split():
            self.names.add(robot)


def _publisher(node: Any, fleet: Fleet) -> Any:
    """Return a function that publishes a declaration, signed if the fleet has a key."""
    from std_msgs.msg import String  # noqa: PLC0415 -- the listener has found ROS

    from testudo_nodes.common.authentication import authentication_of  # noqa: PLC0415
    from testudo_nodes.common.qos import OFFERED  # noqa: PLC0415

    publisher: Any = node.create_publisher(String, LOST_TOPIC, OFFERED["lost"])
    signed = authentication_of(node, fleet, "hw", time.monotonic)
    publisher = publisher if signed is None else signed.signing(publisher)
    return lambda message: publisher.publish(String(data=message.encode().decode()))
