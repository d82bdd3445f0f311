"""A team under layer 1, tick by tick: no contact whatever is commanded.

Worlds differ in what is commanded (`COMMANDS`), in what is lost (`LOSSES`), in how measurements err
(`ERRORS`) and, each at an end of its interval, in lag, delay and scale.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.sim.deployed_team import QUICK

from testudo_deploy.control.state_prediction import pending_time_s
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.velocity_projection import Arena, ShieldStatus
from testudo_hardware.motion import LagResponse, MotionState, StoppingPoint, motion_model
from testudo_hardware.motion.velocity_point import VelocityPoint
from testudo_hardware.spec import load_robot
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.scene import count_contacts, least_separation
from testudo_sim.physics.world_parameters import (
    Channels,
    Slots,
    WorldParameters,
    interpolation,
)
from testudo_sim.team import team_tick as team_module
from testudo_sim.team.team_tick import SimulatedTeam, start, tick

pytestmark = pytest.mark.usefixtures("optimised")

COMMANDS = ("swap", "random", "chase", "wall", "feint", "crowd", "zigzag")
LOSSES = (0.0, 0.5, 0.9, 1.0)
ERRORS = ("none", "noise", "peer", "wall")
"""None: and in mirror image. Peer, wall: by three sigma, to believe them farther than they are."""
WORLDS = len(COMMANDS) * len(LOSSES) * len(ERRORS)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What happened in each world (E,)."""

    contacts: np.ndarray
    separation_m: np.ndarray
    braked: np.ndarray
    travelled: np.ndarray
    """Share of the way that full speed would have given."""
    late_travel: np.ndarray
    """The same for the last third of the time."""
    command: np.ndarray
    loss: np.ndarray


def by_command(index):
    return index % len(COMMANDS)


def by_error(index):
    return index // (len(COMMANDS) * len(LOSSES)) % len(ERRORS)


def corners(spec, worlds, **options):
    """Return parameters with each of lag, delay and scale at an end of its interval, by one program."""
    return jax.jit(lambda: drawn_corners(spec, worlds, **options))()


