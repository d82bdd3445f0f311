"""The live task: an episode's poses fed through it give the rewards and the success that the environment gave."""

import dataclasses
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.deploy.tiny_policy import draft_contract
from tests.sim.sliding_box import sliding_environment

from testudo_deploy.launch.fleet_topics import body_topic
from testudo_deploy.shield.arena import Arena, Ball
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import load_robot
from testudo_sim.environment import Environment
from testudo_sim.online_task.online_task import (
    ACTIVE,
    OnlineTask,
    body_markers,
    figure_values,
    finish_values,
    goal_views,
    score_values,
    waiting_values,
    waits_for,
)
from testudo_sim.online_task.task_state import Pose, PoseTrack, goals_of, make_task, scoring_of
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.world_parameters import Channels
from testudo_sim.scenarios.scenario import CHANGES, StartState, TaskScoring, TaskStep, make_scenario
from testudo_sim.team.team_tick import SimulatedTeam

pytestmark = pytest.mark.usefixtures("quick")

BEGIN_S = 100.0


def navigation_environment(size, robot="gritsbot_x"):
    spec = load_robot(robot)
    model, shield = motion_model(spec), projection_parameters(spec)
    scenario = make_scenario("navigation", spec, shield)
    physics = KinematicPhysics(model, scenario.arena)
    return Environment(scenario, SimulatedTeam(model, shield, scenario.arena, physics, size, Channels()))


def names_of(size):
    return tuple(f"r{i}" for i in range(size))


def feed(live, scene, stamp_s, *, skip=(), late_s=0.03):
    """Give the poses of a scene of one world."""
    motion, bodies = scene.robots, scene.bodies
    for i, name in enumerate(live.robots):
        position, velocity = (tuple(np.asarray(x)[:, i, 0].tolist()) for x in (motion.position_world, motion.velocity))
        if name not in skip:
            live.on_pose(name, stamp_s, stamp_s + late_s, Pose(position, float(motion.yaw[i, 0]), velocity))
    for b, name in enumerate(live.bodies):
        if name not in skip:
            place = tuple(np.asarray(bodies.position_world)[:, b, 0].tolist())
            live.on_pose(name, stamp_s, stamp_s + late_s, Pose(place, float(bodies.yaw[b, 0])))


def straight_home(environment, state):
    """Return velocities (E, N, D) to the goals; of `push_box` to the box, and through it."""
    scene = environment.scene(state)
    towards = environment.scenario.signals(state.task, scene)
    target = towards.get("box_position_world", towards["goal_world"])
    way = target - scene.robots.position_world
    speed = environment.team.model.spec.control_point_speed_m_s
    length = jnp.sqrt(jnp.sum(way**2, axis=0)) + 1e-6
    return jnp.transpose(way / length * jnp.minimum(length, speed), (2, 1, 0))


def live_episode(environment, seed=0):
    """Play an episode; return what the environment said of every decision, and what the live task said."""
    environment = dataclasses.replace(environment, spread=0.0, change_price=0.2)
    state = jax.jit(environment.reset)(jax.random.split(jax.random.key(seed), 1))
    step, straight = jax.jit(environment.step), jax.jit(partial(straight_home, environment))
    live = OnlineTask(environment.scoring, names_of(environment.team.size), state.task)
    live.begin(BEGIN_S)
    feed(live, environment.scene(state), BEGIN_S)
    expected, found = [], []
    for number in range(1, environment.horizon + 1):
        state, result = step(state, straight(state), jax.random.key(number))
        stamp_s = BEGIN_S + number * environment.scoring.decision_s
        for i, name in enumerate(live.robots):
            live.on_change(name, stamp_s, float(result.metrics.change_m_s[i, 0]))
        feed(live, environment.scene(result.last), stamp_s)
        found += live.advance(stamp_s + 0.03)
        expected.append((np.asarray(result.reward)[:, 0], bool(result.terminated[0]), bool(result.truncated[0])))
        if any(expected[-1][1:]):
            break
    return expected, found, live


@pytest.fixture(scope="module")
def navigation():
    return navigation_environment(3)


@pytest.fixture(scope="module")
def crossing(navigation):
    """Return an episode of `navigation`."""
    return live_episode(navigation)


