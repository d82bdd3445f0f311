"""A cell of the test protocol: robots, formation, shield layers and disturbances."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from testudo_sim.team.fault_schedule import FAILED_PROCESS, FALSE_SENDER, FIELDS, PURSUER

ALL_LAYERS = "1+2+3"
GATE_ONLY = "2+3"
PROJECTION_ONLY = "1"
HOSTILE_SIZE = 4  # robots in a cell with a hostile neighbour, including it


class Formation(Enum):
    """Starts and goals of the robots."""

    HEAD_ON = "head-on"
    SYMMETRIC = "symmetric"  # On a circle without jitter; each goal is the opposite position
    SWAP = "swap"  # On a circle with jitter; each goal is the opposite position
    CROSSING = "dense crossing"
    """In a box of which discs of the enforced separation cover 33 %; each goal is another robot's start."""
    CORRIDOR = "corridor"
    DOORWAY = "doorway"  # Half of the robots on each side of a door for one; each goal is beyond it
    ONE_WAY = "one-way door"  # All robots on one side of a door for one, all goals on the other
    BLOCKS = "blocks"  # A swap among obstacles of each kind
    VERTICAL = "vertical head-on"  # Two drones, one above the other, exchange heights
    ASIDE = "swap beside one"  # A swap of all robots but one, which stands aside
    STACKED = "stacked hover"  # Drones pass below hovering ones, through their downwash


class Claim(Enum):
    """What a cell must show."""

    COVERED = "covered"  # The shield's assumptions hold: no contact
    HOSTILE = "hostile"  # A neighbour violates its contract: no contact at own speed
    REPORTED = "reported"  # No claim: layer 1 only, or a violated assumption
    COMPARED = "compared"  # A baseline in the same worlds
    CONTROL = "control"  # A part of the shield is disabled: contacts must occur


class Rule(Enum):
    """The rule of layer 1."""

    OURS = "ours"
    ONE_TICK = "one tick"  # The shield's, but with the hold time T instead of T_hold
    PLAIN = "plain"
    """The shield's, but with the current position as stopping point, without the margins for lag and model."""
    NONE = "none"  # No rule
    ORCA = "ORCA"
    VORONOI = "Voronoi"
    CERTIFICATE = "certificate"  # Baselines: see `baselines.py`


class Commands(Enum):
    """Where the nominal commands come from."""

    STRAIGHT = "straight"  # straight to the goal, or to the door before
    TRAINED = "trained policy"  # of a policy file, to the same places
    UNTRAINED = "untrained policy"  # The same networks before their training


OTHERS = (Rule.PLAIN, Rule.NONE, Rule.ORCA, Rule.VORONOI, Rule.CERTIFICATE)
"""Rules without stopping points; they share a program."""


@dataclass(frozen=True)
class Conditions:
    """Disturbances of a cell; the defaults are none."""

    message_s: float = 0.0  # Delay of messages; 0 means arrival at the next tick
    loss: float = 0.0  # Probability that a message is lost
    one_way_loss: float = 0.0  # Loss probability of messages from the last robot only
    blackout_s: float = 0.0  # Duration without any message, from a random time on
    stride: int = 1  # ticks of the simulation per control period; above 1 the robots tick at different times
    late_chance: float = 0.0  # Probability that a pause of 2 or more periods follows a tick
    dead_s: float = 0.0
    """Duration for which one robot's process is stopped, from a random time on; infinite: it is killed."""
    jump_m: float = 0.0  # Localisation error of robot 0 for 1 s
    jump_rad: float = 0.0
    brake_share: float = 1.0  # Real deceleration relative to the identified one
    hostile_kind: int = 0  # Kind of hostile last robot, see `testudo_sim.team.fault_schedule`
    false_fields: tuple[str, ...] = ("point", "reserved", "requested")
    """Fields of its messages with which a hostile `FALSE_SENDER` lies."""
    late_periods: int = 6  # Longest pause [periods]
    dead_man_s: float | None = None  # Dead-man time of driver and shield; None: that of the robot
    driver_s: float | None = None  # Real dead-man time of the driver; None: as the shield assumes
    blind_tracking: bool = False  # Tracking flags nobody
    blind_age: bool = False  # Message ages are counted from arrival
    blind_take: bool = False  # Requested segments are used without acknowledgement
    radio_burst_s: float = 0.0  # Drones: length of bursts in which no set-point reaches the vehicle
    radio_chance: float = 0.0  # Probability that a burst begins at a tick
    radio_lost_s: float = 0.0  # duration of a lost link of one vehicle, from a random time on; infinite: permanent
    radio_of_all: bool = False  # The lost link affects all vehicles
    onboard_brake: bool | None = None  # Onboard brake in the robot file; None: unchanged
    really_brakes: bool | None = None  # Real onboard brake; None: as in the robot file
    residual_share: float = 0.0
    """Residual motion that the robot file states: standard deviation along and across over the top speed."""
    level: bool = False  # Heights are not scaled: the downwash of drones is ignored
    rule: Rule = Rule.OURS


