"""The watch over the brakes in many worlds: silent for all draws of the intervals, and it sees what matters."""

from dataclasses import replace

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
WORLDS = 1000


def wishes(spec, count, worlds, kind):
    """Return commands (T, D, 1, E): full speed and then a stop, or anything, held for a while each."""
    top, size = spec.control_point_speed_m_s, spec.dimension
    if kind == "stop":
        ahead = (jnp.arange(count) < count // 2) * 2 * top
        return jnp.zeros((count, size, 1, worlds)).at[:, 0].set(ahead[:, None, None])
    held = max(1, round(0.7 / spec.control_period_s))
    drawn = top * jax.random.normal(jax.random.key(3), (count // held + 1, size, 1, worlds))
    return jnp.repeat(drawn, held, axis=0)[:count]


def alarms(robot, kind, brake_share=1.0, worlds=WORLDS, seconds=5.0):
    """Return at which tick each of the single robots raised its first alarm; -1 for none."""
    spec, channels = load_robot(robot), Channels()
    model, slots, size = motion_model(spec), Slots.create(spec, channels), spec.dimension
    parameters = draw_parameters(jax.random.split(jax.random.key(1), worlds), spec, channels)
    parameters = replace(parameters, brake_share=jnp.full(worlds, brake_share))
    team = SimulatedTeam(model, None, None, KinematicPhysics(model, None), 1, channels)
    located = jnp.ones((1, worlds), bool)

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
    count = round(seconds / spec.control_period_s)
    at = (wishes(spec, count, worlds, kind), jax.random.split(jax.random.key(2), count))
    raised = np.asarray(jax.lax.scan(step, (motion, past, sent, begin_brake_monitor(spec, motion, located)), at)[1])
    return np.where(raised.any(axis=0), raised.argmax(axis=0), -1)


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
