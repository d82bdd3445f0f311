"""What peers said, made by hand, and a robot that passes the gate tick by tick; for tests of layer 3."""

from dataclasses import replace

import numpy as np

from testudo_deploy.shield.reservations import (
    NOTHING_HEARD,
    PeerReservations,
    ShieldInputs,
    apply_stop_tube_check,
    reserved_at_rest,
)
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import load_robot


def peer(owned, announced=None, *, acknowledged=10**6, silent=False, first=True, reserves=True):
    """Return one peer: ends of its lanes; by default it has acknowledged everything and announces nothing."""
    owned = np.array(owned, float)
    owned = owned if owned.ndim == 2 else np.stack([owned, owned])
    announced = owned[:1].repeat(2, axis=0) if announced is None else np.array(announced, float)
    announced = announced if announced.ndim == 2 else np.stack([announced, announced])
    excused = silent and first and acknowledged > NOTHING_HEARD  # as of two robots
    return owned, announced, float(acknowledged), excused, first, reserves


def unheard(size=2, first=True):
    """Return a peer that never said anything."""
    return peer([[np.nan] * size] * 2, acknowledged=NOTHING_HEARD, silent=True, first=first)


def spaces(*peers, size=2):
    """Return the peers (K,)."""
    if not peers:
        none = np.zeros((2, size, 0))
        return PeerReservations(none, none, np.zeros(0), *[np.zeros(0, bool)] * 3)
    owned, announced, acknowledged, excused, first, reserves = zip(*peers, strict=True)
    return PeerReservations(
        np.stack(owned, axis=-1),
        np.stack(announced, axis=-1),
        np.array(acknowledged),
        np.array(excused),
        np.array(first),
        np.array(reserves),
    )


def table_of(peers, age_s=0.1):
    """Return a neighbour table (D, K) for peers, of which only the age counts here."""
    size, count = peers.owned_world.shape[1:]
    return PeerTable(np.zeros((size, count)), np.zeros((size, count)), np.full(count, age_s), np.ones(count, bool))


class Walker:
    """A robot without delay whose lane and state go on from tick to tick."""

    def __init__(self, name="gritsbot_x", place=None, yaw=0.0, arena=None):
        self.spec = load_robot(name)
        self.model, self.space, self.arena = motion_model(self.spec), stop_tube_parameters(self.spec), arena
        size = self.spec.dimension
        place = np.zeros(size) if place is None else np.array(place, float)
        self.state = MotionState(place, np.array(float(yaw)), np.zeros(size))
        self.own, self.number = reserved_at_rest(place), 0.0
        self.response = LagResponse.create(np.array(self.spec.control_period_s), self.spec.velocity_lag_s)

    def look(self, velocity, peers, **changes):
        """Return what the gate makes of a velocity now, with parts of the own space changed."""
        stop = self.model.stopping_point(self.state)
        sight = ShieldInputs(self.state.position_world, self.state, stop, table_of(peers), peers)
        own = replace(self.own, **{key: np.array(value) for key, value in changes.items()})
        return apply_stop_tube_check(
            self.model, self.space, self.arena, sight, own, np.array(velocity, float), np.array(self.number + 1)
        )

    def walk(self, velocity, peers):
        """Pass the gate and move by a tick."""
        found = self.look(velocity, peers)
        self.number += 1
        self.own = found.space
        self.state = self.model.step(self.state, effective_command(self.model, found.command), self.response)
        return found

    def asking(self, first, last, since=5):
        """Return the changes with which the robot has a pending announcement."""
        return {"announced_world": [first, last], "pending": True, "since": float(since)}
