"""The watch over the response in both simulations: silent in normal driving, and it sees what the plant blocks."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_deploy.control.pose_validator import MotionMonitor
from testudo_deploy.control.state_prediction import PendingCommands
from testudo_deploy.monitoring.actuation_monitor import (
    actuation_limits,
    begin_actuation_monitor,
    update_actuation_monitor,
)
from testudo_hardware.links.wire import body_forward_command
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import load_robot
from testudo_plant.plant.injected_faults import RobotFaults
from testudo_plant.plant.plant import Plant, PlantRobot
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.world_parameters import Channels, Slots, draw_parameters
from testudo_sim.team.team_tick import SimulatedTeam, measure

WHEELED = ("gritsbot_x", "irobot_create", "turtlebot3_burger", "turtlebot4")
ROBOTS = (*WHEELED, "crazyflie_2x", "robomaster_s1")
WORLDS = 300
BLOCKED_S = 3.0


def kinematic_run(spec, seconds, random):
    """Return commands (T, D, E) and measured poses of single robots, one world each; wishes are held for a while."""
    channels, model, size = Channels(), motion_model(spec), spec.dimension
    slots, count = Slots.create(spec, channels), round(seconds / spec.control_period_s)
    team = SimulatedTeam(model, None, None, KinematicPhysics(model, None), 1, channels)
    held = max(1, round(0.7 / spec.control_period_s))
    drawn = random.normal(size=(count // held + 1, size, 1, WORLDS)) * spec.control_point_speed_m_s
    wishes = np.repeat(drawn, held, axis=0)[:count].astype(np.float32)

    @jax.jit
    def run(wishes):
        parameters = draw_parameters(jax.random.split(jax.random.key(1), WORLDS), spec, channels)

        def step(carry, at):
            wish, key = at
            motion, past, sent = carry
            command = effective_command(model, wish)
            sent = jnp.concatenate([command[None], sent[:-1]])
            motion = team.physics.advance(motion, sent, parameters)
            past = jax.tree.map(lambda new, old: jnp.concatenate([new[None], old[:-1]]), motion, past)
            return (motion, past, sent), (command, measure(team, past, parameters, key))

        motion = team.physics.reset(jnp.zeros((size, 1, WORLDS)), jnp.zeros((1, WORLDS)), None)
        past = jax.tree.map(lambda x: jnp.broadcast_to(x, (slots.states, *x.shape)), motion)
        sent = jnp.zeros((slots.commands, size, 1, WORLDS))
        return jax.lax.scan(step, (motion, past, sent), (wishes, jax.random.split(jax.random.key(2), count)))[1]

    commands, poses = run(wishes)
    poses = jax.tree.map(np.asarray, poses)
    return (
        np.asarray(commands, float)[:, :, 0],
        MotionState(
            *(np.asarray(x, float)[..., 0, :] for x in (poses.position_world, poses.yaw[:, None], poses.velocity))
        ),
        slots,
    )


FEW = ("gritsbot_x", "crazyflie_2x")
"""One of each kind; the others only in the full run."""


@pytest.mark.parametrize(
    "robot", [robot if robot in FEW else pytest.param(robot, marks=pytest.mark.slow) for robot in ROBOTS]
)
def test_no_robot_within_its_intervals_raises_the_alarm(robot):
    """All draws of lag, delay and scale, ages of poses, noise up to its bounds."""
    spec = load_robot(robot)
    commands, poses, slots = kinematic_run(spec, 8.0, np.random.default_rng(0))
    delay_ticks = spec.quantities["dynamics.command_delay"].high / spec.control_period_s
    span = slots.states + math.ceil(delay_ticks) + 1
    history = np.concatenate([np.zeros((span, *commands.shape[1:])), commands])
    limits, yes = actuation_limits(spec, poses.yaw[0, 0]), np.ones(WORLDS, bool)
    watch, worst = None, -math.inf
    for tick in range(len(commands)):
        pose = MotionState(poses.position_world[tick], poses.yaw[tick, 0], poses.velocity[tick])
        if watch is None:
            watch = begin_actuation_monitor(limits, pose, yes)
        acting = list(history[tick + 1 : tick + span + 1])
        watch, excess = update_actuation_monitor(
            limits, watch, pose, yes, acting, np.full(WORLDS, spec.control_period_s)
        )
        worst = max(worst, float((excess / limits.allowed).max()))
    assert -0.9 < worst <= 0  # it is not silent for want of being driven


def plant_run(robot, seed, seconds, *, faults=None, straight=False):
    """Drive a robot of the plant; return when the alarm was raised and what it was, and the greatest shortfall."""
    spec, random = load_robot(robot), np.random.default_rng(seed)
    model, size, top = motion_model(spec), spec.dimension, spec.speed_limit_m_s
    plant = Plant([PlantRobot("r0", spec, (0.0, 0.0, 5.0)[:size], 0.0)], None, seed)
    sent = PendingCommands(spec.command_delay_s, spec.dead_man_s)
    watch, before_s, wish, worst = MotionMonitor(spec, sent), None, np.zeros(size), 0.0
    wish[0], change_s, tick_s, yaw = top, 0.0, 0.0, 0.0
    while plant.time_s < seconds:
        now_s = plant.time_s + plant.step_s
        plant.step_to(now_s)
        if faults is not None and now_s >= BLOCKED_S:
            plant.break_robot("r0", faults)
        for sample in plant.odometry("r0"):
            pose = MotionState(np.array(sample.position_world), np.array(sample.yaw), np.array(sample.velocity))
            if before_s is None:
                watch.begin(pose)
            else:
                watch.follow(pose, True, before_s, sample.stamp_s, now_s)
                worst = max(worst, float((watch._response.short / watch._limits.allowed).max()))
            before_s, yaw = sample.stamp_s, sample.yaw
            if watch.unresponsive:
                return now_s, watch.unresponsive, worst
        if now_s >= change_s and not straight:
            change_s = now_s + random.choice([0.2, 0.7, 2.0])
            wish = random.choice([0, 0.5, 1]) * top * random.uniform(-1, 1, size)
            if robot in WHEELED:
                wish[1] = random.uniform(-1, 1) * min(spec.turn_rate_limit_rad_s, 3.0)
        if now_s >= tick_s:
            tick_s += spec.control_period_s
            command = model.limit_command(wish)
            sent.push(now_s, effective_command(model, command))
            plant.command("r0", body_forward_command(spec, tuple(command.tolist()), yaw), now_s, now_s)
    return math.inf, "", worst


QUICK = ((1, "gritsbot_x"), (2, "crazyflie_2x"), (1, "robomaster_s1"))


@pytest.mark.parametrize(
    ("seed", "robot"),
    [
        pytest.param(seed, robot, marks=[] if (seed, robot) in QUICK else [pytest.mark.slow])
        for seed in (1, 2)
        for robot in ROBOTS
    ],
)
def test_normal_driving_of_the_plant_raises_none(seed, robot):
    alarm_s, _, worst = plant_run(robot, seed, 15.0)
    assert alarm_s == math.inf
    assert 0.2 < worst < 1


@pytest.mark.parametrize("robot", ["gritsbot_x", "irobot_create", "crazyflie_2x", "robomaster_s1"])
def test_a_blocked_robot_of_the_plant_is_told(robot):
    """Poses are up to 60 ms old here, and their noise has no bound: a little beyond 300 ms for the slowest."""
    faults = RobotFaults(blocked=("left", "right") if robot in WHEELED else ("body",))
    alarm_s, _, _ = plant_run(robot, 3, 5.0, faults=faults, straight=True)
    assert BLOCKED_S < alarm_s < BLOCKED_S + 0.35


@pytest.mark.parametrize("robot", WHEELED)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_blocked_wheel_of_the_plant_is_told_by_the_turn(robot, side):
    alarm_s, reason, _ = plant_run(robot, 4, 5.0, faults=RobotFaults(blocked=(side,)), straight=True)
    assert BLOCKED_S < alarm_s < BLOCKED_S + 0.3
    assert f"the turn to the {'right' if side == 'left' else 'left'} is " in reason
