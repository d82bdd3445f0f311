"""Runs one node as a process: refusal, executor, signals, and what the supervisor reads.

Under `testudo up` a node prints one line of JSON for each event on its standard output, and ends
when its supervisor does.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import inspect
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import rclpy
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.exceptions import ParameterException
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions
from rclpy.task import Future

from testudo_deploy.launch.launch_plan import SUPERVISOR_VARIABLE
from testudo_hardware.errors import TestudoError
from testudo_nodes.common.scheduling import go_first

REFUSED, FAILED = 2, 1
_WAKE_S = 0.2
_LEAVE_S = 3.0
_GARBAGE = (20_000, 20, 20)
"""Nodes make few cycles: collecting as often as Python does by default costs more than it frees."""
_SET_PARENT_DEATH_SIGNAL = 1
WARN_EVERY_S = 5.0
"""Between two warnings of one kind."""
_NANO = 1_000_000_000


class Closable(Protocol):
    """A node that has something to do before it goes."""

    failed: bool
    """It ended by itself, and not as it should."""

    def close(self) -> None:
        """Do the last things; ROS still works."""


def run(build: Callable[[Future], Any]) -> int:
    """Run a node until a signal comes or it ends itself; returns the exit status.

    Args:
        build: makes the node (a `Closable`); ends it by setting the result of the future.
    """
    _die_with_supervisor()
    stop = Future()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.done() or stop.set_result(None))
    try:
        # ROS's own signal handlers would end the context before the last command is sent
        rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
        node = build(stop)
    except (TestudoError, ParameterException, rclpy_implementation.RCLError) as error:
        sys.stderr.write(f"refused: {' '.join(str(error).split())}\n")
        _leave_within(_LEAVE_S, REFUSED)
        rclpy.try_shutdown()
        return REFUSED
    node.add_on_set_parameters_callback(functools.partial(_refuse_changes, node))
    go_first(getattr(node, "priority", 0))
    gc.freeze()
    gc.set_threshold(*_GARBAGE)
    try:
        executor = _executor()
        executor.add_node(node)
        while not stop.done() and rclpy.ok():
            # a wait without an end spins at full load in the wheels' EventsExecutor (overflow)
            executor.spin_until_future_complete(stop, timeout_sec=_WAKE_S)
    finally:
        node.close()
        _leave_within(_LEAVE_S, FAILED if node.failed else 0)
        # `launch` repeats Ctrl-C, of which a process that ends well would die
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        node.destroy_node()
        rclpy.shutdown()
    return FAILED if node.failed else 0


def report_status(event: str, values: Mapping[str, Any]) -> None:
    """Print an event for the supervisor; nothing without one."""
    if SUPERVISOR_VARIABLE not in os.environ:
        return
    try:
        sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the supervisor is gone: its death ends this process too
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def guarded(node: Node, callback: Callable[..., None]) -> Callable[..., None]:
    """Return ``callback`` so that what it raises is logged, and the node lives on."""
    quiet_until_s = 0.0  # of this callback: the logger's own throttle goes by the line, which all callbacks share

    @functools.wraps(callback)
    def call(*arguments: Any) -> None:
        nonlocal quiet_until_s
        try:
            callback(*arguments)
        except Exception as error:  # noqa: BLE001 -- a bad message must not end a control loop
            now_s = time.monotonic()
            if now_s >= quiet_until_s:
                quiet_until_s = now_s + WARN_EVERY_S
                node.get_logger().warning(f"{callback.__name__}: {type(error).__name__}: {error}")

    call.__signature__ = inspect.signature(callback)  # rclpy asks for it at each run of a timer
    return call


def told(transition: Callable[..., TransitionCallbackReturn]) -> Callable[..., TransitionCallbackReturn]:
    """Return a transition of a managed node that tells what it raises, by the node's `tell_failure`.

    `rclpy` swallows what a transition raises, says nothing, and goes on with `on_error`.
    """

    @functools.wraps(transition)
    def call(node: Any, state: Any) -> TransitionCallbackReturn:
        try:
            return transition(node, state)
        except Exception as error:  # noqa: BLE001 -- as rclpy does
            name = transition.__name__.removeprefix("on_")
            node.tell_failure(f"{name}: {type(error).__name__}: {error}")
            return TransitionCallbackReturn.ERROR

    return call


def text_parameter(node: Node, name: str, description: str) -> str:
    """Declare a read-only text that must be given, and return it.

    Raises:
        TestudoError: it is not given.
    """
    descriptor = ParameterDescriptor(description=description, read_only=True)
    value = node.declare_parameter(name, Parameter.Type.STRING, descriptor).value
    if not value:
        raise TestudoError(f"parameter {name}: missing; expected {description}")
    return value


def optional_text(node: Node, name: str, description: str, default: str = "") -> str:
    """Declare a read-only text that may be left out, and return it."""
    descriptor = ParameterDescriptor(description=description, read_only=True)
    return node.declare_parameter(name, default, descriptor).value


def integer_parameter(node: Node, name: str, default: int, bounds: tuple[int, int], description: str) -> int:
    """Declare a read-only whole number within bounds and return it."""
    span = IntegerRange(from_value=bounds[0], to_value=bounds[1], step=1)
    descriptor = ParameterDescriptor(description=description, read_only=True, integer_range=[span])
    return node.declare_parameter(name, default, descriptor).value


def flag_parameter(node: Node, name: str, default: bool, description: str) -> bool:
    """Declare a read-only true or false and return it."""
    descriptor = ParameterDescriptor(description=description, read_only=True)
    return node.declare_parameter(name, default, descriptor).value


def number_parameter(node: Node, name: str, default: float, bounds: tuple[float, float], description: str) -> float:
    """Declare a read-only number within bounds and return it."""
    span = FloatingPointRange(from_value=bounds[0], to_value=bounds[1], step=0.0)
    descriptor = ParameterDescriptor(description=description, read_only=True, floating_point_range=[span])
    return node.declare_parameter(name, default, descriptor).value


def both_clocks(node: Node) -> tuple[float, float]:
    """Return the ROS clock and the steady clock [s] of one moment; a stamp brought to the second is never too young."""
    now_s = time.monotonic()
    return node.get_clock().now().nanoseconds / _NANO, now_s


class CpuMeter:
    """Measures the share of one core that this process uses from now on."""

    def __init__(self) -> None:
        self._start_s, self._used_s = time.monotonic(), time.process_time()

    def share(self) -> float:
        """Return the share since the beginning."""
        return (time.process_time() - self._used_s) / max(time.monotonic() - self._start_s, 1e-9)


def _refuse_changes(node: Node, parameters: Sequence[Parameter]) -> SetParametersResult:
    """Refuse what was declared before, `use_sim_time` included, which ROS itself leaves open."""
    known = ", ".join(parameter.name for parameter in parameters if node.has_parameter(parameter.name))
    reason = f"{known}: parameters are read once, at the start" if known else ""
    return SetParametersResult(successful=not known, reason=reason)


def _leave_within(seconds: float, status: int) -> None:
    """End the process after a time, whatever then hangs: DDS sometimes waits for ever for a thread of its own."""
    sys.stderr.flush()
    leaver = threading.Timer(seconds, os._exit, (status,))
    leaver.daemon = True
    leaver.start()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(round(seconds) + 1)  # should Python itself be gone when it hangs


def _executor() -> Any:
    try:
        from rclpy.experimental.events_executor import EventsExecutor  # noqa: PLC0415 -- since Kilted
    except ImportError:
        from rclpy.executors import SingleThreadedExecutor  # noqa: PLC0415

        return SingleThreadedExecutor()
    return EventsExecutor()


def _die_with_supervisor() -> None:
    supervisor = os.environ.get(SUPERVISOR_VARIABLE)
    if supervisor is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    if os.getppid() != int(supervisor):  # it died before the line above
        raise SystemExit(FAILED)