@pytest.mark.parametrize(
    "make",
    [
        None,
        pytest.param(lambda: live_episode(navigation_environment(2, "crazyflie_2x"), 1), marks=pytest.mark.slow),
        lambda: live_episode(sliding_environment(2), 2),
    ],
    ids=["navigation", "navigation in space", "push_box"],
)
def test_a_simulated_episode_scores_live_as_in_the_environment(make, crossing):
    expected, found, live = make() if make else crossing
    assert len(found) == len(expected) > 10
    rewards = np.array([[score.reward[name] for name in live.robots] for score in found])
    assert rewards == pytest.approx(np.array([reward for reward, *_ in expected]), abs=2e-5)
    assert [score.outcome == "success" for score in found] == [terminated for _, terminated, _ in expected]
    assert [score.outcome == "timeout" for score in found] == [truncated for *_, truncated in expected]
    assert not any(score.missing for score in found)
    total = np.sum(rewards, axis=0)
    assert [found[-1].total[name] for name in live.robots] == pytest.approx(total, abs=1e-3)
    for score in found:
        for name in live.robots:
            assert sum(score.terms[name].values()) == pytest.approx(score.reward[name], abs=1e-5)
        json.dumps(dataclasses.asdict(score), allow_nan=False)
    assert not live.running
    assert live.advance(1e9) == []


def test_a_navigation_episode_ends_in_success_and_the_shield_had_its_price(crossing):
    expected, found, _ = crossing
    assert expected[-1][1]
    assert found[-1].success
    assert found[-1].terms["r0"]["success"] == 5.0
    assert min(score.terms[name][CHANGES] for score in found for name in score.terms) < -1e-4


def standing(navigation, **options):
    """Return a live task of robots that stand, the scene, and the period of decisions."""
    state = jax.jit(navigation.reset)(jax.random.split(jax.random.key(3), 1))
    live = OnlineTask(dataclasses.replace(navigation.scoring, **options), names_of(3), state.task)
    return live, navigation.scene(state), navigation.scoring.decision_s


def test_a_robot_that_is_not_measured_leaves_its_decisions_unscored_and_is_named(navigation):
    live, scene, period_s = standing(navigation)
    live.begin(BEGIN_S)
    for k in range(5):
        feed(live, scene, BEGIN_S + k * period_s, skip=("r1",) if k == 2 else ())
    found = live.advance(BEGIN_S + 4 * period_s + 0.03)
    assert [score.missing for score in found] == [(), ("r1",), ("r1",), ()]
    assert [bool(score.reward) for score in found] == [True, False, False, True]
    assert [score.success for score in found] == [False, None, False, False]
    assert [score.scored for score in found] == [1, 1, 1, 2]
    assert live.unmeasured(BEGIN_S + 4 * period_s) == ()
    assert live.unmeasured(BEGIN_S + 9 * period_s) == ("r0", "r1", "r2")


def test_a_box_that_is_not_measured_is_named_and_nothing_is_scored():
    environment = sliding_environment(2)
    state = jax.jit(environment.reset)(jax.random.split(jax.random.key(0), 1))
    live = OnlineTask(environment.scoring, names_of(2), state.task)
    live.begin(BEGIN_S)
    for k in range(3):
        stamp_s = BEGIN_S + k * environment.scoring.decision_s
        feed(live, environment.scene(state), stamp_s, skip=("box",))
    found = live.advance(stamp_s + 0.32)
    assert [score.missing for score in found] == [("box",)] * 2
    assert {score.success for score in found} == {None}
    assert goals_of(live.task).shape == (2, 1)


def test_a_decision_waits_for_the_last_robot_but_not_for_ever(navigation):
    live, scene, period_s = standing(navigation)
    live.begin(BEGIN_S)
    feed(live, scene, BEGIN_S)
    end_s = BEGIN_S + period_s
    assert live.advance(end_s) == []
    feed(live, scene, end_s, skip=("r2",))
    assert live.advance(end_s + 0.01) == []
    feed(live, scene, end_s)
    assert len(live.advance(end_s + 0.02)) == 1
    assert len(live.advance(end_s + period_s + 0.25)) == 1  # nobody came: told without


