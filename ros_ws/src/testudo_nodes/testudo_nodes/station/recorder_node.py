"""Records every topic of a fleet into a run folder, without decoding the messages.

No control loop waits for the recorder: if the disk refuses, it reports that once and ends; control continues.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, ReliabilityPolicy
from rclpy.task import Future

from testudo_deploy.files.bag_writer import RecordedTopic, RunWriteError
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.fleet_topics import TopicPlan, topics
from testudo_deploy.launch.launch_plan import BACKENDS, MOST_SEED
from testudo_deploy.launch.run_folder import RunWriter
from testudo_nodes.common.clock import LockStepParticipant, clock_of, secure
from testudo_nodes.common.messages import message_class, message_definition, type_hash
from testudo_nodes.common.node_runner import CpuMeter, parameter, report_status, run, text_parameter
from testudo_nodes.common.process_priority import lower_priority
from testudo_nodes.common.qos import offered, recorded

_NICE = 5  # lower priority than control on a busy machine; messages wait in the queues


class RecorderNode(Node):
    """The node that writes the run."""

    def __init__(self, stop: Future) -> None:
        """Open the run folder.

        Raises:
            TestudoError: the fleet is refused, or the folder cannot be written.
        """
        super().__init__("recorder")
        self.failed = False
        self._stop, self._cpu = stop, CpuMeter()
        fleet = load_fleet(text_parameter(self, "fleet", "the fleet file"))
        policy = Path(text_parameter(self, "policy", "the policy file, of which a copy is kept"))
        folder = text_parameter(self, "run_folder", "the folder to write, which must not hold a run")
        backend = text_parameter(self, "backend", f"what moves the robots: {' or '.join(BACKENDS)}")
        seed = parameter(self, "seed", 0, "seed of the plant, for the record", (0, MOST_SEED))
        planned = topics(fleet)
        self._node_clock = clock = clock_of(self)
        secure(self, clock, fleet, backend)
        self._writer = RunWriter(
            folder,
            [_recorded_topic(topic) for topic in planned],
            replace(fleet, policy=policy.absolute()),
            facts={"seed": seed, "backend": backend, "lock_step": clock.in_lock_step},
            clock=clock.now_s,
        )
        for topic in planned:
            subscribe = clock.subscribe_outside if topic.kind == "estop" else clock.subscribe
            subscribe(
                message_class(topic.type),
                topic.name,
                partial(self._take, topic.name),
                recorded(topic.kind, reliable=topic.reliable),
                raw=True,
                **({} if topic.kind == "estop" else {"keeps": True}),
            )
        report_status("recording", {"run_folder": folder})
        lower_priority(_NICE)

    def close(self) -> None:
        """Complete the run."""
        if not self.failed:
            if isinstance(self._node_clock, LockStepParticipant):
                self._node_clock.deliver()  # messages sent after the last round
            self._write(self._writer.close)
        values = {"messages": self._writer.message_count, "hash": self._writer.chain_hash}
        report_status("recorded", {**values, "cpu_share": self._cpu.share()})

    def _take(self, topic: str, data: bytes) -> None:
        if not self.failed:
            self._write(partial(self._writer.write, topic, data, self._node_clock.now_s()))

    def _write(self, write: Callable[[], None]) -> None:
        """Write; if the disk refuses, report that once and end."""
        try:
            write()
        except RunWriteError as error:
            self.failed = True
            sys.stderr.write(f"recorder: {error}\n")
            self._writer.abandon()
            if not self._stop.done():
                self._stop.set_result(None)


def _recorded_topic(topic: TopicPlan) -> RecordedTopic:
    profile = offered(topic.kind)
    return RecordedTopic(
        topic.name,
        topic.type,
        message_definition(topic.type),
        type_hash(topic.type),
        reliable=topic.reliable and profile.reliability == ReliabilityPolicy.RELIABLE,
        transient_local=profile.durability == DurabilityPolicy.TRANSIENT_LOCAL,
        depth=profile.depth,
    )


def main() -> None:
    """Run the node until a signal comes."""
    sys.exit(run(RecorderNode))


if __name__ == "__main__":
    main()
