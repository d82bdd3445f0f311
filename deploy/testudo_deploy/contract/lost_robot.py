"""The message by which an operator declares a robot lost."""

from dataclasses import dataclass

from testudo_deploy.contract.messages import Envelope, Vector


@dataclass(frozen=True)
class LostRobot(Envelope):
    """One robot that is out of order, and where it rests."""

    SCHEMA = "testudo/lost/1"

    robot: str
    place_world: Vector | None  # (D,) [m]; None: where its peers received its last announcement
