"""Layer 1: what it lets through, what it changes, and that nothing passes it unchecked."""

import dataclasses
import json

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from testudo_deploy.shield.projection_margins import ProjectionParameters, projection_parameters
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import RETREAT_SHARE, ShieldStatus, pair_rows
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import load_robot, robot_files
from testudo_hardware.strict_files import read_as
from testudo_sim import devices  # noqa: F401  (registers the pytrees)

ROBOTS = sorted(robot_files())
REUSED_FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(150))
PASSED, PROJECTED, BRAKED = ShieldStatus.PASSED, ShieldStatus.PROJECTED, ShieldStatus.BRAKED


def length(vectors):
    return np.linalg.norm(vectors, axis=0)


def at_rest(scene):
    return scene.but(state=dataclasses.replace(scene.state, velocity=0 * scene.state.velocity))


def peers_at(scene, offset, velocity=0.0, age_s=0.0):
    """Place all peers at an offset (D,) from the control point, announcing a velocity (D,)."""
    point = scene.model.stopping_point(scene.state).position_world[:, None]
    shape = scene.table.control_point_world.shape
    column = (slice(None),) + (None,) * (len(shape) - 1)
    return scene.but(
        table=dataclasses.replace(
            scene.table,
            control_point_world=np.broadcast_to(point + np.asarray(offset, float)[column], shape).copy(),
            control_velocity_world=np.broadcast_to(
                np.asarray(velocity, float)[column] if np.ndim(velocity) else np.array(float(velocity)), shape
            ).copy(),
            age_s=np.full(shape[1:], age_s),
        )
    )


@pytest.mark.parametrize("name", ROBOTS)
def test_a_command_far_from_everything_passes_unchanged(name, make_scene):
    scene = at_rest(make_scene(name, crowd=30, arena=False))
    nominal = 0.3 * scene.nominal
    share = scene.model.braking_share(scene.model.stopping_point(scene.state), nominal)
    free = np.ones(200, bool) if share is None else share == 1
    result = scene.but(nominal=nominal).shield()
    limits = scene.model.limit_rows(scene.model.stopping_point(scene.state))
    if limits is not None:
        free &= ((limits[0] * nominal[:, None]).sum(axis=0) <= limits[1]).all(axis=0)
    assert free.mean() > 0.1
    assert (result.status[free] == PASSED).all()
    assert (result.control_velocity_world[:, free] == nominal[:, free]).all()
    assert (result.change_m_s[free] == 0).all()


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize(("peers", "rows"), [(1, 8), (5, 8), (12, 4)])
def test_what_leaves_satisfies_every_row(name, peers, rows, make_scene):
    scene = make_scene(name, peers=peers, rows=rows, count=500)
    result = scene.shield()
    normals, bounds = scene.rows()
    values = (normals * result.control_velocity_world[:, None]).sum(axis=0)
    assert (values <= bounds + 1e-4)[:, result.status != BRAKED].all()
    assert (result.control_velocity_world[:, result.status == BRAKED] == 0).all()
    assert (result.status == PROJECTED).mean() > 0.2
    assert (result.status == BRAKED).mean() < 0.02


@pytest.mark.parametrize("name", ROBOTS)
def test_standing_still_is_always_allowed(name, make_scene):
    """Zero velocity keeps every row, however crowded: nothing has to be broken for braking."""
    scene = make_scene(name, peers=9, count=2000, crowd=0.2)
    _, bounds = scene.rows()
    assert (bounds >= -1e-12).all()


@pytest.mark.parametrize("name", ["gritsbot_x", "turtlebot3_burger"])
def test_no_command_is_nearer_and_as_safe(name, make_scene):
    """Of many random velocities that keep every row none is nearer to the nominal one."""
    scene = make_scene(name, peers=2, count=100, crowd=2)
    velocity = scene.shield().control_velocity_world
    normals, bounds = scene.rows()
    share = scene.model.braking_share(scene.model.stopping_point(scene.state), velocity)
    plain = (bounds > 0).all(axis=0) & ((share is None) or share == 1)
    assert plain.mean() > 0.3
    limit = scene.model.spec.control_point_speed_m_s
    target = scene.nominal * np.minimum(1, limit / length(scene.nominal))
    for other in np.random.default_rng(1).uniform(-limit, limit, (2000, 2, 1)):
        kept = ((normals * other[:, None]).sum(axis=0) <= bounds).all(axis=0)
        nearer = length(other - target) < length(velocity - target) - 1e-6
        assert not (kept & nearer & plain).any()


