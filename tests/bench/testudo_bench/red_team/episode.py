"""One episode: a small fleet in lock-step that swaps places or chases, under one attack."""

import math
from dataclasses import dataclass

import numpy as np

from testudo_bench.red_team.bodies import STEP_S, Bodies, KinematicBodies, MujocoBodies
from testudo_bench.red_team.intruder import Intruder
from testudo_bench.red_team.robot_processes import FleetWorld, RobotProcesses
from testudo_bench.red_team.rows import Row
from testudo_bench.red_team.signed_network import Defences, Network
from testudo_deploy.authentication.fleet_key import FleetKey
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.spec import RobotSpec
from testudo_sim.go_to_goal import go_to_goal_contract

HORIZON_S = 4.0
_RADIUS = 1.4  # of the circle of starts, over layer 1's separation
_ROOM = 1.4  # from the circle to the walls, over the separation
_HUNTER = 2.4  # start of the hunter from the middle, over the separation
_DRIVING_S, _LETS_GO_S = 1.6, 0.8  # the hunter begins once robots drive; it retreats after a contact


@dataclass(frozen=True)
class EpisodeOutcome:
    """What one episode counts."""

    contacts: int  # steps with a contact
    contacts_at_own_speed: int
    least_m: float  # least distance of two centres
    way_m: float  # what a robot drove, on average


class _Episode:
    def __init__(self, spec: RobotSpec, row: Row, defences: Defences, seed: tuple[int, ...], *, mujoco: bool) -> None:
        self._spec, self._row = spec, row
        # worlds, noise and intruder by themselves: a control has the world of its row
        worlds, noise, attacks = (np.random.default_rng([*seed, part]) for part in range(3))
        radius = _RADIUS * projection_parameters(spec).separation_m
        half = radius + _ROOM * projection_parameters(spec).separation_m
        arena = Arena((-half,) * spec.dimension, (half,) * spec.dimension)
        angles = worlds.uniform(0, 2 * math.pi) + 2 * math.pi * np.arange(row.size) / row.size
        angles += worlds.uniform(-0.1, 0.1, row.size)
        self._starts = radius * np.stack([np.cos(angles), np.sin(angles)])
        self._goals = np.roll(self._starts, 1, axis=1) if row.size == 2 else -self._starts
        self._back = np.zeros(row.size, bool)
        self._lets_go_s = 0.0
        self._chases = worlds.uniform() < 0.5
        yaws, bearing = worlds.uniform(-math.pi, math.pi, row.size), worlds.uniform(0, 2 * math.pi)
        at = min(_HUNTER * projection_parameters(spec).separation_m, half - 2 * spec.body_radius_m)
        hunter = at * np.array([math.cos(bearing), math.sin(bearing)]) if row.hunter_speed else None
        self.bodies: Bodies = (
            MujocoBodies(spec, self._starts, yaws, worlds, hunter, arena)
            if mujoco
            else KinematicBodies(spec, self._starts, yaws, worlds, hunter)
        )
        contract = go_to_goal_contract(spec, arena=arena).replace(decision_ticks=2)
        key = FleetKey(worlds.bytes(32)) if defences.key else None
        self._network = Network(key, noise, message_s=row.message_s, challenge=defences.challenge)
        names = tuple(f"r{i}" for i in range(row.size))
        world = FleetWorld(
            spec,
            contract,
            self._network,
            self.bodies,
            defences,
            noise,
            names,
            hunted=row.hunter_speed > 0,
            untrusted_speed_m_s=defences.told * row.hunter_speed * spec.control_point_speed_m_s,
            layer1=row.layer1,
            reserves=row.reserves,
            gives_way=row.gives_way,
        )
        self._robots = [RobotProcesses(world, i, lambda i=i: self._wanted(i)) for i in range(row.size)]
        self._intruder = Intruder(self._network, spec, self._robots, self.bodies, attacks)
        self._intruder.begins_s = float(attacks.uniform(*row.begins_s))

    def _wanted(self, index: int) -> np.ndarray:
        """Return full speed at the nearest other robot, or to the goal and back."""
        here = self.bodies.position(index)
        if self._chases:
            rest = [self.bodies.position(i) for i in range(self._row.size) if i != index]
            target = min(rest, key=lambda place: math.dist(place, here))
        else:
            target = (self._starts if self._back[index] else self._goals)[:, index]
            if math.dist(target, here) < self._spec.body_radius_m:
                self._back[index] = ~self._back[index]
        way = target - here
        return self._spec.control_point_speed_m_s * way / max(float(np.hypot(*way)), 1e-6)

    def _hunting(self) -> np.ndarray:
        """Return the velocity (2,) [m/s] of the hunter: at the nearest robot, and back after a contact."""
        row = self._row
        if not row.hunter_speed:
            return np.zeros(2)
        here = self.bodies.position(row.size)
        target = min((self.bodies.position(i) for i in range(row.size)), key=lambda place: math.dist(place, here))
        now_s, way = self._network.now_s, target - here
        if float(np.hypot(*way)) < 2 * self._spec.body_radius_m:
            self._lets_go_s = now_s + _LETS_GO_S
        speed = row.hunter_speed * self._spec.control_point_speed_m_s * (-1 if now_s < self._lets_go_s else 1)
        return (now_s >= _DRIVING_S) * speed * way / max(float(np.hypot(*way)), 1e-6)

    def run(self, horizon_s: float) -> EpisodeOutcome:
        """Run it to the end, or to a contact at own speed."""
        way_m, row, intruder = 0.0, self._row, self._intruder
        for k in range(1, round(horizon_s / STEP_S) + 1):
            self._network.deliver(k * STEP_S)
            if row.attack is not None and self._network.now_s >= intruder.begins_s:
                row.attack(intruder)
            for robot in self._robots:
                robot.step()
            before = [self.bodies.position(i).copy() for i in range(row.size)]
            self.bodies.advance([robot.applied() for robot in self._robots], self._hunting())
            way_m += sum(math.dist(old, self.bodies.position(i)) for i, old in enumerate(before)) / row.size
            if self.bodies.contacts.at_own_speed:
                break
        found = self.bodies.contacts
        return EpisodeOutcome(found.any, found.at_own_speed, found.least_m, way_m)


def run_episode(
    spec: RobotSpec, row: Row, defences: Defences, number: int, *, mujoco: bool = False, horizon_s: float = HORIZON_S
) -> EpisodeOutcome:
    """Run one episode; equal numbers give equal worlds, with any defences."""
    return _Episode(spec, row, defences, (19, number), mujoco=mujoco).run(horizon_s)
