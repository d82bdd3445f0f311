"""Robots leave a fleet and come back while it takes orders: the others drive on, it joins again, nothing touches."""

from dataclasses import replace

import pytest
from tests.sim.online_task.task_fleet import make_task_fleet

from testudo_bench.orders.bench_orders import bench_orders
from testudo_bench.orders.fleet_in_process import FleetInProcess
from testudo_bench.orders.order_run import OrderOutcome, OrderRun
from testudo_deploy.contract.goal_order import GoalOrder
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.supervision.modes import Mode
from testudo_hardware.errors import TestudoError

pytestmark = pytest.mark.usefixtures("quick")

STARTS = {"r0": (-0.9, 0.0), "r1": (0.0, 0.0), "r2": (0.9, 0.0)}
NORTH = {name: ((x, 0.6),) for name, (x, _) in STARTS.items()}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Three robots in a row; r0 and r1 are a majority without r2."""
    fleet = make_task_fleet(tmp_path_factory.mktemp("orders"), "navigation", 3)
    robots = tuple(
        replace(robot, initial_position_world=STARTS[robot.name], initial_yaw=0.0, goal_world=STARTS[robot.name])
        for robot in fleet.robots
    )
    save_fleet(replace(fleet, robots=robots, task={}, orders=True), fleet.file)
    return load_fleet(fleet.file)


def until(made, holds, patience_s):
    """Advance until something holds, and return whether it did in time."""
    end_s = made.now_s + patience_s
    while not holds() and made.now_s < end_s:
        made.step()
    return holds()


def leave(made, kind):
    if kind == "silent":
        made.robots["r2"].linked = False
    elif kind != "late":
        made.end("r2")
    if kind in ("late", "lost"):
        until(made, lambda: False, 0.5)
        made.declare_lost("r2", STARTS["r2"] if kind == "late" else None)


def come_back(made, kind):
    if kind == "silent":
        made.robots["r2"].linked = True
    else:
        made.start("r2")


@pytest.mark.parametrize(
    "kind", ["late", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("restarted", "silent", "lost"))]
)
def test_the_others_drive_on_without_a_robot_and_it_drives_again_when_it_is_back(fleet, kind):
    made = FleetInProcess(fleet, 0, absent=("r2",) if kind == "late" else ())
    live = made.live
    if kind != "late":
        assert until(made, lambda: all(one.drives for one in made.robots.values()), 4.0)
    leave(made, kind)
    assert made.orders.take(GoalOrder("1", {"r0": NORTH["r0"], "r1": NORTH["r1"]})).accepted
    assert until(made, lambda: live.is_at_goal("r0") and live.is_at_goal("r1"), 12.0)
    assert not made.orders.take(GoalOrder("2", {"r1": (STARTS["r2"],)})).accepted  # r2 stands there
    come_back(made, kind)
    assert made.orders.take(GoalOrder("3", {"r2": NORTH["r2"]})).accepted
    assert until(made, lambda: made.robots["r2"].drives and live.is_at_goal("r2"), 12.0)
    assert made.bodies.contacts.any == 0
    assert not made.robots["r0"].robot.loop.lost  # it speaks again, and is a peer


def test_control_without_a_word_of_the_operator_nobody_starts_before_a_late_robot(fleet):
    made = FleetInProcess(fleet, 0, absent=("r2",))
    assert not until(made, lambda: made.robots["r0"].drives, 3.0)
    assert made.robots["r0"].robot.supervisor.mode is Mode.IDLE
    assert made.robots["r0"].robot.supervisor.reason == "peer_unheard: r2"


@pytest.mark.slow
def test_control_if_the_operator_says_a_robot_rests_elsewhere_another_drives_into_it(fleet):
    made = FleetInProcess(fleet, 0)
    assert until(made, lambda: all(one.drives for one in made.robots.values()), 4.0)
    made.end("r2")
    until(made, lambda: False, 0.5)
    made.declare_lost("r2", (50.0, 50.0))
    assert made.orders.take(GoalOrder("1", {"r1": ((1.4, 0.0),)})).accepted
    assert until(made, lambda: made.bodies.contacts.any > 0, 12.0)


@pytest.mark.slow
def test_goals_at_random_while_robots_leave_are_reached_or_refused_and_none_touch(fleet):
    out = OrderRun(fleet, 0, 1.0).drive()
    assert out.passed, out
    assert sum(out.left.values()) > 1
    assert out.orders == out.refused + out.reached + out.replaced


def test_the_bench_goes_on_from_its_file_and_refuses_that_of_other_settings(tmp_path, monkeypatch):
    seeds = []

    class Run:
        def __init__(self, fleet, seed, minutes):
            self.seed, self.minutes = seed, minutes

        def drive(self):
            seeds.append(self.seed)
            return OrderOutcome(self.seed, self.minutes, least_m=0.3, open=["r1: 0.40 m from its goal"])

    monkeypatch.setattr("testudo_bench.orders.bench_orders.OrderRun", Run)
    saved = tmp_path / "orders.json"
    first = bench_orders(repeats=1, minutes=2.0, saved=saved)
    assert [row[0] for row in first.rows] == ["1"]
    assert first.rows[0][8] == "r1: 0.40 m from its goal"
    assert len(bench_orders(repeats=2, minutes=2.0, saved=saved).rows) == 2
    assert seeds == [0, 1]
    with pytest.raises(TestudoError, match=r"found results of .*expected those of"):
        bench_orders(repeats=2, minutes=3.0, saved=saved)
    with pytest.raises(TestudoError, match=r"found no .*fleet\.yaml, expected a fleet file there"):
        bench_orders(policy=tmp_path / "policy.onnx")
