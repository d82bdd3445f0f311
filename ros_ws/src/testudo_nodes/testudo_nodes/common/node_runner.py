"""Runs one node as a process: parameters, executor, process priority, signals, and events for the supervisor.

Under `testudo up` a node prints one line of JSON for each event on its standard output, and ends with its supervisor.
"""

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
from typing import Any, Protocol, cast

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
from testudo_deploy.launch.ros_domain import discover_everything
from testudo_hardware.errors import TestudoError
from testudo_nodes.common.process_priority import set_realtime_priority

REFUSED, FAILED = 2, 1
_WAKE_S = 0.2
_EXIT_TIMEOUT_S = 3.0
_GARBAGE = (20_000, 20, 20)  # nodes create few cycles: collecting at Python's default rate costs more than it frees
_SET_PARENT_DEATH_SIGNAL = 1
WARN_EVERY_S = 5.0  # between two warnings of one kind
_NANO = 1_000_000_000


class Closable(Protocol):
    """A node with a last action before its process ends."""

    failed: bool  # the node ended by itself because of an error

    def close(self) -> None:
        """Do the last action; ROS still works."""


def run(build: Callable[[Future], Any]) -> int:
    """Run a node until a signal comes or it ends itself; return the exit status.

    Args:
        build: creates the node (a `Closable`), which ends by setting the result of the future.
    """
    _end_with_supervisor()
    stop = Future()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.done() or stop.set_result(None))
    discover_everything()
    try:
        # ROS's own signal handlers would end the context before the last command is sent
        rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
        node = build(stop)
    except (TestudoError, ParameterException, rclpy_implementation.RCLError) as error:
        sys.stderr.write(f"refused: {' '.join(str(error).split())}\n")
        _exit_within(_EXIT_TIMEOUT_S, REFUSED)
        rclpy.try_shutdown()
        return REFUSED
    node.add_on_set_parameters_callback(functools.partial(_refuse_changes, node))
    set_realtime_priority(getattr(node, "priority", 0))
    gc.freeze()
    gc.set_threshold(*_GARBAGE)
    try:
        executor = _executor()
        executor.add_node(node)
        while not stop.done() and rclpy.ok():
            # a wait without a time-out spins at full load in the wheels' EventsExecutor (overflow)
            executor.spin_until_future_complete(stop, timeout_sec=_WAKE_S)
    finally:
        node.close()
        _exit_within(_EXIT_TIMEOUT_S, FAILED if node.failed else 0)
        # `launch` repeats Ctrl-C, which would kill a process that is ending properly
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        node.destroy_node()
        rclpy.shutdown()
    return FAILED if node.failed else 0


def report_status(event: str, values: Mapping[str, Any]) -> None:
    """Print an event for the supervisor; without a supervisor print nothing."""
    if SUPERVISOR_VARIABLE not in os.environ:
        return
    try:
        sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the supervisor has died, which ends this process, too
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def logging_errors(node: Node, callback: Callable[..., None]) -> Callable[..., None]:
    """Return ``callback`` so that its exceptions are logged and do not end the node."""
    name = getattr(callback, "func", callback).__name__  # a `partial` has no name
    quiet_until_s = 0.0  # per callback: the logger's own throttle is per source line, which all callbacks share

    @functools.wraps(callback)
    def call(*arguments: Any) -> None:
        nonlocal quiet_until_s
        try:
            callback(*arguments)
        except Exception as error:  # noqa: BLE001 -- a bad message must not end a control loop
            now_s = time.monotonic()
            if now_s >= quiet_until_s:
                quiet_until_s = now_s + WARN_EVERY_S
                node.get_logger().warning(f"{name}: {type(error).__name__}: {error}")

    cast(Any, call).__signature__ = inspect.signature(callback)  # rclpy asks for it at each run of a timer
    return call


def reporting_errors(transition: Callable[..., TransitionCallbackReturn]) -> Callable[..., TransitionCallbackReturn]:
    """Return a transition of a managed node that passes its exceptions to the node's `report_failure`.

    `rclpy` drops an exception of a transition without a message, and continues with `on_error`.
    """

    @functools.wraps(transition)
    def call(node: Any, state: Any) -> TransitionCallbackReturn:
        try:
            return transition(node, state)
        except Exception as error:  # noqa: BLE001 -- as rclpy does
            name = transition.__name__.removeprefix("on_")
            node.report_failure(f"{name}: {type(error).__name__}: {error}")
            return TransitionCallbackReturn.ERROR

    return call


def text_parameter(node: Node, name: str, description: str) -> str:
    """Declare a required read-only text and return it.

    Raises:
        TestudoError: it is not given.
    """
    descriptor = ParameterDescriptor(description=description, read_only=True)
    value = node.declare_parameter(name, Parameter.Type.STRING, descriptor).value
    if not value:
        raise TestudoError(f"parameter {name}: missing; expected {description}")
    return value


def parameter[T: (bool, int, float, str)](
    node: Node, name: str, default: T, description: str, bounds: tuple[T, T] | None = None
) -> T:
    """Declare an optional read-only parameter of the type of its default, numbers within bounds, and return it."""
    descriptor = ParameterDescriptor(description=description, read_only=True)
    if bounds is not None and isinstance(default, float):
        descriptor.floating_point_range = [FloatingPointRange(from_value=bounds[0], to_value=bounds[1], step=0.0)]
    elif bounds is not None:
        descriptor.integer_range = [IntegerRange(from_value=bounds[0], to_value=bounds[1], step=1)]
    return node.declare_parameter(name, default, descriptor).value


def both_clocks(node: Node) -> tuple[float, float]:
    """Return the ROS clock and the steady clock [s] of one moment."""
    now_s = time.monotonic()  # read first, so that a stamp converted to it is never too young
    return node.get_clock().now().nanoseconds / _NANO, now_s


class CpuMeter:
    """Measures the share of one core that this process uses from now on."""

    def __init__(self) -> None:
        self._start_s, self._used_s = time.monotonic(), time.process_time()

    def share(self) -> float:
        """Return the share since the start of the measurement."""
        return (time.process_time() - self._used_s) / max(time.monotonic() - self._start_s, 1e-9)


def _refuse_changes(node: Node, parameters: Sequence[Parameter]) -> SetParametersResult:
    """Refuse changes of declared parameters, also of `use_sim_time`, which ROS itself permits."""
    known = ", ".join(parameter.name for parameter in parameters if node.has_parameter(parameter.name))
    reason = f"{known}: parameters are read once, at the start" if known else ""
    return SetParametersResult(successful=not known, reason=reason)


def _exit_within(seconds: float, status: int) -> None:
    """End the process after a time even if a thread hangs: DDS sometimes waits without end for one of its threads."""
    sys.stderr.flush()
    timer = threading.Timer(seconds, os._exit, (status,))
    timer.daemon = True
    timer.start()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(round(seconds) + 1)  # in case Python itself has ended when DDS hangs


def _executor() -> Any:
    try:
        from rclpy.experimental.events_executor import EventsExecutor  # noqa: PLC0415 -- since Kilted
    except ImportError:
        from rclpy.executors import SingleThreadedExecutor  # noqa: PLC0415

        return SingleThreadedExecutor()
    return EventsExecutor()


def _end_with_supervisor() -> None:
    supervisor = os.environ.get(SUPERVISOR_VARIABLE)
    if supervisor is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    if os.getppid() != int(supervisor):  # it died before the line above
        raise SystemExit(FAILED)
