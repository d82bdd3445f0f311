"""The last brake of a base that times no command out: a process that brakes when its guard dies or hangs.

The guard writes a beat through a pipe, which the system closes at its death, however it dies. Without a beat, zeros go
to the base until the next one; after the end of the pipe for a second, and then the process ends.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

import rclpy
from rclpy.signals import SignalHandlerOptions

from testudo_hardware.links.link_profile import LAST_BRAKE, TWIST_STAMPED
from testudo_hardware.links.topics import CommandWire
from testudo_nodes.common.messages import message_class
from testudo_nodes.common.process_priority import PRIORITIES, set_realtime_priority
from testudo_nodes.common.qos import OFFERED

_READY = b"r"
_REPEATS_S = 1.0
_SHARE = 0.5
"""Of the dead-man time, after which a guard without a beat hangs; the rest is for the zero on its way."""


class LastBrake:
    """The process, in that of the guard; none where the base times commands out by itself."""

    def __init__(self, wire: CommandWire, topic: str, *, starts: bool = True) -> None:
        """Start it; ``topic`` is that of the commands, absolute. A guard in lock-step ``starts`` none."""
        spec = wire.spec
        task = {
            "robot": wire.robot,
            "topic": topic,
            "type": wire.type,
            "frame": wire.frame,
            "silent_s": _SHARE * spec.dead_man_s,
            "period_s": spec.control_period_s,
        }
        self._words = [sys.executable, "-m", __name__, json.dumps(task), *_enclave()]
        self._ready = False
        self._process = self._start() if starts and wire.profile.needs_last_brake else None

    @property
    def code(self) -> str:
        """Return why the robot may not drive: the process is not up, or hears no driver; empty if it may."""
        process = self._process
        if process is None:
            return ""
        if not self._ready and process.stdout is not None and select.select([process.stdout], [], [], 0)[0]:
            self._ready = os.read(process.stdout.fileno(), 1) == _READY
        return "" if self._ready and process.poll() is None else "no_last_brake"

    def beat(self) -> None:
        """Say that the guard lives; a process that has ended is started again."""
        if self._process is None:
            return
        if self._process.poll() is not None:
            self._process = self._start()
        try:
            if self._process.stdin is not None:
                self._process.stdin.write(b".")
        except BrokenPipeError:
            pass  # it ends: the next beat starts another one

    def close(self) -> None:
        """Let it brake for a second and end."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def _start(self) -> subprocess.Popen[bytes]:
        self._ready = False
        # a session of its own: what ends the processes of a robot with one signal does not end it before the guard
        return subprocess.Popen(  # noqa: S603 -- a module of this project
            self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
        )


def _enclave() -> list[str]:
    """Return the words that give the process the enclave of the guard."""
    words = sys.argv
    return words[words.index("--enclave") :][:2] if "--enclave" in words else []


def _beats(timeout_s: float | None) -> bool | None:
    """Return whether a beat came within a time; None at the end of the pipe: the guard is dead."""
    if not select.select([sys.stdin], [], [], timeout_s)[0]:
        return False
    return True if os.read(sys.stdin.fileno(), 4096) else None


def _zero(node: Any, task: dict[str, Any]) -> Any:
    message = message_class(task["type"])()
    if task["type"] == TWIST_STAMPED:
        message.header.frame_id = task["frame"]
        message.header.stamp = node.get_clock().now().to_msg()
    return message


def main() -> None:
    """Run the process until its standard input ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    task = json.loads(sys.argv[1])
    words = ["--ros-args", "-r", f"__ns:=/{task['robot']}", *sys.argv[2:]]
    rclpy.init(args=words, signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node(LAST_BRAKE)
    publisher = node.create_publisher(message_class(task["type"]), task["topic"], OFFERED["cmd_vel"])
    set_realtime_priority(PRIORITIES["guard"])
    found: bool | None = False
    while found is not None and not publisher.get_subscription_count():
        found = _beats(task["period_s"])
    if found is not None:
        with contextlib.suppress(BrokenPipeError):  # a guard that died just now: the next look finds it
            os.write(sys.stdout.fileno(), _READY)
        found = _beats(None)  # for ever, until the guard is ready
    while found is not None:
        found = _beats(task["silent_s"] if found else task["period_s"])
        if found is False:
            publisher.publish(_zero(node, task))
    for _ in range(round(_REPEATS_S / task["period_s"])):
        publisher.publish(_zero(node, task))
        time.sleep(task["period_s"])


if __name__ == "__main__":
    main()