@pytest.mark.parametrize("name", [name for name in ROBOTS if load_robot(name).kind == DIFFERENTIAL_DRIVE])
def test_wheels_are_never_asked_for_more_than_they_can(name, make_scene):
    """So that the driver does not clip, which would bend the safe direction."""
    scene = make_scene(name, count=2000)
    command = scene.shield().command
    assert scene.model.limit_command(command) == pytest.approx(command, abs=2e-4)


@pytest.mark.parametrize("name", ROBOTS)
def test_the_velocity_of_the_control_point_is_never_above_its_limit(name, make_scene):
    scene = make_scene(name, count=2000, crowd=4)
    limit = scene.model.spec.control_point_speed_m_s
    assert length(scene.shield().control_velocity_world).max() <= limit * (1 + 1e-6)


@pytest.mark.parametrize("name", ["gritsbot_x", "turtlebot4", "crazyflie_2x"])
def test_every_array_library_gives_the_same(name, make_scene):
    scene = make_scene(name, peers=6, rows=3)
    expected = scene.shield()
    strict = scene.shield(lambda x: array_api_strict.asarray(np.asarray(x)))
    with jax.enable_x64(True):
        double = scene.shield(jnp.asarray, jax.jit)
    for got in (strict, double):
        for field in dataclasses.fields(expected):
            ours, theirs = (np.asarray(getattr(x, field.name)) for x in (expected, got))
            assert theirs == pytest.approx(ours, abs=1e-9), field.name


@pytest.mark.parametrize("name", ["gritsbot_x", "turtlebot4", "crazyflie_2x"])
def test_single_precision_differs_by_little_and_never_breaks_a_row(name, make_scene):
    scene = make_scene(name, peers=6, count=1000)
    expected = scene.shield()
    got = scene.shield(lambda x: jnp.asarray(x, bool if np.asarray(x).dtype == bool else jnp.float32), jax.jit)
    velocity = np.asarray(got.control_velocity_world, float)
    normals, bounds = scene.rows()
    values = (normals * velocity[:, None]).sum(axis=0)
    assert (values <= bounds + 2e-4).all()
    speed = scene.model.spec.control_point_speed_m_s
    off = length(velocity - expected.control_velocity_world)
    assert np.mean(off <= 1e-4 * max(1, speed)) > 0.98


INPUTS = ("nominal", "position", "yaw", "velocity", "peer_point", "peer_velocity", "peer_age")


def with_bad_value(scene, where, index, bad):
    """Return the scene with one number of one input replaced."""
    sources = {
        "nominal": scene.nominal,
        "position": scene.state.position_world,
        "yaw": scene.state.yaw,
        "velocity": scene.state.velocity,
        "peer_point": scene.table.control_point_world,
        "peer_velocity": scene.table.control_velocity_world,
        "peer_age": scene.table.age_s,
    }
    values = sources[where].copy()
    values.flat[index % values.size] = bad
    state = {"position": "position_world", "yaw": "yaw", "velocity": "velocity"}
    table = {"peer_point": "control_point_world", "peer_velocity": "control_velocity_world", "peer_age": "age_s"}
    if where in state:
        return scene.but(state=dataclasses.replace(scene.state, **{state[where]: values}))
    if where in table:
        return scene.but(table=dataclasses.replace(scene.table, **{table[where]: values}))
    return scene.but(nominal=values)


@pytest.mark.parametrize("name", ["gritsbot_x", "turtlebot4", "crazyflie_2x"])
@REUSED_FIXTURE
@given(
    where=st.sampled_from(INPUTS),
    index=st.integers(0, 99),
    seed=st.integers(0, 9),
    bad=st.sampled_from([np.nan, np.inf, -np.inf]),
    peers=st.sampled_from([1, 3, 7]),
)
def test_a_number_that_is_not_finite_ends_in_the_brake(name, make_scene, where, index, seed, bad, peers):
    """In any input, also of a peer that is beyond the nearest which get a row."""
    if where == "yaw" and name == "crazyflie_2x":
        return  # a drone's yaw does not enter
    scene = with_bad_value(make_scene(name, peers=peers, rows=3, count=1, seed=seed, crowd=3), where, index, bad)
    with np.errstate(all="ignore"):
        result = scene.shield()
    assert np.isfinite(result.command).all()
    assert (result.control_velocity_world == 0).all()
    assert np.isfinite(result.change_m_s).all()
    if not (where == "peer_age" and bad == np.inf):  # infinitely old: the robot stands
        assert (result.status == BRAKED).all()
        assert (result.command == 0).all()


