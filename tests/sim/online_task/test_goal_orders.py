"""Goals that an operator gives while a fleet runs: refused in one sentence or reached, and never a contact."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from tests.sim.online_task.task_fleet import Drive, make_task_fleet

from testudo_deploy.contract.goal_order import GoalOrder
from testudo_deploy.fleet.fleet import FleetError, load_fleet, parse_fleet
from testudo_deploy.fleet.fleet_writer import fleet_text, save_fleet
from testudo_deploy.shield.arena import Arena, Ball
from testudo_hardware.errors import TestudoError
from testudo_sim.online_task.goal_orders import GoalOrders, GoalRules

pytestmark = pytest.mark.usefixtures("quick")

RULES = GoalRules(Arena((-1.6, -1.0), (1.6, 1.0), (Ball((0.5, 0.5), 0.2),)), room_m=0.2, apart_m=0.5, height_ratio=1.0)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("orders")
    fleet = make_task_fleet(folder, "navigation", 4)
    save_fleet(replace(fleet, orders=True), fleet.file)
    return load_fleet(fleet.file)


@pytest.mark.parametrize(
    ("goal", "says"),
    [
        ((1.41, 0.0), "r0: goal (1.41, 0.00): found x = 1.41 m, expected -1.40 to 1.40 m: the arena less 0.20 m"),
        ((0.0, -0.81), "found y = -0.81 m, expected -0.80 to 0.80 m"),
        ((0.5, 0.12), "r0: goal (0.50, 0.12): is 0.18 m from obstacle 0, expected at least 0.20 m"),
        ((-1.0, 0.3), "r0: goal (-1.00, 0.30): is 0.30 m from the goal of r1, expected at least 0.50 m"),
        ((math.nan, 0.0), "expected 2 finite numbers"),
        ((0.0, 0.0, 0.0), "expected 2 finite numbers"),
        ((1.4, -0.8), ""),
        ((-1.0, 0.5), ""),
    ],
)
def test_a_goal_is_refused_where_a_robot_cannot_rest(goal, says):
    fault = RULES.fault("r0", goal, {"r0": (0.0, -0.8), "r1": (-1.0, 0.0)}, 2)
    assert says in fault
    assert bool(fault) == bool(says)


def test_above_each_other_heights_count_less():
    rules = replace(RULES, arena=None, height_ratio=2.0)
    assert "is 0.40 m from the goal of b" in rules.fault("a", (0.0, 0.0, 1.8), {"b": (0.0, 0.0, 1.0)}, 3)
    assert rules.fault("a", (0.0, 0.0, 2.0), {"b": (0.0, 0.0, 1.0)}, 3) == ""


def test_a_route_goes_on_when_its_goal_is_reached_and_the_next_is_free(fleet):
    drive = Drive(fleet)
    live, orders = drive.live, drive.orders
    for robot, place in zip(fleet.names, ((-1.0, 0.0), (0.0, 0.0), (1.0, 0.0), (1.0, 0.6)), strict=True):
        live.aim(robot, place)
    first = GoalOrder("1", {"r0": ((-1.0, -0.6), (0.0, 0.0))}, repeat=True)
    assert orders.take(first).sentences[0].startswith("r0: goes to (-1.00, -0.60), then 1 more")
    assert orders.take(first).accepted  # the same order again changes nothing
    drive.live._tracks["r0"].add(1.0, 1.0, _at(-1.0, -0.6))
    orders.step(drive.now_s)
    assert live.goals_world["r0"] == pytest.approx((-1.0, -0.6))
    assert "is 0.00 m from the goal of r1" in orders.waits["r0"]
    assert orders.take(GoalOrder("2", {"r1": ((0.0, 0.7),)})).accepted
    orders.step(drive.now_s)
    assert live.goals_world["r0"] == pytest.approx((0.0, 0.0))
    drive.live._tracks["r0"].add(1.1, 1.1, _at(0.0, 0.05))
    orders.step(drive.now_s)
    assert live.goals_world["r0"] == pytest.approx((-1.0, -0.6))  # a patrol begins again
    assert (orders.reached, dict(orders.waits)) == (2, {})
    assert not orders.take(GoalOrder("3", {"r7": ((0.0, 0.7),)})).accepted
    home = orders.take(GoalOrder("4", {"r3": ()}))
    assert home.accepted
    assert live.goals_world["r3"] == pytest.approx(fleet.robot("r3").initial_position_world)
    live.rewind()
    assert live.goals_world["r0"] == pytest.approx((-1.0, -0.6))  # a new episode keeps the goals


def _at(x, y):
    from testudo_sim.online_task.task_state import Pose

    return Pose((x, y), 0.0, (0.0, 0.0))


@pytest.mark.slow
def test_random_orders_are_reached_or_refused_and_no_robots_touch(fleet):
    """One simulated minute: an order every 1 to 4 s, so that ways cross; in the end all get time to arrive."""
    drive, rng = Drive(fleet), np.random.default_rng(0)
    least, refused, numbers, due_s = math.inf, 0, itertools.count(), 0.0
    while drive.now_s < 61.0:
        drive.tick()
        places = [np.asarray(state.position_world, float) for state in drive.states.values()]
        least = min(least, *(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(places, 2)))
        if drive.live.running and due_s <= drive.now_s < 40.0:
            due_s, robot = drive.now_s + rng.uniform(1.0, 4.0), f"r{rng.integers(4)}"
            order = GoalOrder(f"{next(numbers)}", {robot: (tuple(rng.uniform((-1.7, -1.1), (1.7, 1.1))),)})
            answer = drive.orders.take(order)
            refused += not answer.accepted
            assert answer.sentences[0].startswith(f"{robot}: ")
    assert next(numbers) > 12
    assert 0 < refused < next(numbers) - 2
    assert least > 2 * drive.spec.body_radius_m
    assert all(drive.live.is_at_goal(robot) for robot in fleet.names), drive.live.goals_world
    assert drive.live.running  # success ends nothing


@pytest.fixture
def drive(fleet):
    """The fleet in a row, each robot measured at its goal, at 1 s."""
    drive = Drive(fleet)
    for k, robot in enumerate(fleet.names):
        drive.live.aim(robot, (0.6 * k - 0.9, 0.0))
        drive.live._tracks[robot].add(1.0, 1.0, _at(0.6 * k - 0.9, 0.0))
    drive.orders.step(1.0)
    return drive


def test_goals_of_several_robots_are_taken_together_or_none_is(drive):
    live, orders = drive.live, drive.orders
    before = live.goals_world
    swap = {"r0": ((-0.3, 0.0),), "r1": ((-0.9, 0.0),)}
    assert not orders.take(GoalOrder("1", {"r0": swap["r0"]})).accepted  # alone it meets the goal of r1
    assert orders.take(GoalOrder("2", swap)).accepted
    assert live.goals_world["r0"] == pytest.approx(before["r1"])
    refused = orders.take(GoalOrder("3", {"r0": ((0.0, 0.6),), "r2": ((0.1, 0.6),), "r3": ((9.0, 0.0),)}))
    assert not refused.accepted
    assert [sentence.partition(":")[0] for sentence in refused.sentences] == ["r0", "r2", "r3"]
    assert "0.10 m from the goal of r2" in refused.sentences[0]
    assert live.goals_world["r2"] == pytest.approx(before["r2"])
    for number, order in enumerate((GoalOrder("4", {}), GoalOrder("5", swap, act="fly"))):
        assert orders.take(order).sentences[0].startswith("order: found robots "), number


def test_places_of_a_formation_go_to_the_robots_that_are_near_them(drive):
    places = [(0.9, 0.6), (0.3, 0.6), (-0.3, 0.6), (-0.9, 0.6)]
    order = GoalOrder("1", {f"r{k}": (place,) for k, place in enumerate(places)}, exchange=True)
    assert drive.orders.take(order).accepted
    assert [round(drive.live.goals_world[f"r{k}"][0], 6) for k in range(4)] == [-0.9, -0.3, 0.3, 0.9]
    assert not drive.orders.take(GoalOrder("2", {"r0": ((0.0, 0.0), (0.1, 0.0))}, exchange=True)).accepted
    nan = GoalOrder("3", {"r0": ((math.nan, 0.0),), "r1": ((0.0, 0.7, 1.0),)}, exchange=True)
    assert not drive.orders.take(nan).accepted


def test_a_paused_robot_keeps_its_goals_and_goes_on(drive):
    orders, live = drive.orders, drive.live
    assert orders.take(GoalOrder("1", {"r0": ((-0.9, 0.6), (-0.9, -0.6))})).accepted
    paused = orders.take(GoalOrder("2", {"r0": (), "r1": ()}, act="pause"))
    assert paused.sentences[0] == "r0: is paused on its way to (-0.90, 0.60), then 1 more"
    assert live.sample(1.0).paused == {"r0", "r1"}
    live._tracks["r0"].add(1.1, 1.1, _at(-0.9, 0.6))
    orders.step(1.1)
    assert live.goals_world["r0"] == pytest.approx((-0.9, 0.6))  # one that was pushed there stays paused
    assert orders.take(GoalOrder("3", {"r0": ()}, act="go_on")).sentences == ("r0: goes to (-0.90, 0.60), then 1 more",)
    orders.step(1.2)
    assert live.goals_world["r0"] == pytest.approx((-0.9, -0.6))
    assert live.sample(1.2).paused == {"r1"}


def test_the_job_is_done_once_all_stand_at_the_last_of_their_goals(drive):
    orders, live = drive.orders, drive.live

    def over_at(now_s, x, y):
        live._tracks["r0"].add(now_s, now_s, _at(x, y))
        orders.step(now_s)
        return orders.is_over(now_s)

    assert not any(over_at(1.1 + 0.1 * k, -0.9, 0.0) for k in range(50))  # nothing was asked for
    assert orders.take(GoalOrder("1", {"r0": ((-0.9, 0.6), (-0.9, -0.6))})).accepted
    assert not over_at(10.0, -0.9, 0.6)
    assert not over_at(20.0, -0.9, 0.6)  # at the first of two
    assert not over_at(21.0, -0.9, -0.6)
    assert not over_at(23.9, -0.9, -0.6)
    assert over_at(24.1, -0.9, -0.6)
    assert orders.take(GoalOrder("2", {"r3": ()}, act="pause")).accepted
    assert not over_at(30.0, -0.9, -0.6)
    assert orders.take(GoalOrder("3", {"r3": ()}, act="go_on")).accepted
    assert orders.take(GoalOrder("4", {"r0": ((-0.9, -0.6), (-0.9, 0.6))}, repeat=True)).accepted
    assert not any(over_at(31.0 + 0.1 * k, -0.9, -0.6) for k in range(40))  # a patrol never ends


def test_the_others_keep_their_goals_while_a_robot_is_silent_and_none_is_sent_beside_it(drive, fleet):
    live, orders = drive.live, drive.orders
    for robot in ("r0", "r1", "r2"):
        live._tracks[robot].add(5.0, 5.0, live.newest(robot))
    orders.step(5.0)
    sample = live.sample(5.0)
    assert sample is not None  # today's fleet of another task stops, see below
    assert sample.age_s == pytest.approx(0.0)
    assert sample.values["r0"]["goal_world"] == pytest.approx((-0.9, 0.0))
    moved = orders.take(GoalOrder("1", {"r3": ((0.9, 0.7),)}))
    assert moved.sentences == ("r3: goes to (0.90, 0.70); it is not measured now",)
    beside = orders.take(GoalOrder("2", {"r2": ((0.9, 0.1),)}))
    assert "is 0.10 m from r3, which is silent" in beside.sentences[0]
    live._tracks["r3"].add(6.0, 6.0, _at(0.9, 0.5))  # it is back
    orders.step(6.0)
    assert orders.take(GoalOrder("3", {"r2": ((0.9, 0.1),)})).accepted
    other = Drive(replace(fleet, orders=False)).live  # control: scored against poses, its task stops with one of them
    for robot in ("r0", "r1", "r2"):
        other._tracks[robot].add(5.0, 5.0, _at(0.0, 0.0))
    assert other.sample(5.0) is None


@pytest.mark.slow
@pytest.mark.parametrize("helped", [True, False])
def test_two_that_stand_by_a_wall_are_no_trap_for_a_third(tmp_path, helped):
    """The policy drives straight on: without a way round, the control, it stands before the two for ever."""
    places = {"r0": (-0.8, -0.4), "r1": (0.0, -0.64), "r2": (0.0, -0.12)}
    made = make_task_fleet(tmp_path, "navigation", 3)
    robots = tuple(
        replace(robot, initial_position_world=places[robot.name], initial_yaw=0.0, goal_world=places[robot.name])
        for robot in made.robots
    )
    drive = Drive(replace(made, robots=robots, task={}, orders=True))
    if not helped:
        drive.orders._detours = None
    assert drive.orders.take(GoalOrder("1", {"r0": ((0.8, -0.4),)})).accepted
    while drive.now_s < 30.0 and not drive.live.is_at_goal("r0"):
        drive.tick()
        seen = [np.asarray(state.position_world, float) for state in drive.states.values()]
        assert min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2)) > 0.2
    assert drive.live.is_at_goal("r0") == helped
    corners = {record.task_values["goal_world"] for record in drive.records["r0"] if record.task_values}
    assert (len(corners) > 1) == helped  # what it drove to is recorded


def test_a_fleet_takes_orders_only_with_a_goal_for_each_robot(fleet, tmp_path):
    text = fleet_text(fleet, fleet.file)
    assert "orders: true" in text
    without_task = text.partition("task:")[0]
    assert parse_fleet(without_task, fleet.file).task == {}
    follower = without_task.replace("  r1:\n", "  r1:\n    follow: {robot: r0, offset: [-0.6, 0.0]}\n")
    with pytest.raises(FleetError, match=r"orders: found with robots\.r1\.follow, expected a goal"):
        parse_fleet(follower, fleet.file)
    other = Drive(make_task_fleet(tmp_path, "foraging", 3))
    with pytest.raises(TestudoError, match="found the scenario 'foraging', expected one with a goal for each robot"):
        GoalOrders(other.live, other.contract, {})


def test_answers_of_long_ago_are_forgotten_and_those_of_now_are_repeated(fleet):
    orders = Drive(fleet).orders
    for number in range(300):
        orders.take(GoalOrder(str(number), {"r9": ()}))
    newest = orders.take(GoalOrder("299", {"r9": ()}))
    assert orders.take(GoalOrder("299", {"r9": ()})) is newest
    assert len(orders._answers) == 256