@dataclass(frozen=True)
class ProtocolCell:
    """One cell of the protocol."""

    place: str  # Kind of dynamics, formation and size, in words
    what: str  # Disturbance or disabled part, in words; may be empty
    robot: str
    size: int
    formation: Formation
    layers: str
    claim: Claim
    horizon_s: float
    episodes: int  # Episodes in the full protocol; the quick one has fewer
    conditions: Conditions = Conditions()
    resolves: bool = True  # Whether deadlock resolution is active
    twin: str | None = None
    """The cell that has the same worlds; a control differs from it only in the disabled part."""
    commands: Commands = Commands.STRAIGHT

    @property
    def name(self) -> str:
        """Return a unique name within a tier."""
        return ", ".join(word for word in (self.place, self.what, f"layers {self.layers}") if word)

    @property
    def killed(self) -> bool:
        """Return whether a process or link is lost permanently."""
        return math.isinf(self.conditions.dead_s) or math.isinf(self.conditions.radio_lost_s)


DISTURBANCES: dict[str, dict[str, Any]] = {
    "300 ms": {"message_s": 0.3},
    "50 % loss": {"loss": 0.5},
    "90 % loss": {"loss": 0.9},
    "blackout of 2 s": {"blackout_s": 2.0},
    "one way 90 % loss": {"one_way_loss": 0.9},
    "late ticks": {"late_chance": 0.1},
    "process killed": {"dead_s": math.inf},
    "process frozen 2 s": {"dead_s": 2.0},
    "jump of 5 cm": {"jump_m": 0.05},
    "jump of 20 cm": {"jump_m": 0.2},
    "jump of 100 cm": {"jump_m": 1.0},
    "300 ms, 50 % loss, late ticks": {"message_s": 0.3, "loss": 0.5, "late_chance": 0.1},
}
"""Conditions that the shield must tolerate, by name."""


def hostile_cells(make: Callable[..., ProtocolCell], robot: str) -> Iterator[ProtocolCell]:
    """Yield the cells with a hostile neighbour; ``make`` returns a cell of ground robots or drones."""
    # the names seed the worlds: other names would give other episodes
    for what, kind, dead_s in (
        ("chaser", PURSUER, 0.0),
        ("liar", FALSE_SENDER, 0.0),
        ("freezer", FAILED_PROCESS, math.inf),
    ):
        wrong = {"claim": Claim.HOSTILE, "hostile_kind": kind, "dead_s": dead_s}
        yield make(robot, HOSTILE_SIZE, Formation.SWAP, what, **wrong)


def insider_cells(make: Callable[..., ProtocolCell], robot: str, episodes: int) -> Iterator[ProtocolCell]:
    """Yield the control of the false position, in which nobody is flagged, and the lies in one field of a message.

    The latter have no claim: an insider with the key that announces true segments, but drives unshielded, violates
    assumption 4, and tracking finds it only when it has left them.
    """
    for twin in hostile_cells(make, robot):
        if twin.conditions.hostile_kind == FALSE_SENDER:  # while a pursuer is silent, all stand
            yield negative_control(twin, "nobody is flagged", episodes, blind_tracking=True)
    for field in FIELDS:
        wrong = {"claim": Claim.REPORTED, "hostile_kind": FALSE_SENDER, "false_fields": (field,)}
        yield make(robot, HOSTILE_SIZE, Formation.SWAP, f"false {field}", **wrong)
        yield make(
            robot, HOSTILE_SIZE, Formation.SWAP, f"false {field}, nobody is flagged", **wrong, blind_tracking=True
        )


def negative_control(twin: ProtocolCell, what: str, episodes: int, **change: Any) -> ProtocolCell:
    """Return the negative control of a cell: the same cell with ``change`` in its conditions."""
    return replace(
        twin,
        what=", ".join(word for word in (twin.what, f"CONTROL {what}") if word),
        claim=Claim.CONTROL,
        episodes=episodes,
        twin=twin.name,
        conditions=replace(twin.conditions, **change),
    )


def control_pair(twin: ProtocolCell, what: str, episodes: int, **change: Any) -> Iterator[ProtocolCell]:
    """Yield a cell without the deadlock rule and its negative control: robots that keep to their right do not meet."""
    intact = replace(twin, resolves=False)
    yield intact
    yield negative_control(intact, what, episodes, **change)


def projection_controls(
    make: Callable[..., ProtocolCell],
    robot: str,
    episodes: int,
    delay: tuple[str, float],
    *,
    dead_man_s: float,
    late_periods: int,
) -> Iterator[ProtocolCell]:
    """Yield the negative controls of layer 1 alone, each after its intact twin; ``delay``: name and delay [s]."""
    alone = {"layers": PROJECTION_ONLY, "claim": Claim.REPORTED}
    late = {**alone, "late_chance": 0.3}
    what = f"dead-man time of {dead_man_s:g} s, very late ticks"
    swap = make(robot, 4, Formation.SWAP, delay[0], **alone, message_s=delay[1])
    head_on = make(robot, 2, Formation.HEAD_ON, what, **late, dead_man_s=dead_man_s, late_periods=late_periods)
    for twin, what, change in (
        (make(robot, 2, Formation.SYMMETRIC, "often late ticks", **late), "plain barrier", {"rule": Rule.PLAIN}),
        (swap, "time since arrival", {"blind_age": True}),
        (head_on, "T for T_hold", {"rule": Rule.ONE_TICK}),
    ):
        yield from control_pair(twin, what, episodes, **change)