def test_a_peer_that_is_not_finite_is_not_lost_behind_the_nearest(make_scene):
    """Regression: such a gap sorts last, where neither a row nor the cap saw it."""
    scene = make_scene(peers=6, rows=2, crowd=5)
    assert (scene.shield().status != BRAKED).any()
    scene.table.age_s[4] = np.nan
    with np.errstate(all="ignore"):
        assert (scene.shield().status == BRAKED).all()


def test_a_peer_at_the_very_same_point_does_not_open_the_way(make_scene):
    """Regression: its direction is void, and the nominal command passed unchecked."""
    scene = peers_at(at_rest(make_scene(peers=1)), (0.0, 0.0))
    result = scene.shield()
    assert (result.control_velocity_world == 0).all()


@pytest.mark.parametrize("name", ROBOTS)
def test_the_closing_speed_is_the_share_of_the_gap(name, make_scene):
    """Straight at a peer at rest with a gap h: n . u = gap_share * h / (2 * hold)."""
    scene = at_rest(make_scene(name, peers=1, arena=False))
    parameters, size = scene.parameters, scene.model.spec.dimension
    gap = 0.02 * parameters.hold_s * 2
    offset = np.eye(size)[0] * (parameters.separation_m + gap)
    towards = np.broadcast_to(np.eye(size)[0][:, None], scene.nominal.shape)
    moved = peers_at(scene, offset).but(nominal=towards * scene.model.spec.control_point_speed_m_s)
    velocity = moved.shield().control_velocity_world
    assert velocity[0] == pytest.approx(np.full(200, 0.02 * parameters.gap_share), abs=1e-6)


@pytest.mark.parametrize("name", ROBOTS)
def test_a_used_up_gap_asks_for_a_retreat_and_not_for_a_flight(name, make_scene):
    """Regression: a row that only forbade the approach let errors of direction creep in for ever."""
    scene = at_rest(make_scene(name, peers=1, arena=False))
    size, speed = scene.model.spec.dimension, scene.model.spec.control_point_speed_m_s
    limit = RETREAT_SHARE * speed
    for missing in (0.002, 0.01, 0.1):
        offset = np.eye(size)[0] * (scene.parameters.separation_m - missing)
        retreat = -peers_at(scene, offset).but(nominal=0 * scene.nominal).shield().control_velocity_world[0]
        expected = min(scene.parameters.gap_share * missing / (2 * scene.parameters.hold_s), limit)
        moving = retreat > 0
        assert moving.mean() > 0.9  # a robot across its wheels may have to stand
        assert (retreat <= expected * 1.001).all()
        if name == "gritsbot_x":  # no limit of acceleration takes from it
            assert retreat[moving] == pytest.approx(np.full(moving.sum(), expected), rel=1e-3)


def test_contradicting_retreats_end_in_standing(make_scene):
    scene = at_rest(make_scene(peers=2, arena=False))
    point = scene.model.stopping_point(scene.state).position_world
    offset = np.array([[0.1], [0.0]])
    scene.table.control_point_world[:, 0] = point + offset
    scene.table.control_point_world[:, 1] = point - offset
    scene = scene.but(
        table=dataclasses.replace(scene.table, control_velocity_world=0 * scene.table.control_velocity_world)
    )
    result = scene.shield()
    assert (result.control_velocity_world == 0).all()
    assert (result.status == PROJECTED).all()


@pytest.mark.parametrize("name", ROBOTS)
def test_every_robot_retreats_faster_than_it_can_creep(name):
    """A held command bends by turn rate * tick / 2; unequal scales turn it by half their difference."""
    spec = load_robot(name)
    if spec.kind != DIFFERENTIAL_DRIVE:
        return
    bend = spec.turn_rate_limit_rad_s * spec.control_period_s / 2
    speed, turn = spec.quantities["dynamics.speed_scale"], spec.quantities["dynamics.turn_scale"]
    tilt = max(speed.high / turn.low, turn.high / speed.low)
    assert bend + (tilt - 1) / (tilt + 1) < RETREAT_SHARE