def test_an_episode_that_begins_again_forgets_the_one_before(navigation):
    live, scene, period_s = standing(navigation)
    for begin_s in (BEGIN_S, BEGIN_S + 7.3):
        live.begin(begin_s)
        for k in range(3):
            feed(live, scene, begin_s + k * period_s)
        found = live.advance(begin_s + 3 * period_s)
        assert [score.decision for score in found] == [1, 2]
        assert found[-1].total["r0"] == pytest.approx(sum(score.reward["r0"] for score in found))


def test_poses_between_samples_are_interpolated_and_turn_the_shorter_way():
    track = PoseTrack(gap_s=0.2)
    track.add(1.0, 1.01, Pose((0.0, 0.0), 3.1, (0.1, 0.0)))
    track.add(1.1, 1.11, Pose((0.1, -0.2), -3.1, (0.3, 0.0)))
    pose = track.at(1.05)
    assert pose.position_world == pytest.approx((0.05, -0.1))
    assert pose.velocity == pytest.approx((0.2, 0.0))
    assert abs(np.remainder(pose.yaw, 2 * np.pi) - np.pi) < 1e-9
    assert track.at(1.1).position_world == (0.1, -0.2)
    assert track.at(0.9) is None
    assert track.at(1.2) is None
    track.add(1.5, 1.51, Pose((0.5, 0.0), 0.0, (0.0, 0.0)))
    assert track.at(1.3) is None  # too long without a sample
    assert track.at(1.5) is not None


@pytest.mark.parametrize(
    "bad", [(float("nan"), 2.0, 0.0), (1.5, 2.0, float("inf")), (1.0, 1.2, 0.0), (0.5, 1.9, 0.0), (1.95, 1.9, 0.0)]
)
def test_a_sample_that_is_not_finite_old_or_out_of_order_is_refused(bad):
    track = PoseTrack(gap_s=0.2)
    assert track.add(1.0, 1.02, Pose((0.0, 0.0), 0.0))
    stamp_s, received_s, yaw = bad
    assert not track.add(stamp_s, received_s, Pose((0.0, 0.0), yaw))


@pytest.mark.parametrize("shift_s", [-5000.0, 1e9])
def test_stamps_of_another_clock_are_replaced_by_arrival(shift_s):
    track = PoseTrack(gap_s=0.2)
    for k in range(3):
        assert track.add(shift_s + 0.1 * k, 7.0 + 0.1 * k, Pose((float(k), 0.0), 0.0))
    assert track.foreign_clock
    assert track.at(7.15).position_world == pytest.approx((1.5, 0.0))


def test_a_task_is_made_of_the_goals_of_the_fleet_or_of_values():
    spec = load_robot("gritsbot_x")
    shield = projection_parameters(spec)
    goals = [(1.0, 0.5), (-1.0, 0.25)]
    task = make_task(make_scenario("navigation", spec, shield), goals)
    assert np.allclose(np.asarray(task.goal_world)[..., 0].T, goals)
    assert np.allclose(goals_of(task).T, goals)
    push = make_scenario("push_box", spec, shield)
    task = make_task(push, goals, {"goal_world": [0.3, -0.2]})
    assert np.asarray(task.goal_world)[:, 0] == pytest.approx([0.3, -0.2])
    with pytest.raises(TestudoError, match="push_box: task: goal_world is missing; expected 2 finite numbers"):
        make_task(push, goals)
    with pytest.raises(TestudoError, match="'gaol' is not known; known are goal_world"):
        make_task(push, goals, {"gaol": [0, 0]})
    for bad in ([1.0], ["x", 1.0], [float("nan"), 0.0], None):
        with pytest.raises(TestudoError, match=r"goal_world: found .*, expected 2 finite numbers"):
            make_task(push, goals, {"goal_world": bad})
    with pytest.raises(TestudoError, match="found 1 robots"):
        make_task(push, goals[:1], {"goal_world": [0.0, 0.0]})


def test_scoring_is_the_one_of_the_environment(navigation):
    assert navigation.scoring == TaskScoring(navigation.scenario, navigation.team.model.spec, navigation.change_price)
    assert navigation.horizon == navigation.scoring.horizon


