"""Worlds whose robots run on rails: where each is at each tick is known beforehand."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.spec import load_robot
from testudo_sim.environment import Environment
from testudo_sim.physics.scene import ContactCounts, Scene, count_contacts, least_separation
from testudo_sim.scenarios.scenario import StartState, TaskStep
from testudo_sim.team.team_tick import SimulatedTeam

ARENA = Arena((-3.0, -2.0), (3.0, 2.0))
LAST_TICK = 100
"""From then on all robots stand."""


@dataclass(frozen=True)
class RailPhysics:
    """Robots move along x by what their yaw says [m a tick], whatever is commanded."""

    radius_m: float
    name: str = "rails"

    def reset(self, position_world, yaw, bodies=None, velocity=None):
        return position_world, yaw, jnp.zeros(yaw.shape[-1])

    def advance(self, state, _sent, _parameters):
        return state[0], state[1], state[2] + 1

    def scene(self, state):
        start, speed, ticks = state
        way = speed * jnp.minimum(ticks, LAST_TICK)
        position = start + jnp.concatenate([way[None], jnp.zeros((len(start) - 1, *way.shape))])
        return Scene(MotionState(position, speed, jnp.zeros_like(position)))

    def watch(self, state):
        place = self.scene(state).robots.position_world
        return ContactCounts(count_contacts(place, self.radius_m, ARENA), least_separation(place))


@dataclass(frozen=True)
class Rails:
    """World ``seed - first_seed`` of a table; done when all are within 0.12 m of their goals."""

    starts: tuple
    """By world, robot, axis [m]."""
    goals: tuple
    speeds: tuple
    """By world and robot [m a tick]."""
    first_seed: int = 0
    horizon_s: float = 8.0
    decision_ticks: int = 5
    arena: Arena = ARENA
    task_signals: tuple = ()
    boxes: tuple = ()
    name: str = "rails"

    def start(self, key, _team_size):
        world = (jax.random.key_data(key)[-1] - self.first_seed) % len(self.starts)
        starts, goals, speeds = map(jnp.array, (self.starts, self.goals, self.speeds))
        return StartState(starts[world].T, speeds[world], goals[world].T)

    def signals(self, task, scene) -> Mapping[str, jax.Array]:
        return {"goal_world": task}

    def advance(self, task, before, after, keys):
        distance = jnp.sqrt(jnp.sum((task - after.robots.position_world) ** 2, axis=0))
        near = distance < 0.12
        return TaskStep(task, {"near": 1.0 * near}, jnp.all(near, axis=0), {"near": jnp.sum(1.0 * near, axis=0)})

    def with_horizon(self, horizon_s):
        return replace(self, horizon_s=horizon_s)


def rail_environment(scenario, robot="gritsbot_x"):
    """Return the environment, without a shield and without walls beyond ``ARENA``."""
    spec = load_robot(robot)
    model, shield = motion_model(spec), projection_parameters(spec)
    size = len(scenario.starts[0])
    team = SimulatedTeam(model, shield, scenario.arena, RailPhysics(spec.body_radius_m), size, shielded=False)
    return Environment(scenario, team)
