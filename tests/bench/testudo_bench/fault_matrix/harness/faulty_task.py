"""The task node with messages that are wrong on request: `late SECONDS`, or `contract`.

The request is in the file beside that of `faulty_policy`, and holds as long as the file is there. The time of the first
wrong message is reported as an event.
"""

import os
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path

from testudo_bench.fault_matrix.harness.faulty_policy import VARIABLE
from testudo_deploy.contract.messages import TaskMessage
from testudo_nodes.common.node_runner import report_status
from testudo_nodes.station.task_node import main
from testudo_sim.online_task.task_sender import TaskSample, TaskSender

SUFFIX = ".task"
"""Of the file of requests to the task node, after that of the requests to the policy."""
_messages = TaskSender.messages
_sent: deque[tuple[float, tuple[TaskMessage, ...]]] = deque(maxlen=1000)
_told: list[str] = []


def messages(sender: TaskSender, sample: TaskSample, now_s: float) -> tuple[TaskMessage, ...]:
    """Return the messages of the task, or wrong ones as requested."""
    found = _messages(sender, sample, now_s)
    _sent.append((now_s, found))
    file = Path(os.environ[VARIABLE] + SUFFIX)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        _told.clear()
        return found
    if text not in _told:
        _told.append(text)
        report_status("fault", {"stamp_s": now_s})
    kind, _, amount = text.partition(" ")
    if kind == "contract":
        return tuple(replace(message, contract="0" * 64) for message in found)
    return next((old for sent_s, old in reversed(_sent) if now_s - sent_s >= float(amount)), ())


if __name__ == "__main__":
    TaskSender.messages = messages
    sys.exit(main())
