"""The work of `testudo estop`, and its quick start: `deploy/bin/testudo` runs this module, not the whole program.

Beside a driving fleet every import delays the stop. So the words of the command line are read here, without the library
of the other verbs; the resident process of the station is pressed by its local socket, which starts no ROS; unless it
has all confirmations within `_RESIDENT_S`, this program presses by itself and only then reads the fleet file. What it
needs for tables is imported after the stop.
"""

import gc
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_deploy.launch.topic_names import ESTOP_TOPIC
from testudo_deploy.station.fleet_status import EstopConfirmation, EstopReply, silence_sentence, unconfirmed_text
from testudo_deploy.station.stop_channel import PRESS, RELEASE, StopClients
from testudo_hardware.errors import TestudoError
from testudo_nodes.common.process_priority import PRIORITIES, raise_priority
from testudo_nodes.station.operator_listener import check_wait, fleet_listener
from testudo_nodes.station.stop_port import StopPort

_FAILED, _REFUSED, _INTERRUPTED = 1, 2, 130
_REPEAT_S = 0.1
_DISCOVERY_S = 1.0  # without a fleet file: time after the last confirmation for the discovery of further robots
_ACKNOWLEDGE_S = 1.0
_RESIDENT_S = 0.3
"""A resident process that has not all confirmations by then may hang: the cold start begins."""


class StopOrder(NamedTuple):
    """What `testudo estop` is to do; see there."""

    fleet: Path | None = None
    release: bool = False
    wait: float = 5.0  # [s]
    domain: int | None = None
    local: bool = False
    json: Path | None = None


_VALUES = {"--wait": float, "--domain": int, "--json": Path}
_FLAGS = ("--release", "--local")


def order_of(words: Sequence[str]) -> StopOrder | None:
    """Read the words after `testudo estop`; None for all that only the whole program reads or explains."""
    found: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word, is_joined, value = rest.pop(0).partition("=")
        if word in _FLAGS and not is_joined:
            found[word[2:]] = True
        elif word in _VALUES and word[2:] not in found and (is_joined or rest):
            try:
                found[word[2:]] = _VALUES[word](value if is_joined else rest.pop(0))
            except ValueError:
                return None
        elif not word.startswith("-") and "fleet" not in found:
            found["fleet"] = Path(word + is_joined + value)
        else:
            return None
    return StopOrder(**found)


def stop(order: StopOrder) -> int:
    """Press or release the emergency stop of a fleet, and show which guards confirmed; return the exit status.

    Raises:
        TestudoError: the order is refused. A stop is sent nevertheless if only the fleet file cannot be read.
    """
    raise_priority(PRIORITIES["operator"])
    domain_id = ros_domain_id(order.domain)
    check_wait(order.wait)
    word = RELEASE if order.release else PRESS
    with StopClients(domain_id, word, local=order.local) as residents:
        work = _Stop(order, residents, domain_id)
        if residents.is_connected and work.ask_residents():
            return work.end("")
        return work.end(work.start_cold())


def press_residents(order: StopOrder) -> tuple[EstopReply, ...] | None:
    """Press the resident processes; return the confirmations if every robot has stopped, else None."""
    domain_id = ros_domain_id(order.domain)
    with StopClients(domain_id, PRESS, local=order.local) as residents:
        work = _Stop(order, residents, domain_id)
        return work.answers if residents.is_connected and work.ask_residents() else None


