"""Drawn situations of one robot among peers, to compare two forms of the bodies of its tick.

They cover what a robot meets, and beyond: contacts, places outside of the arena, old messages and messages from the
future, peers that are excused or invalid, numbers that are not finite.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from testudo_deploy.shield.deadlock_resolution import DeadlockState
from testudo_deploy.shield.passage_order import PassageState
from testudo_deploy.shield.reservations import PeerReservations, ReservedSpace, ShieldInputs
from testudo_deploy.shield.right_of_way import RightOfWay
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.motion import LagResponse, MotionState
from testudo_hardware.motion.motion_model import effective_command

_FAR = 6.0  # farthest peers and walls [separations of control points]
_BROKEN = 0.04  # share of situations in which one number is broken
_BAD = (np.nan, np.inf, -np.inf, 1e300, -1.0, 0.0)


@dataclass(frozen=True)
class TickDraw:
    """Draws arguments for the bodies of `TickBodies`."""

    shield: Shield
    peers: int
    untrusted: bool
    message_size: int
    pending: int  # commands that a prediction takes

    def many(self, count: int, seed: int) -> Iterator[dict[str, tuple[Any, ...]]]:
        """Return the arguments of each body by its name, ``count`` times."""
        rng = np.random.default_rng(seed)
        return (self.arguments(rng, breaks=True) for _ in range(count))

    def arguments(self, rng: np.random.Generator, *, breaks: bool = False) -> dict[str, tuple[Any, ...]]:
        """Return the arguments of each body by its name; ``breaks`` allows numbers that are not plausible."""
        size, speed = self.shield.model.spec.dimension, self.shield.model.spec.control_point_speed_m_s
        measured = MotionState(self._place(rng), np.array(rng.uniform(-4, 4)), self._velocity(rng))
        ahead = rng.normal(0, 0.1, size)
        slow = 0.1 if rng.random() < 0.5 else 1.0  # fast ones brake in almost every situation
        turned, velocity = np.array(measured.yaw + slow * ahead[0]), slow * self._velocity(rng)
        estimate = MotionState(measured.position_world + slow * ahead, turned, velocity)
        with np.errstate(all="ignore"):
            stop = self.shield.model.stopping_point(estimate)
        table, peers = self._peers(rng, stop.position_world)
        own = self._own(rng, measured.position_world, stop.position_world)
        nominal, moved = (self._vector(rng, 1.3 * speed) for _ in range(2))
        if breaks and rng.random() < _BROKEN:
            arrays = (measured.position_world, estimate.velocity, table.control_point_world, table.age_s,
                      table.control_velocity_world, peers.owned_world, own.owned_world, nominal, moved)  # fmt: skip
            broken = arrays[rng.integers(len(arrays))]
            if broken.size:
                broken[np.unravel_index(rng.integers(broken.size), broken.shape)] = _BAD[rng.integers(len(_BAD))]
        inputs = ShieldInputs(measured.position_world, estimate, stop, table, peers)
        return {
            "locate": (measured, *self._pending(rng)),
            "reserved_twice": (own, peers),
            "rule": (self._memory(rng), stop.position_world, table, peers.first, nominal, moved),
            "check": (inputs, own, nominal, np.array(float(rng.integers(20)))),
        }

    def _place(self, rng: np.random.Generator) -> np.ndarray:
        """Return a place (D,) [m], in the arena and its obstacles or a little outside of it."""
        reach, size, arena = _FAR * self.shield.parameters.separation_m, self.shield.model.spec.dimension, None
        arena = self.shield.arena
        if arena is None:
            return rng.uniform(-reach, reach, size)
        low, high = np.array(arena.low_world), np.array(arena.high_world)
        room = np.minimum(high - low, 2 * reach)
        corner = low + rng.random(size) * (high - low - room)
        return corner + rng.uniform(-0.02, 1.02, size) * room

    def _vector(self, rng: np.random.Generator, longest: float) -> np.ndarray:
        """Return a vector (D,), in one of eight cases zero."""
        way = rng.normal(size=self.shield.model.spec.dimension)
        return way * (longest * rng.random() * (rng.random() > 0.125) / np.linalg.norm(way))

    def _velocity(self, rng: np.random.Generator) -> np.ndarray:
        spec, model = self.shield.model.spec, self.shield.model
        return effective_command(model, rng.normal(0, spec.control_point_speed_m_s, spec.dimension) * 2)

    def _peers(self, rng: np.random.Generator, place: np.ndarray) -> tuple[PeerTable, PeerReservations]:
        """Return table and reservations of peers near and far, some of them where the robot is."""
        count, size, unit = self.peers, len(place), self.shield.parameters.separation_m
        speed = self.shield.parameters.peer_speed_m_s
        away = rng.normal(size=(size, count))
        away *= _FAR * unit * rng.random(count) ** 2 / (np.linalg.norm(away, axis=0) + 1e-12)
        points = place[:, None] + away

        def velocities() -> np.ndarray:
            return rng.normal(0, speed / 2, (size, count)) * (rng.random(count) > 0.2)

        age = rng.exponential(rng.choice([0.02, 0.1, 1.0]), count)
        table = PeerTable(
            points,
            velocities(),
            age,
            rng.random(count) > 0.03,
            rng.random(count) < 0.3 if self.untrusted else None,
            wanted_world=velocities(),
            message=rng.uniform(-1, 1, (self.message_size, count)) if self.message_size else None,
        )
        ends = points + rng.normal(0, unit / 6, (2, size, count))
        further = points + rng.normal(0, unit / 2, (2, size, count)) * (rng.random(count) > 0.5)
        chances = [(rng.random(count) < share) for share in (0.1, 0.5, 0.95)]
        return table, PeerReservations(ends, further, rng.integers(-1, 20, count).astype(float), *chances)

    def _own(self, rng: np.random.Generator, place: np.ndarray, stop: np.ndarray) -> ReservedSpace:
        """Return what the robot has reserved: in half of the cases the way on which it drives, so that it may go on."""
        lane, unit = self.shield.space.lane_m, self.shield.parameters.separation_m
        start = place + rng.normal(0, lane / 2, len(place))
        end = start + rng.normal(0, unit / 2, len(place))
        if rng.random() < 0.5:
            start, end = place + rng.normal(0, lane / 6, len(place)), place + rng.uniform(1, 4) * (stop - place)
        ends = np.stack([start, end])
        asked = np.stack([start, start + rng.normal(0, unit, len(place))])
        return ReservedSpace(ends, asked, np.array(rng.random() < 0.5), np.array(float(rng.integers(20))))

    def _memory(self, rng: np.random.Generator) -> DeadlockState:
        """Return a memory of the deadlock rule, in half of the cases that of a robot that is free."""
        busy = rng.random() < 0.5
        share, free, turn, stuck, blocked, gives, waited = (np.array(x) for x in rng.random(7))
        way = RightOfWay(3 * blocked * busy, 0.4 * gives * busy, np.array(float(busy and rng.random() < 0.3)))
        through = np.array(rng.uniform(-2, 2) * busy)
        return DeadlockState(share, free, 1.2 * turn * busy, 10 * stuck * busy, way, PassageState(through, 20 * waited))

    def _pending(self, rng: np.random.Generator) -> tuple[np.ndarray, LagResponse]:
        spec = self.shield.model.spec
        commands = np.stack([self._velocity(rng) for _ in range(self.pending)])
        times = np.where(rng.random(self.pending) < 0.5, spec.control_period_s, 0.03 * rng.random(self.pending))
        return commands, LagResponse.create(times * (rng.random(self.pending) > 0.3), spec.velocity_lag_s)
