"""`testudo estop`: stop a fleet and show the confirmations.

The resident process of the station on this computer is pressed by its local socket, which starts no ROS; unless it has
all confirmations within `_RESIDENT_S`, this program also finds the guards itself. What it needs for tables is imported
after the stop: beside a driving fleet every import delays it.
"""

import time
from pathlib import Path
from typing import Any

import tyro

from testudo_deploy.fleet.robot_names import robot_names
from testudo_deploy.launch.child_processes import ros_domain_id
from testudo_deploy.launch.topic_names import ESTOP_TOPIC
from testudo_deploy.station.fleet_status import EstopConfirmation, silence_sentence, unconfirmed_text
from testudo_deploy.station.stop_channel import PRESS, RELEASE, StopClients
from testudo_hardware.errors import TestudoError
from testudo_nodes.common.process_priority import PRIORITIES, raise_priority
from testudo_nodes.station.operator_listener import check_wait, fleet_listener

_FAILED = 1
_REPEAT_S = 0.1
_DISCOVERY_S = 1.0  # without a fleet file: time after the last confirmation for the discovery of further robots
_ACKNOWLEDGE_S = 1.0
_RESIDENT_S = 0.3
"""A resident process that has not all confirmations by then may hang: the cold start begins."""


def estop(
    fleet: tyro.conf.Positional[Path | None] = None,
    release: bool = False,
    wait: float = 5.0,
    domain: int | None = None,
    local: bool = False,
    json: Path | None = None,
) -> int:
    """Stop a fleet by its emergency stop, and show which guards confirmed that they brake.

    It is pressed at once by the resident process `emergency_stop` where that runs on this computer; elsewhere this
    program finds the robots first. The stop remains when it ends. To drive again: `--release`, then `testudo rearm`
    for each robot. The exit status is 0 only if every robot of the file, or without one every robot that was found,
    confirmed.

    Example:
        testudo estop fleet.yaml
        testudo estop --release

    Args:
        fleet: a fleet file, whose robots must all confirm; by default all robots that are heard.
        release: reset the stop's level instead; robots stay stopped until they are rearmed.
        wait: longest time to wait for confirmations [s].
        domain: ROS_DOMAIN_ID; by default that of the environment.
        local: reach fleets on this machine only, as `testudo up` starts them.
        json: also write the values to this file.
    """
    raise_priority(PRIORITIES["operator"])
    domain_id = ros_domain_id(domain)
    check_wait(wait)
    with StopClients(domain_id, RELEASE if release else PRESS, local=local) as residents:
        confirmation = EstopConfirmation(() if fleet is None else robot_names(fleet))
        residents.listen(_RESIDENT_S, enough=lambda: _resident_done(residents, confirmation, release=release))
        _refuse_held(residents, release=release)
        if not release and _resident_done(residents, confirmation, release=release):
            _show(confirmation, domain_id, json)
            return _end("", release=release)
        with fleet_listener("estop", confirmation, domain_id, local=local) as listener:
            begin_s = time.monotonic()  # after the start of ROS, which takes long on a busy machine
            button = _Button(listener.node, pressed=not release)
            reached = _press(button, listener, residents, confirmation, begin_s + wait, is_known=fleet is not None)
    answers = confirmation.answers
    if all(answer.guard is None for answer in answers):
        sentence = silence_sentence(time.monotonic() - begin_s, domain_id, local=local)
    elif release:
        sentence = "" if reached else "not every guard acknowledged the release: give it again"
    else:
        sentence = unconfirmed_text(answers)
    _show(confirmation, domain_id, json)
    return _end(sentence, release=release)


def _resident_done(residents: StopClients, confirmation: EstopConfirmation, *, release: bool) -> bool:
    """Return whether resident processes have answered, and every robot has confirmed the stop."""
    for answer in residents.answers:
        confirmation.on_resident(answer)
    return residents.complete and (release or confirmation.all_stopped)


