"""A robot's guard and policy in a change of the policy file; see `testudo_deploy.contract.policy_change`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.node import Node
from std_msgs.msg import String

from testudo_deploy.admission.policy_exchange import exchanged
from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.messages import EnvelopeError
from testudo_deploy.contract.policy_archive import read_policy_contract
from testudo_deploy.contract.policy_change import (
    BEGIN,
    CHECK,
    REST,
    STOP,
    PolicyChange,
    PolicyChangeError,
    PolicyInUse,
    in_use_topic,
)
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.station.policy_change_run import in_use_topics, needed_processes
from testudo_deploy.supervision.modes import RESTING, Mode
from testudo_deploy.supervision.policy_agreement import PolicyAgreement
from testudo_deploy.supervision.robot import Robot
from testudo_hardware.errors import TestudoError
from testudo_nodes.common.clock import NodeClock
from testudo_nodes.common.policy_topics import PolicyTopics
from testudo_nodes.common.qos import REQUESTED


class GuardExchange:
    """The guard's part: the arena, robot and timing of another file are the same, so that it goes on as it is."""

    def __init__(self, node: Node, clock: NodeClock, robot: str, fleet: Fleet, contract: Contract) -> None:
        """Connect, in a fleet that takes orders; ``fleet.policy`` is the file that the guard has read."""
        self._fleet, self._contract = fleet, contract
        if fleet.orders and not clock.in_lock_step:
            steps = {CHECK: self._check, BEGIN: self._begin}
            self._topics = PolicyTopics(node, clock, f"{robot}/guard", self._in_use, steps)

    def _in_use(self) -> tuple[str, str]:
        return self._fleet.policy_sha256, self._contract.contract_hash

    def _check(self, change: PolicyChange) -> str:
        exchanged(self._fleet, self._contract, change)
        return "can use it"

    def _begin(self, change: PolicyChange) -> str:
        self._fleet, self._contract = exchanged(self._fleet, self._contract, change)
        return f"uses {self._fleet.policy.name}"


class PolicyExchange:
    """The policy node's part: it stands without a policy between two of them, and is armed by an operator alone."""

    def __init__(self, node: Any, clock: NodeClock, robot: str) -> None:
        """Begin without a policy."""
        self._node, self._clock, self._name = node, clock, robot
        self._fleet: Fleet | None = None
        self._robot: Robot | None = None
        """Of the present configuration."""
        self._contract: Contract | None = None
        self._changed = False
        self._agreement: PolicyAgreement | None = None
        self._topics: PolicyTopics | None = None

    def present(self, fleet: Fleet, policy: str) -> tuple[Fleet, str]:
        """Return the fleet and the policy file of a configuration: after a change those of the change.

        ``fleet`` and ``policy`` are those of the node's parameters.
        """
        if not self._changed or self._fleet is None:
            self._fleet = replace(fleet, policy=Path(policy))
            return fleet, policy
        return self._fleet, str(self._fleet.policy)

    def take(self, robot: Robot) -> None:
        """Take the robot of a new configuration; after a change only an operator arms it."""
        fleet = self._in_fleet
        if not fleet.orders or self._clock.in_lock_step:
            return
        if self._topics is None:
            steps = {REST: self._rest, CHECK: self._check, STOP: self._stop, BEGIN: self._begin}
            self._topics = PolicyTopics(self._node, self._clock, f"{self._name}/policy", self._in_use, steps)
            for topic in set(in_use_topics(fleet.names)) - {in_use_topic(f"{self._name}/policy")}:
                self._clock.subscribe(String, topic, self._on_policy, REQUESTED["policy_in_use"])
        self._robot = robot
        self._contract = read_policy_contract(fleet.policy, fleet.policy_sha256)
        own, guard = f"{self._name}/policy", f"{self._name}/guard"
        peers = {name for name in needed_processes(fleet.names) if name.endswith("/policy")} - {own}
        self._agreement = PolicyAgreement(own, fleet.policy_sha256, {*peers, guard, "task"}, strict=self._changed)
        robot.supervisor.by_hand |= self._changed
        self.look()

    @property
    def _in_fleet(self) -> Fleet:
        """Return the fleet of the newest configuration; RuntimeError before the first one."""
        if self._fleet is None:
            raise RuntimeError("the node was not configured")
        return self._fleet

    @property
    def _in_contract(self) -> Contract:
        """Return the contract of the newest configuration; RuntimeError before the first one."""
        if self._contract is None:
            raise RuntimeError("the node was not configured")
        return self._contract

    def look(self) -> None:
        """Look whether the others use the same policy file; while they do not, the robot is not armed or started."""
        if self._robot is not None and self._agreement is not None:
            reason = self._agreement.reason(self._clock.now_s(), self._robot.loop.lost)
            self._robot.supervisor.see_policies(reason)

    def _on_policy(self, message: String) -> None:
        if self._robot is None or self._agreement is None:
            return
        if self._robot.supervisor.mode not in (*RESTING, Mode.ARMED, Mode.HOLD):
            return  # no time for it while the robot drives
        try:
            self._agreement.hear(PolicyInUse.decode(message.data.encode()), self._clock.now_s())
        except EnvelopeError as error:
            self._node.get_logger().warning(f"policy in use: {error}")
            return
        self.look()

    def _in_use(self) -> tuple[str, str]:
        if self._robot is None:
            return "", ""
        return self._in_fleet.policy_sha256, self._in_contract.contract_hash

    def _require_rest(self) -> None:
        """Refuse while the robot drives, or is kept by more than its own brakes."""
        mode = Mode.IDLE if self._robot is None else self._robot.supervisor.mode
        remedy = {
            Mode.ACTIVE: f"`testudo pause {self._name}` first",
            Mode.HOLDING: f"it goes on by itself; `testudo pause {self._name}` first",
            Mode.STOPPED: f"release the emergency stop, then `testudo rearm {self._name}`",
        }
        if mode not in (*RESTING, Mode.ARMED):
            what = remedy.get(mode, "deactivate it first; a drone lands for that")
            raise PolicyChangeError(f"found the robot {mode}, expected it idle or armed: {what}")

    def _rest(self, _: PolicyChange) -> str:
        self._require_rest()
        return "stands"

    def _check(self, change: PolicyChange) -> str:
        """Load and check everything as a configuration does, and keep nothing of it."""
        self._require_rest()
        fleet, _ = exchanged(self._in_fleet, self._in_contract, change)
        Robot(fleet, self._name, str(fleet.policy), epoch="check", now_s=self._clock.now_s())
        return "can use it"

    def _stop(self, _: PolicyChange) -> str:
        self._require_rest()
        if self._node.lifecycle == "active":
            self._node.trigger_deactivate()
        if self._node.lifecycle == "inactive":
            self._node.trigger_cleanup()
        self._robot = self._agreement = None
        return "stands without a policy"

    def _begin(self, change: PolicyChange) -> str:
        state = self._node.lifecycle
        if state != "unconfigured":
            raise PolicyChangeError(f"found the node {state}, expected unconfigured: it was not told to stop first")
        self._fleet, _ = exchanged(self._in_fleet, self._in_contract, change)
        self._changed = True
        if self._node.trigger_configure() != TransitionCallbackReturn.SUCCESS:
            self._robot = self._agreement = None
            raise self._node.refusal or TestudoError("could not be configured")
        return f"uses {self._fleet.policy.name}; `testudo arm {self._name} --start` lets it drive"
