"""`testudo teleop`: drives robots from the keyboard or a joystick, through its shield and guard."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.live import Live
from rich.text import Text

from testudo_deploy.fleet.fleet import Fleet, FleetRobot, load_fleet
from testudo_deploy.fleet.hold_switch import topic_or_refuse
from testudo_deploy.fleet.link_topics import absolute
from testudo_deploy.fleet.robot_links import COMMANDED_VELOCITY
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_deploy.station.fleet_status import FleetStatus
from testudo_deploy.station.teleoperation import FIRST_S, Hands, Teleoperation, is_end, joystick_axes, keys_of
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.link_profile import TWIST_STAMPED
from testudo_hardware.links.wire import command_frame, fill_twist
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_nodes.station.operator_listener import fleet_listener

_PERIOD_S = 0.05
_LAST = 5  # zeros at the end, in case one is lost
_REFRESH_HZ = 5
_WHEELED = "w s, or arrows up and down: forward, back    a d, or arrows left and right: turn left, right"
_OTHERS = "w s a d, or arrows: along x and y of the fleet's frame"
_KEYS = """{motion}{height}
hold a key to move: one that does not repeat stops the robot after {first} s, at most
+ -: faster, slower    space, or any other key: stop    tab: the next robot    q or Ctrl-C: brake and end"""


def teleop(
    fleet: tyro.conf.Positional[Path],
    robots: tyro.conf.Positional[tuple[str, ...]],
    joy: str = "",
    axes: tuple[int, ...] = (1, 0, 4),
    speed: float | None = None,
    domain: int | None = None,
    local: bool = False,
) -> int:
    """Drive robots by hand: from the keyboard, or by a joystick, through their shields.

    The fleet file needs a policy of `testudo shield`, and `link: {commands: {topic: ...}}` of each robot. Shield, guard
    and emergency stop act as for any program; start the fleet as any other, with `testudo up`. It starts once every
    robot has commands, so name all that no other program commands: one is driven, the others are told to stand. Nobody
    pressing anything is a command of zero; when this program ends the robots brake.

    Example:
        testudo teleop fleet.yaml r1 r2 --domain 7 --local
        testudo teleop fleet.yaml r1 --joy /joy --axes 1 3

    Args:
        fleet: the fleet file.
        robots: the robots; the first is driven first.
        joy: topic of a joystick (`sensor_msgs/Joy`), such as /joy, in place of the keyboard; it drives the first robot.
        axes: its axes: forward and turn of a wheeled robot, else x, y and z of the fleet's frame.
        speed: speed of a key or of a full axis [m/s]; by default 0.3 of the robot's limit, turning likewise.
        domain: ROS_DOMAIN_ID; by default that of the environment.
        local: reach fleets on this machine only, as `testudo up` starts them.
    """
    if not robots:
        raise TestudoError("teleop: no robot is named; expected one or more, as in `testudo teleop fleet.yaml r1`")
    found = load_fleet(fleet)
    chosen = [found.robot(name) for name in dict.fromkeys(robots)]
    hands = Hands({robot.name: Teleoperation(robot.spec, speed) for robot in chosen})
    _check(found, chosen, joy, axes)
    heard, console = FleetStatus(robots), Console()
    with fleet_listener("teleop", heard, ros_domain_id(domain), local=local) as listener, _keys(joy) as read:
        publishers = {robot.name: _publisher(listener.node, robot) for robot in chosen}

        def publish(commands: Mapping[str, tuple[float, ...]]) -> None:
            for name, command in commands.items():
                publishers[name](command)

        if joy:
            _hear(listener.node, joy, lambda message: _move(hands, message, axes))
        else:
            console.print(Text(_help(chosen)))
        try:
            _drive(console, listener, hands, heard, read, publish)
        except KeyboardInterrupt:
            pass
        finally:
            for _ in range(_LAST):
                publish({robot.name: (0.0,) * robot.spec.dimension for robot in chosen})
                time.sleep(_PERIOD_S)
    console.print(Text(f"{', '.join(publishers)}: commands ended, brakes"))
    return 0


def _move(hands: Hands, message: Any, axes: tuple[int, ...]) -> None:
    hands.hand.move(joystick_axes(message.axes, axes), time.monotonic())


def _check(fleet: Fleet, robots: Sequence[FleetRobot], joy: str, axes: tuple[int, ...]) -> None:
    """Refuse a robot that follows no commands, a wrong joystick, and a keyboard that is none.

    Raises:
        TestudoError: one of these.
    """
    idle = next((robot.name for robot in robots if robot.link.commands is None), "")
    if idle:
        raise TestudoError(
            f"{fleet.file}: robots.{idle}.link.commands: missing, expected the topic of commands, such as "
            "{topic: cmd_vel_teleop}, and a policy of `testudo shield`"
        )
    if joy:
        topic_or_refuse(joy, "--joy")
        size = robots[0].spec.dimension
        if len(axes) < size or min(axes) < 0:
            raise TestudoError(f"--axes: found {list(axes)}, expected {size} numbers from 0 on")
    elif not sys.stdin.isatty():
        raise TestudoError("teleop: standard input is no terminal, expected one for the keys, or --joy")


def _help(robots: Sequence[FleetRobot]) -> str:
    motion = _WHEELED if robots[0].spec.kind == DIFFERENTIAL_DRIVE else _OTHERS
    height = "    r f: up, down" if robots[0].spec.dimension == 3 else ""
    return _KEYS.format(motion=motion, height=height, first=FIRST_S)


def _drive(
    console: Console,
    listener: Any,
    hands: Hands,
    heard: FleetStatus,
    read: Callable[[], str],
    publish: Callable[[Mapping[str, tuple[float, ...]]], None],
) -> None:
    """Publish commands until a key ends it."""
    with Live(console=console, refresh_per_second=_REFRESH_HZ, transient=True) as live:
        while True:
            keys = keys_of(read())
            if any(map(is_end, keys)):
                return
            for key in keys:
                hands.press(key, time.monotonic())
            commands = hands.commands(time.monotonic())
            publish(commands)
            live.update(_line(hands, heard, commands[hands.driven]))
            listener.listen(_PERIOD_S)


def _line(hands: Hands, heard: FleetStatus, command: tuple[float, ...]) -> Text:
    robot = next((one for one in heard.robots(time.monotonic()) if one.name == hands.driven), None)
    state = "not heard yet; does the fleet run in this domain?"
    if robot is not None:
        guard = f", guard {robot.guard or 'passes'}" if robot.guard is not None else ""
        state = f"{robot.mode or 'silent'}{guard}{': ' + robot.sentence if robot.code else ''}"
    asked = ", ".join(f"{value:+.2f}" for value in command)
    return Text(f"{hands.driven}   speed {hands.hand.speed_m_s:.2f} m/s   command ({asked})   {state}")


@contextmanager
def _keys(joy: str) -> Iterator[Callable[[], str]]:
    """Return a function that returns the keys pressed since its last call; the terminal is restored at the end."""
    if joy:
        yield lambda: ""
        return
    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)

    def read() -> str:
        ready, _, _ = select.select([file], [], [], 0.0)
        if not ready:
            return ""
        text = os.read(file, 256).decode(errors="replace")
        return text or "q"  # the terminal is gone

    try:
        tty.setcbreak(file)
        yield read
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)


def _publisher(node: Any, robot: FleetRobot) -> Callable[[tuple[float, ...]], None]:
    """Return a function that publishes a command on the topic that the robot's shield follows."""
    from geometry_msgs.msg import Twist, TwistStamped  # noqa: PLC0415 -- the listener has found ROS

    part = robot.link.profile.signals[COMMANDED_VELOCITY]
    stamped = part.type.value == TWIST_STAMPED
    topic = absolute(part.topic.value, robot.name)
    publisher = node.create_publisher(TwistStamped if stamped else Twist, topic, 1)

    def publish(command: tuple[float, ...]) -> None:
        if not stamped:
            publisher.publish(fill_twist(Twist(), robot.spec, command))
            return
        message = TwistStamped()
        fill_twist(message.twist, robot.spec, command)
        message.header.stamp = node.get_clock().now().to_msg()
        message.header.frame_id = command_frame(robot.name, robot.spec)
        publisher.publish(message)

    return publish


def _hear(node: Any, topic: str, take: Callable[[Any], None]) -> None:
    from sensor_msgs.msg import Joy  # noqa: PLC0415 -- the listener has found ROS

    from testudo_nodes.common.qos import REQUESTED  # noqa: PLC0415

    node.create_subscription(Joy, topic, take, REQUESTED["joy"])
