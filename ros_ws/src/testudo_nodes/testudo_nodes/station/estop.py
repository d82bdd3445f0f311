"""`testudo estop`: stops a fleet, and says whose guard confirmed it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.text import Text

from testudo_deploy.commands.report import Report, table
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.launch_plan import ESTOP_TOPIC
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_deploy.station.estop_confirmation import EstopConfirmation, unconfirmed_text
from testudo_deploy.station.fleet_status import silence_sentence
from testudo_nodes.station.ros_availability import check_wait, fleet_listener

_FAILED = 1
_REPEAT_S = 0.1
_LOOK_ON_S = 1.0
"""Without a fleet file: for so long after the first confirmation there may be others who are not found yet."""
_ACKNOWLEDGED_S = 1.0


def estop(
    fleet: tyro.conf.Positional[Path | None] = None,
    release: bool = False,
    wait: float = 5.0,
    domain: int | None = None,
    local: bool = False,
    json: Path | None = None,
) -> int:
    """Stop a fleet at once by its emergency stop, and show which guards confirmed that they brake.

    The stop stays when this program ends. To drive again: `--release`, then `testudo rearm` for each robot. The exit
    status is 0 only if every robot of the file, or without one every robot that was found, confirmed.

    Example:
        testudo estop fleet.yaml
        testudo estop --release

    Args:
        fleet: a fleet file, whose robots must all confirm; left out, all robots that are heard.
        release: take the stop's level back instead; robots stay stopped until they are rearmed.
        wait: longest time to wait for them [s].
        domain: ROS_DOMAIN_ID; left out, that of the environment.
        local: reach fleets of this machine only, as `testudo up` starts them.
        json: also write the values to this file.
    """
    domain_id = ros_domain_id(domain)
    check_wait(wait)
    heard = EstopConfirmation(() if fleet is None else load_fleet(fleet).names)
    with fleet_listener("estop", heard, domain_id, local=local) as listener:
        begin_s = time.monotonic()  # ROS takes its time to start on a busy machine
        button = _Button(listener.node, pressed=not release)
        reached = _press(button, listener, heard, begin_s + wait, is_known=fleet is not None)
    answers = heard.answers
    if all(answer.guard is None for answer in answers):
        sentence = silence_sentence(time.monotonic() - begin_s, domain_id, local=local)
    elif release:
        sentence = "" if reached else "not every guard acknowledged the release: give it again"
    else:
        sentence = unconfirmed_text(answers)
    _report(heard, domain_id).show(json)
    return _end(sentence, release=release)


class _Button:
    """The publisher of the emergency stop's level."""

    def __init__(self, node: Any, *, pressed: bool) -> None:
        from std_msgs.msg import Bool  # noqa: PLC0415 -- ROS is within reach from here on

        from testudo_nodes.common.qos import OFFERED  # noqa: PLC0415

        self.pressed, self._level = pressed, Bool(data=pressed)
        self._publisher = node.create_publisher(Bool, ESTOP_TOPIC, OFFERED["estop"])

    def say(self) -> None:
        """Send the level once more: a guard that is found late does not get what was sent before."""
        self._publisher.publish(self._level)

    def is_heard_by(self, count: int) -> bool:
        """Return whether so many subscribers have acknowledged all that was sent."""
        from rclpy.duration import Duration  # noqa: PLC0415

        if self._publisher.get_subscription_count() < count:
            return False
        self.say()
        return self._publisher.wait_for_all_acked(Duration(seconds=_ACKNOWLEDGED_S))


def _press(button: _Button, listener: Any, heard: EstopConfirmation, end_s: float, *, is_known: bool) -> bool:
    """Send the level until all have it; returns whether they have.

    Args:
        button: whose level.
        listener: hears the robots.
        heard: what it hears.
        end_s: when to give up, on the steady clock.
        is_known: nobody but who is expected already has to be waited for.
    """
    done_s = float("inf")
    while (now_s := time.monotonic()) < min(end_s, done_s):
        button.say()
        listener.listen(_REPEAT_S)
        guards = [answer for answer in heard.answers if answer.guard is not None]
        everybody = len(guards) == len(heard.answers) > 0
        done = heard.all_stopped if button.pressed else everybody and button.is_heard_by(len(guards))
        if not done:
            done_s = float("inf")
        elif is_known:
            return True
        elif done_s == float("inf"):
            done_s = now_s + _LOOK_ON_S
    return done_s < float("inf")


def _report(heard: EstopConfirmation, domain_id: int) -> Report:
    answers = heard.answers
    rows = [(answer.robot, "yes" if answer.stopped else "NO", answer.guard, answer.mode) for answer in answers]
    values = {
        "schema": "testudo/estop/1",
        "domain_id": domain_id,
        "robots": {item.robot: {"stopped": item.stopped, "guard": item.guard, "mode": item.mode} for item in answers},
    }
    title = f"Emergency stop (ROS_DOMAIN_ID={domain_id})"
    return Report(values, (table(title, ("robot", "stopped", "guard", "mode"), rows),) if rows else ())


def _end(sentence: str, *, release: bool) -> int:
    if sentence:
        Console().print(Text(sentence, "red"), soft_wrap=True)
        return _FAILED
    after = "released; a stopped robot stays so until `testudo rearm ROBOT`"
    stopped = "all stopped; to drive again: `testudo estop --release`, then `testudo rearm ROBOT`"
    Console().print(Text(after if release else stopped), soft_wrap=True)
    return 0
