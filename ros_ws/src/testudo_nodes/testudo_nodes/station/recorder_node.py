"""Records every topic of a fleet into a run folder, without decoding the messages.

No control loop waits for the recorder: if the disk refuses, it reports that once and ends; control continues.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, ReliabilityPolicy
from rclpy.task import Future

from testudo_deploy.admission.fleet_admission import checked_safety_contracts
from testudo_deploy.admission.policy_exchange import exchanged
from testudo_deploy.admission.safety_contracts import save_safety_contracts
from testudo_deploy.contract.policy_archive import read_policy_contract
from testudo_deploy.contract.policy_change import CHECK, RECORD, PolicyChange, PolicyChangeError
from testudo_deploy.files.bag_writer import RecordedTopic, RunWriteError
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.fleet_topics import TopicPlan, topics
from testudo_deploy.launch.launch_plan import BACKENDS, MOST_SEED
from testudo_deploy.launch.run_folder import RunWriter, further_folder
from testudo_nodes.common.clock import LockStepParticipant, clock_of, secure
from testudo_nodes.common.messages import message_class, message_definition, type_hash
from testudo_nodes.common.node_runner import CpuMeter, parameter, report_status, run, text_parameter
from testudo_nodes.common.policy_topics import PolicyTopics
from testudo_nodes.common.process_priority import change_niceness
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
        self._node_clock = clock = clock_of(self)
        secure(self, clock, fleet, backend)
        self._facts = {"seed": seed, "backend": backend, "lock_step": clock.in_lock_step}
        self._first_folder, self._inputs = Path(folder), list[Any]()
        self._fleet = replace(fleet, policy=policy.absolute())
        self._writer: RunWriter | None = None
        self._begin(self._first_folder)
        if fleet.orders and not clock.in_lock_step:
            self._contract = read_policy_contract(self._fleet.policy, fleet.policy_sha256)
            steps = {CHECK: self._check, RECORD: self._record}
            self._policy = PolicyTopics(self, clock, "recorder", self._in_use, steps)
        change_niceness(_NICE)

    def _begin(self, folder: Path) -> None:
        """Begin a run; new subscriptions receive again what is latched."""
        clock, planned = self._node_clock, topics(self._fleet)
        recorded_topics = [_recorded_topic(topic) for topic in planned]
        self._writer = RunWriter(folder, recorded_topics, self._fleet, facts=self._facts, clock=clock.now_s)
        for topic in planned:
            subscribe = clock.subscribe_outside if topic.kind == "estop" else clock.subscribe
            made = subscribe(
                message_class(topic.type),
                topic.name,
                partial(self._take, topic.name),
                recorded(topic.kind, reliable=topic.reliable),
                raw=True,
                **({} if topic.kind == "estop" else {"keeps": True}),
            )
            self._inputs.append(made)
        report_status("recording", {"run_folder": str(folder)})

    def _in_use(self) -> tuple[str, str]:
        if self._writer is None:
            return "", ""
        return self._fleet.policy_sha256, self._contract.contract_hash

    def _check(self, change: PolicyChange) -> str:
        exchanged(self._fleet, self._contract, change)
        return "can begin another run"

    def _record(self, change: PolicyChange) -> str:
        """End the run, and begin the next one with the policy file of a change."""
        if self.failed:
            raise PolicyChangeError("the disk refused before; start the recorder again")
        fleet, contract = exchanged(self._fleet, self._contract, change)
        contracts = checked_safety_contracts(fleet)
        self._end()
        self._fleet, self._contract = fleet, contract
        folder = further_folder(self._first_folder)
        self._begin(folder)
        save_safety_contracts(folder, contracts)
        return f"records into {folder}"

    def _end(self) -> None:
        """Complete the run."""
        for subscription in self._inputs:
            self._node_clock.destroy(subscription)
        self._inputs.clear()
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if not self.failed:
            self._write(writer, writer.close)
        values = {"run_folder": str(writer.folder), "messages": writer.message_count, "hash": writer.chain_hash}
        report_status("recorded", {**values, "cpu_share": self._cpu.share()})

    def close(self) -> None:
        """Complete the run."""
        if not self.failed and isinstance(self._node_clock, LockStepParticipant):
            self._node_clock.deliver()  # messages sent after the last round
        self._end()

    def _take(self, topic: str, data: bytes) -> None:
        writer = self._writer
        if writer is not None and not self.failed:
            self._write(writer, partial(writer.write, topic, data, self._node_clock.now_s()))

    def _write(self, writer: RunWriter, write: Callable[[], None]) -> None:
        """Write; if the disk refuses, report that once and end."""
        try:
            write()
        except RunWriteError as error:
            self.failed = True
            sys.stderr.write(f"recorder: {error}\n")
            writer.abandon()
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