def test_an_old_message_widens_the_gap_that_is_kept(make_scene):
    """A silent peer is never dropped: age only ever takes from the gap."""
    scene = peers_at(at_rest(make_scene(peers=1)), (1.0, 0.0))
    stop = scene.model.stopping_point(scene.state)
    bounds = []
    for age in (0.0, 0.1, 0.3, 1.0, 5.0, 60.0):
        table = dataclasses.replace(scene.table, age_s=np.full((1, 200), age))
        bounds.append(pair_rows(scene.parameters, stop, table)[0][1][0, 0])
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] == 0  # no approach at all, and no flight either


@pytest.mark.parametrize("name", ROBOTS)
def test_a_peer_that_can_be_anywhere_stops_the_robot(name, make_scene):
    """Regression: with a message a second old a drone fled at full speed into the peer itself."""
    scene = at_rest(make_scene(name, peers=1, arena=False))
    size = scene.model.spec.dimension
    offset = np.eye(size)[0] * 1.5 * scene.parameters.separation_m
    result = peers_at(scene, offset, age_s=60.0).shield()
    assert (length(result.control_velocity_world) < 1e-9).all()


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", ["gritsbot_x", "crazyflie_2x"])
def test_fewer_rows_than_peers_are_still_sound(name, rows, make_scene):
    """The cap covers those left out: what leaves also satisfies the rows of all peers."""
    scene = make_scene(name, peers=10, rows=rows, count=1000, crowd=1.5)
    velocity = scene.shield().control_velocity_world
    every = scene.but(parameters=dataclasses.replace(scene.parameters, neighbour_rows=10))
    normals, bounds = every.rows()
    assert ((normals * velocity[:, None]).sum(axis=0) <= bounds + 1e-4).all()
    assert (length(velocity) > 0.01).mean() > 0.1


def test_a_slot_that_was_never_heard_gives_no_row(make_scene):
    scene = peers_at(at_rest(make_scene(peers=1, arena=False)), (0.05, 0.0))
    silent = dataclasses.replace(scene.table, valid=np.zeros((1, 200), bool))
    towards = np.broadcast_to(np.array([[0.01], [0.0]]), (2, 200))
    assert (scene.but(nominal=towards).shield().control_velocity_world[0] < 0.01).all()
    result = scene.but(nominal=towards, table=silent).shield()
    assert result.control_velocity_world == pytest.approx(towards, abs=1e-9)


@pytest.mark.parametrize("name", ["gritsbot_x", "crazyflie_2x"])
def test_a_robot_without_peers_keeps_to_its_walls(name, make_scene):
    scene = make_scene(name, peers=0)
    result = scene.shield()
    normals, bounds = scene.rows()
    assert ((normals * result.control_velocity_world[:, None]).sum(axis=0) <= bounds + 1e-4).all()


@pytest.mark.parametrize("name", ROBOTS)
def test_the_margin_terms_add_up_to_the_separation(name):
    parameters = projection_parameters(load_robot(name))
    assert sum(term.value_m for term in parameters.terms) == pytest.approx(parameters.separation_m)
    assert all(term.value_m >= 0 and term.source for term in parameters.terms)
    named = {term.name: term.value_m for term in parameters.terms}
    assert named["bodies"] == pytest.approx(2 * load_robot(name).keep_radius_m)


def test_margins_computed_by_hand():
    """gritsbot_x, values of its file: every term of the separation and of the wall."""
    spec = load_robot("gritsbot_x")
    named = {term.name: term.value_m for term in projection_parameters(spec).terms}
    use_s, speed = 0.133 / 0.9, 0.2  # T_hold over the share of the gap
    assert named["bodies"] == pytest.approx(0.135)
    assert named["look-ahead"] == pytest.approx(0.07)
    lagged = 0.205 + named["lag"]  # distance = apart * (1 + (closing speed * lag / distance)^2)
    assert lagged == pytest.approx(0.205 * (1 + (0.4 * 0.096 / lagged) ** 2), rel=1e-6)
    arc = speed * 3.81 * 0.033 / 2
    assert named["held arc"] == pytest.approx(2 * use_s * arc)
    kappa = 1 + 2 * use_s * speed / projection_parameters(spec).separation_m
    assert projection_parameters(spec).direction_factor == pytest.approx(kappa, rel=1e-3)
    assert named["localisation"] == pytest.approx(2 * kappa * (0.015 + 0.035 * 0.0262), rel=1e-3)
    error = speed * (0.016 + 0.01 + 0.2 * 0.13) + 0.035 * 0.2 * 3.81 * 0.13
    assert named["model"] == pytest.approx(2 * kappa * error, rel=1e-3)
    reach = 0.035 + 0.2 * 0.16 + 0.2 * 0.08  # look-ahead, way over pose age and delay, way to rest
    rolled = 0.096 * 0.015 / 0.0525 * reach  # both rims wrong in opposite directions: it turns
    assert rolled > 0.096 * 0.015
    assert named["velocity"] == pytest.approx(2 * kappa * rolled, rel=1e-3)
    wall = 0.0675 + 0.035 + 0.015 + 0.035 * 0.0262 + rolled + error + use_s * arc
    space = stop_tube_parameters(spec)
    assert projection_parameters(spec).wall_m == pytest.approx(max(wall, space.wall_m + 0.03))
    assert wall < space.wall_m + 0.03


