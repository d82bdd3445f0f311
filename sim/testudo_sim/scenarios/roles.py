"""Roles of the robots of a team, declared in one place: who has which, and the traits that come with it.

A trait is a number or a vector that does not change during an episode, such as a capacity or a sensing radius. Its name
is that of the robot's own signal; peers read it as `neighbour_` and the name. The state of a task holds the traits of
its robots under ``traits``, so that a fleet file can state others than those that are declared.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.contract.contract import NEIGHBOURS, Signal
from testudo_hardware.errors import TestudoError
from testudo_sim.scenarios.scenario import PEER

TRAITS = "traits"
"""Name of the traits in the state of a task."""

Trait = float | tuple[float, ...] | Callable[[int], float]
"""A number, a vector, or a number that follows from the robot's number in the team, from 1."""


@dataclass(frozen=True)
class Role:
    """One role, and the traits of the robots that have it."""

    name: str
    traits: Mapping[str, Trait]
    count: int | None = None
    """Robots that have it; None: an equal share of those that are left, the first roles one more where it does not
    divide."""


@dataclass(frozen=True)
class Roles:
    """The roles of a scenario in the order of the robots: the first ones have the first role, and so on.

    Roles that state a count have so many robots; the others share those that are left. All have the same traits.
    """

    roles: tuple[Role, ...]
    units: Mapping[str, str] = field(default_factory=dict)  # of traits that have one

    def __post_init__(self) -> None:
        """Refuse roles that contradict each other.

        Raises:
            TestudoError: their traits differ.
        """
        traits = {tuple(role.traits) for role in self.roles}
        if len(traits) != 1:
            raise TestudoError(
                f"roles: found the traits {sorted(traits)}, expected the same of all roles, in one order"
            )

    def of_team(self, team_size: int, where: str) -> tuple[Role, ...]:
        """Return the role of each robot.

        Raises:
            TestudoError: the counts are those of another team size; ``where`` is the name of the scenario.
        """
        counted, open_ = sum(role.count or 0 for role in self.roles), [r for r in self.roles if r.count is None]
        left = team_size - counted
        if counted and (left < len(open_) or (left and not open_)):
            parts = ", ".join(f"{role.count or '1 or more'} {role.name}" for role in self.roles)
            least = f"at least {counted + len(open_)}" if open_ else f"{counted}"
            raise TestudoError(f"{where}: found a team of {team_size}, expected {least}: {parts}")
        shared = [open_[i * len(open_) // left].name for i in range(left)]
        counts = {role.name: role.count or shared.count(role.name) for role in self.roles}
        return tuple(role for role in self.roles for _ in range(counts[role.name]))

    def traits(self, team_size: int, where: str) -> dict[str, jax.Array]:
        """Return the traits of a team by name: numbers (N,), vectors (C, N).

        Raises:
            TestudoError: as `of_team`.
        """
        team = self.of_team(team_size, where)
        names = self.roles[0].traits
        rows = {name: [_value(role.traits[name], i + 1) for i, role in enumerate(team)] for name in names}
        return {name: jnp.asarray(np.array(values, np.float32).T) for name, values in rows.items()}

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Return the signals of the traits, each with that of the peers."""
        made = [
            Signal(name, (len(trait) if isinstance(trait, tuple) else 1,), self.units.get(name, ""), "", None)
            for name, trait in self.roles[0].traits.items()
        ]
        peers = [replace(own, name=f"{PEER}{own.name}", shape=(NEIGHBOURS, *own.shape)) for own in made]
        return tuple(signal for pair in zip(made, peers, strict=True) for signal in pair)


def trait_values(traits: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Return the traits of a task, (N, E) or (C, N, E), as values of own signals (C, N, E)."""
    return {name: value if value.ndim == _VECTOR_AXES else value[None] for name, value in traits.items()}


_VECTOR_AXES = 3


def _value(trait: Trait, number: int) -> float | tuple[float, ...]:
    return trait(number) if callable(trait) else trait
