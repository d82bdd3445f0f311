"""A task that is more than goals over real DDS in lock-step: the task node sends, robots drive, the run is exact."""

import math
from importlib.util import find_spec

import pytest
from tests.sim.online_task.task_fleet import make_pushing_fleet, make_task_fleet

from testudo_analysis.rendering.render_run import recorded_animation
from testudo_analysis.replay import reinfer
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.control.task_receiver import OLDEST_TASK_S
from testudo_deploy.launch.fleet_run import run_fleet
from testudo_policies.dataset.episodes import episodes_of
from testudo_runs.run_reader import read_run

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(240),
]


def test_foraging_runs_on_the_fleet(tmp_path):
    """Three seconds: every decision rests on a recorded message of the task node, and is inferred again exactly."""
    fleet = make_task_fleet(tmp_path)
    state = run_fleet(fleet, run_folder=tmp_path / "run", duration_s=3.0, lock_step=True)
    assert (state.outcome, state.contacts, state.lines) == ("timeout", 0, [])
    run = read_run(tmp_path / "run")
    assert run.fleet.task == fleet.task
    policy = PolicyArtefact.load(run.policy_path)
    result = reinfer(run, policy)
    assert result.error <= 1e-12
    for robot in result.robots:
        assert robot.decisions >= 2
        assert (robot.lost, robot.unverified) == (0, 0)
        assert {check.name: check.compared for check in robot.fields}["task"] > 50
    for name, ticks in run.ticks.items():
        driven = [record for record in ticks if not record.reason]
        assert driven[-1].task_contract == policy.contract.task_hash
        assert max(record.task_age_s for record in driven) < OLDEST_TASK_S
        assert len(run.task_messages[name]) > 20


@pytest.mark.slow
def test_two_robots_push_a_box_to_its_goal(tmp_path):
    """The box stands in the plant, is measured, recorded and scored; pushing it is no contact, and no robot refuses."""
    fleet = make_pushing_fleet(tmp_path)
    state = run_fleet(fleet, run_folder=tmp_path / "run", duration_s=30.0, lock_step=True)
    assert (state.outcome, state.contacts, state.lines) == ("success", 0, [])
    run = read_run(tmp_path / "run")
    policy = PolicyArtefact.load(run.policy_path)
    result = reinfer(run, policy)
    assert result.error <= 1e-12
    assert all(robot.unverified == 0 for robot in result.robots)
    box = run.bodies["box"]
    assert math.dist(box.position_world[-1], run.fleet.task["goal_world"]) < 0.12
    (episode,) = episodes_of(run, policy.contract)
    assert episode.terminals[-1]
    assert episode.terms["success"][-1] == pytest.approx([10.0, 10.0])
    film = recorded_animation(run, policy.contract.arena)
    assert film.scenery.goals_world.tolist() == [list(run.fleet.task["goal_world"])] * 2
    assert film.trajectory.boxes_world[-1, 0] == pytest.approx(box.position_world[-1], abs=0.02)