def test_a_policy_names_the_scenario_the_price_and_the_obstacles():
    spec = load_robot("gritsbot_x")
    arena = Arena((-1.6, -1.0), (1.6, 1.0), (Ball((0.0, 0.0), 0.1),))
    contract = draft_contract(spec, arena=arena)
    scoring = scoring_of(contract, spec)
    assert (scoring.scenario.name, scoring.change_price) == ("navigation", 0.0)
    assert scoring.scenario.arena == arena
    priced = contract.replace(provenance={"config": {"change_price": 0.2}}, arena=None)
    assert scoring_of(priced, spec).change_price == 0.2
    with pytest.raises(TestudoError, match="scenario 'chess' is not known"):
        scoring_of(contract.replace(scenario="chess"), spec)


def test_an_episode_waits_until_all_are_measured_and_active(navigation):
    live, scene, _ = standing(navigation)
    feed(live, scene, 4.9, skip=("r1",))
    modes = {"r0": "active", "r1": "armed"}
    topics = {name: f"/{name}/odom" for name in live.robots}
    assert waits_for(live, topics, modes, "active", 5.0) == (
        "r1: no pose on /r1/odom: rewards and success are unknown",
        "r1: armed",
        "r2: its mode is not known",
    )
    feed(live, scene, 4.95)
    assert waits_for(live, topics, {}, "poses", 5.0) == ()
    assert waits_for(live, topics, dict.fromkeys(live.robots, "active"), "active", 5.0) == ()
    values = waiting_values(live, ["r1: armed"])
    assert values["schema"] == "testudo/score/1"
    assert (values["state"], values["waits_for"]) == ("waiting", ["r1: armed"])


def test_a_box_that_was_never_measured_is_waited_for_by_its_topic():
    environment = sliding_environment(2)
    state = jax.jit(environment.reset)(jax.random.split(jax.random.key(0), 1))
    live = OnlineTask(environment.scoring, names_of(2), state.task)
    feed(live, environment.scene(state), 4.95, skip=("box",))
    topics = {"r0": "/r0/odom", "r1": "/r1/odom", "box": body_topic("box")}
    (reason,) = waits_for(live, topics, {}, "poses", 5.0)
    assert reason.startswith("box: no pose on /task/box/pose")
    assert [goal.name for goal in goal_views(live)] == ["box"]
    assert body_markers(live) == ()
    feed(live, environment.scene(state), 4.96)
    assert waits_for(live, topics, {}, "poses", 5.0) == ()
    assert [marker.namespace for marker in body_markers(live)] == ["bodies/box"]


def test_scores_and_goals_are_told_as_values(crossing):
    expected, found, live = crossing
    values = score_values(live, found[-1])
    assert json.loads(json.dumps(values, allow_nan=False)) == json.loads(json.dumps(values))
    assert values["state"] == "success"
    assert values["time_s"] == pytest.approx(len(expected) * 0.33)
    assert values["reward"].keys() == values["total"].keys() == values["signals"].keys() == set(live.robots)
    assert values["signals"]["r1"]["goal_world"] == pytest.approx(goals_of(live.task)[:, 1])
    assert score_values(live, found[0])["state"] == "running"
    assert [goal.reached for goal in goal_views(live)] == [True] * 3
    assert figure_values(found[-1])["return"] == pytest.approx(sum(values["total"].values()) / 3)
    finish = finish_values(live, found[-1])
    assert (finish["outcome"], finish["decisions"], finish["scored"]) == ("success", len(found), len(found))


@dataclasses.dataclass(frozen=True)
class Line:
    """A scenario as another package may bring it: its task is an array, it has no goals, and speed is worth something.

    Robots get their mean forward speed, and succeed once the first has passed its mark.
    """

    name: str = "line"
    horizon_s: float = 3.0
    decision_ticks: int = 10
    boxes: tuple = ()
    task_signals: tuple = ()
    arena: object = None

    def start(self, key, team_size):
        place = jnp.stack([jnp.zeros(team_size), jnp.arange(team_size) * 1.0])
        return StartState(place, jnp.zeros(team_size), jnp.full(team_size, 0.3))

    def signals(self, task, scene):
        return {"mark": task[None]}

    def advance(self, task, before, after, keys):
        way = after.robots.position_world[0] - before.robots.position_world[0]
        speed = (before.robots.velocity[0] + after.robots.velocity[0]) / 2
        there = after.robots.position_world[0, 0] > task[0]
        return TaskStep(task, {"way": way, "speed": speed}, there, {"steps": jnp.ones_like(there)})


