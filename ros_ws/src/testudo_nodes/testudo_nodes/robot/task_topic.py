"""Receives the signals of the task from the station, and from the sensors of the robot."""

from collections.abc import Callable
from typing import Any

from sensor_msgs.msg import LaserScan
from std_msgs.msg import UInt8MultiArray

from testudo_deploy.contract.messages import EnvelopeError, TaskMessage
from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.control.task_receiver import TaskReceiver
from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.fleet.pose_source import signal_wires
from testudo_hardware.links.signal_wire import SignalWire
from testudo_nodes.common.clock import NodeClock
from testudo_nodes.common.messages import message_class, raw_envelope_bytes
from testudo_nodes.common.qos import REQUESTED
from testudo_nodes.robot.scan_zones import read_scan
from testudo_nodes.robot.subscriptions import Connections


def subscribe_task(
    connections: Connections,
    loop: ControlLoop,
    clock: NodeClock,
    robot: FleetRobot,
    refuse: Callable[[Exception], None],
) -> None:
    """Subscribe to the task's messages for this robot, and to its sensors, if its policy or shield reads them.

    Args:
        connections: of the configuration of the policy's node.
        loop: takes the messages.
        clock: of the node.
        robot: whose link names the sensors.
        refuse: receives the error of each message of the task that cannot be read.

    Raises:
        TestudoError: the type of a sensor's messages is not installed.
    """
    task, scans = loop.task, loop.scans

    def on_task(data: bytes) -> None:
        try:
            task.hear(TaskMessage.decode(raw_envelope_bytes(data)), clock.now_s())
        except EnvelopeError as error:
            refuse(error)

    if task.signals:
        connections.subscribe(UInt8MultiArray, "task", on_task, raw=True)
    for wire in signal_wires(robot):
        if wire.signal in task.sensors.names:
            kind, callback = message_class(wire.part.type.value), _sensor_callback(wire, clock, task)
            # its driver is not ours: in lock-step nobody counts its messages
            subscription = clock.subscribe_outside(kind, wire.absolute, callback, REQUESTED["signal"])
            connections.on_close(lambda subscription=subscription: clock.destroy(subscription))
    if scans is not None and robot.scan is not None:

        def on_scan(message: LaserScan) -> None:
            scans.hear(*read_scan(message, clock))

        heard = clock.subscribe_outside(LaserScan, robot.scan.topic, on_scan, REQUESTED["scan"])
        connections.on_close(lambda: clock.destroy(heard))


def _sensor_callback(wire: SignalWire, clock: NodeClock, task: TaskReceiver) -> Callable[[Any], None]:
    def on_signal(message: Any) -> None:
        ros_now_s, now_s = clock.clocks()
        stamp_s, numbers = wire.decode(message, ros_now_s, now_s)
        task.sensors.hear(wire.signal, numbers, stamp_s, now_s)

    return on_signal