def drawn_corners(spec, worlds, *, nominal=False, losses=LOSSES):
    rng = np.random.default_rng(5)
    slots = Slots.create(spec, Channels())

    def pick(key):
        quantity = spec.quantities[key]
        return rng.choice([quantity.value] if nominal else [quantity.low, quantity.high], worlds)

    def single(values):
        return jnp.asarray(values, jnp.float32)

    period = spec.control_period_s
    scale = np.stack([pick("dynamics.speed_scale")] * spec.dimension)
    if "dynamics.turn_scale" in spec.quantities:
        scale[1] = pick("dynamics.turn_scale")
    age = single(rng.choice(Channels().pose_age_s, worlds))
    # every command meets every loss
    loss = np.array(losses)[np.arange(worlds) // len(COMMANDS) % len(losses)]
    lag, ones = single(pick("dynamics.velocity_lag")), jnp.ones(worlds)
    return WorldParameters(
        LagResponse.create(jnp.full(worlds, period), lag),
        interpolation(single(pick("dynamics.command_delay")) / period, slots.commands),
        single(scale),
        interpolation(age / period, slots.states),
        LagResponse.create(pending_time_s(spec, age, slots.commands), single(spec.velocity_lag_s)),
        lag,
        ones,
        ones,
        ones,
        jnp.asarray(rng.choice(Channels().message_ticks, worlds)),
        single(loss),
    )


def unit(vector):
    return vector / (jnp.sqrt(jnp.sum(vector**2, axis=0)) + 1e-6)


def to_nearest(position):
    """Return the way from each robot to its nearest peer (D, N, E)."""
    offset = position[:, None] - position[:, :, None]
    distance = jnp.sqrt(jnp.sum(offset**2, axis=0)) + 1e3 * jnp.eye(position.shape[1])[..., None]
    nearest = jnp.argmin(distance, axis=1)[None, :, None]
    return jnp.take_along_axis(offset, nearest, axis=2)[:, :, 0]


def from_middle(team, position):
    middle = np.mean([team.arena.low_world, team.arena.high_world], axis=0)
    return position - jnp.asarray(middle, jnp.float32)[:, None, None]


def erring(team, past, parameters, key, measure=team_module.measure):
    """Measure as the simulation does, but for the worlds of other `ERRORS` than noise."""
    exact = dataclasses.replace(team, channels=Channels(noise_share=0.0))
    noisy, true = measure(team, past, parameters, key), measure(exact, past, parameters, key)
    outward = from_middle(team, true.position_world)
    axis = jnp.argmax(jnp.abs(outward), axis=0)
    inward = jnp.stack([jnp.where(axis == d, -jnp.sign(outward[d]), 0.0) for d in range(outward.shape[0])])
    index = jnp.arange(outward.shape[-1])
    kind, spec = by_error(index), team.model.spec
    away = jnp.where(kind == 2, -unit(to_nearest(true.position_world)), inward) * (kind >= 2)
    side = jnp.where(index % 2 == 0, 1.0, -1.0) * (kind >= 2)
    position = true.position_world + spec.position_error_m * away
    return MotionState(
        jnp.where(kind == 1, noisy.position_world, position),
        jnp.where(kind == 1, noisy.yaw, true.yaw + spec.yaw_error_rad * side),
        true.velocity,
    )


def commanded(team, motion, stop, goal, random, index, ticks):
    """Return the wanted velocities (D, N, E): full speed, each world by its own rule."""
    chase = unit(to_nearest(motion.position_world))
    outward = from_middle(team, motion.position_world)
    swing = jnp.where(ticks // (3 + index % 40) % 2 == 0, 1.0, -1.0)
    across = jnp.concatenate([jnp.stack([-chase[1], chase[0]]), chase[2:]])
    angle = 0.4 + 0.15 * (index % 8)
    wanted = jnp.select(
        [by_command(index) == k for k in range(len(COMMANDS))],
        [
            unit(goal - stop.position_world),
            unit(random),
            chase,
            unit(jnp.sign(outward) + 0.1 * random),
            jnp.where(ticks // 3 % 2 == 0, chase, -chase),
            unit(-outward),
            unit(jnp.cos(angle) * chase + swing * jnp.sin(angle) * across),
        ],
    )
    return team.model.spec.control_point_speed_m_s * wanted


def ring(team, worlds, seed):
    """Return starts on a circle about the middle, goals across (D, N, E), and yaws (N, E)."""
    angle = 2 * np.pi * np.arange(team.size) / team.size
    middle = np.mean([team.arena.low_world, team.arena.high_world], axis=0)[:, None, None]
    place = np.tile(middle, (1, team.size, worlds))
    place[:2] += ring_radius(team) * np.stack([np.cos(angle), np.sin(angle)])[..., None]
    turned = np.random.default_rng(seed).uniform(-3, 3, (team.size, worlds))
    yaw = (angle + np.pi)[:, None] + turned * (by_error(np.arange(worlds)) > 0)
    return place, 2 * middle - place, yaw


def run(team, ticks, parameters, *, command=commanded, seed=1):
    """Drive a team from a ring with the rules of ``command``, and count at every tick."""
    spec, worlds = team.model.spec, parameters.message_loss.shape[0]
    place, goal, yaw = (x.astype(np.float32) for x in ring(team, worlds, seed))
    index = np.arange(worlds)

    def body(carry, key):
        state, random, number, total = carry
        random_key, tick_key = jax.random.split(key)
        random = jnp.where(number % 20 == 0, jax.random.normal(random_key, random.shape), random)
        before = team.physics.scene(state.physics).robots
        stop = team.model.stopping_point(state.estimate)
        wanted = command(team, before, stop, goal, random, index, number)
        state, result = tick(team, state, wanted, tick_key)
        position = team.physics.scene(state.physics).robots.position_world
        step = jnp.sqrt(jnp.sum((position - before.position_world) ** 2, axis=0)).mean(axis=0)
        total = (
            total[0] + count_contacts(position, spec.body_radius_m, team.arena),
            jnp.minimum(total[1], least_separation(position)),
            total[2] + jnp.mean(result.status == int(ShieldStatus.BRAKED), axis=0),
            total[3] + step,
            total[4] + step * (number > ticks * 2 // 3),
        )
        return (state, random, number + 1, total), None

    # what soon ends takes the compiler longest; what runs for long is optimised
    options = QUICK if ticks * worlds * team.size**2 < 300_000 else None

    @partial(jax.jit, compiler_options=options)
    def everything(key):
        zero = jnp.zeros(worlds)
        total = (jnp.zeros(worlds, jnp.int32), jnp.full(worlds, jnp.inf), zero, zero, zero)
        carry = (start(team, place, yaw, parameters), jnp.zeros(place.shape), 0, total)
        return jax.lax.scan(body, carry, jax.random.split(key, ticks))[0][-1]

    totals = map(np.asarray, everything(jax.random.key(seed)))
    contacts, separation, braked, travelled, late = totals
    way = ticks * spec.control_period_s * spec.control_point_speed_m_s
    names = np.array(COMMANDS)[by_command(np.arange(worlds))]
    return Outcome(
        contacts,
        separation,
        braked / ticks,
        travelled / way,
        3 * late / way,
        names,
        np.asarray(parameters.message_loss),
    )


def ring_radius(team):
    around = team.size * team.shield.separation_m * 1.15 / (2 * np.pi)
    return max(team.shield.separation_m * 1.3, around, 1.2 if team.model.spec.dimension == 3 else 0)


def team_of(name, size, *, model=None, shielded=True, noise_share=1.0, rows=8):
    spec = load_robot(name) if isinstance(name, str) else name
    shield = projection_parameters(spec, neighbour_rows=rows)
    physics = KinematicPhysics(motion_model(spec), None)
    team = SimulatedTeam(
        model or motion_model(spec), shield, None, physics, size, Channels(noise_share=noise_share), shielded
    )
    half = ring_radius(team) + shield.wall_m + 0.3
    low = (-half, -half) if spec.dimension == 2 else (-half, -half, 0.0)
    return dataclasses.replace(team, arena=Arena(low, tuple(x + 2 * half for x in low)))


# each kind of robot, a pair (the exact symmetry) and four; crowds and the rest with the slow tests
SAFE = [
    ("gritsbot_x", 2),
    ("crazyflie_2x", 4),
    ("robomaster_s1", 4),
    *(
        pytest.param(name, size, marks=pytest.mark.slow)
        for name, size in (
            ("crazyflie_2x", 2),
            ("gritsbot_x", 8),
            ("turtlebot4", 4),
            ("gritsbot_x", 4),
            ("turtlebot4", 2),
            ("turtlebot4", 8),
            ("crazyflie_2x", 8),
            ("robomaster_s1", 8),
            ("turtlebot3_burger", 4),
            ("irobot_create", 4),
        )
    ),
]


@pytest.mark.parametrize(("name", "size"), SAFE)
def test_nothing_touches_whatever_is_commanded(name, size, monkeypatch):
    """All of `COMMANDS`, `LOSSES` and `ERRORS`, latency of one and two ticks, counted at every tick.

    Exact symmetry is in it: errors none, two robots head-on on one line, each facing the other.
    """
    monkeypatch.setattr(team_module, "measure", erring)
    team = team_of(name, size)
    outcome = run(team, 600, corners(team.model.spec, WORLDS))
    touched = {command: int(outcome.contacts[outcome.command == command].sum()) for command in COMMANDS}
    assert not any(touched.values()), (touched, outcome.separation_m.min())
    # not because nothing moved, and not because the brake did the work of the rows
    heard = outcome.loss < 0.6
    assert outcome.travelled[heard & (outcome.command == "random")].mean() > 0.1
    assert outcome.braked.mean() < 0.01
    # whoever never hears his peers comes to a stand
    assert outcome.late_travel[outcome.loss == 1].max() < 0.05


@pytest.mark.parametrize("name", ["gritsbot_x", pytest.param("turtlebot4", marks=pytest.mark.slow)])
def test_no_creeping_along_a_peer_or_a_wall(name):
    """Regression: nominal parameters, no noise, no loss, and yet robots slid through each other.

    The direction swings to and fro beside the straight way in: while the gap was not positive, rows
    only forbade the approach, and the bend of each held command went inwards. Even worlds: a wall,
    odd: a peer.
    """
    team = team_of(name, 2, noise_share=0.0)

    def swinging(team, motion, stop, goal, random, index, ticks):
        point = stop.position_world
        wall = jnp.stack([jnp.sign(point[0]), 0 * point[0]])
        towards = jnp.where(index % 2 == 0, wall, unit(jnp.roll(point, 1, axis=1) - point))
        across = jnp.stack([-towards[1], towards[0]])
        swing = jnp.where(ticks // (4 + index // 2 % 60) % 2 == 0, 1.0, -1.0)
        angle = jnp.where(ticks < 100, 0.0, 0.2 + 1.45 * (index * 7 % 200) / 200)
        return team.model.spec.control_point_speed_m_s * (jnp.cos(angle) * towards + swing * jnp.sin(angle) * across)

    parameters = corners(team.model.spec, 400, nominal=True, losses=(0.0,))
    outcome = run(team, 2000, parameters, command=swinging)
    assert outcome.contacts.sum() == 0
    assert outcome.travelled.mean() > 0.05


@pytest.mark.parametrize("name", ["gritsbot_x", pytest.param("turtlebot4", marks=pytest.mark.slow), "crazyflie_2x"])
def test_negative_control_without_the_shield_robots_touch(name):
    team = team_of(name, 4, shielded=False)
    outcome = run(team, 400, corners(team.model.spec, 2 * len(COMMANDS), nominal=True))
    for command in ("swap", "chase", "wall", "crowd"):
        assert (outcome.contacts[outcome.command == command] > 0).all(), command


@dataclasses.dataclass(frozen=True)
class PlainRule(VelocityPoint):
    """A single integrator at the position itself: no stopping point, no limit of acceleration."""

    def stopping_point(self, state):
        lag, size = self.spec.velocity_lag_s, self.spec.dimension
        unit = jnp.eye(size).reshape((size, size) + (1,) * state.yaw.ndim)
        unit = jnp.broadcast_to(unit, (size, size, *state.yaw.shape))
        return StoppingPoint(
            state.position_world, state.yaw, lag * unit, unit / lag, 0 * state.velocity, state.velocity / lag
        )

    def braking_share(self, stop, control_velocity_world):
        return None

    def firm_command(self, stop, effective):
        return effective


def test_negative_control_without_the_stopping_point_fast_drones_touch():
    """The very same margins and rows, about where the drone is instead of where it stops.

    Messages take one tick: the room kept for what a peer can have done since an older one hides what the rule lacks. So
    would the room for the wash of others, and that for lag, delay and scale: these drones have no wash, and are known
    exactly. They brake at 1.8 m/s² (10 degrees): at 3.5 m/s² bodies of 0.14 m come as near as 0.15 m, and no nearer.
    """
    known = load_robot("crazyflie_2x")
    exact = {
        key: dataclasses.replace(quantity, low=quantity.value, high=quantity.value)
        if key.startswith("dynamics.")
        else quantity
        for key, quantity in known.quantities.items()
    }
    spec = dataclasses.replace(
        known,
        downwash_radius_m=known.body_radius_m,
        downwash_height_m=known.body_radius_m,
        quantities=exact,
        acceleration_limit_m_s2=1.8,
    )
    parameters = corners(spec, 3 * len(COMMANDS), nominal=True, losses=(0.0,))
    parameters = dataclasses.replace(parameters, message_ticks=jnp.ones_like(parameters.message_ticks))
    plain, whole = (run(team_of(spec, 4, model=model), 300, parameters) for model in (PlainRule(spec), None))
    assert (plain.separation_m < 2 * spec.body_radius_m).mean() > 0.1
    assert (plain.separation_m[plain.command == "chase"] < 2 * spec.body_radius_m).all()
    # the stopping point, and nothing else, keeps the drones of the same worlds apart
    assert whole.contacts.sum() == 0
    assert whole.separation_m.min() > projection_parameters(spec).separation_m
    assert whole.travelled.mean() > 0.1


@pytest.mark.slow
def test_a_cap_instead_of_rows_keeps_a_crowd_apart():
    """Two rows for seven peers; the others are covered by the cap on the speed."""
    team = team_of("gritsbot_x", 8, rows=2)
    outcome = run(team, 400, corners(team.model.spec, 2 * len(COMMANDS), losses=(0.0,)))
    assert outcome.contacts.sum() == 0
    assert outcome.travelled[outcome.command == "random"].mean() > 0.05
