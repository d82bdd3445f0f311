"""Messages of the task to the robots of a fleet: signals of each, and which of its announcements they answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.messages import Echo, PeerMessage, TaskMessage, Vector
from testudo_deploy.contract.task_values import packed
from testudo_hardware.errors import TestudoError
from testudo_sim.scenarios.scenario import PEER, Scenario


@dataclass(frozen=True)
class TaskSample:
    """The signals of the task at one moment."""

    values: Mapping[str, Mapping[str, np.ndarray]]  # by robot and name, component first: own (C,), of entities (C, K)
    age_s: float  # of the oldest measurement behind them
    absent: tuple[str, ...] = ()  # robots that take no part at this moment
    hold_within_m: float = 0.0  # how near to its goal each robot arrives and stands; 0: never
    paused: frozenset[str] = frozenset()  # robots that an operator lets stand
    goes_round: frozenset[str] = frozenset()  # robots whose goal is a corner of their way, where they do not stand


class TaskSender:
    """Makes the messages of one task node."""

    def __init__(self, contract: Contract, scenario: Scenario, robots: Sequence[str], epoch: str) -> None:
        """Begin without an announcement of any robot.

        Args:
            contract: of the policy of the robots.
            scenario: whose signals are sent.
            robots: names of the team.
            epoch: name of this process.

        Raises:
            TestudoError: the scenario has other signals than the policy reads.
        """
        self._signals, self._hash = contract.task_signals, contract.task_hash
        self._robots, self._epoch = tuple(robots), epoch
        self._heard: dict[str, Echo] = {}
        self._sent = dict.fromkeys(self._robots, 0)
        if tuple(scenario.task_signals) != self._signals:
            raise TestudoError(
                f"scenario {scenario.name}: found the signals {_names(scenario.task_signals)}, the policy reads "
                f"{_names(self._signals)}, in other shapes or with other ages; export the policy again"
            )

    def hear(self, message: PeerMessage) -> bool:
        """Take a robot's announcement; False if it is foreign, or not newer than the last one."""
        last = self._heard.get(message.robot)
        if message.robot not in self._robots or (
            last is not None and last[0] == message.epoch and message.sequence <= last[2]
        ):
            return False
        self._heard[message.robot] = (message.epoch, message.stamp_s, message.sequence)
        return True

    def messages(self, sample: TaskSample, now_s: float) -> tuple[TaskMessage, ...]:
        """Return one message to each robot that has been heard, of a sample taken now on the station's clock.

        A robot that takes no part in the task at this moment gets none, and brakes as without the task.

        Raises:
            EnvelopeError: a value is not finite.
        """
        addressed = [robot for robot in self._robots if robot in self._heard and robot not in sample.absent]
        return tuple(self._message(robot, sample, now_s) for robot in addressed)

    def _message(self, robot: str, sample: TaskSample, now_s: float) -> TaskMessage:
        peers = tuple(name for name in self._robots if name != robot)
        self._sent[robot] += 1
        return TaskMessage(
            robot=robot,
            contract=self._hash,
            epoch=self._epoch,
            sequence=self._sent[robot] - 1,
            stamp_s=now_s,
            sample_age_s=max(sample.age_s, 0.0),
            echo=self._heard[robot],
            peers=peers,
            values={signal.name: _values(sample, robot, peers, signal.name) for signal in self._signals},
            hold_within_m=0.0 if robot in sample.goes_round else sample.hold_within_m,
            paused=robot in sample.paused,
        )


def _values(sample: TaskSample, robot: str, peers: Sequence[str], name: str) -> Vector:
    """Return the numbers of a signal; that of peers is their own, one after another."""
    if name in sample.values[robot]:
        return packed(sample.values[robot][name])
    return tuple(number for peer in peers for number in packed(sample.values[peer][name.removeprefix(PEER)]))


def _names(signals: Sequence[object]) -> str:
    return ", ".join(str(getattr(signal, "name", signal)) for signal in signals) or "none"