def _refuse_held(residents: StopClients, *, release: bool) -> None:
    """Refuse a release while a button is held.

    Raises:
        TestudoError: it names the button.
    """
    refused = [answer["refused"] for answer in residents.answers if answer.get("refused")]
    if release and refused:
        raise TestudoError(f"estop: {refused[0]}")


class _Button:
    """The publisher of the emergency stop's level."""

    def __init__(self, node: Any, *, pressed: bool) -> None:
        from std_msgs.msg import Bool  # noqa: PLC0415 -- the listener has found ROS

        from testudo_nodes.common.qos import OFFERED  # noqa: PLC0415

        self.pressed, self._level = pressed, Bool(data=pressed)
        self._publisher = node.create_publisher(Bool, ESTOP_TOPIC, OFFERED["estop"])

    def publish(self) -> None:
        """Send the level again: a guard that is discovered late does not get earlier messages."""
        self._publisher.publish(self._level)

    def is_acknowledged_by(self, count: int) -> bool:
        """Return whether at least this number of subscribers has acknowledged all messages."""
        from rclpy.duration import Duration  # noqa: PLC0415

        if self._publisher.get_subscription_count() < count:
            return False
        self.publish()
        return self._publisher.wait_for_all_acked(Duration(seconds=_ACKNOWLEDGE_S))


def _press(
    button: _Button,
    listener: Any,
    residents: StopClients,
    confirmation: EstopConfirmation,
    end_s: float,
    *,
    is_known: bool,
) -> bool:
    """Send the level until all robots have it; return whether they have.

    Args:
        button: the publisher of the level.
        listener: receives the messages of the robots.
        residents: resident processes, which also report confirmations.
        confirmation: collects them.
        end_s: time-out on the steady clock.
        is_known: all robots are known from a fleet file; else further ones may be discovered.
    """
    done_s = float("inf")
    while (now_s := time.monotonic()) < min(end_s, done_s):
        button.publish()
        listener.listen(_REPEAT_S)
        residents.listen(0.0)
        if button.pressed and _resident_done(residents, confirmation, release=False):
            return True
        guards = [answer for answer in confirmation.answers if answer.guard is not None]
        complete = len(guards) == len(confirmation.answers) > 0
        done = confirmation.all_stopped if button.pressed else complete and button.is_acknowledged_by(len(guards))
        if not done:
            done_s = float("inf")
        elif is_known:
            return True
        elif done_s == float("inf"):
            done_s = now_s + _DISCOVERY_S
    return done_s < float("inf")


def _show(confirmation: EstopConfirmation, domain_id: int, json: Path | None) -> None:
    from testudo_deploy.commands.report import Report, table  # noqa: PLC0415 -- after the stop

    answers = confirmation.answers
    rows = [
        (
            answer.robot,
            "yes" if answer.stopped else "NO",
            answer.guard,
            answer.mode,
            "" if answer.after_s is None else f"{answer.after_s:.2f}",
        )
        for answer in answers
    ]
    values = {
        "schema": "testudo/estop/2",
        "domain_id": domain_id,
        "robots": {
            item.robot: {"stopped": item.stopped, "guard": item.guard, "mode": item.mode, "after_s": item.after_s}
            for item in answers
        },
    }
    title = f"Emergency stop (ROS_DOMAIN_ID={domain_id})"
    shown = (table(title, ("robot", "stopped", "guard", "mode", "after [s]"), rows),) if rows else ()
    Report(values, shown).show(json)


def _end(sentence: str, *, release: bool) -> int:
    from rich.console import Console  # noqa: PLC0415 -- after the stop
    from rich.text import Text  # noqa: PLC0415

    if sentence:
        Console().print(Text(sentence, "red"), soft_wrap=True)
        return _FAILED
    after = "released; a stopped robot stays so until `testudo rearm ROBOT`"
    stopped = "all stopped; to drive again: `testudo estop --release`, then `testudo rearm ROBOT`"
    Console().print(Text(after if release else stopped), soft_wrap=True)
    return 0
