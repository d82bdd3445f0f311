"""What a cell of the test protocol is: who drives where under which layers, and what goes wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

ALL_LAYERS = "1+2+3"
GATE_ONLY = "2+3"
PROJECTION_ONLY = "1"
HOSTILE_SIZE = 4
"""Robots in a cell with a hostile neighbour, which is one of them."""


class Formation(Enum):
    """Where robots start and where they want to go."""

    HEAD_ON = "head-on"
    SYMMETRIC = "symmetric"
    """On a circle without any jitter, each to the opposite place."""
    SWAP = "swap"
    """The same with jitter."""
    CROSSING = "dense crossing"
    """In a box of which 33 % is covered by discs of the enforced separation, each to another's place."""
    CORRIDOR = "corridor"
    BLOCKS = "blocks"
    """A swap among obstacles of each kind."""
    VERTICAL = "vertical head-on"
    """Two drones, one above the other, change heights."""
    STACKED = "stacked hover"
    """Drones pass below others that hover, through where their wash is."""


class Claim(Enum):
    """What a cell must show."""

    COVERED = "covered"
    """Its assumptions hold, layers as deployed: no contact."""
    HOSTILE = "hostile"
    """A neighbour keeps to no contract: no contact at own speed."""
    REPORTED = "reported"
    """Nothing is claimed: layer 1 alone, or an assumption is broken."""
    COMPARED = "compared"
    """Another method in the same worlds."""
    CONTROL = "control"
    """Something is taken out of the shield: contacts must be seen."""


class Rule(Enum):
    """What stands in the place of layer 1."""

    OURS = "ours"
    ONE_TICK = "one tick"
    """Ours, but a command is taken to act for T, not for T_hold."""
    PLAIN = "plain"
    """Ours, but the place of the body is taken for its stopping point, without the margins for lag and model."""
    NONE = "none"
    """Nothing."""
    ORCA = "ORCA"
    VORONOI = "Voronoi"
    CERTIFICATE = "certificate"
    """What the shield is compared with: `baselines.py`."""


OTHERS = (Rule.PLAIN, Rule.NONE, Rule.ORCA, Rule.VORONOI, Rule.CERTIFICATE)
"""Rules for robots that know of no stopping point; they share a program."""


@dataclass(frozen=True)
class Conditions:
    """What goes wrong; the defaults are a good day."""

    message_s: float = 0.0
    """Time that a message takes; 0 is there at the next tick."""
    loss: float = 0.0
    """Probability that a message is lost."""
    one_way_loss: float = 0.0
    """The same, for the messages from the last robot only."""
    blackout_s: float = 0.0
    """For so long no message arrives, from a random moment on."""
    stride: int = 1
    """Ticks of the simulation in a control period; above 1 robots tick at different moments."""
    late_chance: float = 0.0
    """Probability that a tick is followed by a pause of 2 periods or more."""
    dead_s: float = 0.0
    """The process of one robot is gone for so long, from a random moment on; infinite: it is killed."""
    jump_m: float = 0.0
    """For 1 s robot 0 is located elsewhere by so much."""
    jump_rad: float = 0.0
    brake_share: float = 1.0
    """Deceleration over the identified one."""
    stranger: int = 0
    """What the last robot is: a kind of `testudo_sim.team.fault_schedule`."""
    late_periods: int = 6
    """The longest pause."""
    dead_man_s: float | None = None
    """Dead-man time of driver and shield, where it is another than the robot's."""
    driver_s: float | None = None
    """What the driver really waits, where it is another time than the shield knows."""
    blind_age: bool = False
    """Ages are counted from the arrival of a message."""
    blind_take: bool = False
    """Announced space is taken without acknowledgement."""
    radio_burst_s: float = 0.0
    """Drones: bursts in which no set-point reaches the vehicle are as long as this."""
    radio_chance: float = 0.0
    """Probability that one begins at a tick."""
    radio_lost_s: float = 0.0
    """For so long no set-point reaches one of the vehicles, from a random moment on; infinite: for ever."""
    radio_of_all: bool = False
    """The same of all vehicles at once."""
    onboard_brake: bool | None = None
    """Whether the robot file says that the vehicle brakes by itself; None: as it stands there."""
    really_brakes: bool | None = None
    """What the vehicle does, where that is another thing than its file says."""
    level: bool = False
    """Heights between robots count as much as other ways: the wash of drones is not looked at."""
    rule: Rule = Rule.OURS


@dataclass(frozen=True)
class ProtocolCell:
    """One row of the table."""

    place: str
    """Kind of dynamics, formation and size, in words."""
    what: str
    """What goes wrong or was taken out, in words; may be empty."""
    robot: str
    size: int
    formation: Formation
    layers: str
    claim: Claim
    horizon_s: float
    episodes: int
    """In the whole protocol; the quick one has fewer."""
    conditions: Conditions = Conditions()
    resolves: bool = True
    """Whether the rule against deadlocks turns wishes."""
    twin: str | None = None
    """Of a control: the cell that differs from it in nothing but what was taken out."""

    @property
    def name(self) -> str:
        """Return a name that no other cell of a tier has."""
        return ", ".join(word for word in (self.place, self.what, f"layers {self.layers}") if word)

    @property
    def killed(self) -> bool:
        """Return whether that robot never comes back."""
        return math.isinf(self.conditions.dead_s) or math.isinf(self.conditions.radio_lost_s)