class _Stop:
    """One call of the verb."""

    def __init__(self, order: StopOrder, residents: StopClients, domain_id: int) -> None:
        self._order, self._residents, self._domain_id = order, residents, domain_id
        self._confirmation = EstopConfirmation()
        self._refusal = ""
        """Why the fleet file cannot be read."""

    @property
    def answers(self) -> tuple[EstopReply, ...]:
        """Return the answers of all robots."""
        return self._confirmation.answers

    def ask_residents(self) -> bool:
        """Return whether resident processes have stopped every robot.

        Raises:
            TestudoError: a release is refused, since a button is held.
        """
        self._expect()
        self._residents.listen(_RESIDENT_S, enough=self._residents_done)
        refused = [answer["refused"] for answer in self._residents.answers if answer.get("refused")]
        if self._order.release and refused:
            raise TestudoError(f"estop: {refused[0]}")
        return not self._order.release and self._residents_done()

    def start_cold(self) -> str:
        """Press or release by ROS; return what was not achieved."""
        order = self._order
        begin_s = time.monotonic()
        with self._port() as port:
            port.expect(self._expect())
            reached = self._repeat(port, time.monotonic() + order.wait)  # after the start of ROS, which takes long
        answers = self._confirmation.answers
        if all(answer.guard is None for answer in answers):
            return silence_sentence(time.monotonic() - begin_s, self._domain_id, local=order.local)
        if order.release:
            return "" if reached else "not every guard acknowledged the release: give it again"
        return unconfirmed_text(answers)

    def end(self, sentence: str) -> int:
        """Show the confirmations, and what was not achieved; return the exit status.

        Raises:
            TestudoError: the fleet file cannot be read.
        """
        from testudo_nodes.station.stop_report import show  # noqa: PLC0415 -- after the stop

        order = self._order
        show(self._confirmation.answers, self._domain_id, order.json, sentence, release=order.release)
        if self._refusal:
            raise TestudoError(f"{self._refusal}; the stop was sent to all robots within reach")
        return _FAILED if sentence else 0

    def _expect(self) -> tuple[str, ...]:
        """Return the robots of the fleet file, from now on to confirm.

        Raises:
            TestudoError: it cannot be read; where the stop is pressed, `end` says so after the stop.
        """
        if self._order.fleet is None:
            return ()
        from testudo_deploy.fleet.robot_names import robot_names  # noqa: PLC0415 -- after the press

        try:
            names = robot_names(self._order.fleet)
        except TestudoError as error:
            if self._order.release:
                raise
            self._refusal = str(error)
            return ()
        self._confirmation.expect(names)
        return names

    def _residents_done(self) -> bool:
        """Return whether resident processes have answered, and every robot has confirmed the stop."""
        for answer in self._residents.answers:
            self._confirmation.on_resident(answer)
        return self._residents.complete and (self._order.release or self._confirmation.all_stopped)

    def _port(self) -> "StopPort | _NodePort":
        """Return a way to ROS; where it is the quick one, it has pressed."""
        if self._order.release:
            return _NodePort(self._confirmation, self._domain_id, local=self._order.local, pressed=False)
        return open_port(self._confirmation, self._domain_id, local=self._order.local)

    def _repeat(self, port: "StopPort | _NodePort", end_s: float) -> bool:
        """Send the level until all robots have it, at the latest until a time of the steady clock; return that."""
        done_s = float("inf")
        while (now_s := time.monotonic()) < min(end_s, done_s):
            port.publish()
            port.listen(_REPEAT_S, enough=self._is_known_stop)
            self._residents.listen(0.0)
            if not self._order.release and self._residents_done():
                return True
            guards = [answer for answer in self._confirmation.answers if answer.guard is not None]
            complete = len(guards) == len(self._confirmation.answers) > 0
            if isinstance(port, _NodePort) and self._order.release:
                done = complete and port.is_acknowledged_by(len(guards))
            else:
                done = self._confirmation.all_stopped
            if not done:
                done_s = float("inf")
            elif self._order.fleet is not None and not self._refusal:
                return True
            elif done_s == float("inf"):
                done_s = now_s + _DISCOVERY_S
        return done_s < float("inf")

    def _is_known_stop(self) -> bool:
        is_known = self._order.fleet is not None and not self._refusal
        return is_known and not self._order.release and self._confirmation.all_stopped


def open_port(receiver: Any, domain_id: int, *, local: bool) -> "StopPort | _NodePort":
    """Return a port that has pressed; a node of `rclpy.node` where the quick one fails, for whatever reason."""
    port = StopPort(receiver, domain_id, local=local)
    try:
        return port.__enter__()
    except Exception:  # noqa: BLE001 -- the stop must not depend on bindings that another ROS 2 may have changed
        with suppress(Exception):
            port.__exit__()
        return _NodePort(receiver, domain_id, local=local, pressed=True)


class _NodePort:
    """The same as a `StopPort` by a node of `rclpy.node`, and for a release, too."""

    def __init__(self, receiver: Any, domain_id: int, *, local: bool, pressed: bool) -> None:
        self._listener, self._pressed = fleet_listener("estop", receiver, domain_id, local=local), pressed

    def __enter__(self) -> Self:
        self._listener.__enter__()
        from std_msgs.msg import Bool  # noqa: PLC0415 -- the listener has found ROS

        from testudo_nodes.common.qos import OFFERED  # noqa: PLC0415

        self._level = Bool(data=self._pressed)
        self._publisher = self._listener.node.create_publisher(Bool, ESTOP_TOPIC, OFFERED["estop"])
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.__exit__()

    def publish(self) -> None:
        """Send the level again: a guard that is discovered late does not get earlier messages."""
        self._publisher.publish(self._level)

    def expect(self, robots: Sequence[str]) -> None:
        """Find the robots by their topics."""

    def listen(self, seconds: float, enough: Any = lambda: False) -> None:
        """Receive messages for some time [s], or until ``enough`` returns True."""
        self._listener.listen(seconds, enough=enough)

    def is_acknowledged_by(self, count: int) -> bool:
        """Return whether at least this number of subscribers has acknowledged all messages."""
        from rclpy.duration import Duration  # noqa: PLC0415

        if self._publisher.get_subscription_count() < count:
            return False
        self.publish()
        return self._publisher.wait_for_all_acked(Duration(seconds=_ACKNOWLEDGE_S))


def main(words: Sequence[str] | None = None) -> int:
    """Run `testudo estop` from the words of the command line, or the whole program; return the exit status."""
    words = sys.argv[1:] if words is None else words
    is_debugged = os.environ.get("TESTUDO_DEBUG", "0") not in ("", "0")
    order = order_of(words[1:]) if words[:1] == ["estop"] and not is_debugged else None
    if order is None:
        from testudo_deploy import cli  # noqa: PLC0415 -- the imports of which this start does without

        return cli.main(words)
    gc.disable()  # imports leave much that is never freed
    try:
        return stop(order)
    except TestudoError as error:
        sys.stderr.write(f"testudo: {error}\n")
        return _REFUSED
    except KeyboardInterrupt:
        sys.stderr.write("testudo: stopped by Ctrl-C.\n")
        return _INTERRUPTED
    finally:
        gc.enable()


if __name__ == "__main__":
    sys.exit(main())
