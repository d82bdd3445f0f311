"""The messages by which an operator gives goals to a running fleet, and how the task node answers."""

from dataclasses import dataclass

from testudo_deploy.contract.messages import Envelope, Vector

GO, PAUSE, GO_ON = "go", "pause", "go_on"
ACTS = (GO, PAUSE, GO_ON)


@dataclass(frozen=True)
class GoalOrder(Envelope):
    """Goals of some robots, which are accepted or refused together."""

    SCHEMA = "testudo/goal-order/2"

    order: str  # names this order in the answer; the same one sent again is answered again and changes nothing
    goals_world: dict[str, tuple[Vector, ...]]
    """By robot: its goals (D,) [m], one after another; none: back to the initial position of the fleet file."""
    repeat: bool = False  # after the last goal comes the first
    exchange: bool = False
    """Each robot has one place, and each place may go to any of them: those are chosen that make the ways short."""
    act: str = GO
    """`PAUSE`: the robots stand where they are; `GO_ON`: they drive to their goals again. Both without goals."""


@dataclass(frozen=True)
class GoalAnswer(Envelope):
    """What became of an order."""

    SCHEMA = "testudo/goal-answer/2"

    order: str
    accepted: bool
    sentences: tuple[str, ...]  # why it is refused, or what each robot does
