"""Runs and counts the episodes of a batch, in which robots drive to their goals under the shield.

An episode is counted until its horizon, until some time after all robots have arrived, or until all robots have been at
rest for long.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from testudo_bench.shield_protocol.baselines import OtherShield
from testudo_bench.shield_protocol.compiled_setting import DOORS, JAMB_M, CompiledStage, door_half_m
from testudo_bench.shield_protocol.world_batch import Batch
from testudo_deploy.shield.arena import distance_to
from testudo_deploy.shield.velocity_projection import ShieldStatus
from testudo_hardware.motion.motion_state import length
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_sim.physics.world_parameters import draw_parameters, draw_robot_parameters
from testudo_sim.team.deployed_team import DeployedTeamState, start_deployed, tick_deployed
from testudo_sim.team.residual_motion import begin_residual

ARRIVED_M = 0.1
SLOW_M_S = 0.01  # largest own speed at a contact that a hostile neighbour causes
STILL_M, STILL_S = 0.01, 5.0
"""Robots are deadlocked if none moves further than this in this time before the goals are reached."""
GIVEN_UP_S = 20.0  # an episode ends when no robot moves for this time, except in hostile cells
_GAIN_PER_S = 1.5  # Gain of go-to-goal commands
_FROM_SPEED = 0.5  # a robot brakes from speed if it slows from above this share of top speed to this share of its speed
_TOUCH_M = 0.002  # MuJoCo separates bodies in contact: within this distance they count as touching for the own speed


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EpisodeTally:
    """Counts of each world (E,), unless another shape is given."""

    contacts: jax.Array  # int: physics steps with pairs in contact
    fast_contacts: jax.Array  # int: robot-ticks in which a robot touched something at an own speed above 1 cm/s
    separation_m: jax.Array
    arrived_tick: jax.Array  # int: tick at which all were at their goals; -1 before
    changed: jax.Array  # Robot-ticks whose command the shield changed
    change_m_s: jax.Array  # Sum of the sizes of these changes
    robot_ticks: jax.Array
    anchor_world: jax.Array  # (D, N, E) [m]: position of each robot at its last movement
    still: jax.Array  # (N, E) int: ticks since the last movement
    speed_m_s: jax.Array  # (N, E): speed at the previous tick
    touching: jax.Array  # (N, E) bool: contact at the previous tick
    braked: jax.Array  # (N, E) bool: braked from speed at least once
    alarmed: jax.Array  # (N, E) bool: the brake monitor raised an alarm
    over: jax.Array  # bool


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Course:
    """State of a running batch."""

    world: DeployedTeamState
    tally: EpisodeTally
    batch: Batch
    key: jax.Array


def begin(stage: CompiledStage, batch: Batch, seed: jax.Array) -> Course:
    """Return the initial state of a batch; ``seed`` is for random events during the run."""
    keys = jax.vmap(jax.random.key)(batch.seed)
    if stage.setting.choice.physics == "kinematic":
        parameters = draw_robot_parameters(keys, stage.spec, stage.team.channels, stage.team.size)
    else:  # the bodies of a world share their dynamics there
        parameters = draw_parameters(keys, stage.spec, stage.team.channels)
    parameters = replace(parameters, message_loss=batch.loss, brake_share=batch.brake_share)
    size, worlds = batch.yaw.shape
    world = start_deployed(
        stage.team,
        stage.deployment,
        batch.position_world,
        batch.yaw,
        parameters,
        batch.faults,
        resolves=batch.resolves,
        residual=begin_residual(stage.team.noise, keys, size),
    )
    none, still = jnp.zeros(worlds), jnp.zeros((size, worlds))
    count = none.astype(jnp.int32)
    tally = EpisodeTally(
        count,
        count,
        none + jnp.inf,
        count - 1,
        none,
        none,
        none,
        batch.position_world,
        still.astype(jnp.int32),
        still,
        still > 0,
        still > 0,
        still > 0,
        count > 0,
    )
    return Course(world, tally, batch, jax.random.key(seed))


def run_ticks(stage: CompiledStage, course: Course, ticks: int, command_world: jax.Array | None = None) -> Course:
    """Return the state after ``ticks`` ticks with the nominal velocities (D, N, E) [m/s]; None: `straight_velocity`."""
    complete = _with_world_parameters(stage, course.batch)

    def step(current: Course, _: None) -> tuple[Course, None]:
        return _tick(complete, current, command_world), None

    return jax.lax.scan(step, course, None, length=ticks)[0]


def _with_world_parameters(stage: CompiledStage, batch: Batch) -> CompiledStage:
    """Return the stage with the parameters that differ between worlds."""
    deployment, parameters = stage.deployment, replace(stage.team.shield, hold_s=batch.hold_s)
    shield = replace(deployment.shield, parameters=parameters)
    if isinstance(shield, OtherShield):
        shield = replace(shield, goal_world=batch.goal_world, rule=batch.rule)
    return replace(stage, team=replace(stage.team, shield=parameters), deployment=replace(deployment, shield=shield))


def _tick(stage: CompiledStage, course: Course, command_world: jax.Array | None) -> Course:
    key, tick_key = jax.random.split(course.key)
    world, team = course.world, stage.team
    nominal = command_world
    if nominal is None:
        nominal = straight_velocity(stage, course.batch.goal_world, world.estimate.position_world)
    after, result = tick_deployed(team, stage.deployment, world, nominal, tick_key)
    tally = _count(stage, course, after, result)
    return Course(after, tally, course.batch, key)


def straight_velocity(stage: CompiledStage, goal_world: jax.Array, position_world: jax.Array) -> jax.Array:
    """Return the velocities (D, N, E) [m/s] towards `next_place`, slower near the goal."""
    target, passes = next_place(stage, goal_world, position_world)
    offset = target - position_world
    distance = length(offset)
    speed = jnp.where(passes, jnp.inf, _GAIN_PER_S * distance)
    return offset * (jnp.minimum(stage.spec.control_point_speed_m_s, speed) / (distance + 1e-6))


def next_place(stage: CompiledStage, goal_world: jax.Array, position_world: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return where robots drive by a plan without other robots (D, N, E) [m], and whether they pass it (N, E) bool.

    It is the goal, or before that a place at the door, which robots pass at full speed.
    """
    if stage.setting.place not in DOORS:
        return goal_world, jnp.zeros_like(goal_world[0], bool)
    x, y = position_world[0], position_world[1]
    side = jnp.sign(goal_world[0])
    beyond = JAMB_M + stage.wall_m + 0.05
    inside = door_half_m(stage.apart_m, stage.wall_m) - stage.wall_m
    # beside the door, on the side of its goal, the robot has passed it
    before = (side * x < beyond) & ((jnp.abs(y) < inside) | (side * x < 0))
    at_door = (jnp.abs(y) < 0.8 * inside) | (jnp.abs(x) < beyond - 0.1)
    along = jnp.where(at_door, side * (beyond + 0.1), -side * beyond)
    return jnp.where(before, jnp.stack([along, 0 * y, *goal_world[2:]]), goal_world), before


