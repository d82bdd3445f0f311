"""The orders of `testudo goal`: from the words of its command line to a message; pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from testudo_deploy.contract.goal_order import GO, GO_ON, PAUSE, GoalOrder
from testudo_deploy.contract.messages import EnvelopeError, Vector
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.control.goal_hold import GOAL_TOLERANCE_M
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.station.formations import Formation, formation_places
from testudo_hardware.errors import TestudoError

ALL = "all"
_MORE_M = 0.05  # by default neighbours of a formation are this much farther apart than goals must be


@dataclass(frozen=True)
class InFormation:
    """A formation about one place."""

    formation: Literal["", "line", "column", "circle", "wedge"] = ""
    """Stand in this shape about the place: each robot takes the place that makes the ways short."""
    spacing: float = 0.0
    """Distance of neighbours in the formation [m]; 0: as near as goals may be."""
    heading: float = 0.0
    """Direction to which the formation looks [deg], from x to y."""


NO_FORMATION = InFormation()


@dataclass(frozen=True)
class Wants:
    """What the options of the command line ask for."""

    home: bool = False
    patrol: bool = False
    formation: InFormation = NO_FORMATION
    pause: bool = False
    go_on: bool = False

    @property
    def named(self) -> tuple[str, ...]:
        """Return the options that take the place of a goal for one robot."""
        given = {
            "--home": self.home,
            "--pause": self.pause,
            "--go-on": self.go_on,
            "--formation": bool(self.formation.formation),
        }
        return tuple(name for name, is_given in given.items() if is_given)


def order_of(fleet: Fleet, robot: str, places: Sequence[float], wants: Wants, name: str) -> GoalOrder:
    """Return the order of a command line, ``name`` names it.

    ``robot`` is a name, several with commas, or `ALL`; ``places`` are the numbers of all places [m].

    Raises:
        TestudoError: a fleet without orders, no such robot, or words that do not fit.
    """
    if not fleet.orders:
        raise TestudoError(f"{fleet.file}: orders: found false, expected true, so that the fleet takes goals")
    named = wants.named
    names = fleet.names if robot == ALL else tuple(fleet.robot(one).name for one in robot.split(","))
    if len(set(names)) < len(names):
        raise TestudoError(f"goal: found {robot}, expected each robot once")
    if len(named) > 1:
        raise TestudoError(f"goal: found {' and '.join(named)}, expected one of them")
    if bool(places) == (bool(named) and named != ("--formation",)):
        raise TestudoError("goal: found both or none of a place and --home, --pause or --go-on, expected one of them")
    if wants.patrol and named:
        raise TestudoError(f"goal: found --patrol with {named[0]}, expected places")
    if len(names) > 1 and not named:
        known = ", ".join(fleet.names)
        raise TestudoError(f"goal: found {robot} with a place, expected the name of one robot ({known}) or --formation")
    order = GoalOrder(
        name,
        _goals(fleet, names, places, wants),
        repeat=wants.patrol,
        exchange=named == ("--formation",),
        act=PAUSE if wants.pause else GO_ON if wants.go_on else GO,
    )
    try:
        order.encode()
    except EnvelopeError as error:
        raise TestudoError(f"goal: {error}") from error
    return order


def _goals(fleet: Fleet, names: Sequence[str], places: Sequence[float], wants: Wants) -> dict[str, tuple[Vector, ...]]:
    """Return the goals of each robot (D,) [m]."""
    size = fleet.robot(names[0]).spec.dimension
    if len(places) % size:
        raise TestudoError(f"goal: found {len(places)} numbers, expected {size} for each place of {', '.join(names)}")
    goals = tuple(tuple(places[k : k + size]) for k in range(0, len(places), size))
    if wants.patrol and len(goals) < 2:
        raise TestudoError(f"--patrol: found {len(goals)} place, expected two or more")
    shape = wants.formation
    if not shape.formation:
        return dict.fromkeys(names, goals)
    if len(goals) != 1:
        raise TestudoError(f"--formation: found {len(goals)} places, expected one, its centre")
    spacing_m = shape.spacing or _least_apart_m(fleet) + _MORE_M
    kind, heading_rad = Formation(shape.formation), math.radians(shape.heading)
    made = formation_places(kind, len(names), goals[0], spacing_m, heading_rad)
    return {one: (place,) for one, place in zip(names, made, strict=True)}


def _least_apart_m(fleet: Fleet) -> float:
    """Return how far apart two goals must be [m], of a scenario with the usual tolerance."""
    contract = PolicyArtefact.load(fleet.policy, sha256=fleet.policy_sha256).contract
    return contract.shield.separation_m + 2 * GOAL_TOLERANCE_M
