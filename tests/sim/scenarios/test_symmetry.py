"""Declared symmetries: a mapped world with mapped commands has the same rewards, and the mapped signals and poses."""

from dataclasses import replace
from importlib.metadata import entry_points

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import load_robot
from testudo_sim.environment import Environment
from testudo_sim.physics_choice import PhysicsChoice, make_physics
from testudo_sim.scenarios.scenario import make_scenario
from testudo_sim.scenarios.symmetry import HALF_TURN, MIRROR_X, MIRROR_Y, QUARTER_TURN, WorldMap, symmetries_of
from testudo_sim.team.team_tick import SimulatedTeam, start

TEAM, WORLDS, DECISIONS = 4, 4, 5


def environment_of(name, robot="gritsbot_x"):
    """Return the shielded team in a scenario, with the robot's parameters as they are in its file."""
    spec = load_robot(robot)
    shield = projection_parameters(spec)
    task, model = make_scenario(name, spec, shield), motion_model(spec)
    tier = make_physics(PhysicsChoice(), model, task.arena, TEAM, task.boxes)
    team = SimulatedTeam(model, shield, task.arena, tier, TEAM)
    # the noise of poses is as likely in all directions, but not the mapped one in a mapped world
    return Environment(task, replace(team, channels=replace(team.channels, noise_share=0.0)), spread=0.0)


def greatest_differences(environment, symmetries, drawn_together=0.6):
    """Return by how much rewards, and signals and poses, of mapped worlds differ from what they should be."""
    spec, team = environment.team.model.spec, environment.team
    keys = jax.random.split(jax.random.key(3), WORLDS)

    @jax.jit
    def run():
        mapping = WorldMap.drawn(symmetries, jax.random.key(1), WORLDS)
        begin, parameters = environment.draw_start(keys)
        place = begin.position_world * drawn_together  # so that they meet

        def world(position, yaw, task):
            return environment.world(keys, start(team, position, yaw, parameters, None, None), task)

        def step(pair, key):
            one, other = pair
            task = environment.scenario.nominal_world(one.task, environment.scene(one))
            commands = 0.5 * task + spec.control_point_speed_m_s * jax.random.uniform(key, task.shape, minval=-1)
            mapped = mapping.vector(commands)
            (one, first), (other, second) = (
                environment.step(state, command.T, key) for state, command in ((one, commands), (other, mapped))
            )
            signals = mapping.signals(environment.signals(one), spec)
            seen, scene, before = environment.signals(other), environment.scene(other), environment.scene(one)
            angles = {name for name in signals if name.endswith("yaw")}
            apart = [
                jnp.abs(jnp.sin((seen[name] - value) / 2) if name in angles else seen[name] - value).max()
                for name, value in signals.items()
            ]
            there = mapping.vector(before.robots.position_world) - scene.robots.position_world
            return (one, other), (
                jnp.abs(first.reward - second.reward).max(),
                jnp.max(jnp.stack([*apart, jnp.abs(there).max()])),
                first.metrics.interventions.mean(),
            )

        pair = (
            world(place, begin.yaw, begin.task),
            world(mapping.vector(place), mapping.angle(begin.yaw), mapping.task(begin.task, spec)),
        )
        return jax.lax.scan(step, pair, jax.random.split(jax.random.key(2), DECISIONS))[1]

    rewards, states, shielded = run()
    assert shielded.mean() > 0.01  # robots meet: the shield is part of the dynamics
    return float(rewards.max()), float(states.max())


def declared():
    """Return the registered scenarios that declare symmetries."""
    spec = load_robot("gritsbot_x")
    made = {}
    for point in entry_points(group="testudo.scenarios"):
        kind = point.load()
        if hasattr(kind, "symmetries"):
            made[point.name] = make_scenario(point.name, spec, projection_parameters(spec))
    return {name: found for name, one in made.items() if (found := one.symmetries)}


QUICK = ("discovery", "navigation")  # the others with the slow tests, as each compiles a drive of its own


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in sorted(declared())],
)
def test_reward_and_dynamics_stay_as_they_are_in_every_declared_symmetry(name):
    reward, state = greatest_differences(environment_of(name), declared()[name])
    assert reward < 1e-3
    assert state < 1e-3


def test_what_is_no_symmetry_is_noticed():
    """Negative control: a quarter turn of an arena that is no square, with robots near its ends."""
    _, state = greatest_differences(environment_of("navigation"), (QUARTER_TURN,), drawn_together=1.2)
    assert state > 1e-2


def test_an_arena_has_the_symmetries_of_a_box():
    wide = Arena((-2.0, -1.0), (2.0, 1.0))
    assert symmetries_of(wide) == (MIRROR_X, MIRROR_Y, HALF_TURN)
    assert symmetries_of(Arena((-1.0, -1.0, 0.0), (1.0, 1.0, 2.0)))[-1] == QUARTER_TURN
    assert symmetries_of(Arena((0.0, -1.0), (2.0, 1.0))) == ()
    assert symmetries_of(replace(wide, obstacles=("one",))) == ()
    assert (MIRROR_X.sense, HALF_TURN.sense) == (-1, 1)
    np.testing.assert_allclose([MIRROR_X.turn, QUARTER_TURN.turn], [np.pi, np.pi / 2])
