"""A joystick as a process of its own, which can be killed: it repeats its state 20 times a second, as `joy_node` does.

Run as a program it reads its state from the standard input, a line for each change: the buttons, then the axes.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Self

import rclpy
from sensor_msgs.msg import Joy

from testudo_nodes.common.process_priority import PRIORITIES, set_realtime_priority

_PERIOD_S = 0.05
_HEARD = 10  # messages after which its first state has arrived


class Joystick:
    """A joystick in a ROS domain; a context manager."""

    def __init__(self, domain_id: int, environment: Mapping[str, str], topic: str = "/joy") -> None:
        """Start the process, with nothing pressed; return once somebody hears it."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment, "ROS_DOMAIN_ID": str(domain_id)},
        )
        if self._process.stdout is not None:
            self._process.stdout.readline()

    def set(self, buttons: Sequence[int], axes: Sequence[float] = ()) -> None:
        """Change the state."""
        if self._process.stdin is not None:
            self._process.stdin.write(json.dumps([list(buttons), list(axes)]) + "\n")
            self._process.stdin.flush()

    def kill(self) -> None:
        """Let the joystick fall silent, as a lost receiver."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def _main() -> None:
    rclpy.init()
    node = rclpy.create_node("joystick")
    publisher = node.create_publisher(Joy, sys.argv[1], 5)
    state: list[list[float]] = [[0, 0], []]
    heard = 0

    def publish() -> None:
        nonlocal heard
        heard += publisher.get_subscription_count() > 0
        if heard == _HEARD:
            sys.stdout.write("heard\n")
            sys.stdout.flush()
        publisher.publish(Joy(buttons=[int(value) for value in state[0]], axes=state[1]))

    def read() -> None:
        for line in sys.stdin:
            state[:] = json.loads(line)

    threading.Thread(target=read, daemon=True).start()
    node.create_timer(_PERIOD_S, publish)
    set_realtime_priority(PRIORITIES["observer"])  # one that waits for a core is a switch that was let go
    rclpy.spin(node)


if __name__ == "__main__":
    _main()
