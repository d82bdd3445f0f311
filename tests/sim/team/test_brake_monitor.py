"""The watch over the brakes in many worlds: silent for all draws of the intervals, and it sees what matters."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_deploy.monitoring.brake_monitor import begin_brake_monitor
from testudo_hardware.motion import motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import load_robot
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.world_parameters import Channels, Slots, draw_parameters
from testudo_sim.team.simulated_brake_monitors import earlier_slots, update_brake_monitors
from testudo_sim.team.team_tick import SimulatedTeam, measure

FAST, SLOW = ("crazyflie_2x", "robomaster_s1"), ("gritsbot_x", "turtlebot4")
WORLDS, SECONDS = 1000, 5.0


def wishes(spec, count, worlds, kind):
    """Return commands (T, D, 1, E): full speed and then a stop, or anything, held for a while each."""
    top, size = spec.control_point_speed_m_s, spec.dimension
    if kind == "stop":
        values = np.zeros((count, size, 1, worlds))
        values[: count // 2, 0] = 2 * top
    else:
        held = max(1, round(0.7 / spec.control_period_s))
        drawn = top * np.random.default_rng(3).standard_normal((count // held + 1, size, 1, worlds))
        values = np.repeat(drawn, held, axis=0)[:count]
    return np.asarray(values, np.float32)


def alarms(robot, kind, brake_share=1.0):
    """Return at which tick each of the single robots raised its first alarm; -1 for none."""
    spec = load_robot(robot)
    count = round(SECONDS / spec.control_period_s)
    raised = watched(robot)(wishes(spec, count, WORLDS, kind), jnp.full(WORLDS, brake_share))
    raised = np.asarray(raised)
    return np.where(raised.any(axis=0), raised.argmax(axis=0), -1)


@cache
def watched(robot):
    """Return a program: commands (T, D, 1, E) and shares of the brakes (E,) to alarms (T, E) of single robots."""
    spec, channels = load_robot(robot), Channels()
    model, slots, size, worlds = motion_model(spec), Slots.create(spec, channels), spec.dimension, WORLDS
    team = SimulatedTeam(model, None, None, KinematicPhysics(model, None), 1, channels)
    located = jnp.ones((1, worlds), bool)

    @jax.jit
    def run(wishes, brake_share):
        parameters = draw_parameters(jax.random.split(jax.random.key(1), worlds), spec, channels)
        parameters = replace(parameters, brake_share=brake_share)

        def step(carry, at):
            wish, key = at
            motion, past, sent, watch = carry
            sent = jnp.concatenate([effective_command(model, wish)[None], sent[:-1]])
            motion = team.physics.advance(motion, sent[: slots.commands], parameters)
            past = jax.tree.map(lambda new, old: jnp.concatenate([new[None], old[:-1]]), motion, past)
            measured = measure(team, past, parameters, key)
            watch, weak = update_brake_monitors(spec, watch, measured, located, sent, parameters)
            return (motion, past, sent, watch), weak[0]

        motion = team.physics.reset(jnp.zeros((size, 1, worlds)), jnp.zeros((1, worlds)), None)
        past = jax.tree.map(lambda x: jnp.broadcast_to(x, (slots.states, *x.shape)), motion)
        sent = jnp.zeros((slots.commands + earlier_slots(spec, slots), size, 1, worlds))
        at = (wishes, jax.random.split(jax.random.key(2), len(wishes)))
        return jax.lax.scan(step, (motion, past, sent, begin_brake_monitor(spec, motion, located)), at)[1]

    return run


@pytest.mark.parametrize("robot", FAST + SLOW)
@pytest.mark.parametrize("kind", ["stop", "anything"])
def test_no_robot_within_its_intervals_raises_the_alarm(robot, kind):
    assert (alarms(robot, kind) == -1).all()


@pytest.mark.parametrize("robot", FAST)
def test_every_stop_of_a_fast_robot_with_weak_brakes_raises_it_within_a_second(robot):
    """Of all lags, delays and scales; the brakes begin at 2.5 s."""
    period_s = load_robot(robot).control_period_s
    first = alarms(robot, "stop", 0.3 if robot == "crazyflie_2x" else 0.7) * period_s
    assert first.min() > 2.5
    assert first.max() < 3.5