def _count(stage: CompiledStage, course: Course, world: DeployedTeamState, result: Any) -> EpisodeTally:
    tally, batch, spec = course.tally, course.batch, stage.spec
    watch = stage.team.physics.watch(world.physics)
    truth = stage.team.physics.scene(world.physics).robots
    place = truth.position_world
    speed = jnp.abs(truth.velocity[0]) if spec.kind == DIFFERENTIAL_DRIVE else length(truth.velocity)
    ours = ~batch.hostile
    touching = _touching(stage, place) & (watch.contacts > 0)
    if _bodies_pass(stage):
        own_speed, counted = speed, touching
    else:
        # a pushed robot's speed is not its own, so the speed before the contact counts
        own_speed, counted = tally.speed_m_s, touching & ~tally.touching
    fast = counted & ours & (own_speed > SLOW_M_S)
    live = ours & ~batch.gone
    there = ((length(batch.goal_world - place) < max(ARRIVED_M, spec.body_radius_m)) | ~live) & jnp.any(live, axis=0)
    moved = length(place - tally.anchor_world) > STILL_M
    counts = ~tally.over
    arrived = jnp.where((tally.arrived_tick < 0) & jnp.all(there, axis=0) & counts, world.number, tally.arrived_tick)
    changed = (result.status != int(ShieldStatus.PASSED)) & ours & counts
    given_up = jnp.all((tally.still * spec.control_period_s > GIVEN_UP_S) | ~live, axis=0) & jnp.all(ours, axis=0)
    over = (world.number >= batch.horizon) | given_up | ((arrived >= 0) & (world.number >= arrived + batch.linger))
    return EpisodeTally(
        tally.contacts + jnp.where(counts, watch.contacts, 0),
        tally.fast_contacts + jnp.where(counts, jnp.sum(fast, axis=0), 0),
        jnp.where(counts, jnp.minimum(tally.separation_m, watch.separation_m), tally.separation_m),
        arrived,
        tally.changed + jnp.sum(changed, axis=0),
        tally.change_m_s + jnp.sum(jnp.where(changed, result.change_m_s, 0.0), axis=0),
        tally.robot_ticks + jnp.where(counts, jnp.sum(ours, axis=0), 0),
        jnp.where(moved & counts, place, tally.anchor_world),
        jnp.where(counts, jnp.where(moved, 0, tally.still + 1), tally.still),
        speed,
        touching,
        tally.braked | (_brakes(spec, world) & ours & counts),
        tally.alarmed | (world.weak & ours & counts),
        tally.over | over,
    )


def _brakes(spec: RobotSpec, world: DeployedTeamState) -> jax.Array:
    """Return which robots (N, E) brake from speed."""
    watch = world.watch
    return (watch.began_m_s > _FROM_SPEED * spec.control_point_speed_m_s) & (
        watch.speed_m_s < _FROM_SPEED * watch.began_m_s
    )


def _bodies_pass(stage: CompiledStage) -> bool:
    """Return whether bodies pass through each other."""
    return stage.setting.choice.physics in ("kinematic", "attitude", "rotors")


def _touching(stage: CompiledStage, place: jax.Array) -> jax.Array:
    """Return which robots (N, E) touch another robot, a wall or an obstacle."""
    radius, size = stage.spec.body_radius_m, place.shape[1]
    slack = 0.0 if _bodies_pass(stage) else _TOUCH_M
    distance = length(place[:, :, None] - place[:, None, :])
    apart = jnp.where(jnp.eye(size, dtype=bool)[..., None], jnp.inf, distance)
    robots = ~jnp.all(apart >= 2 * radius + slack, axis=0)
    arena = stage.team.arena
    low, high = (jnp.array(side).reshape(-1, 1, 1) for side in (arena.low_world, arena.high_world))
    inside = (place >= low + radius + slack) & (place <= high - radius - slack)
    touching = robots | ~jnp.all(inside, axis=0)
    for obstacle in arena.obstacles:
        touching = touching | ~(distance_to(obstacle, place) >= radius + slack)
    return touching
