"""What worlds are drawn from: intervals of the robot, histories as long as needed, messages lost."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.spec import load_robot
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.world_parameters import Channels, Slots, draw_parameters, draw_robot_parameters
from testudo_sim.team import team_tick as team_module
from testudo_sim.team.team_tick import SimulatedTeam, measure

pytestmark = pytest.mark.usefixtures("quick")


def draw(keys, spec, channels, spread=1.0):
    """Return drawn parameters, as NumPy arrays, from one compiled program."""
    return jax.tree.map(np.asarray, jax.jit(lambda keys: draw_parameters(keys, spec, channels, spread))(keys))


def test_lost_messages_are_as_many_as_the_loss_says():
    """Regression: a loss of 1 read as 255/256."""
    spec = load_robot("gritsbot_x")
    model = motion_model(spec)
    team = SimulatedTeam(model, projection_parameters(spec), None, KinematicPhysics(model, None), 2)
    drawn = draw(jax.random.split(jax.random.key(1), 4000), spec, Channels())
    for loss in (0.0, 0.25, 1.0):
        parameters = dataclasses.replace(drawn, message_loss=jnp.full(4000, loss, jnp.float32))
        announced, slots = jnp.zeros((2, 4, 2, 4000)), jnp.zeros((2, 1, 2, 4000))
        unheard = PeerTable(slots, slots, slots[0], slots[0] > 0)
        estimate = MotionState(slots[:, 0], slots[0, 0], slots[:, 0])
        state: Any = SimpleNamespace(parameters=parameters, table=unheard, links=None, estimate=estimate)
        _, table = team_module._heard(team, state, announced, jax.random.key(0))
        assert float(jnp.mean(table.valid)) == pytest.approx(1 - loss, abs=0.02 if 0 < loss < 1 else 0)


def test_histories_are_as_long_as_delays_and_ages_ask_for():
    """Else a robot with a fast tick would be simulated with a shorter delay than it has, unseen."""
    spec = load_robot("gritsbot_x")
    assert Slots.create(spec, Channels()) == Slots(commands=4, states=3, messages=2)
    fast = dataclasses.replace(spec, control_period_s=0.01)  # 0.06 s of age and 0.05 s (up to 0.06 s) of delay
    assert Slots.create(fast, Channels(message_ticks=(1, 4))) == Slots(commands=11, states=7, messages=4)


def test_channels_out_of_order_are_refused():
    spec, keys = load_robot("gritsbot_x"), jax.random.split(jax.random.key(0), 3)
    for ages in ((0.0, 0.2), (0.05, 0.02), (-0.01, 0.02)):
        with pytest.raises(TestudoError, match="pose_age_s"):
            draw_parameters(keys, spec, Channels(pose_age_s=ages))
    for ticks in ((0, 1), (2, 1)):
        with pytest.raises(TestudoError, match="message_ticks"):
            draw_parameters(keys, spec, Channels(message_ticks=ticks))


@pytest.mark.parametrize("name", ["gritsbot_x", "turtlebot4", "irobot_create", "crazyflie_2x", "robomaster_s1"])
def test_drawn_parameters_are_within_their_intervals_and_belong_to_their_key(name):
    spec, channels = load_robot(name), Channels()
    keys = jax.random.split(jax.random.key(2), 2000)
    drawn = draw(keys, spec, channels)
    period = spec.control_period_s
    ticks = np.asarray((np.arange(len(drawn.delay_weights))[:, None] * drawn.delay_weights).sum(axis=0))
    delay, scale = spec.quantities["dynamics.command_delay"], spec.quantities["dynamics.speed_scale"]
    assert delay.low - 1e-5 <= ticks.min() * period < delay.value < ticks.max() * period
    assert ticks.max() * period <= delay.high + 1e-5
    assert np.asarray(drawn.delay_weights).sum(axis=0) == pytest.approx(np.ones(2000), abs=1e-5)
    assert np.asarray(drawn.age_weights).sum(axis=0) == pytest.approx(np.ones(2000), abs=1e-5)
    # over the described one, which commands have in them already
    low, high = scale.low / scale.value, scale.high / scale.value
    assert low - 1e-6 <= drawn.scale[0].min() < drawn.scale[0].max() <= high + 1e-6
    assert set(np.asarray(drawn.message_ticks).tolist()) == {1, 2}
    assert 0 <= drawn.message_loss.min() < drawn.message_loss.max() <= 0.1
    alone = draw(keys[7:8], spec, channels)
    for many, one in zip(jax.tree.leaves(drawn), jax.tree.leaves(alone), strict=True):
        # vector and scalar code of a function may round differently; weights are what 6 ticks leave beside whole ones,
        # and those round to 5e-7 in single precision
        np.testing.assert_allclose(np.asarray(many[..., 7:8]), np.asarray(one), rtol=1e-6, atol=1e-6)
    exact = draw(keys, spec, channels, 0.0)
    assert np.asarray(exact.scale) == pytest.approx(np.ones(exact.scale.shape))


def test_each_robot_of_a_world_can_have_its_own_dynamics_and_a_constant_pose_bias():
    """Kinematic robots that are told the same drive apart; the sum of bias and noise stays within the error bounds."""
    spec, size = load_robot("gritsbot_x"), 3
    keys = jax.random.split(jax.random.key(5), 200)
    drawn = jax.jit(lambda keys: draw_robot_parameters(keys, spec, Channels(), size))(keys)
    model = motion_model(spec)
    team = SimulatedTeam(model, projection_parameters(spec), None, KinematicPhysics(model, None), size)
    plane, line = np.zeros((2, size, 200), np.float32), np.zeros((size, 200), np.float32)
    still = MotionState(plane, line, plane)
    sent = np.full((len(drawn.delay_weights), 2, size, 200), 0.1, np.float32)
    velocity = np.asarray(jax.jit(team.physics.advance)(still, sent, drawn).velocity)
    assert np.abs(velocity[0, 0] - velocity[0, 1]).min() > 0
    past = jax.tree.map(lambda x: np.stack([x] * len(drawn.age_weights)), still)
    seen = jax.jit(jax.vmap(lambda key: measure(team, past, drawn, key)))(jax.random.split(jax.random.key(0), 50))
    place = np.asarray(seen.position_world)
    assert np.abs(place).max() <= spec.position_error_m * 1.001
    assert np.abs(np.asarray(seen.yaw)).max() <= spec.yaw_error_rad * 1.001
    bias = spec.position_error_m * np.asarray(drawn.pose_bias[:2])
    assert np.abs(place.mean(axis=0) - bias).max() < 0.3 * spec.position_error_m
    assert np.abs(bias).max() > 0.8 * spec.position_error_m