def test_the_wall_of_a_robot_with_a_short_tube_by_its_terms():
    """irobot_create: layer 1's own terms are more than what the stop tube keeps."""
    spec = load_robot("irobot_create")
    named = {term.name: term.value_m for term in projection_parameters(spec).terms}
    kappa = projection_parameters(spec).direction_factor
    ahead, arc = spec.body_radius_m + spec.look_ahead_m, named["held arc"] / 2
    wall = ahead + (named["localisation"] + named["velocity"] + named["model"]) / (2 * kappa) + arc
    assert projection_parameters(spec).wall_m == pytest.approx(wall)


def test_the_margins_of_a_base_hold_what_a_wrong_heading_turns():
    """robomaster_s1 drives along its own axes, by up to yaw_error beside what was wanted; a drone does not."""
    sure = {name: load_robot(name) for name in ("robomaster_s1", "crazyflie_2x")}
    unsure = {name: dataclasses.replace(spec, yaw_error_rad=0.2) for name, spec in sure.items()}
    assert projection_parameters(sure["crazyflie_2x"]).wall_m == projection_parameters(unsure["crazyflie_2x"]).wall_m
    base = sure["robomaster_s1"]
    found = [projection_parameters(spec) for spec in (unsure["robomaster_s1"], base)]
    models = [next(t.value_m for t in p.terms if t.name == "model") / (2 * p.direction_factor) for p in found]
    wider = models[0] - models[1]
    ahead_s = base.velocity_lag_s + base.command_delay_s
    assert wider == pytest.approx((0.2 - base.yaw_error_rad) * base.speed_limit_m_s * ahead_s)
    wider = stop_tube_parameters(unsure["robomaster_s1"]).wall_m - stop_tube_parameters(base).wall_m
    brake_m = 1.0**2 / (2 * 1.8) + 1.8 * 0.15**2 / 2
    way = 0.15 + 0.04 + 0.15 + brake_m  # pose age, delay and hold at 1 m/s
    assert wider == pytest.approx((0.2 - base.yaw_error_rad) * way)


@pytest.mark.parametrize("name", ROBOTS)
def test_parameters_survive_the_way_through_json_values(name):
    parameters = projection_parameters(load_robot(name))
    values = json.loads(json.dumps(parameters.to_dict()))
    assert read_as(ProjectionParameters, values, "contract: shield", TestudoError) == parameters


def test_parameters_of_another_shield_are_refused():
    values = json.loads(json.dumps(projection_parameters(load_robot("gritsbot_x")).to_dict()))
    for spoilt in ({**values, "version": "99"}, {**values, "extra": 1}, {"version": 1}):
        with pytest.raises(TestudoError, match="contract: shield"):
            read_as(ProjectionParameters, spoilt, "contract: shield", TestudoError)


def test_a_state_beyond_its_limits_is_braked_or_kept_finite(make_scene):
    """A robot that is pushed faster than its wheels can run: no command beyond the limits leaves."""
    scene = make_scene(count=500)
    fast = MotionState(scene.state.position_world, scene.state.yaw, scene.state.velocity * 5)
    result = scene.but(state=fast).shield()
    assert np.isfinite(result.command).all()
    assert scene.model.limit_command(result.command) == pytest.approx(result.command, abs=2e-4)


def test_the_margin_holds_the_path_during_unequal_delays():
    own = load_robot("gritsbot_x")
    late = dataclasses.replace(own, command_delay_s=own.command_delay_s + 0.1)
    equal, unequal = (
        next(term.value_m for term in projection_parameters(own, peer).terms if term.name == "lag")
        for peer in (own, late)
    )
    assert unequal - equal == pytest.approx(0.1 * 2 * own.control_point_speed_m_s)