def test_any_scenario_runs_on_poses_that_come_late_at_odd_times_and_different_rates():
    """Robots drive straight at 0.1 m/s: what is interpolated is exact, whenever their poses were taken."""
    spec = load_robot("gritsbot_x")
    scoring = TaskScoring(Line(), spec)
    goals = [(0.0, 0.0), (0.0, 1.0)]
    with pytest.raises(TestudoError, match="line: task: value is missing; expected 2 finite numbers"):
        make_task(scoring.scenario, goals)
    live = OnlineTask(scoring, names_of(2), make_task(scoring.scenario, goals, {"value": [0.25, 9.0]}))
    rng = np.random.default_rng(0)
    samples = []
    for name, rate_hz in zip(live.robots, (30.0, 17.0), strict=True):
        stamps = BEGIN_S - 0.2 + np.cumsum(rng.uniform(0.7, 1.3, int(4 * rate_hz)) / rate_hz)
        samples += [(stamp + rng.uniform(0.02, 0.06), stamp, name) for stamp in stamps.tolist()]
    live.begin(BEGIN_S)
    found = []
    for received_s, stamp_s, name in sorted(samples):
        place = (0.1 * (stamp_s - BEGIN_S), float(name[1]))
        live.on_pose(name, stamp_s, received_s, Pose(place, 0.0, (0.1, 0.0)))
        found += live.advance(received_s)
    assert [score.outcome for score in found] == [""] * 7 + ["success"]  # 0.25 m at 2.5 s, in the eighth decision
    for score in found:
        assert score.missing == ()
        for name in live.robots:
            assert score.terms[name]["way"] == pytest.approx(0.1 * scoring.decision_s, abs=2e-6)
            assert score.terms[name]["speed"] == pytest.approx(0.1)
    assert [score.metrics["steps"] for score in found] == list(range(1, 9))
    assert found[-1].signals["r1"]["mark"] == (9.0,)
    assert goal_views(live) == ()


@dataclasses.dataclass(frozen=True)
class Leaving(Line):
    """The second robot takes part until the first is 0.15 m from the start."""

    def start(self, key, team_size):
        begin = super().start(key, team_size)
        return dataclasses.replace(begin, task=jnp.zeros(team_size))

    def absent(self, task):
        return (task > 0.15) & (jnp.arange(task.shape[0])[:, None] == 1)

    def advance(self, task, before, after, keys):
        return dataclasses.replace(
            super().advance(task + 9, before, after, keys), task=0 * task + after.robots.position_world[0, 0]
        )


def test_a_robot_that_has_left_the_task_has_no_reward_and_is_not_waited_for():
    scoring = TaskScoring(Leaving(), load_robot("gritsbot_x"))
    live = OnlineTask(scoring, names_of(2), make_task(scoring.scenario, [(0.0, 0.0), (0.0, 1.0)], {"value": [0, 0]}))
    assert live.absent == ()
    live.begin(BEGIN_S)
    found = []
    for tick in range(100):
        stamp_s = BEGIN_S + 0.033 * tick
        for name in live.robots:
            live.on_pose(name, stamp_s, stamp_s, Pose((0.1 * 0.033 * tick, float(name[1])), 0.0, (0.1, 0.0)))
        found += live.advance(stamp_s)
    assert [score.absent for score in found] == [()] * 5 + [("r1",)] * 4  # 0.165 m at the end of the fifth decision
    assert [score.reward["r1"] > 0 for score in found] == [True] * 5 + [False] * 4
    assert found[-1].total["r0"] == pytest.approx(found[-1].total["r1"] * 9 / 5)
    assert live.sample(stamp_s).absent == ("r1",)
    live.rewind()
    live.task = 0 * live.task + 1.0
    assert waits_for(live, {}, {"r0": ACTIVE}, ACTIVE, stamp_s) == ()
