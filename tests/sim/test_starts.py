"""Start files: read back as written, refused with a sentence; teams that begin at speed go on as if they had driven."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.sim.deployed_team import begin, deployed, drive, places
from tests.sim.scenarios.compiled import starts_of_keys

from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.velocity_projection import ShieldStatus
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.spec import load_robot
from testudo_sim.scenarios.scenario import make_scenario
from testudo_sim.starts import (
    STARTS_SCHEMA,
    StartDistribution,
    StartPerturbation,
    StartSample,
    StartsError,
    StartsSource,
    load_starts,
    parse_starts,
    save_starts,
)
from testudo_sim.team.fault_schedule import no_faults
from testudo_sim.team.team_tick import motion_history

pytestmark = pytest.mark.usefixtures("quick")


def head_on(**changes):
    start = StartSample(((-0.5, 0.0), (0.5, 0.0)), (0.0, np.pi), ((0.15, 0.0), (0.15, 0.0)), ((0.8, 0.0), (-0.8, 0.0)))
    whole = StartDistribution(
        STARTS_SCHEMA,
        "gritsbot_x",
        ("r0", "r1"),
        StartsSource("run", 1.5),
        8.0,
        StartPerturbation(0.01, 0.02, 0.05),
        (start,),
        Arena((-2.0, -1.0), (2.0, 1.0)),
    )
    return replace(whole, **changes)


def test_a_start_file_is_read_back_as_it_was_written(tmp_path):
    whole = head_on()
    read = load_starts(save_starts(whole, tmp_path / "starts.yaml"))
    assert replace(read, starts=()) == replace(whole, starts=())
    assert np.allclose(read.starts[0].yaw, whole.starts[0].yaw, atol=1e-6)
    assert load_starts(save_starts(replace(whole, arena=None), tmp_path / "bare.yaml")).arena is None


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("schema: testudo/starts/1", "schema: testudo/starts/9", "schema"),
        ("horizon_s: 8.0", "horizon_s: 0.0", "horizon_s"),
        ("horizon_s: 8.0", "horizon_s: .nan", "horizon_s"),
        ("horizon_s: 8.0", "horizn_s: 8.0", "horizon_s: missing"),
        ("yaw: [0.0, 3.141593]", "yaw: [0.0]", r"starts\[0\].yaw"),
        ("velocity: [[0.15, 0.0], [0.15, 0.0]]", "velocity: [[0.15], [0.15]]", r"starts\[0\].velocity"),
        ("weight: 1.0", "weight: -1.0", "weight"),
        ("robots: [r0, r1]", "robots: [", "not a YAML file"),
    ],
)
def test_a_start_file_that_does_not_hold_is_refused_by_key(tmp_path, before, after, named):
    text = save_starts(head_on(), tmp_path / "starts.yaml").read_text()
    assert before in text
    with pytest.raises(StartsError, match=named):
        parse_starts(text.replace(before, after), "starts.yaml")


def navigation(starts, share=1.0, name="gritsbot_x"):
    spec = load_robot(name)
    return make_scenario("navigation", spec, projection_parameters(spec)).with_starts(starts, share)


def test_worlds_begin_beside_the_recorded_moment_in_the_recorded_arena():
    scenario = navigation(head_on())
    drawn = starts_of_keys(scenario, 2, jax.random.split(jax.random.key(0), 64))
    assert scenario.arena == Arena((-2.0, -1.0), (2.0, 1.0))
    assert scenario.horizon_s == 8.0
    beside = np.asarray(drawn.position_world)[:, :, :] - np.array([[-0.5, 0.5], [0.0, 0.0]])[..., None]
    assert 0.005 < np.abs(beside).max() <= 0.01
    assert np.ptp(np.asarray(drawn.velocity[0])) == pytest.approx(0.015, rel=0.2)
    assert np.allclose(drawn.task.goal_world[0], [[0.8], [-0.8]])


def test_a_share_of_the_worlds_of_training_begins_there():
    scenario = navigation(head_on(), share=0.5)
    drawn = starts_of_keys(scenario, 2, jax.random.split(jax.random.key(0), 200))
    recorded = np.all(np.asarray(drawn.velocity[0]) > 0, axis=0)
    assert 0.35 < recorded.mean() < 0.65
    assert np.all(np.asarray(drawn.velocity)[..., ~recorded] == 0)
    assert scenario.horizon_s == 40.0


@pytest.mark.parametrize(("name", "size", "named"), [("turtlebot4", 2, "robot: found"), ("gritsbot_x", 3, "robots: f")])
def test_other_robots_are_refused(name, size, named):
    with pytest.raises(StartsError, match=named):
        navigation(head_on(), name=name).start(jax.random.key(0), size)


def test_starts_in_which_robots_touch_are_refused():
    start = replace(head_on().starts[0], position_world=((0.0, 0.0), (0.1, 0.0)))
    with pytest.raises(StartsError, match="r0 and r1 are 0"):
        navigation(head_on(starts=(start,))).start(jax.random.key(0), 2)


def test_the_moments_before_lie_on_the_arc_that_was_driven():
    model = motion_model(load_robot("turtlebot4"))  # one with limits of acceleration that matter
    motion = MotionState(jnp.zeros((2, 1, 1)), jnp.full((1, 1), 0.3), jnp.asarray([[[0.2]], [[0.5]]]))
    past = motion_history(model, motion, 4)
    step = model.spec.control_period_s
    assert np.allclose(past.yaw[:, 0, 0], 0.3 - 0.5 * step * np.arange(4), atol=1e-6)
    ways = np.linalg.norm(np.diff(np.asarray(past.position_world[:, :, 0, 0]), axis=0), axis=1)
    assert np.allclose(ways, 0.2 * step, rtol=1e-4)
    assert np.all(np.asarray(past.velocity) == np.asarray(motion.velocity))


# `test_counterfactual.py` begins deployed teams at their recorded speed, too; this compiles all layers for itself
@pytest.mark.slow
def test_a_team_that_begins_at_speed_drives_on_at_that_speed():
    """All layers: with the lane that it has the gate lets it drive, and its late poses are where it expects them."""
    team, deployment = deployed("robomaster_s1")
    spec, velocity = team.model.spec, np.zeros((2, 2, 3))
    velocity[0] = 0.5
    place, yaw = np.zeros((2, 2, 3)), np.zeros((2, 3))
    place[1, 1] = 3.0
    state = begin(team, deployment, place, yaw, no_faults(2, 2, 3, 4), spread=0.0, velocity=velocity)
    log = list(drive(team, deployment, state, velocity, 15))
    assert all(bool(after.located.all()) and not bool(after.weak.any()) for after, _ in log)
    assert all(int(result.status.max()) != ShieldStatus.BRAKED for _, result in log)
    after = log[-1][0]
    assert np.allclose(places(after)[0], 0.5 * 15 * spec.control_period_s, rtol=0.05)
    assert np.allclose(after.physics.velocity[0], 0.5, rtol=0.1)
