"""Receives the signals of the task from the station."""

from collections.abc import Callable

from std_msgs.msg import UInt8MultiArray

from testudo_deploy.contract.messages import EnvelopeError, TaskMessage
from testudo_deploy.control.task_receiver import TaskReceiver
from testudo_nodes.common.messages import raw_envelope_bytes
from testudo_nodes.robot.subscriptions import Connections


def subscribe_task(
    connections: Connections, task: TaskReceiver, now_s: Callable[[], float], refuse: Callable[[Exception], None]
) -> None:
    """Subscribe to the task's messages for this robot, if its policy reads signals of the task.

    Args:
        connections: of the configuration of the policy's node.
        task: takes the messages.
        now_s: the clock of the node.
        refuse: receives the error of each message that cannot be read.
    """

    def on_task(data: bytes) -> None:
        try:
            task.hear(TaskMessage.decode(raw_envelope_bytes(data)), now_s())
        except EnvelopeError as error:
            refuse(error)

    if task.signals:
        connections.subscribe(UInt8MultiArray, "task", on_task, raw=True)
