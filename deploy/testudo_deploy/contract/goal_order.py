"""The messages by which an operator gives goals to a running fleet, and how the task node answers."""

from dataclasses import dataclass

from testudo_deploy.contract.messages import Envelope, Vector


@dataclass(frozen=True)
class GoalOrder(Envelope):
    """Goals of one robot, one after another."""

    SCHEMA = "testudo/goal-order/1"

    order: str  # names this order in the answer; the same one sent again is answered again and changes nothing
    robot: str
    goals_world: tuple[Vector, ...]  # each (D,) [m]; empty: back to the initial position of the fleet file
    repeat: bool = False  # after the last goal comes the first


@dataclass(frozen=True)
class GoalAnswer(Envelope):
    """What became of an order."""

    SCHEMA = "testudo/goal-answer/1"

    order: str
    robot: str
    accepted: bool
    sentence: str  # why it is refused, or what the robot does
