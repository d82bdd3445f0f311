"""Training drones to turn: what is rewarded, what is refused, and that the file does what was trained."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.proven_file import trained_and_proven
from tests.policies.quick import TINY

from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import load_robot
from testudo_policies.evaluation.policy_under_test import load_policy_under_test
from testudo_policies.exporting.packaging import make_contract
from testudo_policies.learning.builder import build
from testudo_sim.online_task.task_state import scoring_of
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.goal_scenario import GoalTask
from testudo_sim.scenarios.scenario import FACING, looks_away

pytestmark = pytest.mark.usefixtures("quick")

DRONE = load_robot("crazyflie_2x")
TURNING = replace(TINY, robot="crazyflie_2x", command="velocity_yaw_rate")
PLAIN = replace(TINY, robot="crazyflie_2x")


def at(place, yaw):
    """Return the motion of one robot in one world."""
    return MotionState(jnp.array(place, jnp.float32)[:, None, None], jnp.array([[yaw]]), jnp.zeros((3, 1, 1)))


@pytest.mark.parametrize(
    ("yaw", "goal", "expected"),
    [
        (0.0, (2.0, 0.0, 1.0), 0.0),
        (np.pi / 2, (2.0, 0.0, 1.0), 1.0),
        (np.pi, (2.0, 0.0, 1.0), 2.0),
        (np.pi / 2, (0.0, 2.0, 0.0), 0.0),
        (-np.pi / 2, (0.0, 2.0, 0.0), 2.0),
        (np.pi, (0.2, 0.1, 1.0), 0.0),  # near
        (1.0, (0.0, 0.0, 3.0), 0.0),
    ],
)  # above
def test_a_drone_pays_for_looking_away_from_where_its_goal_is(yaw, goal, expected):
    found = looks_away(at((0.0, 0.0, 1.0), yaw), jnp.array(goal, jnp.float32)[:, None, None])
    assert float(found[0, 0]) == pytest.approx(expected, abs=1e-6)


def test_the_term_is_there_for_teams_that_turn_only_and_no_part_of_success():
    turning, plain = build(TURNING).environment, build(PLAIN).environment
    assert (turning.team.yaw_rate_limit, plain.team.yaw_rate_limit) == (DRONE.yaw_rate_limit_rad_s, 0.0)
    assert (turning.facing_price, plain.facing_price) == (TURNING.facing_price, 0.0)
    task, change = GoalTask(jnp.array([2.0, 0.0, 1.0])[:, None, None]), jnp.zeros((1, 1))
    ahead, away = (Scene(at((0.0, 0.0, 1.0), yaw)) for yaw in (0.0, np.pi))
    keys = jax.random.split(jax.random.key(0), 1)
    scores = [turning.scoring.decision(task, one, one, change, keys) for one in (ahead, away)]
    found = [float(score.terms[FACING][0, 0]) for score in scores]
    assert found == pytest.approx([0.0, -2 * TURNING.facing_price * turning.scoring.decision_s], abs=1e-6)
    assert float((scores[0].reward - scores[1].reward)[0, 0]) == pytest.approx(-found[1])
    assert bool((scores[0].success == scores[1].success).all())
    assert FACING not in plain.scoring.decision(task, away, away, change, keys).terms


def test_an_action_has_one_number_more_and_its_rate_is_within_the_limit():
    components = build(TURNING)
    agent = components.agent
    sizes = {"position_world": 3, "yaw": 1, "velocity": 3, "control_point_world": 3, "goal_world": 3}
    signals = {name: jnp.ones((2, TINY.team_size, size)) for name, size in sizes.items()}
    peers = {
        name: jnp.ones((2, TINY.team_size, 1, *shape))
        for name, shape in (("position_world", (3,)), ("velocity_world", (3,)), ("age", ()), ("valid", ()))
    }
    features = agent.encode(signals | {f"neighbour_{name}": value for name, value in peers.items()})
    action = jnp.ones((2, TINY.team_size, agent.action_size))
    command = agent.command(features, action)
    assert command.shape == (2, TINY.team_size, 4)
    np.testing.assert_allclose(command[..., 3], DRONE.yaw_rate_limit_rad_s)
    still = agent.command(features, action.at[..., 3].set(0.0))
    np.testing.assert_array_equal(command[..., :3], still[..., :3])
    assert build(PLAIN).agent.action_size == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"robot": "gritsbot_x"},
            r"--command velocity_yaw_rate: gritsbot_x is a differential_drive without \[heading\]",
        ),
        ({"trainer": "brax-ppo"}, "--command velocity_yaw_rate: found --trainer brax-ppo, expected testudo"),
        ({"command": "attitude"}, "--command: found 'attitude', expected one of velocity, velocity_yaw_rate"),
        ({"facing_price": -1.0}, "--facing-price: found -1.0, expected 0 to"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_sentence(changes, message):
    with pytest.raises(TestudoError, match=message) as caught:
        build(replace(TURNING, **changes))
    assert "\n" not in str(caught.value)


def test_the_contract_says_which_type_it_is():
    assert make_contract(build(TURNING), []).command.type == "velocity_yaw_rate_world"
    contract = make_contract(build(PLAIN), [])
    assert (contract.command.type, contract.command.limits) == ("control_point_velocity_world", ())
    assert scoring_of(make_contract(build(TURNING), []), DRONE).facing_price == TURNING.facing_price
    assert scoring_of(contract, DRONE).facing_price == 0.0


@pytest.mark.slow
def test_what_was_trained_is_what_the_file_commands(tmp_path):
    """Parity over random inputs and loops, the test vector, the robot's own loader, and drones in simulation."""
    components = build(TURNING)
    artefact, paths = trained_and_proven(components, DRONE, tmp_path)
    assert np.array(artefact.contract.test_vector.outputs["command"]).shape[1] == 4
    for path in paths:
        tested = load_policy_under_test(path)
        environment = tested.environment(2)
        assert environment.team.yaw_rate_limit == DRONE.yaw_rate_limit_rad_s
        world = jax.jit(environment.reset)(jax.random.split(jax.random.key(3), 2))
        signals = {name: value.reshape(-1, *value.shape[2:]) for name, value in environment.signals(world).items()}
        command, _ = tested.policy(signals, jnp.zeros((4, tested.memory)))
        assert command.shape == (4, 4)
        nominal = jnp.transpose(jnp.asarray(command).reshape(2, 2, 4), (2, 1, 0))
        team, _ = jax.jit(environment.run_ticks)(world, nominal, jax.random.key(0))
        turned = team.physics.yaw - world.team.physics.yaw
        ticks_s = environment.scenario.decision_ticks * DRONE.control_period_s - DRONE.command_delay_s
        np.testing.assert_allclose(turned, ticks_s * nominal[3], atol=0.05 * DRONE.yaw_rate_limit_rad_s)
