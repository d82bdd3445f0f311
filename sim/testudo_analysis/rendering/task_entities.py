"""The entities of a task in a film, simulated or recorded: landmarks, resources and prey, as flat boxes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from testudo_deploy.contract.contract import NEIGHBOURS, Signal
from testudo_plant.worlds.robot_bodies import Box
from testudo_runs.run_reader import RecordedRun
from testudo_sim.scenarios.scenario import POSITION, VALID, group_of

_SIZE, _HEIGHT = 0.9, 0.15  # of a box, over the radius of a robot
_AWAY_M = 100.0  # where an entity that is not there is drawn: outside of the picture


@dataclass(frozen=True)
class TaskEntities:
    """The position signals of a task that are neither goals nor real bodies: name and number of entities."""

    counts: Mapping[str, int]
    box: Box

    @classmethod
    def of(cls, signals: Iterable[Signal], bodies: Iterable[str], body_radius_m: float) -> "TaskEntities":
        """Return the entities that signals place, without the ``bodies`` with these names; sized as robots."""
        pushed = tuple(f"{body}_" for body in bodies)
        counts = {
            signal.name: int(signal.shape[0]) if len(signal.shape) == 2 else 1
            for signal in signals
            if signal.name.endswith(POSITION) and NEIGHBOURS not in signal.shape and not signal.name.startswith(pushed)
        }
        return cls(counts, Box("entity", (_SIZE * body_radius_m, _SIZE * body_radius_m, _HEIGHT * body_radius_m), 1, 1))

    @property
    def boxes(self) -> tuple[Box, ...]:
        """Return a box for each entity."""
        return (self.box,) * sum(self.counts.values())

    def places_world(self, signals: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the places (B, 2) [m] of the entities, from the signals of one robot: (K, C), or (C,)."""
        places = [np.zeros((0, 2))]
        for name, count in self.counts.items():
            found = np.reshape(signals[name], (count, -1))[:, :2]
            valid = signals.get(f"{group_of(name)}{VALID}")
            is_there = np.ones(count) if valid is None else np.reshape(valid, count)
            places.append(np.where(is_there[:, None] > 0, found, _AWAY_M))
        return np.concatenate(places)

    def recorded_world(self, run: RecordedRun, times_s: np.ndarray) -> np.ndarray | None:
        """Return the places (T, B, 2) [m] at times of a run, by what the task node said; None if it said too little.

        A robot may have entities of its own; shown are those of the first one.
        """
        first = run.robots[0]
        scored = [score for score in run.task_scores if score.get("signals")]
        if not self.counts or len(scored) < 2:
            return None
        stamps = [float(score["stamp_s"]) for score in scored]
        places = [self.places_world(score["signals"][first]) for score in scored]
        if begin := run.task_messages.get(first):  # before the first decision the task is as it begins
            stamps.insert(0, 2 * stamps[0] - stamps[1])
            places.insert(0, self.places_world({name: np.array(value) for name, value in begin[0].values.items()}))
        k = np.clip(np.searchsorted(stamps, times_s, side="right") - 1, 0, len(stamps) - 2)
        since, until = np.array(stamps)[k], np.array(stamps)[k + 1]
        share = np.clip((times_s - since) / (until - since), 0.0, 1.0)
        return moved(np.array(places)[k], np.array(places)[k + 1], share)


def moved(before_world: np.ndarray, after_world: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return places (T, B, 2) [m] after shares (T,) of a decision; what comes or goes does so at once, at its end.

    Places before and after are (T, B, 2), or (B, 2) if the same for all shares.
    """
    shares = np.asarray(share)[:, None, None]
    jumps = np.any((before_world == _AWAY_M) != (after_world == _AWAY_M), axis=-1, keepdims=True)
    shares = np.where(jumps, np.floor(shares), shares)
    return before_world + shares * (after_world - before_world)
