"""The entities of a task in the film of an episode: landmarks, resources and prey, as flat boxes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from testudo_deploy.contract.contract import NEIGHBOURS
from testudo_plant.worlds.robot_bodies import Box
from testudo_sim.environment import Environment
from testudo_sim.scenarios.scenario import POSITION, VALID, group_of

_SIZE, _HEIGHT = 0.9, 0.15  # of a box, over the radius of a robot
_AWAY_M = 100.0  # where an entity that is not there is drawn: outside of the picture


@dataclass(frozen=True)
class EpisodeEntities:
    """The position signals of a task that are neither goals nor real bodies: name and number of entities."""

    counts: Mapping[str, int]
    box: Box

    @classmethod
    def of(cls, environment: Environment) -> "EpisodeEntities":
        """Return the entities of the scenario of an environment."""
        scenario, radius = environment.scenario, environment.team.model.spec.body_radius_m
        bodies = tuple(f"{box.name}_" for box in scenario.boxes)
        counts = {
            signal.name: int(signal.shape[0]) if len(signal.shape) == 2 else 1
            for signal in scenario.task_signals
            if signal.name.endswith(POSITION) and NEIGHBOURS not in signal.shape and not signal.name.startswith(bodies)
        }
        return cls(counts, Box("entity", (_SIZE * radius, _SIZE * radius, _HEIGHT * radius), 1.0, 1.0))

    @property
    def boxes(self) -> tuple[Box, ...]:
        """Return a box for each entity."""
        return (self.box,) * sum(self.counts.values())

    def places_world(self, signals: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the places (B, 2) [m] of the entities, of the signals (component, ..., robot, world) of one world."""
        places = [np.zeros((0, 2))]
        for name in self.counts:
            found = np.asarray(signals[name])[:2, ..., 0, 0].reshape(2, -1).T
            valid = signals.get(f"{group_of(name)}{VALID}")
            is_there = np.ones(len(found)) if valid is None else np.asarray(valid)[0, ..., 0, 0].reshape(-1)
            places.append(np.where(is_there[:, None] > 0, found, _AWAY_M))
        return np.concatenate(places)


def over_ticks(before_world: np.ndarray, after_world: np.ndarray, ticks: int) -> np.ndarray:
    """Return places (T, B, 2) [m] after each tick of a decision; what comes or goes does so at once, at its end."""
    share = np.arange(1, ticks + 1)[:, None, None] / ticks
    jumps = np.any((before_world == _AWAY_M) != (after_world == _AWAY_M), axis=-1, keepdims=True)
    share = np.where(jumps, np.floor(share), share)
    return before_world + share * (after_world - before_world)
